"""An audit of recorded messages: the same auditor as in a run, and the same numbers.

In one place, or in two halves: attacks where the messages are (`write_scores`), grades where labels are (`grade_scored`).
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field, TypeAdapter

from vflbench.attacks.base import Attack
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.facts import Embeddings, Gradients, LocalModel, PartyFeatures
from vflbench.messages.recorder import flush_labels
from vflbench.messages.recording_format import LABELS, MAX_CLASSES, RUN, Shares, read_json, validated, write_json
from vflbench.messages.recordings import RecordedMessages
from vflbench.messages.tables import SCORES, ScoredRows, named_labels, ordered, read_scores, score_writer
from vflbench.messages.threat import Role
from vflbench.metrics.leak import Key, LeakTable, between, checked_scores
from vflbench.numerics.auc import array_of
from vflbench.options import Seed, Steps, options
from vflbench.results import schema
from vflbench.results.recorder import Meter
from vflbench.results.schema import MetricRow, Observed, Reasons, Summary, Text
from vflbench.results.terminal import path_text, wrapped
from vflbench.run.attackers import Canaries
from vflbench.run.auditor import UNANSWERED, Auditor
from vflbench.run.grade_scores import Findings, Tables
from vflbench.run.observed_privacy import ClaimCheck
from vflbench.run.recording import RecordedRows, RecordedSource
from vflbench.run.settings import Audit, tune, use_threads
from vflbench.run.summary import cpu_seconds, finding_rows, tested, threats_of, verdict, what_attacks_read

KIND = "audit"
"""The entry `kind` of an audit's manifest; runs that trained have none."""
SCORES_HEAD = "scores.json"

_T = TypeVar("_T")


@options
class AuditOptions:
    """What is asked of an audit, beside its attacks.

    seed: of the attacks' generators and of hints; batches, epochs: how many are attacked, as `audit.batches` and
    `audit.epochs`; probe: as `audit.probe`. What is left out is as in the recorded run; of others, seed 0, all recorded
    batches, and the probe. labels: a table id, label in place of the recording's labels.parquet.
    """

    seed: Seed | None = None
    labels: Path | str | None = None
    batches: Steps | Literal["all", "auto"] | None = None
    epochs: Literal["all", "last"] | None = None
    probe: bool | None = None


class About(schema.Record):
    """What is said of attacks on a recording, with or without labels.

    skipped: attack -> why it could not run. threats: attack -> who attacks, as a run's manifest has it, also of references.
    layers, cut_layers: party -> all layers, and those that cross. class_shares: of the K classes among the training rows.
    batch_size: rows of a batch. seed: that was used. model: figures of the finished model (test_auc, train_auc, ...), as far
    as the recording has them. notes: lines that a user must not miss.
    """

    skipped: Reasons
    threats: dict[Text, schema.ThreatRecord]
    layers: dict[Text, list[Text]]
    cut_layers: dict[Text, list[Text]]
    class_shares: list[Annotated[float, Field(ge=0, le=1)]] | None = None
    batch_size: int = 0
    seed: int = 0
    model: Shares = Field(default_factory=dict)
    notes: list[Text] = Field(default_factory=list)


class AuditResult(About):
    """What an audit of recorded messages came to.

    Args:
        skipped: attack -> why it could not run.
        threats: attack -> who attacks, as a run's manifest has it; references too.
        layers: party -> names of all its layers.
        cut_layers: party -> names of the layers that cross.
        class_shares: share in [0, 1] of each of the K classes among the training rows; None where it isn't known.
        batch_size: rows of a batch.
        seed: of the attacks' generators and of hints.
        model: figures of the finished model in [0, 1], test_auc, train_auc and others, as far as the recording has them.
        notes: lines that a user must not miss.
        findings: of each epoch that was audited, in order.
        unscored: attack -> why nothing could be scored.
        listed: number of training rows of which it has labels.
        fingerprint: hash, the same for recordings of the same rows.
        claims: what it promises about labels; empty where nothing is promised.
        observed: what messages show against that; None where nothing is promised.
        test_rows: rows of class 0 and of class 1 on which the model was tested; None where the recording doesn't say it.
    """

    findings: list[Any]
    unscored: Reasons
    listed: int
    fingerprint: str
    claims: dict[str, Any] = Field(default_factory=dict)
    observed: Observed | None = None
    test_rows: tuple[int, int] | None = None

    def rows(self) -> list[MetricRow]:
        """The same rows that a run writes to metrics.csv about its attacks."""
        return [row for epoch, findings in enumerate(self.findings) for row in finding_rows(epoch, findings)]


