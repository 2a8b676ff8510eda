"""`vflbench audit` and `vflbench grade`: attack recorded messages, and say what they give away."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, no_type_check

import numpy as np
import yaml
from omegaconf import OmegaConf, open_dict

from vflbench.attacks.base import Attack
from vflbench.cli.components import component, construct, named
from vflbench.cli.config import (
    chosen_names,
    composed,
    current_config,
    plain,
    read_config,
    recorded_folders,
    run_name,
    run_options,
)
from vflbench.cli.main import NOT_JUDGED, TOO_MUCH, Judged, fail
from vflbench.cli.mistakes import describe, leaving_errors
from vflbench.errors import UserError, shown
from vflbench.files import config_folder
from vflbench.messages.recorder import recorded_classes, row_ids, tensor_of, write_batch
from vflbench.messages.recording_format import LABELS, MAX_CLASSES
from vflbench.messages.recordings import RecordedMessages
from vflbench.messages.tables import write_rows
from vflbench.report.page import Wishes, write_report
from vflbench.report.terminal import final_table, finished_text, result_text, write_table
from vflbench.report.words import threshold, verdict_text
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
from vflbench.results.recorder import Meter, Recorder
from vflbench.results.table import load, read_metrics
from vflbench.results.terminal import path_text, wrapped
from vflbench.run import offline
from vflbench.run.offline import (
    KIND,
    AuditOptions,
    AuditResult,
    audit_facts,
    audit_summary,
    by_reason,
    contents,
    grade_scored,
    read_recording_head,
    recording_source,
    write_scores,
)
from vflbench.run.provenance import origin_of, provenance
from vflbench.run.recording import NEEDS_SHARES
from vflbench.run.settings import as_a_guest
from vflbench.run.summary import finding_rows

HELP = "vflbench audit --help"


@dataclass(frozen=True)
class _Plan:
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


def absolute(path: Path | str) -> Path:
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
        raise UserError(problem, key=f"vflbench audit {word}")
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
        if text is None or (isinstance(error, OSError) and error.strerror):
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
        audited = partial(offline.audit_recording, messages, made.attacks, **asdict(made.wanted))
        missing = audit_and_report(made, recording, audited, options.out, gates, options.say)
        if missing and options.require_all:
            listed = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
            fail(f"--require-all: not every attack could be run and scored: {listed}")


def plan(recording: Path, words: Sequence[str], keys: Sequence[str], plugins: Sequence[Path], labels: str | None) -> _Plan:
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
        chosen = chosen_names("attack", config) if is_named else "every"
        config.name = run_name(config.name or f"audit_{slug(recording)}_{chosen}")
        options = run_options(config)
        resolved = plain(options) | {"overwrite": False}
        must = None if is_named else {key.split(".")[1] for key in keys if key.startswith("attack.")}
        attacks, unusable = built(options.get("attack") or {}, must)
        known = {"recording", "labels", "seed", "overwrite", "audit", "name", "attack", "logger"}
        if unknown := [key for key in resolved if key not in known]:
            raise UserError("there is no such option in an audit", key=unknown[0], see=HELP)
        if not isinstance(options.overwrite, bool):
            raise UserError("it must be true or false", key="overwrite", value=options.overwrite, see=HELP)
        wanted = construct(AuditOptions, {"seed": resolved["seed"], "labels": labels}, "")
        return _Plan(
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
    names_of_single = set()
    for file in (file for folder in folders for file in (folder / "attack").glob("*.yaml")):
        content = read_config(file)[1]
        if isinstance(content, dict) and list(content) == [file.stem]:
            names_of_single.add(file.stem)
    return sorted(names_of_single)


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
    made: _Plan, source: Path, result: Callable[..., AuditResult], out: str | None, gates: Sequence[Gate], say: Any = print
) -> dict[str, str]:
    """Audit, or show what was finished before; print the verdict, and end with the exit code that the gates ask for.

    source: the folder that is audited. result: audits it. say: prints. out: the folder that was named, or else
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
    say("\n".join([*notices, text]))
    if code:
        raise Judged(code)
    return {**made.unusable, **summary.skipped, **summary.unscored}


