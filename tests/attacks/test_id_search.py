import torch

from vflbench.attacks.model_inversion import improve_ids


def planted(rng, sizes=(3, 40, 7), rows=6, dim=2):
    """|A vectors - h|^2 with a well-conditioned A: the planted ids have score 0."""
    tables = [torch.randn(size, dim, generator=rng) for size in sizes]
    ids = torch.stack([torch.randint(size, (rows,), generator=rng) for size in sizes], 1)
    a = torch.linalg.qr(torch.randn(12, len(sizes) * dim, generator=rng))[0]

    def read(chosen):
        return torch.stack([t[chosen[:, j]] for j, t in enumerate(tables)], 1)

    h = read(ids).flatten(1) @ a.T

    def score(rows, chosen):
        return (read(chosen).flatten(1) @ a.T - h[rows]).square().sum(1)

    def slope(chosen):
        return (2 * (read(chosen).flatten(1) @ a.T - h) @ a).view(len(chosen), len(sizes), dim)

    return tables, ids, read, score, slope


def test_planted_ids_are_recovered_and_every_pass_is_downhill(rng):
    tables, ids, read, score, slope = planted(rng)
    everyone = torch.arange(len(ids))
    for candidates in (100, 8):  # all ids of each column; a few
        start = torch.zeros_like(ids)
        before = score(everyone, start)
        result, value = improve_ids(start, tables, read(ids), slope, score, candidates)
        assert torch.equal(result, ids)
        assert (value <= before).all()
        torch.testing.assert_close(value, score(everyone, result))
        assert not start.any()  # the input is not changed