def audit_recording(recording: RecordedMessages | Path | str, attacks: Mapping[str, Attack], **options: Any) -> AuditResult:
    """Attack recorded messages. Of a recording by `vflbench train record=messages` the numbers are those of the run.

    attacks: by name. options: those of `AuditOptions`, and `meter`, which shows how far it has come. An attack that needs
    what the recording doesn't have is skipped, with the reason; one that gives no finite scores is unscored, and the others
    have the numbers of an audit without it. Raises UserError for a recording that can't be read.
    """
    flush_labels()
    meter = options.pop("meter", Meter())
    asked = AuditOptions(**options)
    source = RecordedSource(recording, None if asked.labels is None else Path(asked.labels))
    promised = source.recording.manifest.claims.label_dp

    def once(some: Mapping[str, Attack]) -> tuple[Auditor, list[Findings], Observed | None]:
        check = ClaimCheck(source, promised) if promised else None
        return *_attack(source, some, asked, check, meter=meter), check.outcome() if check else None

    skipped = source.skipped(attacks)
    (auditor, findings, observed), failed = _attacked(source, attacks, skipped, once)
    about = _about(source, asked.seed, auditor, attacks)
    read = {leak.message for leak in findings[-1].leaks if leak.visible and leak.batches}
    about["notes"] += [
        f"no attack has read the {fact.message}s, so nothing is said of what they give away"
        for fact in (Embeddings, Gradients)
        if fact in source.offers(Role.NON_LABEL) and fact.message not in read
    ]
    return AuditResult(
        **about,
        skipped=skipped,
        findings=findings,
        unscored=failed | auditor.unscored(findings[-1]),
        listed=len(source.rows),
        fingerprint=source.rows.fingerprint,
        claims={"label_dp": asdict(promised)} if promised else {},
        observed=observed,
        test_rows=source.head.test_rows,
    )


def _attacked(
    source: RecordedSource,
    attacks: Mapping[str, Attack],
    skipped: Mapping[str, str],
    run: Callable[[Mapping[str, Attack]], _T],
) -> tuple[_T, dict[str, str]]:
    """What `run` makes of those attacks that give scores as they must, and attack -> what is wrong with another's.

    One row of huge values can make an attack's scores infinite. It is run again without such an attack. The process is tuned
    as that of the run, with as many of torch's threads; one where it doesn't say.
    """
    failed: dict[str, str] = {}
    tune()
    before = torch.get_num_threads()
    use_threads(source.head.threads)
    try:
        while True:
            remaining = {name: attack for name, attack in attacks.items() if name not in {**skipped, **failed}}
            try:
                return run(remaining), failed
            except UserError as error:
                name = schema.base_name(str(error.value))
                if error.key != "attack" or name not in remaining:
                    raise
                failed[name] = error.problem
    finally:
        torch.set_num_threads(before)


