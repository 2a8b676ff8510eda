"""`vflbench audit --scores-only`, and `vflbench grade DIR LABELS`: attacked where no labels are, graded where they are."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from vflbench.attacks.base import Attack
from vflbench.errors import UserError
from vflbench.run.audited import AuditOptions


def scores_only(recording: Path, attacks: Mapping[str, Attack], wanted: AuditOptions, out: Path) -> str:
    """Write the answers of attacks to a folder that holds no label. Returns what is printed."""
    del recording, attacks, wanted
    raise UserError("this version can't write scores without labels yet", key="--scores-only", value=out)


def grade(arguments: Sequence[str]) -> None:
    """Compare scores with labels, and write the usual folder."""
    parser = argparse.ArgumentParser(prog="vflbench grade", description="Grade the scores of an audit without labels.")
    parser.add_argument("scores", metavar="DIR", help="the folder that `vflbench audit --scores-only DIR` wrote")
    parser.add_argument("labels", metavar="LABELS", help="a Parquet file with the columns id and label")
    options = parser.parse_args(arguments)
    raise UserError("this version can't grade scores yet", key="grade", value=options.scores)
