import pytest
import torch
from attacks.views import auxiliary_of, digits, label_view
from support.builders import session, weights

from vflbench.attacks import model_inversion as inversion
from vflbench.attacks.model_inversion import LinearGaussianChannel, ModelInversion, improve_ids, most_likely_columns
from vflbench.data.pictures import Digits
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.quantize import Quantize
from vflbench.errors import UserError
from vflbench.models.networks import Cnn, Mlp, WideDeep


def rows_of(numeric, categorical=None, cardinalities=()):
    n = len(numeric)
    categorical = torch.empty(n, 0) if categorical is None else categorical
    names = tuple(f"I{i}" for i in range(numeric.shape[1])), tuple(f"C{i}" for i in range(len(cardinalities)))
    features = {"a": Features(Columns(*names, tuple(cardinalities)), numeric, categorical.int())}
    return VerticalTable(torch.arange(n), features, torch.arange(n) % 2, 2)


def rebuilt_by(attack, rows, started, known=None):
    """The answer about all rows, or the first ones. known: columns of other rows, which are all numeric."""
    known = None if known is None else auxiliary_of(rows_of(known))
    return attack.batch(label_view(rows, attack, started, known)).features["a"]


def test_a_random_network_of_two_layers_is_inverted_nearly(rng):
    rows = rows_of(torch.rand(20, 6, generator=rng))
    started = session(rows, model=Mlp(bottom_layers=2, width=64))
    rebuilt = rebuilt_by(ModelInversion(rows=15, prior="none"), rows, started)
    assert (rebuilt.numeric - rows.features["a"].numeric[:15]).square().mean() < 1e-4
    assert rebuilt.categorical.shape == (15, 0)


@pytest.mark.slow
def test_categories_come_back_with_numbers_where_the_cut_is_wide(rng):
    sizes = (3, 5, 40)
    ids = torch.stack([torch.randint(size, (24,), generator=rng) for size in sizes], 1)
    rows = rows_of(torch.rand(24, 3, generator=rng), ids, sizes)
    started = session(rows, model=WideDeep(bottom_layers=2, width=128, wide=True))
    started.parties[0].bottom.embedding.table.data.mul_(50)
    rebuilt = rebuilt_by(ModelInversion(rows=24, candidates=16, steps=200), rows, started)
    assert (rebuilt.categorical == rows.features["a"].categorical).float().mean() > 0.95
    assert (rebuilt.numeric - rows.features["a"].numeric).square().mean() < 2e-3


@pytest.mark.slow
def test_pictures_of_every_party_come_back():
    rows = digits(Digits(parties=2, rows=300).load(torch.Generator().manual_seed(0)).train).rows(slice(0, 40))
    attack = ModelInversion(rows=4)
    rebuilt = attack.batch(label_view(rows, attack, session(rows, model=Cnn()))).features
    assert set(rebuilt) == set("ab")
    for party, columns in rebuilt.items():
        truth = rows.features[party].numeric[:4]
        assert (columns.numeric - truth).square().mean() < 0.05 * truth.var()


def test_a_black_box_is_undone_by_a_decoder(rng):
    everything = torch.rand(1200, 3, generator=rng) * torch.tensor([1.0, 1, 0.2])
    rows, attack = rows_of(everything[:40]), ModelInversion(mode="black_box", rows=40, auxiliary=1100, decoder_width=64)
    started = session(rows, model=Mlp(bottom_layers=2, width=32))
    rebuilt = rebuilt_by(attack, rows, started, everything[40:]).numeric
    assert (rebuilt - everything[:40]).square().mean() < 0.05 * everything.var(dim=0).mean()


def test_asking_changes_nothing_of_the_run(rng):
    rows = rows_of(torch.rand(30, 5, generator=rng))
    plain, asked = (session(rows, model=Mlp(bottom_layers=1, width=8)) for _ in range(2))
    for _ in range(3):
        plain.round(rows.ids)
        rebuilt_by(ModelInversion(mode="black_box", decoder_steps=3), rows, asked, rows.features["a"].numeric)
    assert all(torch.equal(*pair) for pair in zip(weights(plain), weights(asked), strict=True))