def _attack(
    source: RecordedSource,
    attacks: Mapping[str, Attack],
    asked: AuditOptions,
    check: ClaimCheck | None = None,
    **options: Any,
) -> tuple[Auditor, list[Findings]]:
    """The auditor of a run, over a recording, and what each epoch comes to. options: of `Auditor`. check: of what is
    promised, which sees each round and hears each score.

    What parties' networks make of rows at the end of an epoch is what was recorded then, or else what was last sent of a
    row. Of the sent, only rows that are asked about are kept: those that are followed or known, and the first `quota` of an
    audited batch.
    """
    recording, rows, head = source.recording, source.rows, source.head
    generators = Generators(head.seed if asked.seed is None else asked.seed)
    canaries = Canaries(rows.canary_ids, rows.labels(rows.canary_ids))
    offered = source.offers(Role.NON_LABEL)
    options = {"references": PartyFeatures in offered, **options}
    if check is not None:
        options["tables"] = partial(Tables, listener=check.hear)
    findings: list[Findings] = []
    auditor = Auditor(
        attacks=attacks,
        generators=generators,
        roles=recording.roles,
        train=rows,
        rows=rows,
        group=source.batch_size,
        how=Audit(
            batches=asked.batches or head.batches,
            epochs=asked.epochs or head.epochs,
            dcor=head.dcor,
            probe=bool({Embeddings, Gradients} & offered) and (head.probe if asked.probe is None else asked.probe),
        ),
        canaries=canaries,
        cut_layers={party: recording.manifest.cut(party) for party in recording.roles.get(Role.NON_LABEL, ())},
        cheating=head.cheating,
        samples=source.is_ours,
        known_rows=source.known(attacks, generators, canaries),
        **options,
    )
    asks_models = bool({LocalModel, PartyFeatures} & auditor.wants_at_the_end)
    numbers, seen = range(len(head.steps)) if source.is_ours else sorted(recording.epochs), 0
    meter = auditor.meter
    for number, epoch in enumerate(numbers):
        to_come = sum(len(recording.epochs.get(later, [])) for later in numbers[number:])
        meter.epoch(number, len(numbers), batches=to_come, seconds=meter.seconds)
        there, last = recording.epochs.get(epoch, []), number + 1 == len(numbers)
        expected = head.expected(epoch, complete=recording.manifest.complete) if source.is_ours else ()
        if missing := sorted({*expected[: len(there) + 1]}.difference(there)):  # so many hold the first of them
            problem = f"rounds of epoch {epoch} are missing, the first at step {missing[0]}"
            raise UserError(problem, key="recording", value=recording.folder)
        steps, chosen = (head.steps[epoch], None) if source.is_ours else (len(there), there)
        auditor.begin_epoch(number, steps, last=last, chosen=chosen)
        seen += len(auditor.audited.intersection(there))
        end = recording.end_of_epoch(epoch) if asks_models else None
        for recorded in recording.rounds(epoch):
            round_ = source.with_columns(recorded)
            meter.bar.update()
            if asks_models:
                followed, _, known = auditor.parts_at_the_end
                kept = torch.isin(round_.ids, torch.cat([followed, known]))
                kept[: auditor.quota if round_.step in auditor.audited else 0] = True
                rows.keep(recorded, kept if end is None else kept & ~torch.isin(round_.ids, end.ids))
            if check is not None:
                check.see(round_)
            with meter.phase("audit", "attacking a batch" if round_.step in auditor.audited else "reading"):
                auditor.see(round_)
        if end is not None:
            rows.keep(end, torch.ones_like(end.ids, dtype=torch.bool))
        with meter.phase("audit", "attacking at its end"):
            findings.append(auditor.end_epoch(rows.facts(torch.cat(auditor.parts_at_the_end[:2]))))
    if not seen:
        problem = f"none of the rounds that {RUN} names is there to be attacked"
        raise UserError(problem, key="recording", value=recording.folder)
    return auditor, findings


def _about(source: RecordedSource, seed: int | None, auditor: Auditor, attacks: Mapping[str, Attack]) -> dict[str, Any]:
    """`About`, but for what was skipped. seed: that was asked for."""
    manifest, there = source.recording.manifest, len(auditor.known.ids)
    knew = [  # as many labels as there were: fewer than an attack would take, where few are recorded
        replace(one, threat=replace(one.threat, known_rows=there)) if 0 < there < one.threat.known_rows else one
        for one in auditor.attackers
    ]
    return {
        "threats": threats_of(knew, attacks, probed=auditor.probes),
        "layers": {party: list(of_party.layers) for party, of_party in manifest.parties.items()},
        "cut_layers": {party: list(manifest.cut(party)) for party in manifest.non_label_parties},
        "class_shares": list(source.rows.class_ratios),
        "batch_size": source.batch_size,
        "seed": source.head.seed if seed is None else seed,
        "model": dict(manifest.model),
        "notes": list(dict.fromkeys(source.notes)),
    }


