"""One record of a run: manifest.json, summary.json and the rows of metrics.csv, as the run writes them and everything else
reads them. Attributes have the names of the keys.

A value that doesn't apply is None: JSON has no nan, so that a nan is written as null. A key that was not written has its
default. Listed here are the keys that something reads; what else is written is kept as it is, for tables and for users.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from vflbench.errors import shown

FORMAT = 1
"""The version of these records, which manifest.json holds as `format`. Records of another version are not read."""
LEAST_TEST_ROWS = 30
"""Of either class: with fewer, a test AUC says nothing on whether a model learned."""
_MOST_TEXT = 20_000  # characters

Text = Annotated[str, AfterValidator(lambda text: text if text.isprintable() else shown(text, _MOST_TEXT))]
"""Printable: results are exchanged, and a name in them must not steer a terminal."""
Reasons = dict[Text, Text]
"""Attack or defense -> why."""
PlainValues = dict[Text, Any]
"""What nothing reads part by part."""
FigureTree = dict[str, dict[str, dict[str, float | None]]]
"""Attack -> message -> layer -> figure."""


class Record(BaseModel):
    """A part of a record."""

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="null", validate_assignment=True, protected_namespaces=())

    def written(self) -> dict[str, Any]:
        """The keys that were written, as plain values."""
        return self.model_dump(exclude_unset=True)

    def to_json(self) -> str:
        """The content of the file, with null for each nan and infinity."""
        return self.model_dump_json(indent=2, exclude_unset=True) + "\n"

    def as_read(self) -> Self:
        """As it is read from the file that it is written to."""
        return self.model_validate_json(self.to_json())


class IntervalRecord(Record):
    """A mean and its 95 % interval."""

    mean: float | None = None
    low: float | None = None
    high: float | None = None


class Place(Record):
    """What read what where. message: none of a reader of no message."""

    attack: Text = ""
    message: Text = ""
    party: Text = ""
    layer: Text = ""


class LeakRecord(Place):
    """An attack on a layer, in the last epoch (`vflbench.metrics.leak.Leak`)."""

    visible: bool = False
    raw: IntervalRecord = IntervalRecord()
    two_sided: IntervalRecord = IntervalRecord()
    oriented: IntervalRecord = IntervalRecord()
    batches: int = 0
    classes: dict[Text, IntervalRecord] = {}
    coin: float | None = None
    net: IntervalRecord = IntervalRecord()
    surest: IntervalRecord = IntervalRecord()


class Rebuilt(Place):
    """Data that an attack rebuilt, in the last epoch (`vflbench.metrics.reconstruction.Reconstruction`)."""

    visible: bool = False
    figures: dict[Text, IntervalRecord] = {}
    batches: int = 0
    notes: dict[Text, int] = {}
    rows: int = 0
    beats_every_guess: bool | None = None


class Reading(Place):
    """What an attack reads, with an interval (`vflbench.metrics.leak.LeakReading`). figure: AUC, macro AUC or AMI.

    features_only: what the same attack reads on the party's own columns. because: why
    the defenses fall. ceiling: that it is above.
    """

    figure: Literal["AUC", "macro AUC", "AMI"] = "AUC"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    features_only: float | None = None
    level: Text = ""
    because: Text = ""
    ceiling: float | None = None


class Verdict(Record):
    """The worst attack of all and of each level, and whether the defenses fall (`vflbench.run.summary.verdict`)."""

    worst: Reading | None = None
    levels: dict[Text, Reading] = {}
    on_changed: dict[Text, Reading] = {}
    references: dict[Text, Reading] = {}
    falls: Reading | None = None
    changed: list[Text] = []


class Promise(Record):
    """What a defense guarantees (`vflbench.run.summary.promised`)."""

    claim: Text = ""
    bounds: Text = ""
    message: Text = ""
    messages: int | None = None
    leak_auc_one_message: float | None = None
    leak_auc_all_messages: float | None = None
    error_one_message: float | None = None
    error_all_messages: float | None = None
    assumption: Text = ""
    tested: list[dict[str, Text | float | None]] = []
    assumption_holds: bool | None = None
    exceeded: list[Reading] = []


class ReleaseRecord(Record):
    """A release of labels: epsilon and how often, or mu and the epochs."""

    defense: Text = ""
    mechanism: Text = ""
    epsilon: float | None = None
    times: int | None = None
    mu: float | None = None


class Power(Record):
    """The probability to refute a mechanism that leaks `times` its promise."""

    times: float = 0
    probability: float | None = None
    wanted: float = 0
    canaries_needed: int | None = None


class Privacy(Record):
    """The label DP of the whole run, and what canaries say of it (`vflbench.run.summary.account`)."""

    epsilon: float | None = None
    mu: float | None = None
    delta: float | None = None
    epsilon_at_delta: float | None = None
    releases: list[ReleaseRecord] = []
    canaries: int = 0
    confidence: float | None = None
    tried: dict[Text, PlainValues] = {}
    epsilon_low: float | None = None
    epsilon_low_by: Text | None = None
    mu_low: float | None = None
    mu_low_by: Text | None = None
    violated: bool = False
    power: list[Power] = []


class Observed(Record):
    """What recorded messages show against a promise (`vflbench.run.observed_privacy.observed_privacy`)."""

    outcome: Text = ""
    verdict: Text = ""


class Link(Record):
    """What crossed a link in training."""

    sender: Text = ""
    receiver: Text = ""
    message: Text = ""
    messages: int = 0
    bytes: int = 0


class Summary(Record):
    """The content of summary.json: the last epoch (never the best one), the guarantees, and the costs of the run.

    test_auc_low, test_auc_high: the 95 % interval of the test AUC (`vflbench.numerics.interval.auc_interval`).
    test_calibration: mean prediction over the base rate (`vflbench.metrics.utility.model_utility`).
    test_positives, test_negatives: rows to test on of either class; None for more than two classes.
    failed: why the run counts as failed although it came to its end. Of an audit, what the messages don't say is None.
    honest: test AUC and leaks of the same run without its adversary. cpu_seconds: of this process, by phase (`train`,
    `train_prediction`, `test_prediction`, and `audit`, with grades) and, within the audit, by attack (`audit/norm`).
    """

    epochs: Annotated[int, Field(ge=0, lt=2**31)] = 0
    train_auc: float | None = None
    test_auc: float | None = None
    test_accuracy: float | None = None
    test_calibration: float | None = None
    test_auc_low: float | None = None
    test_auc_high: float | None = None
    test_positives: int | None = None
    test_negatives: int | None = None
    loss: float | None = None
    first_epoch_loss: dict[str, float | None] = {}
    leak_auc_two_sided: FigureTree = {}
    leaks: list[LeakRecord] = []
    verdict: Verdict = Verdict()
    distance_correlation: list[PlainValues] = []
    reconstructions: list[Rebuilt] = []
    skipped: Reasons = {}
    unscored: Reasons = {}
    guarantees: dict[Text, Promise | None] = {}
    claims_refused: Reasons = {}
    privacy: Privacy | None = None
    observed_privacy: Observed | None = None
    embedding_privacy: list[PlainValues] = []
    failed: Text | None = None
    figures: list[PlainValues] = []
    bytes_sent: dict[Text, int] = {}
    links: list[Link] = []
    seconds: float | None = None
    cpu_seconds: dict[Text, float] = {}
    facts: dict[str, Any] = {}
    honest: "Summary | None" = None

    @property
    def learned(self) -> bool | None:
        """Whether the model is shown to rank new rows better than a coin: its test AUC is above 0.5 by its 95 % interval, on
        at least LEAST_TEST_ROWS rows of either class. None where that isn't known.
        """
        rows = [count for count in (self.test_positives, self.test_negatives) if count is not None]
        if rows and min(rows) < LEAST_TEST_ROWS:
            return False
        return None if self.test_auc_low is None else self.test_auc_low > 0.5


class ThreatRecord(Record):
    """Who attacks, what it knows and does (`vflbench.messages.threat.Threat.record`)."""

    role: Text = ""
    knows: list[Text] = []
    known_rows: int = 0
    hints: int = 0
    level: Text = ""
    text: Text = ""
    does: Text = ""


class Cheat(Record):
    """A party that deviates from the protocol, and how."""

    party: Text = ""
    text: Text = ""


class Data(Record):
    """The rows of a run, and what else its dataset says of them."""

    fingerprint: Text | None = None
    train_rows: int | None = None
    test_rows: int | None = None
    classes: int | None = None
    train_positive_ratio: float | None = None
    train_class_ratios: list[float] = []


class Plugins(Record):
    """A folder of plug-ins: path -> SHA-256 of each file."""

    folder: Text = ""
    files: dict[str, str] = {}


class Manifest(Record):
    """The content of manifest.json: what a run is, and what it came from. kind: `audit` of an audit, else None.

    format: version of this record. identity: what decides the numbers beside the options, as `run.provenance.origin_of`
    makes it. model: what a recording says of the model that was trained.
    """

    format: int = FORMAT
    vflbench: Text | None = None
    git_commit: Text | None = None
    python: Text | None = None
    platform: Text | None = None
    versions: dict[Text, Text | None] = {}
    kind: Text | None = None
    seed: int | None = None
    overrides: list[Text] = []
    choices: dict[Text, Any] = {}
    source: dict[str, Any] | None = None
    identity: PlainValues = {}
    plugins: list[Plugins] = []
    start: str | None = None
    resumed: list[PlainValues] = []
    device: Text | None = None
    threads: int | None = None
    batch_size: int | None = None
    data: Data = Data()
    model: dict[Text, float | None] = {}
    notes: list[Text] = []
    cut_layers: dict[Text, list[Text]] = {}
    layers: dict[Text, list[Text]] = {}
    threats: dict[Text, ThreatRecord] = {}
    skipped: Reasons = {}
    adversary: dict[Text, Cheat] = {}


@dataclass(frozen=True)
class MetricRow:
    """One measurement: a row of metrics.csv. A column that does not apply is empty: "", nan or, for `visible`, None.

    epoch: from 0. split: train | test, or a phase of the run. party, layer: where it was measured. message: what was read,
    embedding | gradient | ...; none for an attack that reads no message. metric: what `value` is. ci_low, ci_high: its 95 %
    interval. visible: whether an attacker sees this layer.
    """

    epoch: int
    split: str
    party: str = ""
    layer: str = ""
    message: str = ""
    attack: str = ""
    metric: str = ""
    value: float = math.nan
    ci_low: float = math.nan
    ci_high: float = math.nan
    visible: bool | None = None


COLUMNS = tuple(field.name for field in fields(MetricRow))
HEADER = ",".join(COLUMNS) + "\n"
"""The first line of metrics.csv."""

LEVELS = ("messages only", "known labels", "active")
"""Nothing but messages and class shares; known labels as well; a party that sends and learns as it likes in its own role."""
REFERENCE = "reference"
"""The level of what is no verdict: the probe, and attacks on a party's own columns."""
GUESSES = ("mean", "class_mean", "random_row", "class_row", "best_draw", "features_network", "features_linear")
"""Answers that need no message, in the order of the tables, which stand beside what an attack rebuilds."""
OF_THE_TRUTH = ("nearest_row", "true")
"""Answers that take the truth: what copying could reach at most, and what a perfect answer gets."""
PROBE = "probe"
FEATURES_ONLY = " (own columns)"
"""Follows the name of an attack that is run once more on the party's own columns."""
AT_THE_END = " (epoch)"
"""Follows the name of an attack that answers about batches as well."""


def base_name(attack: str) -> str:
    """The name under which an attack was chosen, without what follows it in tables."""
    return attack.removesuffix(AT_THE_END).removesuffix(FEATURES_ONLY).removesuffix(AT_THE_END)


def level_of(attack: str, threats: Mapping[str, ThreatRecord]) -> str:
    """The level that the manifest records."""
    name = attack.removesuffix(AT_THE_END)
    if name.endswith(FEATURES_ONLY) or name in (PROBE, "no_message"):
        return REFERENCE
    threat = threats.get(name) or threats.get(base_name(attack))
    return threat.level if threat and threat.level else LEVELS[0]
