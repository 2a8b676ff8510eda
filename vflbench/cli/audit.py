"""`vflbench audit RECORDING`: attack recorded messages, and say what they give away."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from vflbench.cli.errors import LeaksMore, fail
from vflbench.cli.plugins import FLAG as PLUGINS
from vflbench.cli.plugins import split_plugins, use_plugins
from vflbench.errors import UserError
from vflbench.results.gate import FLAG, KEYS, Gate
from vflbench.results.gate import judge as judged

if TYPE_CHECKING:
    from vflbench.cli.audit_config import AuditPlan
    from vflbench.messages.recorded_messages import RecordedMessages

_DESCRIPTION = """Attack what a party has recorded of the messages that crossed the cut.

Options: 'attack=[norm,cosine]' chooses attacks (without it, all of `vflbench list attack`; those that need what the
recording lacks are left out, with the reason), attack.cosine.k=3 sets their options, seed=1 the seed of their generators,
audit.batches=20|all|auto how many batches of an epoch, audit.epochs=all|last, audit.probe=false leaves out a reference,
overwrite=true computes a finished audit again, logger=[...] and name=... are as in vflbench train.

Exit code: 0; 1 if something went wrong or nothing could be judged; 2 if a threshold of --fail-above is exceeded."""


def audit(arguments: Sequence[str]) -> None:
    """The command. Ends with exit code 2 if a gate fails."""
    named, words = split_plugins(arguments)
    options = parser().parse_intermixed_args(words)
    gates = [Gate.parse(text) for text in options.fail_above]
    wrong = [word for word in options.options if "=" not in word and not word.startswith("~")]
    if wrong:
        problem = "it is no option: options are KEY=VALUE, and only one recording is audited at a time"
        raise UserError(problem, key=wrong[0], see="vflbench audit --help")
    from vflbench.cli.audit_config import absolute, plan

    recording = absolute(options.recording)
    if not recording.is_dir():
        problem = "a recording is a folder, and this is a file" if recording.exists() else "there is no such folder"
        raise UserError(problem, key="recording", value=options.recording)
    folders = use_plugins(named)
    labels = str(absolute(options.labels)) if options.labels else None
    if labels is not None and not Path(labels).is_file():
        raise UserError("there is no such file", key="--labels", value=options.labels)
    made = plan(recording, options.options, folders, labels)
    if options.require_all and not made.named:
        raise UserError("it needs the attacks that must run, as attack=[NAME,...]", key="--require-all")
    if options.describe:
        from vflbench.cli.describe import description

        print(description(recording, made.attacks, made.unusable, labels=labels))
        return
    if options.scores_only:
        from vflbench.cli.grade import scores_only

        print(scores_only(recording, made.attacks, made.wanted, absolute(options.scores_only)))
        return
    folder = absolute(options.out) if options.out else Path("outputs").absolute() / made.folder_name
    if folder.is_relative_to(recording):
        raise UserError(
            "results must not lie in the recording, which would change it", key="--out", value=options.out or folder
        )
    try:
        audit_and_report(made, recording, folder, gates, require_all=options.require_all)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("stopped; the same command begins this audit again") from error


class Words(argparse.ArgumentParser):
    """What it refuses ends in one paragraph."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message, see="vflbench audit --help")


def parser() -> argparse.ArgumentParser:
    """The flags of the command, apart from --plugins DIR, which is read before."""
    form = argparse.RawDescriptionHelpFormatter
    made = Words(prog="vflbench audit", description=_DESCRIPTION, formatter_class=form, allow_abbrev=False)
    made.add_argument("recording", metavar="RECORDING", help="a folder of recorded messages: docs/audit/format.md")
    made.add_argument("options", nargs="*", metavar="KEY=VALUE", help="attacks and their options")
    made.add_argument(
        FLAG,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"end with exit code 2 if any attack, layer and epoch has more; may be repeated; {', '.join(KEYS)}",
    )
    made.add_argument(
        "--require-all", action="store_true", help="end with exit code 1 if an attack of attack= could not run"
    )
    made.add_argument(
        "--describe", action="store_true", help="show what is in it and which attacks can run, and attack nothing"
    )
    made.add_argument("--scores-only", metavar="DIR", help="write scores for `vflbench grade`; needs no labels")
    made.add_argument("--labels", metavar="FILE", help="labels in place of those in the recording")
    made.add_argument("--out", metavar="DIR", help="the folder for the results; by default outputs/audit_...")
    made.add_argument(PLUGINS, metavar="DIR", help="a folder with attacks of your own; may be repeated")
    return made


