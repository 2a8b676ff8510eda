"""Settings of a run that belong to no component."""

from typing import TYPE_CHECKING, Literal

from vflbench.errors import UserError
from vflbench.options import Canaries, Epochs, Rows, Seed, Steps, options

if TYPE_CHECKING:
    import torch


@options
class Audit:
    """How much of an epoch is audited.

    batches: the number of batches to attack, spread evenly over the epoch, or `all`; `auto` takes 20, but at most a 15th of
    the epoch's and at least 5. epochs: audit all epochs, or only the last one. train_rows: the largest number of rows to
    score for train AUC. canaries: the number of training rows whose label is replaced by a fair coin, to check a promised
    eps; `auto`: a 20th of all and at most 1000, if a defense promises one. dcor: also measure, in audited batches, the
    squared distance correlation of every layer's embeddings and the labels. probe: also report what a model reads that is
    trained on half of the true labels, with all messages and the scores of all attacks as inputs. auxiliary_path: another
    source of the same columns, read like the dataset's `path`, that auxiliary rows are drawn from; null: the test rows.
    """

    batches: Steps | Literal["all", "auto"] = "auto"
    epochs: Literal["all", "last"] = "all"
    train_rows: Rows = 100_000
    canaries: Canaries | Literal["auto"] = "auto"
    dcor: bool = False
    probe: bool = True
    auxiliary_path: str | None = None

    def audited(self, steps: int) -> int:
        """The number of audited batches in an epoch of `steps` batches."""
        if self.batches == "auto":
            return min(steps, max(5, min(20, steps // 15)))
        return steps if self.batches == "all" else min(steps, self.batches)

    def in_epochs(self, epochs: int, steps: int) -> int:
        """The number of audited batches in the last so many epochs of `steps` batches."""
        return self.audited(steps) * (epochs if self.epochs == "all" else min(epochs, 1))

    def planted(self, rows: int, *, promised: bool) -> int:
        """The number of canaries among `rows` training rows. promised: whether a defense promises an eps."""
        if self.canaries == "auto":
            return min(1000, rows // 20) if promised else 0
        return min(rows, self.canaries)


@options
class Settings:
    """The options that belong to no component.

    epochs: the number of epochs, or `auto`: as many as the protocol suggests.
    batch_size: rows per step; `auto` takes the largest power of two between 32 and 512 with which an epoch has 100 steps.
    precision: of the products of the network's layers, `float32` or `bf16` (autocast; weights, tables, losses, messages and
    the optimiser's state stay float32).
    log_every: steps between lines of train.log.
    checkpoint: `resume` saves the state at the end of each epoch and when the run is stopped, and deletes it when the run
    has finished; `keep` doesn't delete it; `none` saves nothing.
    overwrite: compute a finished run again.
    record: keep the messages of all rounds, or of the audited ones, in the run's folder, for `vflbench audit`.
    """

    epochs: Epochs | Literal["auto"] = 2
    batch_size: Rows | Literal["auto"] = "auto"
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["float32", "bf16"] = "float32"
    log_every: Steps = 100
    checkpoint: Literal["resume", "keep", "none"] = "resume"
    overwrite: bool = False
    record: Literal["none", "messages", "audited"] = "none"
    audit: Audit


def choose_device(wanted: str) -> "torch.device":
    """The device to use; `auto` is cuda if there is one, else cpu."""
    import torch  # late: settings are checked without it

    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "this machine, or its build of torch, has no CUDA device; use cpu or auto", key="device", value="cuda"
        )
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
