import pytest
import torch
from attacks.views import digits
from support.builders import session

from vflbench.attacks.model_inversion import (
    LinearGaussianChannel,
    ModelInversion,
    NormalPrior,
    improve_ids,
    is_larger,
    most_likely_columns,
    total_variation,
)
from vflbench.data.pictures import Digits
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.quantize import Quantize
from vflbench.errors import UserError
from vflbench.messages.facts import Auxiliary, Embeddings, NoiseMean, PartyFeatures, PeerModels, Queries
from vflbench.messages.threat import Role, Threat, View
from vflbench.models.networks import Cnn, Mlp, WideDeep


def view_of(rows: VerticalTable, attack: ModelInversion, *, model, defenses=(), started=None, auxiliary=None):
    """What the label party sees of one round, and the session. auxiliary: party -> its columns of other rows."""
    started = started or session(rows, model=model, defenses=defenses)
    round_ = started.round(rows.ids, watch=attack.threat.knows)
    facts = {**round_.facts["label"], Auxiliary: Auxiliary(auxiliary or {})}
    return View("label", 0, 0, rows.ids, torch.Generator().manual_seed(0), attack.threat, facts), started


def rows_of(numeric, categorical=None, cardinalities=(), names=None):
    n = len(numeric)
    categorical = torch.empty(n, 0, dtype=torch.int32) if categorical is None else categorical.int()
    names = names or tuple(f"I{i}" for i in range(numeric.shape[1]))
    columns = Columns(names, tuple(f"C{i}" for i in range(len(cardinalities))), tuple(cardinalities))
    features = {"a": Features(columns, numeric, categorical)}
    return VerticalTable(torch.arange(n), features, torch.arange(n) % 2, 2)


def test_a_layer_that_passes_features_on_is_inverted_exactly(rng):
    """ReLU(x) = x on [0, 1]: with the identity as weights the answer is what arrived."""
    rows = rows_of(torch.rand(20, 4, generator=rng))
    started = session(rows, model=Mlp(bottom_layers=1, width=4))
    with torch.no_grad():
        started.parties[0].bottom.stack.layers["f1"].weight.copy_(torch.eye(4))
    attack = ModelInversion(rows=20, prior="none")
    view, _ = view_of(rows, attack, model=None, started=started)
    rebuilt = attack.batch(view)
    assert (rebuilt.layer, rebuilt.ids.tolist()) == ("f1", list(range(20)))
    torch.testing.assert_close(rebuilt.features["a"].numeric, rows.features["a"].numeric, atol=2e-3, rtol=0)


def test_a_random_network_of_two_layers_is_inverted_nearly(rng):
    rows = rows_of(torch.rand(20, 6, generator=rng))
    attack = ModelInversion(rows=15, prior="none")
    view, _ = view_of(rows, attack, model=Mlp(bottom_layers=2, width=64))
    rebuilt = attack.batch(view).features["a"]
    truth = rows.features["a"].numeric[:15]
    assert (rebuilt.numeric - truth).square().mean() < 1e-4
    assert rebuilt.categorical.shape == (15, 0)


@pytest.mark.slow
def test_categories_come_back_with_numbers_where_the_cut_is_wide(rng):
    sizes = (3, 5, 40)
    ids = torch.stack([torch.randint(size, (24,), generator=rng) for size in sizes], 1)
    rows = rows_of(torch.rand(24, 3, generator=rng), ids, sizes)
    model = WideDeep(bottom_layers=2, width=128, wide=True)
    started = session(rows, model=model)
    with torch.no_grad():
        started.parties[0].bottom.embedding.table.mul_(50)
    attack = ModelInversion(rows=24, candidates=16, steps=200)
    view, _ = view_of(rows, attack, model=None, started=started)
    rebuilt = attack.batch(view).features["a"]
    assert (rebuilt.categorical == rows.features["a"].categorical).float().mean() > 0.95
    assert (rebuilt.numeric - rows.features["a"].numeric).square().mean() < 2e-3


@pytest.mark.slow
def test_pictures_of_every_party_come_back():
    rows = digits(Digits(parties=2, rows=300).load(torch.Generator().manual_seed(0)).train).rows(slice(0, 40))
    attack = ModelInversion(rows=4)
    view, _ = view_of(rows, attack, model=Cnn())
    rebuilt = attack.batch(view)
    assert set(rebuilt.features) == set("ab")
    for party, own in rebuilt.features.items():
        truth = rows.features[party].numeric[:4]
        assert (own.numeric - truth).square().mean() < 0.05 * truth.var()


