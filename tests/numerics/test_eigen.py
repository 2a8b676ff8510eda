import pytest
import torch

from vflbench.numerics.eigen import leading_components, top_eigenvectors


def with_spectrum(values, rng):
    values = torch.as_tensor(values, dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(len(values), len(values), generator=rng, dtype=torch.float64)).Q
    return basis * values @ basis.T, basis[:, values.argmax()]


def difference(v, reference):
    """|v - reference| for the better sign: for small angles the angle, to full precision."""
    return (v - reference * torch.sign(v @ reference)).norm().item()


def test_the_planted_vector_is_recovered_to_the_precision_of_its_gap(rng):
    for d in (2, 12, 128):
        for ratio in (0.0, 0.5, 0.9, 0.99, 0.9999):
            matrix, planted = with_spectrum([1.0, *[ratio * 0.99**i for i in range(d - 1)]], rng)
            error = difference(top_eigenvectors(matrix[None])[0], planted)
            assert error < 1e-13 / (1 - ratio), f"d={d} ratio={ratio}"


def test_it_solves_its_equation_as_well_as_lapack(rng):
    activations = torch.randn(300, 64, generator=rng, dtype=torch.float64).relu()
    matrices = torch.stack([activations.T @ activations, activations[:20].T @ activations[:20]])
    values = torch.linalg.eigvalsh(matrices)[:, -1]
    for matrix, v, value in zip(matrices, top_eigenvectors(matrices), values, strict=True):
        assert (matrix @ v - value * v).norm() < 1e-13 * value


def test_units_do_not_matter_and_a_batch_is_its_matrices_one_by_one(rng):
    matrices = torch.stack([with_spectrum([1.0, 0.7, 0.1], rng)[0] * unit for unit in (1e-200, 1e-20, 1.0, 1e150)])
    together = top_eigenvectors(matrices)
    for matrix, v in zip(matrices, together, strict=True):
        assert difference(v, top_eigenvectors(matrix[None])[0]) < 1e-12


def test_a_tie_gives_a_vector_of_the_top_space():
    v = top_eigenvectors(torch.diag(torch.tensor([2.0, 2.0, 1.0], dtype=torch.float64))[None])[0]
    assert abs(v[2]) < 1e-12
    assert v.norm().item() == pytest.approx(1)


def test_a_matrix_of_zeros_has_no_direction():
    assert torch.equal(top_eigenvectors(torch.zeros(2, 5, 5, dtype=torch.float64)), torch.zeros(2, 5, dtype=torch.float64))


def test_the_svd_replaces_eigh_where_it_fails(rng, monkeypatch):
    matrix, planted = with_spectrum([1.0, 0.9999, 0.1], rng)

    def fail(_):
        raise torch.linalg.LinAlgError("failed to converge")

    monkeypatch.setattr(torch.linalg, "eigvalsh", fail)
    monkeypatch.setattr(torch.linalg, "eigh", fail)
    assert difference(top_eigenvectors(matrix[None])[0], planted) < 1e-9


def test_components_are_those_of_the_singular_value_decomposition(rng):
    x = torch.randn(400, 6, generator=rng, dtype=torch.float64) * torch.arange(6, 0, -1)
    x = x - x.mean(dim=0)
    _, s, vt = torch.linalg.svd(x, full_matrices=False)
    for scale in (1.0, 1e-30, 1e30):
        spreads, vectors = leading_components(scale * x, 4)
        assert torch.allclose(spreads, scale * s[:4] / 20, rtol=1e-9)
        assert torch.allclose((vectors * vt[:4].T).sum(dim=0).abs(), torch.ones(4, dtype=torch.float64))


def test_there_are_no_components_where_rows_do_not_vary(rng):
    """Dead columns, and a rank below the width."""
    x = torch.zeros(100, 8)
    x[:, [1, 4, 6]] = torch.randn(100, 2, generator=rng) @ torch.randn(2, 3, generator=rng)
    spreads, vectors = leading_components(x - x.mean(dim=0), 10)
    assert vectors.shape == (8, 10)
    assert (spreads[:2] > 0).all()
    assert not spreads[3:].any()
    assert not vectors[:, 3:].any()
    assert not vectors[[0, 2, 3, 5, 7]].any()
    assert not any(part.any() for part in leading_components(torch.zeros(5, 2), 2))


def test_a_second_eigenvector_that_is_a_unit_vector_is_not_taken_for_the_first():
    """The top eigenvector is spread over 100 coordinates, so the largest diagonal entry of a power is the second's."""
    matrix = torch.zeros(101, 101, dtype=torch.float64)
    matrix[:100, :100] = 1 / 100
    matrix[100, 100] = 0.999
    v = top_eigenvectors(matrix[None])[0]
    assert v[:100].abs().min() == pytest.approx(0.1)
    assert abs(v[100]) < 1e-10