def audit_facts(result: AuditResult) -> dict[str, Any]:
    """What an audit's manifest says beside its provenance, as that of a run."""
    shares = result.class_shares or []
    shown = ("seed", "batch_size", "model", "claims", "notes", "cut_layers", "layers", "threats", "skipped", "unscored")
    data = {"fingerprint": result.fingerprint, "train_rows": result.listed, "classes": len(shares)}
    positive = shares[1] if len(shares) == 2 else None
    return {name: getattr(result, name) for name in shown} | {
        "data": data | {"train_positive_ratio": positive, "train_class_ratios": shares},
        "adversary": {},
        "threads": torch.get_num_threads(),
    }


def audit_summary(result: AuditResult, seconds: float, spent: Mapping[str, Sequence[float]]) -> Summary:
    """With the keys of a run's summary; what messages don't say of the model is None. seconds: that the audit took. spent:
    on what, as of `Meter`.

    Figures of the model that have the name of another part of a summary are left out.
    """
    last: Findings = result.findings[-1]
    levels = {leak.attack: schema.level_of(leak.attack, result.threats) for leak in last.leaks}
    read = what_attacks_read(last)
    no_numbers = {name for name, of in Summary.model_fields.items() if of.annotation != float | None}
    model = {key: value for key, value in result.model.items() if key not in {*read, *no_numbers, "seconds"}}
    test_auc = model.get("test_auc", math.nan)
    interval = {} if math.isnan(test_auc) else tested(test_auc, result.test_rows)
    return Summary(
        epochs=len(result.findings),
        **read,
        verdict=verdict(last.leaks, levels, {}, test_auc, (), result.cut_layers),
        skipped=result.skipped,
        unscored=result.unscored,
        observed_privacy=result.observed,
        seconds=round(seconds, 3),
        cpu_seconds=cpu_seconds([spent]),
        **{**model, **interval},
    )


def recording_source(recording: Path, labels: Path | str | None = None) -> dict[str, Any]:
    """Where a recording lies, and its state: the names, sizes and times of its files, as a digest; the time of
    change among them, which can't be set back.

    A result of another state is never taken for one of this recording.
    """
    files = sorted(Path(place) / name for place, _, names in os.walk(recording) for name in names)
    states = [(file, os.lstat(file)) for file in [*files, *([Path(labels)] if labels else [])]]
    listed = [[os.path.relpath(file, recording), s.st_size, s.st_mtime_ns, s.st_ctime_ns] for file, s in states]
    return {"path": str(recording), "state": hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]}


