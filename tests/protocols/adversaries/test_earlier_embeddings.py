import torch

from vflbench.protocols.adversaries.fsha import EarlierEmbeddings


def test_a_batch_in_another_order_is_noticed_from_the_second_epoch_on(rng):
    ids, first = torch.arange(40), torch.randn(40, 6, generator=rng)
    later = first + 0.3 * torch.randn(40, 6, generator=rng)  # the network has moved
    order = torch.randperm(40, generator=rng)
    earlier = EarlierEmbeddings()
    assert not earlier.out_of_place(ids, {"a": {"f1": first}})
    assert earlier.out_of_place(ids, {"a": {"f1": later[order]}})
    assert not earlier.out_of_place(ids, {"a": {"f1": later}})
    other = EarlierEmbeddings()
    other.tables = {party: table.clone() for party, table in earlier.tables.items()}
    assert other.out_of_place(ids, {"a": {"f1": later[order]}})
    assert not other.out_of_place(ids + 100, {"a": {"f1": later[order]}})  # rows that it never met
    assert not other.out_of_place(ids[:7], {"a": {"f1": later[:7].flip(0)}})  # too few to tell
