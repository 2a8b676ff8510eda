"""Plain values and tensors survive the way through bytes; anything else is refused, and so are changed bytes."""

import json
import math
import random

import pytest
import torch
from vflbench.messages.envelope import decode, encode

CONTENT = {
    "numbers": [0, -1, 2**100, 0.1, -0.0, math.inf, 5e-324, True, False, None],
    "texts": ["", "a\x00b", "\u00e9 \u4e00", "\x1b[2J"],
    "looks like a tensor": {"t": 0, "d": {"t": 1}},
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
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bits(one) == bits(other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


def test_what_is_encoded_is_decoded_to_the_last_bit():
    read = decode(encode(CONTENT))
    assert same(read, {**CONTENT, "strided": CONTENT["strided"].contiguous()})
    read["floats"].zero_()  # in tensors of its own
    assert same(decode(encode(CONTENT))["floats"], CONTENT["floats"])
    assert same(decode(encode({"graph": torch.ones(2, requires_grad=True)}))["graph"], torch.ones(2))


@pytest.mark.parametrize("value", [object(), {1: 2}, b"x", 1j, {"a": {("b",): 1}}, torch.zeros(1).numpy(), {1, 2}])
def test_what_is_no_plain_value_is_not_encoded(value):
    with pytest.raises(TypeError, match="a message"):
        encode({"value": value})


def written(head, tail=b""):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return b"VFLB" + len(text).to_bytes(8, "little") + text + tail


DAMAGED = {
    "nothing": b"",
    "another beginning": b"PK" + encode({})[2:],
    "a head beyond the end": b"VFLB" + (2**60).to_bytes(8, "little"),
    "no JSON": written(b"{"),
    "a name twice": written(b'{"values":{"d":{}},"values":{"d":{}},"tensors":[]}'),
    "no tensors": written({"values": {"d": {}}}),
    "no dict": written({"values": [], "tensors": []}),
    "levels without end": written(b'{"values":' + b"[" * 10**6 + b"]" * 10**6 + b',"tensors":[]}'),
    "many levels": written(b'{"values":{"d":{"a":' + b"[" * 50 + b"]" * 50 + b'}},"tensors":[]}'),
    "a tensor that isn't there": written({"values": {"d": {"a": {"t": 0}}}, "tensors": []}),
    "a truth value as a number": written({"values": {"d": {"a": {"t": True}}}, "tensors": [["float32", [0]]] * 2}),
    "an unknown type": written({"values": {"d": {}}, "tensors": [["object", [1]]]}, b"\0" * 8),
    "terabytes": written({"values": {"d": {}}, "tensors": [["float64", [2**39, 2**39]]]}),
    "no bytes of terabytes": written({"values": {"d": {}}, "tensors": [["float64", [2**39, 2**39, 0]]]}),
    "a negative size": written({"values": {"d": {}}, "tensors": [["float64", [-1]]]}),
    "bytes that belong to nothing": encode(CONTENT) + b"\0" * 8,
    "fewer bytes": encode(CONTENT)[:-1],
    "no bool": encode({"a": torch.tensor([True])})[:-1] + b"\2",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_bytes_are_a_value_error(name):
    with pytest.raises(ValueError):  # noqa: PT011  (json's too)
        decode(DAMAGED[name])


def test_a_message_above_the_limit_is_refused():
    with pytest.raises(ValueError, match="are taken at most"):
        decode(encode(CONTENT), most=100)


def test_changed_bytes_are_read_or_are_a_value_error():
    rng, whole = random.Random(0), encode(CONTENT)
    read = 0
    for _ in range(2000):
        changed = bytearray(whole)
        for _ in range(rng.choice((1, 1, 4))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            decode(bytes(changed))
            read += 1
        except ValueError:
            continue
    assert 0 < read < 2000


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(1, dtype=torch.complex64),
        torch.zeros(1, dtype=torch.uint16),
        torch.zeros((1,) * 9),
        torch.eye(2).to_sparse(),
        [[[[[[[[[[[[[[[]]]]]]]]]]]]]]],
    ],
)
def test_what_would_not_be_decoded_is_not_encoded(value):
    with pytest.raises(TypeError, match="a message"):
        encode({"value": value})


def test_a_number_that_nobody_could_read_is_not_encoded():
    with pytest.raises(TypeError, match="can't hold int"):
        encode({"value": 1 << 20_000})


@pytest.mark.parametrize("name", ["a", "ab", "abcdefgh", "a name of another length"])
def test_tensors_are_aligned_as_torch_aligns_its_own(name):
    for x in decode(encode({name: [torch.randn(3, 5), torch.zeros(1, dtype=torch.int8), torch.randn(2)]}))[name]:
        assert x.data_ptr() % 64 == 0
