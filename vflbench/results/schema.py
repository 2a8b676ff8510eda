"""What the values in a run's files must be. Anything may be missing, as in runs of older versions, or null; names that are
not listed may hold anything. Nothing is converted: a number in quotes is a text, and true is no number.

It has more lines than other modules, as it lists every name that a table, a chart or a sentence reads.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Required

from typing_extensions import TypedDict

from vflbench.results.checks import Most, accepts, open_and_strict, refusal

MOST_LEAKS, MOST_REBUILT, MOST_NAMES, MOST_MODULES = 20_000, 2_000, 500, 20_000
"""Of a run. Names: its attacks, its layers, its figures, the entries of its mappings. More can't be shown in seconds."""

_FEW, _SOME = Most(MOST_NAMES), Most(MOST_MODULES)
Number = float | None
Text = str | None
Names = Annotated[dict[str, Text], _FEW] | None
Lists = Annotated[dict[str, Annotated[list[str], _FEW]], _FEW] | None


@open_and_strict
class _Interval(TypedDict, total=False):
    mean: Number
    low: Number
    high: Number


@open_and_strict
class _Place(TypedDict, total=False):
    """Where something was measured."""

    attack: str
    message: str
    party: str
    layer: str
    visible: bool | None
    batches: int | None


class _Leak(_Place, total=False):
    raw: _Interval | None
    two_sided: _Interval | None
    oriented: _Interval | None
    net: _Interval | None
    coin: Number
    left_out: int | None
    classes: Annotated[dict[str, _Interval], _FEW] | None


@open_and_strict
class _Reading(TypedDict, total=False):
    """What the worst attack reads, of `verdict`."""

    attack: Required[str]
    message: Required[str]
    party: Required[str]
    layer: Required[str]
    figure: Required[Literal["AUC", "macro AUC", "AMI"]]
    value: Required[float]
    low: Required[Number]
    high: Required[Number]
    own_columns: Number


class _Worst(_Reading, total=False):
    readings: Required[int]


class _Fall(_Reading, total=False):
    because: Required[str]


@open_and_strict
class _Verdict(TypedDict, total=False):
    worst: _Worst | None
    levels: Annotated[dict[str, _Reading], _FEW] | None
    on_changed: Annotated[dict[str, _Reading], _FEW] | None
    references: Annotated[dict[str, _Reading], _FEW] | None
    falls: _Fall | None
    changed: list[str] | None


@open_and_strict
class _Above(TypedDict, total=False):
    """A leak above a ceiling."""

    attack: Required[str]
    message: Required[str]
    party: Required[str]
    layer: Required[str]
    figure: Required[Literal["AUC", "macro AUC", "AMI"]]
    value: Required[float]
    low: Required[float]
    ceiling: Required[float]


@open_and_strict
class _Promise(TypedDict, total=False):
    claim: Text
    bounds: Text
    message: Text
    messages: int | None
    leak_auc_one_message: Number
    leak_auc_all_messages: Number
    error_one_message: Number
    error_all_messages: Number
    assumption: Text
    assumption_holds: bool | None
    tested: list[dict[str, str | float | None]] | None
    exceeded: list[_Above] | None


@open_and_strict
class _Release(TypedDict, total=False):
    defense: str
    mechanism: str
    epsilon: Number
    mu: Number
    times: int | None
    epochs: int | None


@open_and_strict
class _Privacy(TypedDict, total=False):
    epsilon: Number
    mu: Number
    delta: Number
    epsilon_at_delta: Number
    epsilon_low: Number
    mu_low: Number
    epsilon_low_by: Text
    mu_low_by: Text
    releases: list[_Release] | None
    canaries: int | None
    confidence: Number
    tried: dict[str, Any] | None


@open_and_strict
class _Noise(TypedDict, total=False):
    """What noise on embeddings promises."""

    party: str
    layer: str
    defense: str
    mechanism: str
    reason: Text
    assumes: Text
    width: int | None
    messages: int | None
    epsilon: Number
    delta: Number
    epsilon_all: Number
    delta_all: Number
    exact: bool | None
    epsilon_exact: Number
    epsilon_exact_all: Number


class _Margin(_Interval, total=False):
    """By how much the error of a guess without a message exceeds that of an answer."""

    beats: bool | None


@open_and_strict
class _Rebuilt(TypedDict, total=False):
    attack: Required[str]
    message: Required[str]
    party: Required[str]
    layer: Required[str]
    visible: bool | None
    batches: int | None
    figures: Annotated[dict[str, _Interval | float | None], _FEW] | None
    notes: dict[str, int] | None
    rows: int | None
    beats_guesses: Annotated[dict[str, _Margin], _FEW] | None
    told_apart: bool | None
    beats_every_guess: bool | None


