"""What crosses as bytes is what was sent, to the last bit; anything else is refused, and a compressed message has no more
payload than is counted.
"""

import math

import pytest
import torch
from torch.utils._pytree import tree_flatten

from vflbench.data.table import LABEL_PARTY
from vflbench.defenses.base import Context
from vflbench.defenses.batch_average import BatchAverage
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.sign import Sign
from vflbench.defenses.top_k import TopK
from vflbench.defenses.vector_quantize import VectorQuantize
from vflbench.messages.codec import Codebook, Encoded, Grid, largest
from vflbench.messages.serialize import content_of, decode, encode, message_of
from vflbench.messages.wire import Kind, Message, Wire

CONTENT = {
    "numbers": [0, -1, 2**100, 0.1, -0.0, math.inf, 5e-324, True, False, None],
    "texts": ["", "a\x00b", "\u00e9 \u4e00", "\x1b[2J"],
    "empty": [{}, [], ""],
    "floats": torch.tensor([[1.5, -0.0], [math.nan, math.inf]]),
    "scalar": torch.tensor(7),
    "none": torch.empty(0, 5, dtype=torch.int32),
    "strided": torch.arange(12.0, dtype=torch.float64).view(3, 4).T,
    "truth": torch.tensor([True, False, True]),
    "halves": torch.tensor([1.0, 3.0], dtype=torch.bfloat16),
    "bytes": torch.arange(3, dtype=torch.uint8),
}


def same(one, other):
    (leaves, form), (others, other_form) = tree_flatten(one), tree_flatten(other)
    return form == other_form and [*map(bits, leaves)] == [*map(bits, others)]


def bits(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.contiguous().reshape(-1).view(torch.uint8).tolist()
    return type(value), repr(value)


def test_what_is_encoded_is_decoded_to_the_last_bit():
    assert same(decode(encode(CONTENT)), {**CONTENT, "strided": CONTENT["strided"].contiguous()})
    whole = torch.ones(4, requires_grad=True)
    read = decode(encode({"graph": whole, "part": whole[:2]}))  # the same memory twice
    read["graph"].zero_()  # in tensors of its own
    assert same(read["part"], torch.ones(2))


@pytest.mark.parametrize("value", [object(), b"x", {"a": {("b",): 1}}, torch.eye(2).to_sparse()])
def test_what_is_no_plain_value_is_not_encoded(value):
    with pytest.raises(TypeError):
        encode({"value": value})


def test_damaged_bytes_are_read_or_are_a_value_error():
    whole = encode(CONTENT)
    for damaged in (b"", b"PK" + whole[2:], whole + b"\0" * 8, whole[:-1], b"\xff" * 8 + whole, encode([])):
        with pytest.raises(ValueError):  # noqa: PT011  (json's too)
            decode(damaged)
    with pytest.raises(ValueError, match="are taken at most"):
        decode(whole, most=100)


CHAINS = {
    "quantize": [Quantize],
    "quantize 300": [lambda: Quantize(levels=300)],
    "binomial": [Quantize, Binomial],
    "top_k and quantize": [TopK, Quantize],
    "words": [lambda: VectorQuantize(learn_batches=1)],
    "rows": [lambda: Quantize(message="gradients", range="row")],
    "signs": [Sign],
    "means": [BatchAverage],
}
OF_GRADIENTS = ("rows", "signs", "means")


def message(values):
    ids = torch.arange(len(values.numbers if isinstance(values, Encoded) else values))
    return Message.of("a", LABEL_PARTY, Kind.EMBEDDING, ids, {"wide": torch.ones(len(ids), 1), "f1": values})


def assert_crosses(sent):
    widths = {layer: values.shape[1] for layer, values in sent.tensors.items()}
    content = decode(encode(content_of(sent)))
    arrived = message_of(content, sent.sender, sent.receiver, sent.kind, sent.ids, widths)
    assert list(arrived.tensors) == list(sent.tensors)
    for layer, values in sent.tensors.items():
        assert same(arrived.tensors[layer], values)
        assert same(arrived.corrected[layer], sent.corrected[layer])
    assert arrived.nbytes == sent.nbytes
    if sent.encoded:
        assert len(content["f1"]["payload"]) == sent.encoded["f1"].nbytes


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (32, 16)])
def test_an_embedding_or_a_gradient_arrives_as_it_was_sent(name, shape):
    rng = torch.Generator().manual_seed(1)
    chain = [make() for make in CHAINS[name]]
    for _ in range(3):
        values, context = torch.randn(shape, generator=rng) * 3, Context(torch.arange(shape[0]), None, 0, rng)
        for defense in chain:
            if name in OF_GRADIENTS:
                values = defense.gradient(values, torch.arange(shape[0]) % 2, context)
            else:
                values = defense.embedding(values, context)
        assert_crosses(message(values))


