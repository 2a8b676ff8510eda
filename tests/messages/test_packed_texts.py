"""Identifiers cross as bytes and lengths, and come back as they were."""

import pytest
import torch
from vflbench.messages.envelope import decode, encode
from vflbench.messages.packed_texts import packed_texts, unpacked_texts


@pytest.mark.parametrize("texts", [[], [""], ["", "a", "", "\u00e9\n", "007", "\x00"], ["x" * 1000] * 50])
def test_texts_come_back_as_they_were(texts):
    assert unpacked_texts(decode(encode({"ids": packed_texts(texts)}))["ids"]) == texts


HOSTILE = {
    "nothing": None,
    "a list": ["a"],
    "no lengths": {"bytes": torch.zeros(1, dtype=torch.uint8)},
    "floats": {"bytes": torch.zeros(1), "lengths": torch.tensor([1])},
    "a text": {"bytes": "a", "lengths": torch.tensor([1])},
    "a matrix": {"bytes": torch.zeros(1, 1, dtype=torch.uint8), "lengths": torch.tensor([1])},
    "negative": {"bytes": torch.zeros(1, dtype=torch.uint8), "lengths": torch.tensor([2, -1])},
    "too many": {"bytes": torch.zeros(1, dtype=torch.uint8), "lengths": torch.tensor([2])},
    "around": {"bytes": torch.zeros(0, dtype=torch.uint8), "lengths": torch.tensor([2**62, 2**62, 2**62, 2**62])},
    "no UTF-8": {"bytes": torch.tensor([255], dtype=torch.uint8), "lengths": torch.tensor([1])},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_texts_is_refused(name):
    with pytest.raises(ValueError):  # noqa: PT011  (also that of UTF-8)
        unpacked_texts(HOSTILE[name])