def test_a_black_box_is_undone_by_a_decoder(rng):
    everything = torch.rand(1200, 3, generator=rng) * torch.tensor([1.0, 1, 0.2])
    rows, known = rows_of(everything[:40]), everything[40:]
    attack = ModelInversion(mode="black_box", rows=40, auxiliary=1100, decoder_width=64)
    own = PartyFeatures(known, torch.empty(len(known), 0, dtype=torch.int32))
    view, _ = view_of(rows, attack, model=Mlp(bottom_layers=2, width=32), auxiliary={"a": own})
    rebuilt = attack.batch(view).features["a"].numeric
    assert (rebuilt - everything[:40]).square().mean() < 0.05 * everything.var(dim=0).mean()


def test_asking_changes_nothing_of_the_run(rng):
    rows = rows_of(torch.rand(30, 5, generator=rng))
    plain, asked = (session(rows, model=Mlp(bottom_layers=1, width=8)) for _ in range(2))
    known = {"a": PartyFeatures(rows.features["a"].numeric, rows.features["a"].categorical)}
    for _ in range(3):
        plain.round(rows.ids)
        attack = ModelInversion(mode="black_box", decoder_steps=3)
        attack.batch(view_of(rows, attack, model=None, started=asked, auxiliary=known)[0])
    for a, b in zip(plain.parties[0].bottom.parameters(), asked.parties[0].bottom.parameters(), strict=True):
        assert torch.equal(a, b)


def test_compressed_messages_are_inverted_to_a_step_and_the_noises_mean_is_subtracted(rng):
    """The identity as weights: what is rebuilt is what was sent, as far as the attacker reads it right."""
    rows = rows_of(0.2 + 0.6 * torch.rand(20, 4, generator=rng))
    truth = rows.features["a"].numeric
    grid, noise = Quantize(levels=9, range=[0.0, 1.0]), Binomial(n=4, p=0.5, biased=True)

    def rebuilt(defenses, **options):
        started = session(rows, model=Mlp(bottom_layers=1, width=4), defenses=defenses)
        with torch.no_grad():
            started.parties[0].bottom.stack.layers["f1"].weight.copy_(torch.eye(4))
        attack = ModelInversion(rows=20, prior="none", **options)
        view, _ = view_of(rows, attack, model=None, started=started)
        return attack.batch(view).features["a"].numeric, view

    assert (rebuilt([grid], knows_compression=True)[0] - truth).abs().max() < 1 / 8
    naive, (informed, view) = rebuilt([grid, noise])[0], rebuilt([grid, noise], knows_noise_mean=True)
    assert (naive - truth).mean() > 0.15  # the noise has the mean 1/4; nothing is rebuilt above 1
    assert (informed - truth).mean().abs() < 0.04
    received, mean = view[Embeddings].received["a"]["f1"], view[NoiseMean].means["a"]["f1"]
    assert torch.allclose(mean, torch.tensor(1 / 4))
    assert (received - mean - truth).mean().abs() < 0.04


def test_total_variation_by_hand():
    picture = torch.tensor([[0.0, 3.0], [4.0, 3.0]])[None, None]
    by_hand = (5.0 + 0.0 + 1.0 + 0.0) / 4  # steps (4, 3), (0, -), (-, -1), (-, -)
    assert total_variation(picture).item() == pytest.approx(by_hand, abs=2e-3)


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="white_box"):
        ModelInversion(mode="black_box", knows_compression=True)
    with pytest.raises(ValueError, match="white_box"):
        ModelInversion(mode="black_box", prior="pca")


def mean_errors(rows, known, options, *, defenses, width=24):
    """Mean square error of each form of the attack on the same messages. known: (m, k) auxiliary rows."""
    auxiliary = {"a": PartyFeatures(known, torch.empty(len(known), 0, dtype=torch.int32))}
    truth, errors = rows.features["a"].numeric, []
    for chosen in options:
        attack = ModelInversion(rows=len(rows.ids), steps=150, decoder_steps=200, **chosen)
        view, _ = view_of(rows, attack, model=Mlp(bottom_layers=2, width=width), defenses=defenses, auxiliary=auxiliary)
        errors.append(float((attack.batch(view).features["a"].numeric - truth).square().mean()))
    return errors


def test_the_most_likely_rows_are_those_of_the_closed_form(rng):
    """A linear bottom, normal noise and a normal prior: mean + S A^T (A S A^T + C)^-1 (h - A mean - b)."""
    k, d, n = 6, 4, 10
    root = 0.05 * torch.randn(k, k, generator=rng)
    prior = NormalPrior(torch.full((k,), 0.5), root)
    weights, slope, shift = (
        torch.randn(d, k, generator=rng),
        torch.rand(d, generator=rng) + 0.5,
        torch.randn(d, generator=rng),
    )
    noise = 0.1 * torch.eye(d) + 0.02
    channel = LinearGaussianChannel(slope, shift, torch.linalg.cholesky(torch.linalg.inv(noise)))
    h = torch.randn(n, d, generator=rng) * 0.2 + shift + slope * (weights.sum(1) / 2)
    x = most_likely_columns(h, lambda x: x @ weights.T, prior, channel)[0]
    a, s = slope[:, None] * weights, root @ root.T
    closed = 0.5 + (h - shift - a.sum(1) / 2) @ torch.linalg.inv(a @ s @ a.T + noise) @ (a @ s)
    assert closed.min() > 0
    assert closed.max() < 1
    assert (closed - 0.5).abs().max() > 0.02
    torch.testing.assert_close(x, closed, atol=1e-3, rtol=0)