def audit_and_report(made: "AuditPlan", recording: Path, folder: Path, gates: Sequence[Gate], *, require_all: bool) -> None:
    """Audit, or show what was finished before; print the verdict, and end with the exit code that the gates ask for."""
    from vflbench.messages.recorded_messages import RecordedMessages
    from vflbench.results.folder import alone_in, remove_if_empty
    from vflbench.results.read import read_summary
    from vflbench.results.report.table import final_table

    messages = RecordedMessages(recording)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(folder):
            notices = compute(made, messages, folder)
            lines, failed, unjudged = judge_all(folder, gates)
            page, summary = write_page(folder, lines), read_summary(folder)
            table = final_table(folder, colour=sys.stdout.isatty(), gates=lines)
    finally:
        remove_if_empty(folder)
    print("\n".join([table, *notices, f"page: {page}"]), flush=True)
    if failed:
        raise LeaksMore
    if unjudged is not None:
        raise unjudged
    missing = {**made.unusable, **summary["skipped"], **summary["unscored"]} if require_all else {}
    if missing:
        listed = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
        fail(f"--require-all: not every attack could be run and scored: {listed}")


def compute(made: "AuditPlan", messages: "RecordedMessages", folder: Path) -> list[str]:
    """Write the result folder, unless this audit of this recording, as it is now, is in it. Returns lines for the user."""
    from vflbench.results.folder import Earlier, clear_error, look
    from vflbench.results.read import read_manifest
    from vflbench.run.audited import recording_source

    source = recording_source(messages.folder, made.wanted.labels)
    earlier = Earlier.NOTHING if made.overwrite else look(folder, made.config, made.plugins)
    notices = []
    if earlier is Earlier.FINISHED:
        if read_manifest(folder).get("source") == source:
            clear_error(folder)
            return [f"finished before, so not computed again (overwrite=true would): {folder}"]
        notices.append("the recording has changed since it was audited here, so it was audited again")
    clear_error(folder)
    overwrite = made.overwrite or earlier is Earlier.FINISHED
    record(made, messages, folder, source, overwrite=overwrite)
    return notices


def record(
    made: "AuditPlan", messages: "RecordedMessages", folder: Path, source: dict[str, Any], *, overwrite: bool
) -> None:
    """Audit and write everything; summary.json last."""
    from vflbench.cli.mistakes import describe
    from vflbench.results.folder import leave_error
    from vflbench.results.loggers.base import Loggers
    from vflbench.results.recorder import Recorder
    from vflbench.results.report.figures import draw
    from vflbench.run.audited import KIND, audit_facts, audit_recording, audit_summary
    from vflbench.run.metric_rows import finding_rows
    from vflbench.run.provenance import module_digests, provenance

    seed, chosen = made.wanted.seed or 0, dict(made.choices)
    known = provenance(
        seed=seed, overrides=list(made.overrides), choices=chosen, source=source, modules=module_digests(made.plugins)
    )
    manifest = {**known, "kind": KIND}
    text = yaml.safe_dump(made.config, sort_keys=False)
    recorder = Recorder(folder, text, manifest, quiet=True, overwrite=overwrite)
    recorder.bar, recorder.loggers = False, Loggers(made.loggers, made.config)
    start = perf_counter()
    try:
        recorder.begin()
        result = audit_recording(messages, made.attacks, made.wanted)
        skipped = {**made.unusable, **result.skipped}
        recorder.note(**audit_facts(result) | {"skipped": skipped})
        recorder.say(f"{messages.folder}: {result.listed:,} rows, {len(result.findings)} epochs")
        for note in result.notes:
            recorder.say(note)
        for what, reasons in (("is skipped", skipped), ("could not be scored", result.unscored)):
            for name, reason in reasons.items():
                recorder.say(f"attack={name} {what}: {reason}")
        for epoch, findings in enumerate(result.findings):
            recorder.write(finding_rows(epoch, findings))
            recorder.keep(findings.examples)
        draw(folder)
        recorder.note(modules=module_digests(made.plugins))
        recorder.finish(audit_summary(result, perf_counter() - start) | {"skipped": skipped})
    except Exception as error:
        if recorder.begun:
            leave_error(folder, describe(error) or f"{type(error).__name__}: {error}", error)
        raise
    finally:
        recorder.loggers.stop()


def judge_all(folder: Path, gates: Sequence[Gate]) -> tuple[list[str], bool, UserError | None]:
    """A line for each gate, whether one failed, and why one could not be judged."""
    from vflbench.results.read import read_manifest, read_metrics, read_summary

    rows, manifest, lines, failed = read_metrics(folder), read_manifest(folder), [], False
    worst = (read_summary(folder).get("verdict") or {}).get("worst") or {}
    unjudged: UserError | None = None
    for gate in gates:
        try:
            outcome = judged(gate, rows, manifest["threats"], manifest["cut_layers"], worst)
        except UserError as error:
            unjudged = unjudged or error
            lines.append(f"NOT JUDGED: {error}")
            continue
        failed = failed or not outcome.passed
        lines.append(outcome.line())
    return lines, failed, unjudged


def write_page(folder: Path, gates: Sequence[str]) -> Path:
    """The folder's own page, in its `report`."""
    from vflbench.results.report.sections import Wishes
    from vflbench.results.report.site import write_report

    return write_report([folder], folder / "report", Wishes(title="What recorded messages give away", gates=tuple(gates)))
