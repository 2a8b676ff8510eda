import pytest
import torch

from vflbench.numerics.eigen import top_eigenvectors


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
    matrix, planted = with_spectrum([1.0, 0.9999, 0.1], rng)  # too close for the power

    def fail(_):
        raise torch.linalg.LinAlgError("failed to converge")

    monkeypatch.setattr(torch.linalg, "eigh", fail)
    assert difference(top_eigenvectors(matrix[None])[0], planted) < 1e-9
