import torch
from torch.nn import functional as F

from vflbench.numerics import system
from vflbench.numerics.system import in_full_precision


def test_products_are_rounded_outside_and_not_inside():
    x, w = torch.rand(4, 8), torch.rand(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert F.linear(x, w).dtype is torch.bfloat16
        with in_full_precision():
            assert torch.equal(F.linear(x, w), (x @ w.T))
            assert not torch.is_autocast_enabled("cpu")
        assert F.linear(x, w).dtype is torch.bfloat16
    with in_full_precision():
        assert F.linear(x, w).dtype is torch.float32


def test_the_tensor_is_the_same_one_and_holds_what_is_written(monkeypatch):
    monkeypatch.setattr(system, "_LEAST", 0)
    for size in (0, 1, 1000, 1 << 20):
        values = torch.empty(size)
        assert system.on_large_pages(values) is values
        values.copy_(torch.arange(size))
        assert torch.equal(values, torch.arange(size).float())
