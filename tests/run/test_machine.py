import platform

import torch

from vflbench.run.machine import product_error, tune


def test_tuning_never_costs_accuracy():
    """Whatever was chosen, a float32 product is one: bfloat16 would be off by a thousandth."""
    before = torch.get_float32_matmul_precision()
    try:
        facts = tune()
        assert product_error() < 1e-5
        assert facts["matmul"] == torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        assert product_error() < 1e-5
    finally:
        torch.set_float32_matmul_precision(before)


def test_what_was_done_is_told():
    facts = tune()
    assert set(facts) == {"malloc", "denormals", "matmul", "threads"}
    if platform.libc_ver()[0] == "glibc":
        assert facts["malloc"] == "keeps memory"


def test_small_numbers_are_flushed_and_integers_kept_as_floats_are_not():
    """The tables of lazy Adam keep steps in the bits of floats, which are denormal numbers if they are read as such."""
    tune()
    steps = torch.arange(1, 1000, dtype=torch.int32)
    table = torch.zeros(999, 16)
    table.view(torch.int32)[:, 3] = steps
    for copied in (table.clone(), table.index_select(0, torch.arange(999)), torch.empty_like(table).copy_(table)):
        assert torch.equal(copied.view(torch.int32)[:, 3], steps)
