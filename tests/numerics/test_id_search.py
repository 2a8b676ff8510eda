import torch

from vflbench.numerics.id_search import improve_ids, nearest_ids


def planted(rng, sizes=(3, 40, 7), rows=6, dim=2):
    """|A vectors - h|^2 with a well-conditioned A: the planted ids have score 0."""
    tables = [torch.randn(size, dim, generator=rng) for size in sizes]
    ids = torch.stack([torch.randint(size, (rows,), generator=rng) for size in sizes], 1)
    a = torch.linalg.qr(torch.randn(12, len(sizes) * dim, generator=rng))[0]

    def read(own):
        return torch.stack([t[own[:, j]] for j, t in enumerate(tables)], 1)

    h = read(ids).flatten(1) @ a.T

    def score(chosen, own):
        return (read(own).flatten(1) @ a.T - h[chosen]).square().sum(1)

    def slope(own):
        return (2 * (read(own).flatten(1) @ a.T - h) @ a).view(len(own), len(sizes), dim)

    return tables, ids, read, score, slope


def test_planted_ids_are_found_and_every_pass_is_downhill(rng):
    tables, ids, read, score, slope = planted(rng)
    everyone = torch.arange(len(ids))
    for candidates in (100, 8):  # all ids of each column; a few
        own = torch.zeros_like(ids)
        before = score(everyone, own)
        found, value = improve_ids(own, tables, read(ids), slope, score, candidates)
        assert torch.equal(found, ids)
        assert (value <= before).all()
        torch.testing.assert_close(value, score(everyone, found))
        assert not own.any()  # what came in is left as it is


def test_the_nearest_id_is_that_of_the_vector_itself(rng):
    tables, ids, read, _, _ = planted(rng)
    assert torch.equal(nearest_ids(read(ids) + 1e-4, tables), ids)
