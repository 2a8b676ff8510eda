import copy
import io

import pytest
import torch
from builders import TappedWire, run_in, session, table, weights

from vflbench.data.synthetic import Bernoulli
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.chain import Chain
from vflbench.defenses.max_norm import MaxNorm
from vflbench.defenses.quantize import Quantize
from vflbench.engines.base import Engine
from vflbench.engines.local import Local
from vflbench.messages.message import Kind, Message
from vflbench.models.wide_deep import WideDeep
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


def test_in_one_process_a_message_arrives_as_it_was_sent():
    wire = Local().wire()
    message = Message("a", "label", Kind.EMBEDDING, torch.arange(3), {"f2": torch.zeros(3, 4)})
    assert wire.send(message) is message
    traffic = wire.take_traffic()["a", "label", Kind.EMBEDDING]
    assert (traffic.messages, traffic.bytes) == (1, 48)
    assert Local().wire() is not wire


@pytest.mark.slow
def test_parties_share_nothing_but_messages(rng):
    """Training is the same to the bit where each message crosses as bytes, and the wire counts the same."""
    defenses = {
        "none": dict,
        "compressed": lambda: {"quantize": Quantize(learn_batches=3), "binomial": Binomial(n=8), "max_norm": MaxNorm()},
    }
    rows = table(rng, parties=("a", "b", "label"), classes=2)
    for name, chosen in defenses.items():
        wires, trained = [engine.wire() for engine in (Local(), Letters())], []
        for wire in wires:
            model = WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True)
            split = session(rows, model=model, wire=wire, new_defense=lambda made=chosen: Chain(made()))
            losses = [split.round(rows.ids).training.loss for _ in range(4)]
            trained.append([*weights(split), split.predict(rows.ids), torch.tensor(losses)])
        assert all(map(torch.equal, *trained)), name
        assert wires[0].take_traffic() == wires[1].take_traffic(), name


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
        return [line for line in (folder / "metrics.csv").read_text().splitlines() if "seconds," not in line]

    assert lines(tmp_path / "local", Local()) == lines(tmp_path / "letters", Letters())