def test_what_a_layer_passes_on_comes_back_to_a_step_of_a_grid_and_less_the_noises_mean(rng):
    """ReLU(x) = x on [0, 1]: with the identity as weights the answer is what arrived, as far as it is read right."""
    grid, noise = Quantize(levels=9, range=[0.0, 1.0]), Binomial(n=4, p=0.5, biased=True)
    x = torch.rand(20, 4, generator=rng)
    inner = 0.2 + 0.6 * x

    def errors(x, *defenses, **options):
        started = session(rows_of(x), model=Mlp(bottom_layers=1, width=4), defenses=defenses)
        started.parties[0].bottom.stack.layers["f1"].weight.data = torch.eye(4)
        return rebuilt_by(ModelInversion(rows=20, prior="none", **options), rows_of(x), started).numeric - x

    assert errors(x).abs().max() < 2e-3
    assert errors(inner, grid, knows_compression=True).abs().max() < 1 / 8
    assert errors(inner, grid, noise).mean() > 0.15  # the noise has the mean 1/4; nothing is rebuilt above 1
    assert errors(inner, grid, noise, knows_noise_mean=True).mean().abs() < 0.04


def test_total_variation_by_hand():
    picture = torch.tensor([[0.0, 3.0], [4.0, 3.0]])[None, None]
    by_hand = (5.0 + 0.0 + 1.0 + 0.0) / 4  # steps (4, 3), (0, -), (-, -1), (-, -)
    assert inversion.total_variation(picture).item() == pytest.approx(by_hand, abs=2e-3)


@pytest.mark.parametrize("options", [{"knows_compression": True}, {"knows_noise_mean": True}, {"prior": "pca"}])
def test_options_that_do_not_go_with_a_black_box_are_refused(options):
    with pytest.raises(ValueError, match="white_box"):
        ModelInversion(mode="black_box", **options)


def test_the_most_likely_rows_are_those_of_the_closed_form(rng):
    """A linear bottom, normal noise and a normal prior: mean + S A^T (A S A^T + C)^-1 (h - A mean - b)."""
    root, layer = 0.05 * torch.randn(6, 6, generator=rng), torch.randn(4, 6, generator=rng)
    slope, shift = torch.rand(4, generator=rng) + 0.5, torch.randn(4, generator=rng)
    noise, a, s = 0.1 * torch.eye(4) + 0.02, slope[:, None] * layer, root @ root.T
    channel = LinearGaussianChannel(slope, shift, torch.linalg.cholesky(torch.linalg.inv(noise)))
    h = torch.randn(10, 4, generator=rng) * 0.2 + shift + a.sum(1) / 2
    x = most_likely_columns(h, lambda x: x @ layer.T, inversion.NormalPrior(torch.full((6,), 0.5), root), channel)[0]
    closed = 0.5 + (h - shift - a.sum(1) / 2) @ torch.linalg.inv(a @ s @ a.T + noise) @ (a @ s)
    assert 0.02 < (closed - 0.5).abs().max() < 0.5
    torch.testing.assert_close(x, closed, atol=1e-3, rtol=0)


def test_the_channel_of_a_noisy_line_is_read_and_noise_alone_says_nothing(rng):
    f, noise = torch.rand(4000, 3, generator=rng), torch.randn(4000, 3, generator=rng)
    channel = LinearGaussianChannel.of(f, 2 * f + 1 + 0.1 * noise)
    torch.testing.assert_close(channel.slope, torch.full((3,), 2.0), atol=0.03, rtol=0)
    torch.testing.assert_close(channel.shift, torch.full((3,), 1.0), atol=0.03, rtol=0)
    torch.testing.assert_close(channel.whitening @ channel.whitening.T, 100 * torch.eye(3), atol=8, rtol=0)
    for closed in (f, torch.ones(4000, 3)):  # the second for all known rows
        assert (LinearGaussianChannel.of(closed, noise).slope == 0).all()


