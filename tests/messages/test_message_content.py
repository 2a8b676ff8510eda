"""A message that crosses as bytes is the message that was sent, and a compressed one has no more bytes than are counted."""

import pytest
import torch
from vflbench.messages.envelope import decode, encode
from vflbench.messages.message_content import Receiving, Sending

from vflbench.data.table import LABEL_PARTY
from vflbench.defenses.base import Context
from vflbench.defenses.batch_average import BatchAverage
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.sign import Sign
from vflbench.defenses.top_k import TopK
from vflbench.defenses.vector_quantize import VectorQuantize
from vflbench.messages.codec import Encoded
from vflbench.messages.message import Kind, Message

CHAINS = {
    "quantize": [Quantize],
    "quantize 300": [lambda: Quantize(levels=300)],
    "binomial": [Quantize, Binomial],
    "top_k": [TopK],
    "top_k and quantize": [TopK, Quantize],
    "words": [VectorQuantize],
}
OF_GRADIENTS = {
    "rows": lambda: Quantize(message="gradients", range="row"),
    "signs": Sign,
    "means": BatchAverage,
}


def message_of(values):
    ids = torch.arange(len(values.numbers if isinstance(values, Encoded) else values))
    encoded = {"f1": values} if isinstance(values, Encoded) else {}
    read = values.values if isinstance(values, Encoded) else values
    return Message("a", LABEL_PARTY, Kind.EMBEDDING, ids, {"wide": torch.ones(len(ids), 1), "f1": read}, encoded)


def through(sending, receiving, message):
    content = decode(encode(sending.content(message)))
    agreed = {layer: tuple(values.shape) for layer, values in message.tensors.items()}
    return content, receiving.message(content, message.sender, message.receiver, message.kind, message.ids, agreed)


def assert_same(one, other):
    assert list(one.tensors) == list(other.tensors)
    for layer, values in one.tensors.items():
        assert torch.equal(values, other.tensors[layer])
        assert values.dtype == other.tensors[layer].dtype
        assert torch.equal(one.corrected[layer], other.corrected[layer])
    assert one.nbytes == other.nbytes


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (32, 16)])
def test_an_embedding_arrives_as_it_was_sent(name, shape):
    rng = torch.Generator().manual_seed(1)
    chain = [make() for make in CHAINS[name]]
    sending, receiving = Sending(), Receiving()
    for batch in range(25):  # codebooks are learned from the first twenty
        values = torch.randn(shape, generator=rng) * 3
        context = Context(torch.arange(shape[0]), None, 0, rng)
        for defense in chain:
            values = defense.embedding(values, context)
        message = message_of(values)
        content, arrived = through(sending, receiving, message)
        assert_same(message, arrived)
        assert len(content["encoded"]["f1"]["payload"]) == message.encoded["f1"].nbytes
        assert "book" not in content["encoded"]["f1"] or batch == 0


@pytest.mark.parametrize("name", OF_GRADIENTS)
@pytest.mark.parametrize("shape", [(2, 1), (7, 5), (32, 16)])
def test_a_gradient_arrives_as_it_was_sent(name, shape):
    rng = torch.Generator().manual_seed(2)
    defense, y = OF_GRADIENTS[name](), torch.arange(shape[0]) % 2
    values = defense.gradient(torch.randn(shape, generator=rng), y, Context(torch.arange(shape[0]), None, 0, rng))
    message = message_of(values)
    assert_same(message, through(Sending(), Receiving(), message)[1])


def test_who_joins_late_gets_the_codebook_with_the_next_message():
    rng = torch.Generator().manual_seed(3)
    defense = VectorQuantize(learn_batches=1)
    for batch in range(3):
        values = defense.embedding(torch.randn(16, 8, generator=rng), Context(torch.arange(16), None, 0, rng))
        message = message_of(values)
        content, arrived = through(Sending(), Receiving(), message)
        assert ("book" in content["encoded"]["f1"]) is (batch > 0)
        assert_same(message, arrived)


def sound():
    encoded = Quantize(levels=4).embedding(torch.randn(4, 6), Context(torch.arange(4), None, 0, torch.Generator()))
    return Sending().content(message_of(encoded))


HOSTILE = {
    "no layers": {"order": None},
    "a layer twice": {"order": ["wide", "wide"]},
    "an unknown layer": {"order": ["wide", "f1", "f2"]},
    "texts": {"tensors": {"wide": "x"}},
    "terabytes": {"shape": [10**7, 10**7]},
    "fewer bytes": {"payload": torch.zeros(1, dtype=torch.uint8)},
    "more bytes": {"payload": torch.zeros(100, dtype=torch.uint8)},
    "no bytes": {"payload": torch.zeros(6)},
    "a negative width": {"width": -1},
    "places beyond the width": {"places": 99},
    "another code": {"code": "pickle"},
    "a grid of nan": {"grid": [float("nan"), 1.0, 4, 3, 0.0, False]},
    "words that nobody announced": {"code": "words", "words": [2, 3], "known": True},
    "words without end": {"code": "words", "words": [2**40, 2**40]},
    "many more numbers than the width": {"code": "none", "shape": [4, 600], "payload": torch.zeros(9600, dtype=torch.uint8)},
    "another width": {"width": 10**6, "shape": [4, 1], "places": 1, "payload": torch.zeros(30, dtype=torch.uint8)},
    "long words": {"code": "words", "words": [1, 10**6], "shape": [4, 1], "book": torch.zeros(10**6)},
    "rows on no grid": {"code": "rows", "levels": 4, "form": "signs"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_message_is_refused(name):
    content = sound()
    of_layer = content["encoded"]["f1"]
    for key, value in HOSTILE[name].items():
        (of_layer if key in {**of_layer, "words": 0, "form": 0, "known": 0, "levels": 0} else content)[key] = value
    with pytest.raises((ValueError, KeyError, TypeError, RuntimeError)):
        Receiving().message(content, "a", LABEL_PARTY, Kind.EMBEDDING, torch.arange(4), {"wide": (4, 1), "f1": (4, 6)})
