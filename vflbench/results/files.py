"""The names of the files in a run's folder, and what their presence says. Every other module takes them from here."""

from pathlib import Path

CONFIG = "config.yaml"
MANIFEST = "manifest.json"
METRICS = "metrics.csv"
SUMMARY = "summary.json"
LOG = "train.log"
LOSSES = "loss.log"
ERROR = "error.txt"
CHECKPOINT = "checkpoint.pt"
LOCK = ".lock"
RECONSTRUCTIONS = "reconstructions.npz"
TABLE = "table.txt"
"""All figures of the last epoch as tables, for a person."""
EVENTS = "tensorboard"
"""The folder of TensorBoard's event files."""
HONEST = "honest"
"""The folder of the same run without its adversary: a whole run folder of its own."""

RESULTS = (
    *(CHECKPOINT, SUMMARY, METRICS, RECONSTRUCTIONS, LOSSES, TABLE),
    *("auc_per_epoch.png", "leak_per_layer.png", "reconstructions.png"),  # of runs of older versions
)
"""What a run computes, in the order in which a new run deletes it: half of it never looks like a run that can go on."""

MARKS = frozenset({CONFIG, MANIFEST, METRICS, SUMMARY, ERROR, LOG, CHECKPOINT})
"""A folder with any of these belongs to a run."""

RECORDING = "vflbench-messages/"
"""So begins the `format` in manifest.json of recorded messages, which is no run's."""

PAGE_MARK = "<!-- made by vflbench report -->"
"""Stands near the top of every page of a report, by which later reports know it."""


def is_begun(folder: Path) -> bool:
    """Whether a run began in this folder: metrics.csv is written last at the start of a run."""
    return (folder / METRICS).exists()


def is_finished(folder: Path) -> bool:
    """Whether the run in this folder is complete: summary.json is written last."""
    return (folder / SUMMARY).exists()


def finished_folders(folder: Path) -> list[Path]:
    """The folders of finished runs in or under this one, by name; not the honest runs that other runs keep."""
    folders = sorted(file.parent for file in folder.rglob(SUMMARY))
    return [f for f in folders if f.name != HONEST or MARKS.isdisjoint(file.name for file in f.parent.iterdir())]