def compute(
    made: _Plan, state: dict[str, Any], result: Callable[..., AuditResult], folder: Path, *, overwrite: bool
) -> None:
    """Audit and write everything; summary.json last. state: of what is audited."""
    known = provenance(made.wanted.seed or 0, made.overrides, made.choices, made.origin)
    manifest = {**known, "source": state, "kind": KIND}
    text = yaml.safe_dump(made.config, sort_keys=False)
    recorder = Recorder(folder, text, manifest, quiet=True, overwrite=overwrite)
    recorder.bar, recorder.loggers, recorder.options = False, made.loggers, made.config
    start = perf_counter()
    with leaving_errors(recorder):
        recorder.begin()
        with recorder.meter.running(of="the recording"):
            audited = result(meter=recorder.meter)
        audited.skipped = {**made.unusable, **audited.skipped}
        recorder.note(**audit_facts(audited))
        recorder.say(f"{state['path']}: {audited.listed:,} rows, {len(audited.findings)} epochs")
        for note in audited.notes:
            recorder.say(note)
        for what, reasons in (("is skipped", audited.skipped), ("could not be scored", audited.unscored)):
            for name, reason in reasons.items():
                recorder.say(f"attack={name} {what}: {reason}")
        for epoch, findings in enumerate(audited.findings):
            recorder.write(finding_rows(epoch, findings))
            recorder.keep(findings.examples)
        recorder.finish(audit_summary(audited, perf_counter() - start, recorder.meter.seconds))


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
    how, meter = {"seed": wanted.seed, "batches": wanted.batches, "epochs": wanted.epochs}, Meter()
    with meter.running(of="the recording"):
        head = write_scores(recording, attacks, out, shares=known, meter=meter, **how)
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
        raise UserError("there is no such folder", key=f"vflbench grade {options.scores}")
    if not labels.is_file():
        raise UserError("there is no such file", key=f"vflbench grade {options.labels}")
    read_recording_head(scores)
    config = {"scores": str(scores), "labels": str(labels), "name": f"grade_{slug(scores)}"}
    made = _Plan(config, origin_of(config), AuditOptions(labels=str(labels)), options.overwrite)
    audit_and_report(made, scores, lambda **_: grade_scored(scores, labels), options.out, gates)


# From Python


@dataclass(frozen=True, repr=False)
class AuditReport:
    """What an audit of arrays found, as the command `vflbench audit` says it. A notebook shows it as text.

    Args:
        verdict: the first sentence.
        text: the verdict and the tables, as in table.txt.
        table: every measurement, a row each: the Arrow table that `vflbench.load` returns.
        files: what the command writes into its folder, name -> content.
    """

    verdict: str
    text: str
    table: Any
    files: Mapping[str, bytes]

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre; overflow-x: auto">{escape(self.text)}</pre>'

    def save(self, folder: Path | str) -> None:
        """Write the folder that the command would write, with its page, report/report.html, for `vflbench report` and
        `vflbench.load`. Files of these names in it are replaced.
        """
        for file, content in ((absolute(folder) / name, content) for name, content in self.files.items()):
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            except OSError as error:
                raise UserError(f"it can't be written: {error.strerror}", key="folder", value=file) from error