def test_where_messages_are_noise_pca_answers_with_the_mean_of_the_auxiliary_rows(rng):
    everything, noise = torch.rand(640, 5, generator=rng), EmbeddingNoise(norm=1.0, eps=0.01)
    rows, known = rows_of(everything[:40]), everything[40:]
    started = session(rows, model=Mlp(bottom_layers=2, width=24), defenses=[noise])
    rebuilt = rebuilt_by(ModelInversion(rows=40, prior="pca"), rows, started, known).numeric
    fitted = known[:-64]  # the others show whether messages are of rows like these
    torch.testing.assert_close(rebuilt, fitted.mean(dim=0).expand(40, -1), atol=1e-4, rtol=0)


def related(rng):
    """Ten columns that three others determine, but for a little noise."""
    everything = torch.rand(640, 3, generator=rng) @ torch.rand(3, 10, generator=rng) / 3
    return (everything + 0.05 * torch.rand(640, 10, generator=rng)).clamp(0, 1)


def mean_error(rows, known, *, prior="auto", defenses=(), width=64):
    """Mean square error of the attack on the same messages. known: (m, k) auxiliary rows."""
    started = session(rows, model=Mlp(bottom_layers=2, width=width), defenses=defenses)
    rebuilt = rebuilt_by(ModelInversion(rows=40, steps=150, decoder_steps=200, prior=prior), rows, started, known)
    return float((rebuilt.numeric - rows.features["a"].numeric).square().mean())


@pytest.mark.slow
def test_a_learned_prior_wins_behind_noise_and_is_near_exact_without(rng):
    everything, behind = related(rng), {"defenses": [EmbeddingNoise(norm=10.0, eps=1000.0)], "width": 24}
    rows, known = rows_of(everything[:40]), everything[40:]
    mean = float((everything[:40] - known.mean(dim=0)).square().mean())
    learned = mean_error(rows, known, prior="pca", **behind)
    assert learned < min(0.5 * mean_error(rows, known, **behind), 0.9 * mean)
    assert mean_error(rows, known, prior="pca") < 0.01 * mean


@pytest.mark.slow
def test_clear_messages_refute_auxiliary_rows_of_another_distribution(rng):
    """Then the answer is that without them, or better."""
    everything = related(rng)
    rows, known = rows_of(everything[:40]), 1 - everything[40:] + 0.01 * torch.rand(600, 10, generator=rng)
    noise = [EmbeddingNoise(norm=10.0, eps=1e5)]
    assert mean_error(rows, known, prior="pca", defenses=noise) < 1.2 * mean_error(rows, known, defenses=noise)


def test_rows_like_the_auxiliary_ones_are_not_taken_for_others(rng):
    """A false alarm has the probability of a normal variable above 3, 0.0013, or little more with an estimated deviation."""
    of_rows, of_others = (torch.randn(1000, n, generator=rng).exp() for n in (40, 64))
    assert sum(map(inversion.is_larger, of_rows, of_others)) < 10


def test_pca_needs_numeric_columns(rng):
    rows = rows_of(torch.rand(8, 2, generator=rng), torch.randint(3, (8, 1), generator=rng), (3,))
    attack, started = ModelInversion(prior="pca"), session(rows, model=WideDeep(bottom_layers=1, width=8))
    with pytest.raises(UserError, match="categorical"):
        attack.batch(label_view(rows, attack, started, auxiliary_of(rows)))


@pytest.mark.parametrize("candidates", [100, 8])  # all ids of each column; a few
def test_planted_ids_are_recovered_and_every_pass_is_downhill(rng, candidates):
    sizes = (3, 40, 7)
    tables = [torch.randn(size, 2, generator=rng) for size in sizes]
    ids = torch.stack([torch.randint(size, (6,), generator=rng) for size in sizes], 1)

    def read(chosen):
        return torch.stack([t[chosen[:, j]] for j, t in enumerate(tables)], 1)

    def score(rows, chosen):
        return (read(chosen) - read(ids)[rows]).square().sum((1, 2))

    start = torch.zeros_like(ids)
    result, value = improve_ids(start, tables, read(ids), lambda chosen: 2 * (read(chosen) - read(ids)), score, candidates)
    assert torch.equal(result, ids)
    assert not value.any()
    assert not start.any()  # the input is not changed