def contents(
    folder: Path, attacks: Mapping[str, Attack], unusable: Mapping[str, str], labels: Path | None = None
) -> Iterator[str]:
    """Lines for the terminal: what is in a recording, which attacks can run on it, and why others can't. Raises UserError.

    Read are what holds for all batches, their headers and ids, and the labels if they are there. unusable: attack -> why it
    can't be built.
    """
    source = RecordedSource(folder, labels, labelled=labels is not None or (folder / LABELS).is_file())
    recording, manifest, rows = source.recording, source.recording.manifest, source.rows
    claim = manifest.claims.label_dp
    batches, samples = sum(map(len, recording.epochs.values())), "" if manifest.complete else ", maybe a sample of all"
    facts = {
        "recording": str(folder),
        "written by": manifest.producer,
        "parties": "; ".join(f"{', '.join(parties)} ({role})" for role, parties in recording.roles.items() if parties),
        "epochs": f"{len(recording.epochs):,}",
        "batches": f"{batches:,} recorded{samples}",
        "classes": str(manifest.classes),
        "training rows": f"{len(rows):,} with labels" if source.labelled else "",
        "class shares": ", ".join(f"{share:.4f}" for share in rows.class_ratios) if source.labelled else "",
        "ids": "a row has the same in every epoch" if source.repeat else "none comes in two epochs",
        "batch size": f"{manifest.batch_size:,}" if manifest.batch_size else "",
        "claim": claim and f"label DP with eps = {claim.eps:g}" + ", labels drawn again in each epoch" * claim.fresh,
        "the model": ", ".join(f"{name} {value:.4f}" for name, value in manifest.model.items()),
    }
    for party, of_party in manifest.parties.items():
        crossing = manifest.cut(party) if party in manifest.non_label_parties else ()
        widths = {layer: f"{layer} ({width}{', crosses' * (layer in crossing)})" for layer, width in of_party.layers.items()}
        facts[f"layers of {party}"] = ", ".join(widths.values())
    for party, coverage in recording.coverage.items():
        kinds = [f"{kind} in {count:,} of {coverage.batches:,} batches" for kind, count in sorted(coverage.kinds.items())]
        facts[f"messages of {party}"] = ", ".join(kinds)
    for name, text in facts.items():
        yield from wrapped(f"{name:<15} {text}", " " * 16) if text else ()
    refused = {**unusable, **source.skipped(attacks)}
    able = [name for name in attacks if name not in refused]
    yield from ("", *wrapped(f"attacks that can run ({len(able)}): {', '.join(able) or 'none'}", "  "))
    if refused:
        yield from ("", f"attacks that can't ({len(refused)}), and why:")
    for reason, names in by_reason(refused).items():
        yield from wrapped(f"  {', '.join(names)}: {reason}", "    ")
    without = "no labels are here: --labels FILE names them, and --scores-only DIR attacks without any"
    for note in source.notes if source.labelled else [without, *source.notes]:
        yield from ("", *wrapped(note))


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Reason -> the attacks that it holds for."""
    return {reason: [name for name in reasons if reasons[name] == reason] for reason in reasons.values()}


class ScoresHead(About):
    """scores.json: what stands beside scores without labels. attacks: that have scores. rows: that were attacked."""

    format: Literal["vflbench-scores/2"] = "vflbench-scores/2"
    classes: Annotated[int, Field(ge=2, le=MAX_CLASSES)]
    epochs: Annotated[int, Field(ge=1, le=10**4)]
    attacks: list[Text]
    rows: int = 0


def read_recording_head(folder: Path) -> ScoresHead:
    """scores.json of a folder. Raises UserError."""
    try:
        head: ScoresHead = validated(TypeAdapter(ScoresHead), read_json(folder, SCORES_HEAD, dict))
        for name in head.attacks:
            if name not in head.threats or head.threats[name].level not in schema.LEVELS:
                raise ValueError(f"threats: attack {name!r} must be there, at one of the levels {', '.join(schema.LEVELS)}")
    except ValueError as error:
        problem = getattr(error, "problem", f"{SCORES_HEAD} can't be read: {error}")
        raise UserError(problem, key=f"vflbench grade {path_text(folder)}", see="vflbench grade --help") from error
    return head


class ScoreTable(LeakTable):
    """Writes the ranks of scores in place of their leak AUC. The truth that it is given are the rows' ids."""

    def __init__(self, add: Callable[[ScoredRows], None], epoch: int):
        super().__init__()
        self._add, self._epoch = add, epoch

    def add(self, key: Key, scores: Any, truth: Any, *others: Any, **_: Any) -> None:
        """others: known, canary and candidates, as the grader gives them."""
        known, _canary, candidates = others
        scores = checked_scores(scores, len(truth), attack=key[0], layer=key[3])
        columns = [] if candidates is None else [ordered(of) for of in array_of(candidates).reshape(len(truth), -1).T]
        scalar = between(scores) if scores.ndim == 2 else None
        order = None if scalar is None else ordered(array_of(scalar))
        ranks = ordered(array_of(scores)), np.stack(columns, axis=1) if columns else None, order
        self._add(ScoredRows(self._epoch, key, array_of(truth), array_of(known), *ranks))
        self._batches.setdefault(key, [])


