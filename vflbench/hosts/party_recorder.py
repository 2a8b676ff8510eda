"""Keeps what one party sees of a run in a recording of its own, for attacks at this party afterwards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from vflbench import __version__
from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings
from vflbench.messages.manifest import MANIFEST, MESSAGES, Manifest, PartyLayers
from vflbench.messages.message_batch import FACTS, packed
from vflbench.messages.message_files import write_batch_file, write_manifest
from vflbench.messages.round import Facts
from vflbench.run.recording import ROUNDS

RECORDED: frozenset[type[Fact]] = frozenset(FACTS.values())
_PER_EPOCH = 10**7


class PartyRecorder:
    """Writes the rounds that the label party has watched, as `record` asks, into `recording` in a folder of the party.

    No label is in it, so `vflbench audit FOLDER --scores-only DIR` reads it; the label party then grades the scores.
    Rounds in which the party got no gradient are left out. sends: layers that cross. classes, batch_size: of the run.
    """

    def __init__(self, folder: Path, party: str, sends: tuple[str, ...], classes: int, batch_size: int, *, complete: bool):
        self._folder, self._party, self._sends = folder / ROUNDS, party, sends
        self._classes, self._batch_size, self._complete = classes, batch_size, complete
        self._epoch, self._step, self._has_begun = 0, -1, False

    def begin(self, epoch: int) -> None:
        """A batch of this epoch comes next."""
        self._step = self._step + 1 if epoch == self._epoch else 0
        self._epoch = epoch

    def see(self, ids: Tensor, facts: Facts) -> None:
        """Write what the party knows of the batch that began last. ids: (n,)."""
        if not self._has_begun:
            self._begin(facts)
        tensors = {name: values for fact in facts.values() for name, values in packed(fact).items()}
        number = self._epoch * _PER_EPOCH + self._step
        write_batch_file(self._folder, self._party, number, ids.cpu(), tensors, epoch=self._epoch, step=self._step)

    def _begin(self, facts: Facts) -> None:
        """Also drops messages of a run that is computed again."""
        found = facts.get(Embeddings)
        layers = found.layers if isinstance(found, Embeddings) else {}
        own = PartyLayers({layer: h.shape[1] for layer, h in layers.items()}, [one for one in self._sends if one in layers])
        for path in (self._folder / MESSAGES).glob("*-*.safetensors"):
            path.unlink()
        manifest = Manifest(
            classes=self._classes,
            parties={self._party: own},
            producer=f"party {self._party} of vflbench train, version {__version__}",
            batch_size=self._batch_size,
            complete=self._complete,
        )
        write_manifest(self._folder, manifest)
        self._has_begun = True

    def state(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "step": self._step}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._step = int(state["epoch"]), int(state["step"])
        self._has_begun = (self._folder / MANIFEST).is_file()
