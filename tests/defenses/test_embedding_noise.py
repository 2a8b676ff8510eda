"""Noise on embeddings: of real numbers (`embedding_noise`), and of the whole numbers of a quantized one (`binomial`)."""

import math

import pytest
import torch
from defenses.contexts import drawing
from support.builders import run_in, session, table
from support.distinguishing import lower_bound

from vflbench.defenses.base import Context
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.chain import Chain
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.top_k import TopK
from vflbench.defenses.vector_quantize import VectorQuantize
from vflbench.models.networks import WideDeep
from vflbench.report.terminal import final_table
from vflbench.report.words import number
from vflbench.run.settings import Audit, Settings


@pytest.mark.parametrize(("mechanism", "order", "of_scale", "kurtosis"), [("gaussian", 2, 1, 3), ("laplace", 1, 2**0.5, 6)])
def test_rows_are_shortened_and_noise_is_as_wide_as_said(rng, mechanism, order, of_scale, kurtosis):
    h = torch.randn(1, 8, generator=rng).repeat(10_000, 1) * 10
    defense = EmbeddingNoise(mechanism=mechanism, norm=3.0, eps=4.0, delta=1e-3)
    noise = defense.embedding(h, drawing(rng)) - h * 3 / h[0].norm(order)
    assert noise.mean(dim=0).abs().max() < 0.16
    assert noise.std().item() == pytest.approx(of_scale * defense.scale, rel=0.02)
    assert (noise / noise.std()).pow(4).mean().item() == pytest.approx(kurtosis, rel=0.1)
    short = torch.full((4, 8), 0.3)
    assert torch.allclose(
        EmbeddingNoise(mechanism=mechanism, norm=3.0, eps=1e6).embedding(short, drawing(rng)), short, atol=0.03
    )
    assert mechanism == "gaussian" or defense.scale == 2 * 3 / 4


@pytest.mark.parametrize(("mechanism", "delta"), [("gaussian", 1e-6), ("laplace", 0.0)])
def test_the_promise_is_eps_and_survives_what_comes_after(mechanism, delta):
    noise = EmbeddingNoise(mechanism=mechanism, eps=0.7)
    for after in ({}, {"quantize": Quantize()}, {"vector_quantize": VectorQuantize()}):
        ((name, release),) = Chain({"noise": noise, **after}).claims(8).releases
        assert (name, release.delta) == ("noise", delta)
        assert 0.999 * 0.7 < release.epsilon <= 0.7
        assert "least bits" in release.assumes
    assert noise.guarantee() is None  # nothing about labels


def visits(defense, h, rng, epochs, change=0.0):
    """Messages about the same rows in so many epochs, in orders of their own; between these, h moves by `change`."""
    messages = []
    for epoch in range(epochs):
        order = torch.randperm(len(h), generator=rng)
        sent = defense.embedding((h + change * epoch)[order], Context(order, None, epoch, rng))
        messages.append(sent[order.argsort()])
    return torch.stack(messages)


@pytest.mark.parametrize(("mechanism", "unit"), [("gaussian", 1), ("laplace", 2**0.5)])
def test_an_attacker_who_averages_epochs_removes_fresh_noise_and_not_that_of_a_row(rng, mechanism, unit):
    h = torch.nn.functional.normalize(torch.randn(50, 4, generator=rng)) / 2
    errors = {}
    for memoise in ("none", "noise", "message"):
        defense = EmbeddingNoise(mechanism=mechanism, eps=20.0, memoise=memoise)
        errors[memoise] = float((visits(defense, h, rng, 40).mean(dim=0) - h).std() / defense.scale)
    assert errors["none"] < 0.25 * unit
    assert (errors["noise"], errors["message"]) == pytest.approx((unit, unit), rel=0.25)


