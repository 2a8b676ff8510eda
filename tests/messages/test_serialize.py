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
from vflbench.messages.codec import Encoded
from vflbench.messages.serialize import content_of, decode, encode, message_of
from vflbench.messages.wire import Kind, Message

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
