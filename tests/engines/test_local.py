import copy
import io

import torch
from support.builders import TappedWire, figures, run_in

from vflbench.data.synthetic import Bernoulli
from vflbench.engines.base import Engine, Local
from vflbench.messages.wire import Message
from vflbench.options import options
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.run.settings import Audit, Settings


@options
class Letters(Engine):
    """Each message is written to bytes and read from them, so sender and receiver share no memory."""

    def wire(self):
        return TappedWire(self.copied)

    def copied(self, message):
        arrived = copy.deepcopy(message)
        file = io.BytesIO()
        torch.save(dict(message.tensors), file)
        file.seek(0)
        return Message(
            message.sender, message.receiver, message.kind, message.ids.clone(), torch.load(file), arrived.encoded
        )


def test_a_run_is_the_same_through_another_engine(tmp_path):
    def lines(folder, engine):
        run_in(
            folder,
            dataset=Bernoulli(rows=4, features=5, batches=10),
            protocol=FederatedLr(),
            attacks={},
            engine=engine,
            settings=Settings(epochs=3, audit=Audit(batches=2)),
        )
        return figures(folder)

    assert lines(tmp_path / "local", Local()) == lines(tmp_path / "letters", Letters())
