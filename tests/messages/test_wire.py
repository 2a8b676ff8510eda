import pytest
import torch

from vflbench.messages.wire import Kind, Message, Wire


def message(rows=10, **tensors):
    return Message("a", "label", Kind.EMBEDDING, torch.arange(rows), tensors or {"f5": torch.zeros(rows, 4)})


def test_bytes_and_messages_are_counted_by_direction_until_taken_also_after_a_stop():
    stopped, wire = Wire(), Wire()
    stopped.send(message(f5=torch.zeros(10, 4), wide=torch.zeros(10, 1)))
    wire.restore(stopped.state())
    wire.send(message(f5=torch.zeros(10, 4, dtype=torch.float64)))
    wire.send(Message("label", "a", Kind.GRADIENT, torch.arange(3), {"f5": torch.zeros(3, 4)}))
    traffic = {route: (counted.messages, counted.bytes) for route, counted in wire.take_traffic().items()}
    assert traffic == {("a", "label", Kind.EMBEDDING): (2, 520), ("label", "a", Kind.GRADIENT): (1, 48)}
    assert wire.take_traffic() == {}


def test_nothing_that_hangs_on_a_graph_gets_through():
    """A tensor with history would let one party's optimiser reach into the other's model."""
    with pytest.raises(ValueError, match="detach"):
        message(f5=torch.zeros(2, 2, requires_grad=True) * 2)