def test_an_attacker_who_takes_differences_reads_changes_behind_the_noise_of_a_row(rng):
    """Which is why no eps is claimed of two messages with the same noise; one that is sent again says nothing new."""
    h, change, releases = torch.full((50, 4), 0.1), torch.tensor([0.1, -0.05, 0.0, 0.2]), {}
    for memoise in ("none", "noise", "message"):
        defense = EmbeddingNoise(eps=0.5, memoise=memoise)
        first, second = visits(defense, h, rng, 2, change)
        if memoise == "none":
            assert (second - first - change).std() > 10
        else:
            step = change if memoise == "noise" else torch.zeros(4)
            assert torch.allclose(second - first, step.expand(50, 4), atol=0.02)  # beside noise of deviation 17
        releases[memoise] = Chain({"noise": defense}).claims(4).releases[0][1]
        assert 0.499 < releases[memoise].epsilon <= 0.5
    assert 1 < releases["none"].after(20, 4e-5) < 10
    assert releases["noise"].after(2, 1e-6) == math.inf
    assert "differences" in releases["noise"].reason
    again = releases["message"]
    assert (again.messages(20, 0), again.messages(20, 20)) == (1, 21)  # each prediction has noise of its own
    assert again.after(21, again.delta_after(21)) > again.after(1, again.delta_after(1))


def test_a_message_that_is_sent_again_teaches_nothing(rng):
    defense, h, g = EmbeddingNoise(memoise="message"), torch.randn(4, 3, generator=rng), torch.ones(4, 3)
    ids = torch.tensor([5, 2, 3, 9])
    sent = defense.embedding(h, drawing(rng, ids))
    assert defense.received(g, h, drawing(rng, ids))[:, 0].tolist() == [1, 1, 1, 1]
    again = defense.embedding(h + 1, drawing(rng, torch.tensor([9, 7, 2, 8])))
    assert torch.equal(again[[0, 2]], sent[[3, 1]])
    assert defense.received(g, h, drawing(rng, ids))[:, 0].tolist() == [0, 1, 0, 1]
    assert torch.equal(EmbeddingNoise().received(g, h, drawing(rng, ids)), g)


@pytest.mark.parametrize("memoise", ["noise", "message"])
def test_asking_about_other_rows_does_not_tell_the_noise_of_a_row(rng, memoise):
    """Features that a party is asked about have ids below 0."""
    defense, h = EmbeddingNoise(memoise=memoise), torch.zeros(3, 4)
    trained = defense.embedding(h, drawing(rng, torch.arange(3)))
    asked = [defense.embedding(h, drawing(rng, -1 - torch.arange(3))) for _ in range(2)]
    assert not any(torch.isin(one, trained).any() for one in asked)
    assert not torch.equal(*asked)
    assert torch.equal(defense.embedding(h, drawing(rng, torch.arange(3))), trained)


def with_binomial(levels=2, **options):
    return Chain({"quantize": Quantize(levels=levels, range=[0.0, 1.0]), "binomial": Binomial(**options)})


def test_what_training_gets_is_unbiased_and_what_crosses_can_be_biased(rng):
    h = torch.rand(2000, 32, generator=rng)
    clean = Quantize(levels=5, range=[0.0, 1.0]).embedding(h, drawing(rng)).values
    plain, biased = (
        with_binomial(5, biased=biased, n=64, p=0.3).embedding(h, drawing(torch.Generator().manual_seed(1)))
        for biased in (False, True)
    )
    assert (plain.values - clean).mean().item() == pytest.approx(0, abs=0.02)
    assert (plain.values - clean).std().item() == pytest.approx(0.25 * math.sqrt(64 * 0.21), rel=0.02)
    assert torch.equal(plain.payload, biased.payload)
    assert torch.equal(plain.values, biased.corrected)
    assert torch.allclose(biased.values - plain.values, torch.tensor(0.25 * 64 * 0.3), atol=1e-5)


def test_training_is_the_same_whether_the_wire_is_biased_or_not(rng):
    rows, results = table(rng, rows=60), {}
    for biased in (False, True):
        model = WideDeep(bottom_layers=1, width=8)
        split = session(rows, model=model, new_defense=lambda b=biased: with_binomial(4, biased=b, n=20))
        crossed = split.wire.send(split.parties[0].embed(rows.ids)).tensors["f1"]
        results[biased] = crossed, [split.round(rows.ids).training.loss for _ in range(4)], split.predict(rows.ids)
    (plain, losses, logits), (shifted, *others) = results[False], results[True]
    assert others[0] == losses
    assert torch.equal(others[1], logits)
    assert torch.allclose(shifted - plain, torch.tensor(10 / 3), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "delta"), [("gaussian", 0.01), ("laplace", 0.0)])