@open_and_strict
class _Dependence(TypedDict, total=False):
    party: str
    layer: str
    dcor: _Interval


@open_and_strict
class _Figure(TypedDict, total=False):
    party: str
    layer: str
    message: str
    figure: str
    value: Number


@open_and_strict
class _Link(TypedDict, total=False):
    sender: Text
    receiver: Text
    message: Text
    messages: Number
    bytes: Number


@open_and_strict
class _Observed(TypedDict, total=False):
    verdict: Text


@open_and_strict
class _Summary(TypedDict, total=False):
    epochs: int | None
    seconds: Number
    loss: Number
    test_auc: Number
    train_auc: Number
    test_accuracy: Number
    train_accuracy: Number
    test_log_loss: Number
    train_log_loss: Number
    leaks: Annotated[list[_Leak], Most(MOST_LEAKS)] | None
    verdict: _Verdict | None
    distance_correlation: list[_Dependence] | None
    reconstructions: Annotated[list[_Rebuilt], Most(MOST_REBUILT)] | None
    skipped: Names
    unscored: Names
    claims_refused: Names
    guarantees: Annotated[dict[str, _Promise | None], _FEW] | None
    privacy: _Privacy | None
    observed_privacy: _Observed | None
    embedding_privacy: list[_Noise] | None
    figures: Annotated[list[_Figure], Most(MOST_LEAKS)] | None
    bytes_sent: Annotated[dict[str, Number], _FEW] | None
    links: Annotated[list[_Link], Most(MOST_LEAKS)] | None
    failed: Text


@open_and_strict
class _Threat(TypedDict, total=False):
    seat: Text
    knows: list[str] | None
    known_rows: int | None
    hints: int | None
    active: bool | None
    level: Text
    text: Text
    does: Text


@open_and_strict
class _Adversary(TypedDict, total=False):
    party: Text
    text: Text


@open_and_strict
class _Data(TypedDict, total=False):
    train_rows: int | None
    test_rows: int | None
    classes: int | None
    train_positive_ratio: Number
    train_class_ratios: list[float] | None


@open_and_strict
class _Model(TypedDict, total=False):
    test_auc: Number
    train_auc: Number


@open_and_strict
class _Choices(TypedDict, total=False):
    dataset: Text
    experiment: Text


@open_and_strict
class _Manifest(TypedDict, total=False):
    vflbench: Text
    git_commit: Text
    python: Text
    platform: Text
    versions: Names
    kind: Text
    seed: int | None
    device: Text
    threads: int | None
    batch_size: int | None
    choices: _Choices | None
    data: _Data | None
    model: _Model | None
    source: dict[str, Any] | None
    modules: Annotated[dict[str, Text], _SOME] | None
    identity: dict[str, Any] | None
    changed_while_running: list[str] | None
    cut_layers: Lists
    layers: Lists
    threats: Annotated[dict[str, _Threat], _FEW] | None
    adversary: Annotated[dict[str, _Adversary], _FEW] | None
    skipped: Names
    unscored: Names
    quantities: Annotated[list[str], _SOME] | None
    notes: Annotated[list[str], _FEW] | None


_Parts = Annotated[dict[str, dict[str, Any] | None], _FEW]


@open_and_strict
class _Config(TypedDict, total=False):
    seed: int | None
    dataset: dict[str, Any] | None
    defense: _Parts | None
    attack: _Parts | None
    adversary: _Parts | None


def check_config(config: Mapping[str, Any]) -> None:
    """Raises ValueError, with one line, for options of another type."""
    _check(_Config, config)


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Raises ValueError, with one line, for facts of another type."""
    _check(_Manifest, manifest)


def check_summary(summary: Mapping[str, Any]) -> None:
    """Raises ValueError, with one line, for results of another type, and for more of them than can be shown."""
    _check(_Summary, summary)
    if len(summary) > MOST_NAMES:
        raise ValueError(f"it has {len(summary):,} names, and at most {MOST_NAMES} are read")
    leaks, entries = summary.get("leaks") or [], summary.get("reconstructions") or []
    names = {
        "attacks": {(leak.get("attack"), leak.get("message")) for leak in (*leaks, *entries)},
        "layers": {leak.get("layer") for leak in leaks},
        "figures": {name for entry in entries for name in entry.get("figures") or ()},
    }
    for what, there in names.items():
        if len(there) > MOST_NAMES:
            raise ValueError(f"it has {len(there):,} different {what}, and at most {MOST_NAMES} are read")


def _check(kind: Any, content: Mapping[str, Any]) -> None:
    if not accepts(kind)(content) and (problem := refusal(kind, content)) is not None:
        raise ValueError(problem)