@no_type_check  # __init__.pyi has its types
def audit(recording=None, attacks=None, *, embeddings=None, gradients=None, labels=None, ids=None, attack=None, **options):
    """Attack what crossed the cut: arrays in memory, or a recording. The numbers are those of the command `vflbench audit`.

        report = vflbench.audit(embeddings=sent, gradients=returned, labels=y, attack=["norm", "spectral"], seed=1)
        report.verdict, report.table    # a notebook shows `report` as text: the verdict and the tables
        report.save("audited")          # writes the folder and the page that the command writes

    Arrays are NumPy's, torch's, or of a framework that NumPy reads. A list holds one array a batch, in the order in which
    batches crossed. An array alone is one batch, and its readings have no interval. Labels grade the attacks, which see none
    but those that they declare.

    Args:
        embeddings: what the feature owner sent: (n, d), (n,) or (n, ...), which is flattened; finite floating-point numbers.
        gradients: of the loss with respect to the embeddings, one row an example, likewise. One of both may be left out.
        labels: (n,) or (n, 1) whole numbers, classes from 0 to K - 1, where K - 1 is the largest, and at least 1.
        ids: (n,) integers, the same for a row in every batch. Left out, every row is another one.
        attack: a name of `vflbench list attack`, or several; left out, every attack that can run on these arrays.
        options: seed (0), batches (how many are attacked: a number or all), probe (whether it is trained: True or False).
        recording, attacks: in place of arrays, a folder of recorded messages and attacks, name -> Attack. Then labels is a
            file, options are those of `AuditOptions`, and the findings come as numbers: an `AuditResult`.

    Returns an `AuditReport`, and leaves nothing on the disk. Raises UserError, which names the argument that is wrong.
    """
    if recording is not None or attacks is not None:
        return offline.audit_recording(
            *(given for given in (recording, attacks) if given is not None), labels=labels, **options
        )
    several = [attack] if isinstance(attack, str) else attack or []
    if not isinstance(several, list | tuple) or not all(isinstance(name, str) for name in several):
        raise UserError("it must be the name of an attack, or a list of names", key="attack", value=repr(attack))
    words = [f"attack=[{','.join(several)}]"] if attack is not None else []
    asked = asdict(construct(AuditOptions, options, "")).items()
    words += [f"{'' if name == 'seed' else 'audit.'}{name}={value}" for name, value in asked if value is not None]
    flags = dict.fromkeys(("gates", "labels", "describe", "scores_only", "class_shares", "require_all"), ())
    with TemporaryDirectory() as temporary, as_a_guest():
        source, folder = Path(temporary, "in_memory", "arrays"), Path(temporary, "audit")
        _write_arrays(source, {"embeddings": embeddings, "gradients": gradients, "labels": labels, "ids": ids})
        audit_one(source, words, (), argparse.Namespace(**flags, out=str(folder), say=str))
        text = final_table(folder)
        files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.suffix}
        files = {name: file.read_bytes().replace(f"{temporary}/".encode(), b"") for name, file in files.items()}
        return AuditReport(verdict_text([finished_text(folder)], named=True), text, load(folder), files)


def _write_arrays(folder: Path, arrays: Mapping[str, Any]) -> None:
    """A recording of the arrays. Raises UserError."""
    kinds = [name for name in ("embeddings", "gradients") if arrays[name] is not None]
    if not kinds or arrays["labels"] is None:
        raise UserError(
            "missing: an array, or a list with one a batch", key="labels" if kinds else "embeddings or gradients"
        )
    several = {name: of if isinstance(of, list | tuple) and of and np.ndim(of[0]) else [of] for name, of in arrays.items()}
    given = {name: [tensor_of(name, of) for of in batches] for name, batches in several.items() if arrays[name] is not None}
    shapes = {name: [tuple(of.shape) for of in batches] for name, batches in given.items()}
    for name, those in shapes.items():
        if [s[:1] for s in those] != [s[:1] for s in shapes["labels"]] or len({s[1:] for s in those if any(s[:1])}) != 1:
            raise UserError(f"they need one width, and the rows of labels: {shown(shapes['labels'])}", key=name, value=those)
    truth = np.concatenate([recorded_classes(of, len(of), MAX_CLASSES) for of in given["labels"]])
    ids: Any = given.get("ids") or np.split(np.arange(len(truth)), np.cumsum([len(of) for of in given["labels"]])[:-1])
    for step, of in enumerate(ids):
        layers: dict[str, Any] = {name: {"cut": given[name][step]} for name in kinds}
        write_batch(folder, party="features", ids=of, **layers, step=step, classes=max(2, int(truth.max()) + 1))
    table = np.unique(np.column_stack([np.concatenate([row_ids(of) for of in ids]), truth]), axis=0)
    if len(twice := table[1:, 0][np.diff(table[:, 0]) == 0]):
        raise UserError("this row has two labels; a row has one in all batches", key="ids", value=twice[0])
    write_rows(folder / LABELS, {"id": table[:, 0], "label": table[:, 1]})
