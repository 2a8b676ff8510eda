"""`vflbench audit` and `vflbench grade`: attack recorded messages, and say what they give away."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import yaml
from omegaconf import OmegaConf, open_dict

from vflbench.attacks.base import Attack
from vflbench.cli.components import component, construct, named
from vflbench.cli.config import composed, current_config, names, own_options, plain, read_config, recorded_folders, run_name
from vflbench.cli.main import NOT_JUDGED, TOO_MUCH, Judged, fail
from vflbench.cli.mistakes import describe, leaving_errors
from vflbench.errors import UserError
from vflbench.messages.recordings import RecordedMessages
from vflbench.places import config_folder
from vflbench.report.page import Wishes, write_report
from vflbench.report.terminal import result_text, write_table
from vflbench.report.words import threshold
from vflbench.results.folder import (
    METRICS,
    alone_in,
    digest,
    look,
    read_manifest,
    read_summary,
    remove_if_empty,
)
from vflbench.results.gate import Gate, judge
from vflbench.results.loggers import Logger
from vflbench.results.recorder import Recorder
from vflbench.results.runs import read_metrics
from vflbench.results.terminal import path_text, wrapped
from vflbench.run.offline import (
    KIND,
    AuditOptions,
    AuditResult,
    audit,
    audit_facts,
    audit_summary,
    by_reason,
    contents,
    grade,
    read_head,
    recording_source,
    write_scores,
)
from vflbench.run.provenance import origin_of, provenance
from vflbench.run.recording import NEEDS_SHARES
from vflbench.run.summary import finding_rows

HELP = "vflbench audit --help"


@dataclass(frozen=True)
class Plan:
    """An audit that was asked for.

    config: resolved, as config.yaml has it. origin: its provenance. attacks: by name. unusable: attack -> why it can't be
    built, where all were asked for. choices: group -> what was chosen.
    """

    config: dict[str, Any]
    origin: Mapping[str, Any]
    wanted: AuditOptions
    overwrite: bool
    attacks: Mapping[str, Attack] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)
    loggers: Mapping[str, Logger] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    choices: Mapping[str, Any] = field(default_factory=dict)


def absolute(path: str) -> Path:
    """Without following links: the path as the user knows it."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def slug(folder: Path) -> str:
    """The name of a recording as part of another folder's."""
    return "".join(sign if sign.isalnum() or sign in "-." else "_" for sign in folder.name)[:60] or "recording"


def check_recording(word: str) -> Path:
    """Raise UserError for what is no folder of messages."""
    recording, problem = absolute(word), ""
    if not recording.is_dir():
        problem = "a recording is a folder, and this is a file" if recording.exists() else "there is no such folder"
    elif not (recording / "messages").is_dir():
        if (recording / "recording").is_dir():
            problem = f"it is the folder of a run; what it recorded is in {Path(word) / 'recording'}"
        elif (recording / METRICS).is_file():
            problem = "it is the folder of a run without recorded messages; the same command with record=messages makes one"
    if problem:
        raise UserError(problem, key="recording", value=word)
    return recording


def audit_one(recording: Path, words: Sequence[str], plugins: Sequence[Path], options: argparse.Namespace) -> None:
    """Do with one recording what the command line asks for. plugins: folders, which are in use already."""
    gates = [Gate.parse(text) for text in options.gates]
    keys = [word.split("=")[0].lstrip("+") for word in words]
    if options.require_all and "attack" not in keys:
        raise UserError("it needs the attacks that must run, as attack=[NAME,...]", key="--require-all")
    labels = absolute(options.labels) if options.labels else None
    if labels is not None and not labels.is_file():
        raise UserError("there is no such file", key="--labels", value=options.labels)
    try:
        made = plan(recording, words, keys, plugins, None if labels is None else str(labels))
    except Exception as error:
        text = describe(error)
        if text is None or isinstance(error, OSError):
            raise
        for others in ("vflbench train --cfg job", "vflbench train --help"):
            text = text.replace(others, HELP)
        raise UserError(text.replace("In 'audit': ", "")) from error
    if options.describe:
        print(*contents(recording, made.attacks, made.unusable, labels), sep="\n")
    elif options.scores_only:
        print(scores_only(recording, made.attacks, made.wanted, absolute(options.scores_only), options.class_shares))
    elif options.class_shares:
        raise UserError("an audit with labels counts them itself; it goes with --scores-only", key="--class-shares")
    else:
        messages = RecordedMessages(recording)  # before --out is looked at: what is no recording is said first
        audited = partial(audit, messages, made.attacks, **asdict(made.wanted))
        missing = audit_and_report(made, recording, audited, options.out, gates)
        if missing and options.require_all:
            listed = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
            fail(f"--require-all: not every attack could be run and scored: {listed}")