def write_scores(
    recording: Path, attacks: Mapping[str, Attack], out: Path, *, shares: Sequence[float] | None = None, **options: Any
) -> ScoresHead:
    """Attack recorded messages without any labels, and write in which order attacks put the rows into the folder `out`.

    Nothing in it but ids, names of layers and attacks, and ranks comes from the messages: of each batch, or group of rows,
    the order in which an attack puts them, which is all that grades depend on. Orders along many directions tell
    most of an embedding. Attacks that are given labels run if known.parquet has some; references are left out, as are
    reconstructions and class counts. shares: of the classes, in place of those in manifest.json. options: as of
    `audit_recording`, without labels and probe. Raises UserError.
    """
    if (out / SCORES).exists() or (out / SCORES_HEAD).exists():
        raise UserError("it holds scores already; name another folder, or delete this one", key="--scores-only", value=out)
    source = RecordedSource(recording, shares=shares, labelled=False)
    skipped = source.skipped(attacks)
    if len(skipped) == len(attacks):
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason(skipped).items())
        raise UserError(f"no attack can run on this recording without labels ({reasons})", key="--scores-only", value=out)
    out.mkdir(parents=True, exist_ok=True)
    meter = options.pop("meter", Meter())
    asked = AuditOptions(**options, probe=False)

    def once(some: Mapping[str, Attack]) -> tuple[Auditor, list[Findings]]:
        with score_writer(out) as add:
            number = count()
            tables = lambda: Tables(leaks=ScoreTable(add, next(number)))  # noqa: E731
            return _attack(source, some, asked, references=False, tables=tables, meter=meter)

    (auditor, findings), failed = _attacked(source, attacks, skipped, once)
    skipped |= failed
    manifest = source.recording.manifest
    head = ScoresHead(
        **_about(source, asked.seed, auditor, attacks) | {"class_shares": manifest.class_shares},
        classes=manifest.classes,
        epochs=len(findings),
        skipped=skipped,
        attacks=[name for name in attacks if name not in skipped],
        rows=len(source.rows),
    )
    write_json(out / SCORES_HEAD, head.model_dump(mode="json"))
    return head


def grade_scored(folder: Path, labels: Path) -> AuditResult:
    """Hold the scores in a folder against labels: the numbers that an audit with these labels has.

    labels: a table id, label with every row that was scored; a column canary marks rows whose label is a coin. Raises
    UserError.
    """
    head = read_recording_head(folder)
    truth = RecordedRows(named_labels(labels, head.classes, "LABELS"), head.classes)
    tables = [LeakTable() for _ in range(head.epochs)]
    for rows in read_scores(folder):
        problem = ""
        if rows.epoch >= head.epochs or schema.base_name(rows.key[0]) not in head.threats:
            problem = f"{SCORES} has epoch {rows.epoch} of attack {rows.key[0]!r}, which {SCORES_HEAD} doesn't know"
        elif rows.scores.ndim == 2 and rows.scores.shape[1] != head.classes:
            problem = f"{SCORES} has {rows.scores.shape[1]} scores a row, for {head.classes} classes"
        if problem:
            raise UserError(problem, key=f"vflbench grade {folder}")
        canary = np.isin(rows.ids, truth.canary_ids.numpy())
        label = truth.labels(torch.from_numpy(rows.ids)).numpy()
        tables[rows.epoch].add(rows.key, rows.scores, label, rows.known, canary, rows.candidates, rows.difference)
    findings = [Findings(table.leaks()) for table in tables]
    scored = {leak.attack for leak in findings[-1].leaks if leak.batches}
    return AuditResult(
        **vars(head) | {"class_shares": head.class_shares or truth.class_ratios},
        findings=findings,
        unscored={name: UNANSWERED for name in head.attacks if name not in scored},
        listed=len(truth),
        fingerprint=truth.fingerprint,
    )
