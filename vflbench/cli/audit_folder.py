"""The folder that `vflbench audit` and `vflbench grade` write: the results, the page, and what thresholds come to."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import yaml

from vflbench.cli.audit_plan import AuditPlan
from vflbench.cli.errors import NOT_JUDGED, TOO_MUCH, Judged, fail
from vflbench.cli.mistakes import leaving_errors
from vflbench.errors import UserError
from vflbench.report.sections import Wishes
from vflbench.report.site import write_report
from vflbench.report.terminal import result_text, write_table
from vflbench.report.words import threshold
from vflbench.results.folder import Earlier, alone_in, clear_error, look, remove_if_empty
from vflbench.results.gate import Gate, judge
from vflbench.results.loggers.base import Loggers
from vflbench.results.read import read_manifest, read_metrics, read_summary
from vflbench.results.recorder import Recorder
from vflbench.run.findings import AuditResult
from vflbench.run.offline import KIND, audit_facts, audit_summary, recording_source
from vflbench.run.provenance import described, provenance
from vflbench.run.summary import finding_rows


def audit_and_report(
    made: AuditPlan,
    source: Path,
    result: Callable[[], AuditResult],
    folder: Path,
    gates: Sequence[Gate],
    *,
    require_all: bool = False,
) -> None:
    """Audit, or show what was finished before; print the verdict, and end with the exit code that the gates ask for.

    source: the folder that is audited. result: audits it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(folder):
            notices = compute(made, source, result, folder)
            lines, code = judge_all(folder, gates)
            page, summary = write_page(folder, lines), read_summary(folder)
            write_table(folder, gates=lines)
            text = result_text(folder, colour=sys.stdout.isatty(), gates=lines, page=page)
    finally:
        remove_if_empty(folder)
    print("\n".join([*notices, text]), flush=True)
    if code:
        raise Judged(code)
    missing = {**made.unusable, **(summary.get("skipped") or {}), **(summary.get("unscored") or {})} if require_all else {}
    if missing:
        listed = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
        fail(f"--require-all: not every attack could be run and scored: {listed}")


def compute(made: AuditPlan, source: Path, result: Callable[[], AuditResult], folder: Path) -> list[str]:
    """Write the result folder, unless this audit of this source, as it is now, is in it. Returns lines for the user."""
    state = recording_source(source, made.wanted.labels)
    earlier = Earlier.NOTHING if made.overwrite else look(folder, made.config, made.origin)
    notices = []
    if earlier is Earlier.FINISHED:
        if read_manifest(folder).get("source") == state:
            clear_error(folder)
            return [f"finished before, so not computed again (overwrite=true would): {folder}"]
        notices.append("the recording has changed since it was audited here, so it was audited again")
    clear_error(folder)
    overwrite = made.overwrite or earlier is Earlier.FINISHED
    record(made, state, result, folder, overwrite=overwrite)
    return notices


def record(
    made: AuditPlan, state: dict[str, Any], result: Callable[[], AuditResult], folder: Path, *, overwrite: bool
) -> None:
    """Audit and write everything; summary.json last. state: of what is audited."""
    known = provenance(seed=made.wanted.seed or 0, overrides=made.overrides, choices=made.choices, identity=made.origin)
    manifest = {**known, "source": state, "kind": KIND, "plugins": described(())}
    text = yaml.safe_dump(made.config, sort_keys=False)
    recorder = Recorder(folder, text, manifest, quiet=True, overwrite=overwrite)
    recorder.bar, recorder.loggers = False, Loggers(made.loggers, made.config)
    start = perf_counter()
    with leaving_errors(recorder):
        recorder.begin()
        made_of = result()
        skipped = {**made.unusable, **made_of.skipped}
        recorder.note(**audit_facts(made_of) | {"skipped": skipped})
        recorder.say(f"{state['path']}: {made_of.listed:,} rows, {len(made_of.findings)} epochs")
        for note in made_of.notes:
            recorder.say(note)
        for what, reasons in (("is skipped", skipped), ("could not be scored", made_of.unscored)):
            for name, reason in reasons.items():
                recorder.say(f"attack={name} {what}: {reason}")
        for epoch, findings in enumerate(made_of.findings):
            recorder.write(finding_rows(epoch, findings))
            recorder.keep(findings.examples)
        recorder.finish(audit_summary(made_of, perf_counter() - start, skipped))


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


def write_page(folder: Path, gates: Sequence[str]) -> Path:
    """The folder's own page, in its `report`."""
    return write_report(
        [folder], folder / "report", Wishes(title="What recorded messages give away", gates=tuple(gates), formats=())
    )