def plan(recording: Path, words: Sequence[str], keys: Sequence[str], plugins: Sequence[Path], labels: str | None) -> Plan:
    """What configs/audit.yaml and the words come to. keys: of the words."""
    for key in keys:
        if key in ("recording", "labels"):
            raise UserError("it is given as RECORDING and --labels FILE", key=key)
        if key == "hydra.run.dir" or key.startswith("hydra.sweep."):
            raise UserError("the results of an audit go where --out says", key=key, see=HELP)
    is_named = "attack" in keys
    every = [] if is_named else [f"attack=[{','.join(single_attacks([config_folder(), *plugins]))}]"]
    config = composed("audit", [*every, *words])
    with current_config(config), open_dict(config):
        config.recording, config.labels = str(recording), labels
        chosen = names("attack", config) if is_named else "every"
        config.name = run_name(config.name or f"audit_{slug(recording)}_{chosen}")
        options = own_options(config)
        resolved = plain(options) | {"overwrite": False}
        must = None if is_named else {key.split(".")[1] for key in keys if key.startswith("attack.")}
        attacks, unusable = built(options.get("attack") or {}, must)
        known = {"recording", "labels", "seed", "overwrite", "audit", "name", "attack", "logger"}
        if unknown := [key for key in resolved if key not in known]:
            raise UserError("there is no such option in an audit", key=unknown[0], see=HELP)
        if not isinstance(options.overwrite, bool):
            raise UserError("it must be true or false", key="overwrite", value=options.overwrite, see=HELP)
        wanted = construct(AuditOptions, {"seed": resolved["seed"], "labels": labels}, "")
        return Plan(
            config=resolved,
            origin=origin_of(resolved, recorded_folders(config)),
            wanted=construct(AuditOptions, asdict(wanted) | (resolved["audit"] or {}), "audit"),
            overwrite=options.overwrite,
            attacks=attacks,
            unusable=unusable,
            loggers=named(resolved.get("logger") or {}, "logger", Logger),
            overrides=words,
            choices=dict(config.hydra.runtime.choices),
        )


def single_attacks(folders: Sequence[Path]) -> list[str]:
    """Every attack in these config folders: the entries of the group that are no set of several, and not `none`."""
    found = set()
    for file in (file for folder in folders for file in (folder / "attack").glob("*.yaml")):
        content = read_config(file)[1]
        if isinstance(content, dict) and list(content) == [file.stem]:
            found.add(file.stem)
    return sorted(found)


def built(nodes: Any, must: set[str] | None) -> tuple[dict[str, Attack], dict[str, str]]:
    """Attacks by name, and why others can't be built; of those in `must`, None for all, each must be."""
    if not OmegaConf.is_dict(nodes) and not isinstance(nodes, Mapping):
        raise UserError("it must be a name or a list of names", key="attack", value=nodes, see="vflbench list attack")
    attacks: dict[str, Attack] = {}
    unusable: dict[str, str] = {}
    for name, node in nodes.items():
        try:
            attacks[name] = component(plain(node, throw_on_missing=True), f"attack.{name}", Attack)
        except Exception as error:
            text = describe(error)
            if must is None or name in must or text is None:
                raise
            unusable[name] = text
    return attacks, unusable


