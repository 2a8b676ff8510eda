"""`vflbench audit --scores-only`, and `vflbench grade DIR LABELS`: attacked where no labels are, graded where they are."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vflbench.cli.words import Words
from vflbench.errors import UserError
from vflbench.results.gate import FLAG, KEYS, Gate
from vflbench.results.wrapping import path_text, wrapped

if TYPE_CHECKING:
    from vflbench.attacks.base import Attack
    from vflbench.run.offline import AuditOptions

_DESCRIPTION = """Grade the scores of `vflbench audit RECORDING --scores-only DIR` by labels. The
results are those of an audit of the recording with these labels, without the
probe and without attacks that need labels of each batch. No message is needed.

Exit code: 0; 1 if something went wrong; 2 if a threshold of --fail-above is
exceeded; 3 if none is, but one could not be judged: nothing has such a value,
or too few batches were audited to tell a coin from a leak."""


def scores_only(
    recording: Path, attacks: Mapping[str, Attack], wanted: AuditOptions, out: Path, shares: str | None = None
) -> str:
    """Write the scores of attacks to a folder that holds no label. Returns what is printed.

    shares: of the classes, separated by commas, where they are known.
    """
    from vflbench.run.offline import write_scores
    from vflbench.run.recording import NEEDS_SHARES

    try:
        known = None if shares is None else [float(share) for share in shares.split(",")]
    except ValueError:
        raise UserError("it must be a number for each class, as 0.9,0.1", key="--class-shares", value=shares) from None

    if wanted.labels is not None:
        raise UserError("attacks without labels take none; vflbench grade does", key="--labels", value=wanted.labels)
    if out.is_relative_to(recording):
        raise UserError("scores must not lie in the recording, which would change it", key="--scores-only", value=out)
    of_epochs = wanted.epochs
    head = write_scores(recording, attacks, out, seed=wanted.seed, batches=wanted.batches, epochs=of_epochs, shares=known)
    reasons: dict[str, list[str]] = {}
    for name, reason in head.skipped.items():
        reasons.setdefault(reason, []).append(name)
    lines = []
    if lacking := reasons.pop(NEEDS_SHARES, []):
        total = len(lacking) + len(head.attacks)
        need = "needs" if len(lacking) == 1 else "need"
        given = ",".join(f"S{k}" for k in range(head.classes)) if head.classes < 4 else "S0,S1,..."
        which = f"{len(lacking)} of {total} attacks {need} the class shares"
        lines += [f"{which}: give --class-shares {given}, and another folder"]
        lines += [f"not run without them: {', '.join(lacking)}"]
    noun = "attack" if len(head.attacks) == 1 else "attacks"
    lines += [f"{len(head.attacks)} {noun} scored {head.rows:,} rows: {', '.join(head.attacks)}"]
    lines += [f"not run: {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    lines += [f"scores: {path_text(out)}"]
    lines += ["they hold ids and the orders in which attacks put rows, no label; orders reveal much of an embedding"]
    return "\n".join(
        [*(part for line in lines for part in wrapped(line, "  ")), f"next: vflbench grade {path_text(out)} LABELS"]
    )


def grade(arguments: Sequence[str]) -> None:
    """Compare scores with labels, and write the usual folder. Exit codes: as of `vflbench audit`."""
    form = argparse.RawDescriptionHelpFormatter
    parser = Words(prog="vflbench grade", description=_DESCRIPTION, formatter_class=form, allow_abbrev=False)
    parser.add_argument("scores", metavar="DIR", help="the folder that `vflbench audit RECORDING --scores-only DIR` wrote")
    parser.add_argument("labels", metavar="LABELS", help="a Parquet file with the columns id and label")
    parser.add_argument(
        FLAG, action="append", default=[], metavar="KEY=VALUE", help=f"as in vflbench audit. KEY: {', '.join(KEYS)}"
    )
    parser.add_argument("--out", metavar="DIR", help="the folder for the results; by default outputs/grade_...")
    parser.add_argument("--overwrite", action="store_true", help="grade again, although there are finished results")
    options = parser.parse_args(arguments)
    gates = [Gate.parse(text) for text in options.fail_above]
    from vflbench.cli.audit_folder import audit_and_report
    from vflbench.cli.audit_plan import AuditPlan, absolute, slug
    from vflbench.run.offline import AuditOptions, read_head
    from vflbench.run.offline import grade as graded
    from vflbench.run.provenance import origin_of

    scores, labels = absolute(options.scores), absolute(options.labels)
    if not scores.is_dir():
        raise UserError("there is no such folder", key="grade", value=options.scores)
    if not labels.is_file():
        raise UserError("there is no such file", key="grade", value=options.labels)
    read_head(scores)
    config = {"scores": str(scores), "labels": str(labels), "name": f"grade_{slug(scores.name)}"}
    made = AuditPlan(
        config=config,
        attacks={},
        unusable={},
        wanted=AuditOptions(labels=str(labels)),
        loggers={},
        overwrite=options.overwrite,
        named=False,
        overrides=(),
        choices={},
        origin=origin_of(config),
    )
    folder = absolute(options.out) if options.out else Path("outputs").absolute() / made.folder_name
    if folder.is_relative_to(scores):
        raise UserError("results must not lie among the scores", key="--out", value=options.out)
    audit_and_report(made, scores, lambda: graded(scores, labels), folder, gates)