def test_the_channel_of_a_noisy_line_is_found_and_noise_alone_says_nothing(rng):
    f = torch.rand(4000, 3, generator=rng)
    channel = LinearGaussianChannel.of(f, 2 * f + 1 + 0.1 * torch.randn(4000, 3, generator=rng))
    torch.testing.assert_close(channel.slope, torch.full((3,), 2.0), atol=0.03, rtol=0)
    torch.testing.assert_close(channel.shift, torch.full((3,), 1.0), atol=0.03, rtol=0)
    precision = channel.whitening @ channel.whitening.T
    torch.testing.assert_close(precision, 100 * torch.eye(3), atol=8, rtol=0)
    assert (LinearGaussianChannel.of(f, torch.randn(4000, 3, generator=rng)).slope == 0).all()
    assert (
        LinearGaussianChannel.of(torch.ones(50, 3), torch.randn(50, 3, generator=rng)).slope == 0
    ).all()  # closed for all known rows


def test_where_messages_are_noise_pca_answers_with_the_mean_of_the_auxiliary_rows(rng):
    everything = torch.rand(640, 5, generator=rng)
    known, noise = everything[40:], EmbeddingNoise(norm=1.0, eps=0.01)
    rows, auxiliary = rows_of(everything[:40]), {"a": PartyFeatures(known, torch.empty(600, 0, dtype=torch.int32))}
    attack = ModelInversion(rows=40, prior="pca")
    view, _ = view_of(rows, attack, model=Mlp(bottom_layers=2, width=24), defenses=[noise], auxiliary=auxiliary)
    answer = attack.batch(view).features["a"].numeric
    fitted = known[:-64]  # the others show whether messages are of rows like these
    torch.testing.assert_close(answer, fitted.mean(dim=0).expand(40, -1), atol=1e-4, rtol=0)


def related(rng, rows=640):
    """Ten columns that three others determine, but for a little noise."""
    everything = torch.rand(rows, 3, generator=rng) @ torch.rand(3, 10, generator=rng) / 3
    return (everything + 0.05 * torch.rand(rows, 10, generator=rng)).clamp(0, 1)


@pytest.mark.slow
def test_a_learned_prior_wins_behind_noise_and_is_near_exact_without(rng):
    everything, noise = related(rng), EmbeddingNoise(norm=10.0, eps=1000.0)
    rows, known = rows_of(everything[:40]), everything[40:]
    mean = float((everything[:40] - known.mean(dim=0)).square().mean())
    plain, learned = mean_errors(rows, known, [{}, {"prior": "pca"}], defenses=[noise])
    assert learned < 0.5 * plain
    assert learned < 0.9 * mean
    (exact,) = mean_errors(rows, known, [{"prior": "pca"}], defenses=[], width=64)
    assert exact < 0.01 * mean


@pytest.mark.slow
def test_clear_messages_refute_auxiliary_rows_of_another_distribution(rng):
    """Then the answer is that without them, or better."""
    everything = related(rng)
    rows, known = rows_of(everything[:40]), 1 - everything[40:] + 0.01 * torch.rand(600, 10, generator=rng)
    forms = [{}, {"prior": "pca"}]
    noise = EmbeddingNoise(norm=10.0, eps=1e5)
    plain, jointly = mean_errors(rows, known, forms, defenses=[noise], width=64)
    assert jointly < 1.2 * plain


def test_rows_like_the_auxiliary_ones_are_not_taken_for_others(rng):
    """A false alarm has the probability of a normal variable above 3, 0.0013, or little more with an estimated deviation."""
    alarms = [is_larger(torch.randn(40, generator=rng).exp(), torch.randn(64, generator=rng).exp()) for _ in range(1000)]
    assert sum(alarms) < 10


def test_pca_needs_numeric_columns_and_knows_no_more_than_it_declares(rng):
    attack = ModelInversion(prior="pca")
    assert attack.threat == Threat(Role.LABEL, {Embeddings, PeerModels, Queries, Auxiliary})
    ids = torch.randint(3, (8, 1), generator=rng)
    known = {"a": PartyFeatures(torch.rand(30, 2, generator=rng), torch.zeros(30, 1, dtype=torch.int32))}
    rows = rows_of(torch.rand(8, 2, generator=rng), ids, (3,))
    view, _ = view_of(rows, attack, model=WideDeep(bottom_layers=1, width=8), auxiliary=known)
    with pytest.raises(UserError, match="categorical"):
        attack.batch(view)


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