def audit_and_report(
    made: Plan, source: Path, result: Callable[[], AuditResult], out: str | None, gates: Sequence[Gate]
) -> dict[str, str]:
    """Audit, or show what was finished before; print the verdict, and end with the exit code that the gates ask for.

    source: the folder that is audited. result: audits it. out: the folder that was named, or else
    outputs/audit_RECORDING_ATTACKS_DIGEST. Returns attack -> why it was not run or not scored.
    """
    folder = absolute(out or f"outputs/{made.config['name']}_{digest(made.config, made.origin)}")
    if folder.is_relative_to(source):
        problem = "results must not lie in the recording, or among the scores, that they are about"
        raise UserError(problem, key="--out", value=out or folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(folder):
            state = recording_source(source, made.wanted.labels)
            is_finished = not made.overwrite and look(folder, made.config, made.origin)
            if is_finished and read_manifest(folder).source == state:
                notices = [f"finished before, so not computed again (overwrite=true would): {folder}"]
            else:
                compute(made, state, result, folder, overwrite=made.overwrite or is_finished)
                notices = ["the recording has changed since it was audited here, so it was audited again"] * is_finished
            lines, code = judge_all(folder, gates)
            wishes = Wishes(title="What recorded messages give away", gates=tuple(lines), formats=())
            page, summary = write_report([folder], folder / "report", wishes), read_summary(folder)
            write_table(folder, gates=lines)
            text = result_text(folder, colour=sys.stdout.isatty(), gates=lines, page=page)
    finally:
        remove_if_empty(folder)
    print("\n".join([*notices, text]), flush=True)
    if code:
        raise Judged(code)
    return {**made.unusable, **summary.skipped, **summary.unscored}


def compute(made: Plan, state: dict[str, Any], result: Callable[[], AuditResult], folder: Path, *, overwrite: bool) -> None:
    """Audit and write everything; summary.json last. state: of what is audited."""
    known = provenance(made.wanted.seed or 0, made.overrides, made.choices, made.origin)
    manifest = {**known, "source": state, "kind": KIND}
    text = yaml.safe_dump(made.config, sort_keys=False)
    recorder = Recorder(folder, text, manifest, quiet=True, overwrite=overwrite)
    recorder.bar, recorder.loggers, recorder.options = False, made.loggers, made.config
    start = perf_counter()
    with leaving_errors(recorder):
        recorder.begin()
        found = result()
        found.skipped = {**made.unusable, **found.skipped}
        recorder.note(**audit_facts(found))
        recorder.say(f"{state['path']}: {found.listed:,} rows, {len(found.findings)} epochs")
        for note in found.notes:
            recorder.say(note)
        for what, reasons in (("is skipped", found.skipped), ("could not be scored", found.unscored)):
            for name, reason in reasons.items():
                recorder.say(f"attack={name} {what}: {reason}")
        for epoch, findings in enumerate(found.findings):
            recorder.write(finding_rows(epoch, findings))
            recorder.keep(findings.examples)
        recorder.finish(audit_summary(found, perf_counter() - start))


def judge_all(folder: Path, gates: Sequence[Gate]) -> tuple[list[str], int]:
    """A line for each gate, and the exit code: TOO_MUCH if one failed, else NOT_JUDGED if one can't be judged, else 0."""
    rows, manifest, worst = read_metrics(folder), read_manifest(folder), read_summary(folder).verdict.worst
    lines, states = [], []
    for gate in gates:
        try:
            outcome = judge(gate, rows, manifest.threats, manifest.cut_layers, worst)
            lines.append(threshold(outcome))
            states.append(outcome.passed)
        except UserError as error:
            lines.append(f"NOT JUDGED: {error}")
            states.append(None)
    return lines, TOO_MUCH if False in states else NOT_JUDGED if None in states else 0


def scores_only(
    recording: Path, attacks: Mapping[str, Attack], wanted: AuditOptions, out: Path, shares: str | None = None
) -> str:
    """Write the scores of attacks to a folder that holds no label. Returns what is printed.

    shares: of the classes, separated by commas, where they are known.
    """
    try:
        known = None if shares is None else [float(share) for share in shares.split(",")]
    except ValueError:
        raise UserError("it must be a number for each class, as 0.9,0.1", key="--class-shares", value=shares) from None
    if wanted.labels is not None:
        raise UserError("attacks without labels take none; vflbench grade does", key="--labels", value=wanted.labels)
    if out.is_relative_to(recording):
        raise UserError("scores must not lie in the recording, which would change it", key="--scores-only", value=out)
    head = write_scores(
        recording, attacks, out, seed=wanted.seed, batches=wanted.batches, epochs=wanted.epochs, shares=known
    )
    reasons = by_reason(head.skipped)
    lines = []
    if lacking := reasons.pop(NEEDS_SHARES, []):
        given = ",".join(f"S{k}" for k in range(head.classes)) if head.classes < 4 else "S0,S1,..."
        lines.append(f"{len(lacking)} more with the class shares: give --class-shares {given}, and another folder")
        lines.append(f"not run without them: {', '.join(lacking)}")
    lines.append(f"attacks that scored {head.rows:,} rows ({len(head.attacks)}): {', '.join(head.attacks)}")
    lines += [f"not run: {', '.join(of)}: {reason}" for reason, of in reasons.items()]
    lines.append(f"scores: {path_text(out)}")
    lines.append("they hold ids and the orders in which attacks put rows, no label; orders reveal much of an embedding")
    return "\n".join(
        [*(part for line in lines for part in wrapped(line, "  ")), f"next: vflbench grade {path_text(out)} LABELS"]
    )


def grade_scores(options: argparse.Namespace) -> None:
    """Compare scores with labels, and write the usual folder."""
    gates = [Gate.parse(text) for text in options.gates]
    scores, labels = absolute(options.scores), absolute(options.labels)
    if not scores.is_dir():
        raise UserError("there is no such folder", key="grade", value=options.scores)
    if not labels.is_file():
        raise UserError("there is no such file", key="grade", value=options.labels)
    read_head(scores)
    config = {"scores": str(scores), "labels": str(labels), "name": f"grade_{slug(scores)}"}
    made = Plan(config, origin_of(config), AuditOptions(labels=str(labels)), options.overwrite)
    audit_and_report(made, scores, partial(grade, scores, labels), options.out, gates)
