import torch

from vflbench.numerics import directions


def with_spectrum(values, rng):
    values = torch.as_tensor(values, dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(len(values), len(values), generator=rng, dtype=torch.float64)).Q
    return basis * values @ basis.T, basis[:, values.argmax()]


def difference(v, reference):
    """|v - reference| for the better sign: for small angles the angle, to full precision."""
    return (v - reference * torch.sign(v @ reference)).norm().item()


def test_the_planted_vector_is_recovered_to_the_precision_of_its_gap(rng):
    for d, unit in ((2, 1e-200), (12, 1.0), (128, 1e150)):
        for ratio in (0.0, 0.5, 0.9, 0.99, 0.9999):
            matrix, planted = with_spectrum([1.0, *[ratio * 0.99**i for i in range(d - 1)]], rng)
            error = difference(directions.top_eigenvector(unit * matrix), planted)
            assert error < 1e-13 / (1 - ratio), f"d={d} ratio={ratio}"


def test_eigenvalues_of_either_sign_fall_and_rows_of_zeros_come_last(rng):
    inner, _ = with_spectrum([2.0, 0.5, -1.0], rng)
    matrix = torch.zeros(5, 5, dtype=torch.float64)
    matrix[1:4, 1:4] = inner
    values, vectors = directions.eigenvectors(matrix)
    assert torch.allclose(values, torch.tensor([2.0, 0.5, -1.0, 0.0, 0.0], dtype=torch.float64))
    assert torch.allclose(vectors * values @ vectors.T, matrix)
    assert not vectors[:, 3:].any()


def test_the_slower_iteration_replaces_eigh_where_it_fails(rng, monkeypatch):
    matrix, planted = with_spectrum([1.0, 0.9999, 0.1], rng)

    def fail(_):
        raise torch.linalg.LinAlgError("failed to converge")

    monkeypatch.setattr(torch.linalg, "eigh", fail)
    assert difference(directions.top_eigenvector(matrix), planted) < 1e-9


def test_components_are_those_of_the_singular_value_decomposition(rng):
    x = torch.randn(400, 6, generator=rng, dtype=torch.float64) * torch.arange(6, 0, -1)
    x = x - x.mean(dim=0)
    _, s, vt = torch.linalg.svd(x, full_matrices=False)
    for scale in (1.0, 1e-170, 1e170):
        spreads, vectors = directions.leading_components(scale * x, 4)
        assert torch.allclose(spreads, scale * s[:4] / 20, rtol=1e-9)
        assert torch.allclose((vectors * vt[:4].T).sum(dim=0).abs(), torch.ones(4, dtype=torch.float64))


def test_there_are_no_components_where_rows_do_not_vary(rng):
    """Dead columns, and a rank below the width."""
    x = torch.zeros(100, 8)
    x[:, [1, 4, 6]] = torch.randn(100, 2, generator=rng) @ torch.randn(2, 3, generator=rng)
    spreads, vectors = directions.leading_components(x - x.mean(dim=0), 10)
    assert vectors.shape == (8, 10)
    assert ((spreads > 0) == (torch.arange(10) < 2)).all()
    assert not vectors[:, 2:].any()
    assert not vectors[[0, 2, 3, 5, 7]].any()
    assert not any(part.any() for part in directions.leading_components(torch.zeros(5, 2), 2))


def gradients(rng, n=4000, d=16, prior=0.25, noise=0.0):
    """(p_i - y_i) beta of a logistic model, and beta."""
    beta = torch.nn.functional.normalize(torch.randn(d, generator=rng, dtype=torch.float64), dim=0)
    logit = torch.log(torch.tensor(prior / (1 - prior))) + torch.randn(n, generator=rng, dtype=torch.float64)
    p = logit.sigmoid()
    y = torch.rand(n, generator=rng, dtype=torch.float64) < p
    return (p - y.double())[:, None] * beta + noise * torch.randn(n, d, generator=rng, dtype=torch.float64), beta


def test_the_gradients_of_a_logistic_model_point_along_its_weights_the_right_way_round(rng):
    for prior in (0.05, 0.25, 0.75, 0.95):
        g, beta = gradients(rng, prior=prior)
        assert torch.allclose(directions.logit_direction(*directions.gradient_moments(g), prior), beta, atol=1e-6), prior


def test_moments_of_batches_add_up_whatever_their_units_and_isotropic_noise(rng):
    """Batch by batch the sign of the top direction is arbitrary, which must not cancel."""
    g, beta = gradients(rng, n=20000, noise=0.3)
    for scale in (1.0, 1e-12, 1e12):
        moments = [directions.gradient_moments(scale * batch) for batch in g.split(1000)]
        second, third = (sum(parts) for parts in zip(*moments, strict=True))
        assert torch.allclose(second, scale**2 * g.T @ g)
        assert directions.logit_direction(second, third, 0.25) @ beta > 0.99, scale
    assert not directions.logit_direction(*directions.gradient_moments(torch.zeros(5, 3)), 0.25).any()


def test_a_loud_component_is_scaled_to_the_spread_of_the_second(rng):
    x = torch.randn(5000, 3, generator=rng, dtype=torch.float64) * torch.tensor([30.0, 2.0, 1.0])
    spreads, vectors = directions.leading_components(x - x.mean(dim=0), 2)
    first, rest = vectors[:, 0], torch.nn.functional.normalize(vectors[:, 1], dim=0)
    u = torch.nn.functional.normalize(rest + 0.02 * first, dim=0)
    quiet = directions.without_loudness(u, spreads, vectors)
    assert torch.allclose(quiet @ first, u @ first * spreads[1] / spreads[0])
    assert torch.allclose(quiet @ rest, u @ rest)
    assert torch.allclose(
        directions.without_loudness(first, spreads, vectors), first
    )  # a first component that is the logit stays
