import pytest
import torch

from vflbench.messages.codec import Encoded, Grid
from vflbench.messages.wire import Kind, Message, Wire


def message(rows=10, **tensors):
    return Message("a", "label", Kind.EMBEDDING, torch.arange(rows), tensors or {"f5": torch.zeros(rows, 4)})


def test_bytes_and_messages_are_counted_by_direction_until_taken():
    wire = Wire()
    wire.send(message(f5=torch.zeros(10, 4), wide=torch.zeros(10, 1)))
    wire.send(message(f5=torch.zeros(10, 4, dtype=torch.float64)))
    wire.send(Message("label", "a", Kind.GRADIENT, torch.arange(3), {"f5": torch.zeros(3, 4)}))
    traffic = wire.take_traffic()
    assert (traffic["a", "label", Kind.EMBEDDING].messages, traffic["a", "label", Kind.EMBEDDING].bytes) == (2, 520)
    assert (traffic["label", "a", Kind.GRADIENT].messages, traffic["label", "a", Kind.GRADIENT].bytes) == (1, 48)
    assert wire.take_traffic() == {}


def test_traffic_goes_on_from_its_state():
    wire, other = Wire(), Wire()
    wire.send(message())
    other.restore(wire.state())
    other.send(message())
    assert other.take_traffic()["a", "label", Kind.EMBEDDING].messages == 2


def test_a_compressed_layer_counts_what_it_is_packed_into(rng):
    encoded = Encoded(4, torch.randint(8, (10, 4), generator=rng), Grid.over(0.0, 1.0, 8))
    sent = Message(
        "a", "label", Kind.EMBEDDING, torch.arange(10), {"f5": encoded.values, "wide": torch.zeros(10, 1)}, {"f5": encoded}
    )
    assert sent.nbytes == len(encoded.payload) + 40 == 10 * 4 * 3 // 8 + 40


def test_nothing_that_hangs_on_a_graph_gets_through():
    """A tensor with history would let one party's optimiser reach into the other's model."""
    with pytest.raises(ValueError, match="detach"):
        message(f5=torch.zeros(2, 2, requires_grad=True) * 2)