WORDS = {"code": "words", "places": None, "payload": torch.full((3,), 255, dtype=torch.uint8)}
HOSTILE = {
    "another layer": {"f2": torch.zeros(4, 6)},
    "other rows": {"f1": torch.zeros(5, 6)},
    "another type": {"f1": torch.zeros(4, 6, dtype=torch.float64)},
    "fewer bytes": {"payload": torch.zeros(1, dtype=torch.uint8)},
    "places beyond the width": {"places": 99},
    "another code": {"code": "pickle"},
    "words that there aren't": {**WORDS, "rule": {"words": torch.zeros(3, 2)}, "announced": 0},
    "words without end": {**WORDS, "rule": {"words": torch.zeros(1, 10**6)}, "announced": 0},
    "rows on no grid": {"code": "rows", "rule": {"low": torch.zeros(2, 1), "step": torch.zeros(2, 1), "levels": 4}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_message_is_refused(name):
    encoded = Quantize(levels=4).embedding(torch.randn(4, 6), Context(torch.arange(4), None, 0, torch.Generator()))
    content = content_of(message(encoded))
    for key, value in HOSTILE[name].items():
        (content["f1"] if key in content["f1"] else content)[key] = value
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError, RuntimeError)):
        message_of(content, "a", LABEL_PARTY, Kind.EMBEDDING, torch.arange(4), {"wide": 1, "f1": 6})


@pytest.mark.parametrize(("kept", "bits"), [(3, 3 * 5), (10, 20)], ids=["by index", "by a bit a coordinate"])
def test_real_numbers_and_their_places_survive_the_bytes(rng, kept, bits):
    h = torch.randn(9, 20, generator=rng)
    places = largest(h, kept)
    encoded = Encoded(20, h.gather(1, places), places=places)
    assert encoded.nbytes == 9 * kept * 4 + -(-9 * bits // 8)
    expected = torch.where(h.abs() >= h.abs().sort(dim=1, descending=True).values[:, kept - 1 : kept], h, 0.0)
    assert torch.equal(encoded.values, expected)
    assert torch.equal(encoded.corrected, expected)


def test_the_receiver_reads_the_bytes_and_nothing_else(rng):
    codes, announced = torch.randint(5, (4, 6), generator=rng), torch.tensor([-1.0, 1.0])
    encoded = Encoded(6, codes, Grid.over(-1.0, 1.0, 5), announced=announced)
    assert encoded.payload[:8].view(torch.float32).tolist() == [-1.0, 1.0]
    encoded.payload[8:] = 0  # after the range, which comes first
    assert torch.equal(encoded.values, torch.full((4, 6), -1.0))


@pytest.mark.parametrize("corrected", [False, True])
def test_the_mean_of_the_noise_is_taken_off_in_reading_or_in_training(corrected):
    grid = Grid(low=-1.0, step=0.5, levels=5, top=4 + 10, noise_mean=5.0, corrected=corrected)
    encoded = Encoded(2, torch.tensor([[7, 0]]), grid)
    assert encoded.corrected.tolist() == [[0.0, -3.5]]
    assert encoded.values.tolist() == ([[0.0, -3.5]] if corrected else [[2.5, -1.0]])
    assert encoded.is_biased is not corrected
    assert encoded.nbytes == 1  # two numbers of four bits


def test_the_same_rule_for_other_embeddings(rng):
    h, other = torch.randn(5, 8, generator=rng), torch.randn(7, 8, generator=rng)
    places, grid = largest(h, 2), Grid.over(-2.0, 2.0, 9)
    both = Encoded(8, grid.codes(h.gather(1, places)), grid, places)
    assert torch.equal(both.compress(h), both.values)
    assert ((both.compress(other) != 0).sum(dim=1) <= 2).all()
    book = Codebook(torch.randn(6, 3, generator=rng))
    words = Encoded(8, book.codes(h), book)
    assert torch.equal(words.compress(h), words.values)
    parts = torch.nn.functional.pad(h, (0, 1)).view(-1, 3)
    assert torch.equal(book.codes(h).view(-1), torch.cdist(parts, book.words).argmin(dim=1))


def of_a(rows=10, **tensors):
    return Message("a", "label", Kind.EMBEDDING, torch.arange(rows), tensors or {"f5": torch.zeros(rows, 4)})


def test_bytes_and_messages_are_counted_by_direction_until_taken_also_after_a_stop():
    stopped, wire = Wire(), Wire()
    stopped.send(of_a(f5=torch.zeros(10, 4), wide=torch.zeros(10, 1)))
    wire.restore(stopped.state())
    wire.send(of_a(f5=torch.zeros(10, 4, dtype=torch.float64)))
    wire.send(Message("label", "a", Kind.GRADIENT, torch.arange(3), {"f5": torch.zeros(3, 4)}))
    traffic = {route: (counted.messages, counted.bytes) for route, counted in wire.take_traffic().items()}
    assert traffic == {("a", "label", Kind.EMBEDDING): (2, 520), ("label", "a", Kind.GRADIENT): (1, 48)}
    assert wire.take_traffic() == {}


def test_nothing_that_hangs_on_a_graph_gets_through():
    """A tensor with history would let one party's optimiser reach into the other's model."""
    with pytest.raises(ValueError, match="detach"):
        of_a(f5=torch.zeros(2, 2, requires_grad=True) * 2)