def test_nobody_who_must_tell_two_embeddings_apart_beats_the_promise(rng, mechanism, delta):
    """Opposite rows along the first coordinate, which is as far apart as two can be."""
    defense = EmbeddingNoise(mechanism=mechanism, norm=1.5, eps=2.0, delta=0.01)
    rows = [torch.tensor([[sign * 9.0, 0.0]]).repeat(40_000, 1) for sign in (-1, 1)]
    ends = [defense.embedding(h, drawing(rng))[:, 0].double().numpy() for h in rows]
    assert 0.55 * 2.0 < lower_bound(*ends, delta) <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize("biased", [False, True])
def test_nobody_who_must_tell_two_quantized_embeddings_apart_beats_the_promise(biased):
    """The likelihood ratio of all-low and all-high rows, on many messages; every threshold, 99.9 % sure for all together.

    The same attacker proves that the promise of ten times as much noise is not kept by it.
    """
    width, draws, delta = 4, 40_000, 0.01
    stronger = with_binomial(4, n=900 * 100, p=0.4, delta=delta).claims(width).releases[0][1]
    defense = with_binomial(4, n=900, p=0.4, delta=delta, biased=biased)
    ((_, release),) = defense.claims(width).releases
    context = drawing(torch.Generator().manual_seed(3))
    messages = [defense.embedding(torch.full((draws, width), value), context).values for value in (0.0, 1.0)]
    proven = lower_bound(*(h.sum(dim=1).double().numpy() for h in messages), delta)
    assert 0.5 * release.exact_after(1, delta) < proven <= release.exact_after(1, delta) <= release.epsilon
    assert proven > stronger.epsilon


def test_no_promise_without_a_declared_range_or_with_places():
    declared, noise = Quantize(range=[0.0, 1.0]), Binomial(n=100_000)
    for named, why in (
        ({"quantize": Quantize(levels=2)}, "isn't declared"),
        ({"top_k": TopK(fraction=0.5), "quantize": declared}, "the places that top_k keeps"),
        ({"top_k": TopK(fraction=1.0), "quantize": declared}, ""),
    ):
        release = Chain({**named, "binomial": noise}).claims(8).releases[0][1]
        assert why in release.reason
        assert (release.epsilon is None) == bool(why)


def test_the_run_says_what_is_promised_and_what_is_not(tmp_path):
    def run(folder, n):
        defenses = {"quantize": Quantize(levels=2, range=[0.0, 1.0]), "binomial": Binomial(n=n)}
        settings = Settings(epochs=2, batch_size=512, audit=Audit(batches=1))
        model = WideDeep(bottom_layers=1, top_layers=1, width=4)
        return run_in(folder, attacks={}, defenses=defenses, model=model, settings=settings), final_table(folder)

    kept, printed = run(tmp_path / "enough", 20_000)
    (promise,) = kept["embedding_privacy"]
    assert kept["privacy"] is None  # it is no label DP, and plants no canaries
    assert (promise["party"], promise["layer"], promise["width"], promise["messages"]) == ("a", "f1", 4, 4)
    assert promise["epsilon_exact"] < promise["epsilon"] < promise["epsilon_all"] < 4 * promise["epsilon"] < 2
    assert ["epsilon", "all", number(promise["epsilon_all"], 3)] in [line.split() for line in printed.splitlines()]
    without, printed = run(tmp_path / "few", 512)
    (refused,) = without["embedding_privacy"]
    assert refused["epsilon"] is refused["epsilon_all"] is None
    line = "n p (1 - p) = 128 is below max(23 log(10 d / delta), 2 Delta_inf)"
    assert line in printed
    assert refused["reason"].startswith(line)
