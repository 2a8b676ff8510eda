import torch

from vflbench.numerics import system


def test_the_tensor_is_the_same_one_and_holds_what_is_written(monkeypatch):
    monkeypatch.setattr(system, "_LEAST", 0)
    for size in (0, 1, 1000, 1 << 20):
        values = torch.empty(size)
        assert system.on_large_pages(values) is values
        values.copy_(torch.arange(size))
        assert torch.equal(values, torch.arange(size).float())
