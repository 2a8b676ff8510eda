import torch

from vflbench.audit import row_names


def test_row_names_tell_rows_apart_and_nothing_else():
    ids = torch.arange(100_000)
    names = row_names(ids, 12345)
    assert len(names.unique()) == len(ids)
    assert torch.equal(names, row_names(ids, 12345))
    assert not torch.isin(names, row_names(ids, 12346)).any()
    up = (names.diff() > 0).double().mean().item()
    assert abs(up - 0.5) < 0.01  # neighbours' names follow in no order
    for bit in range(64):
        share = ((names >> bit) & 1).double()
        assert abs(share.mean().item() - 0.5) < 0.02
        assert abs(torch.corrcoef(torch.stack([share, ids.double()]))[0, 1].item()) < 0.02
