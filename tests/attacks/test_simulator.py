"""The simulator attack: planted cases, what it must not do, and its state."""

import pytest
import torch
from attacks.views import auxiliary_of, digits, label_view
from support.builders import session, weights

from vflbench.attacks.simulator import Simulator, cells
from vflbench.data.pictures import Digits
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.messages.facts import Auxiliary, Embeddings, LocalTop, PartyFeatures, PeerArchitectures
from vflbench.messages.threat import View
from vflbench.models.networks import Cnn, Mlp, WideDeep
from vflbench.models.optimizers import Adam

CLASSES = 4


def clusters(rng, rows, columns=6, parties=("a",), sizes=()):
    """Rows of four classes, each with a mean of its own and two skewed directions of its own in which its rows lie."""
    planted = torch.Generator().manual_seed(3)
    means = torch.rand(CLASSES, columns, generator=planted) * 0.4 + 0.1
    directions = torch.rand(CLASSES, 2, columns, generator=planted) * torch.tensor([[0.6], [0.3]])
    labels = torch.arange(rows) % CLASSES
    latent = torch.rand(rows, 2, generator=rng).square()
    x = (means[labels] + (latent[:, :, None] * directions[labels]).sum(dim=1)).clamp(0, 1)
    features, share = {}, columns // len(parties)
    for place, party in enumerate(parties):
        ids = [(labels + place)[:, None] % size for size in sizes]
        names = tuple(f"I{i}" for i in range(share)), tuple(f"C{i}" for i in range(len(sizes)))
        mine = x[:, place * share : (place + 1) * share]
        features[party] = Features(Columns(*names, sizes), mine, torch.cat([torch.empty(rows, 0), *ids], dim=1).int())
    return VerticalTable(torch.arange(rows), features, labels, CLASSES)


def views(attack, rows, auxiliary, started, rng, *, batch=100, shuffled=False):
    """What the label party sees of each round."""
    for step, ids in enumerate(rows.ids.split(batch)):
        facts = {**started.round(ids, watch=attack.threat.knows).facts["label"], Auxiliary: auxiliary_of(auxiliary)}
        if shuffled:
            facts[Embeddings] = facts[Embeddings].rows(torch.randperm(len(ids), generator=rng))
        yield View("label", 0, step, ids, rng, attack.threat, facts)


def run(attack, rows, auxiliary, started, rng, **options):
    """Observes every round, and answers about the last."""
    for view in views(attack, rows, auxiliary, started, rng, **options):
        attack.observe(view)
    return attack.batch(view), view


def errors(rebuilt, view, rows, auxiliary, party="a"):
    """Mean squared error of the answer, and of the mean of each row's class among the auxiliary rows."""
    ids = view.ids[: len(rebuilt.ids)]
    truth = rows.features[party].numeric[ids]
    means = torch.stack([auxiliary.features[party].numeric[auxiliary.labels == k].mean(0) for k in range(CLASSES)])
    guess = means[rows.labels[ids]]
    return float((rebuilt.features[party].numeric - truth).square().mean()), float((guess - truth).square().mean())


def test_a_layer_that_loses_nothing_is_undone_without_a_pair_of_rows(rng):
    """A dense layer that mixes all columns, unknown to the attacker, is undone from classes and clouds alone."""
    rows, auxiliary = clusters(rng, 600), clusters(rng, 200)
    started = session(rows, model=Mlp(bottom_layers=1, width=24), seed=1)
    answer, view = run(Simulator(rows=60), rows, auxiliary, started, rng)
    error, guess = errors(answer, view, rows, auxiliary)
    assert (answer.layer, answer.ids.tolist()) == ("f1", view.ids[:60].tolist())
    assert error < 0.35 * guess


def test_embeddings_of_other_rows_are_worth_no_more_than_the_class(rng):
    """The adversary of the claim: with the embeddings of a batch dealt out at random, nothing is left to align."""
    rows, auxiliary = clusters(rng, 600), clusters(rng, 200)
    for options in ({}, {"align": False}):
        started = session(rows, model=Mlp(bottom_layers=1, width=24), seed=1)
        answer, view = run(Simulator(rows=60, **options), rows, auxiliary, started, rng, shuffled=True)
        error, guess = errors(answer, view, rows, auxiliary)
        assert error > 0.95 * guess


@pytest.mark.slow
def test_pictures_of_two_parties_are_rebuilt_through_convolutions(rng):
    data = Digits(parties=2, test_fraction=0.4).load(torch.Generator().manual_seed(0))
    rows, held_out = digits(data.train), data.test.all()
    started = session(rows, model=Cnn(bottom_layers=2, width=8))
    answer, view = run(Simulator(rows=50, auxiliary=600), rows, held_out, started, rng, batch=64)
    assert set(answer.features) == {"a", "b"}
    for party, rebuilt in answer.features.items():
        truth = rows.features[party].numeric[view.ids[: len(answer.ids)]]
        assert (rebuilt.numeric - truth).square().mean() < 0.65 * truth.var(dim=0).mean()


@pytest.mark.slow
def test_categories_and_numbers_of_two_parties_come_back_together(rng):
    rows, auxiliary = (clusters(rng, n, parties=("a", "b"), sizes=(CLASSES,)) for n in (800, 400))
    started = session(rows, model=WideDeep(bottom_layers=1, width=24, wide=True))
    answer, view = run(Simulator(rows=40), rows, auxiliary, started, rng)
    for party, rebuilt in answer.features.items():
        assert (rebuilt.numeric.shape, rebuilt.categorical.dtype) == ((40, 3), torch.int32)
        assert (rebuilt.categorical == rows.features[party].categorical[view.ids[:40]]).float().mean() > 0.9


@pytest.mark.parametrize("options", [{"adversarial": False}, {"align": False}])
def test_each_part_can_be_left_out(options, rng):
    rows, attack = clusters(rng, 400), Simulator(rows=10, steps=3, **options)
    answer, _ = run(attack, rows, clusters(rng, 200), session(rows, model=Mlp(bottom_layers=2, width=16)), rng)
    assert answer.features["a"].numeric.isfinite().all()
    assert not attack.aligns


@pytest.mark.slow
def test_pcat_learns_to_deceive_the_top(rng):
    """Its own bottom, through the true top, comes to tell the classes of auxiliary rows."""
    rows, auxiliary = clusters(rng, 600), clusters(rng, 200)
    attack, columns = Simulator(adversarial=False, steps=20, lr=5e-3), auxiliary.features["a"]
    started = session(rows, model=Mlp(bottom_layers=1, top_layers=0, width=32), optimizer=Adam(lr=0.05))
    _, view = run(attack, rows, auxiliary, started, rng, batch=30)
    simulated = attack._mimics["a"].bottom(columns.numeric, columns.categorical)["f1"]
    nothing = PartyFeatures(torch.empty(200, 0), torch.empty(200, 0).int())
    logits = view[LocalTop].logits({"a": {"f1": simulated}}, nothing)
    assert (logits.argmax(1) == auxiliary.labels).float().mean() > 0.8


def test_the_architecture_that_it_knows_has_other_weights_and_leaves_the_partys_alone(rng):
    rows = clusters(rng, 100)
    started = session(rows, model=Mlp(bottom_layers=1, width=8))
    (view,) = views(Simulator(), rows, clusters(rng, 100), started, rng)
    made, real = view[PeerArchitectures].peers["a"].build(rng), started.parties[0].bottom
    assert not torch.equal(made.stack.layers["f1"].weight, real.stack.layers["f1"].weight)
    before = weights(started)
    for parameter in made.parameters():
        parameter.data.zero_()
    assert all(map(torch.equal, before, weights(started)))


def test_a_run_that_was_interrupted_goes_on_to_the_same_bytes(rng):
    rows, auxiliary, answers = clusters(rng, 500), clusters(rng, 200), []
    shown = list(views(Simulator(), rows, auxiliary, session(rows, model=Mlp(bottom_layers=2, width=12)), rng))
    for interrupted in (False, True):
        attack, generator = Simulator(rows=20), torch.Generator().manual_seed(5)
        for place, view in enumerate(shown):
            if interrupted and place == 3:
                state, attack = attack.state(), Simulator(rows=20)
                attack.restore(state)
                attack.restore(attack.state())  # before any batch has come
            view.rng = generator
            attack.observe(view)
        answers.append(attack.batch(shown[-1]).features["a"].numeric)
    assert torch.equal(*answers)


@pytest.mark.parametrize(("model", "shape"), [(Cnn(bottom_layers=3), (16, 4, 4)), (Cnn(cut_width=64), None), (Mlp(), None)])
def test_cells_are_those_of_a_last_convolution_only(rng, model, shape):
    rows = digits(Digits(rows=200).load(torch.Generator().manual_seed(0)).train)
    peer = label_view(rows, Simulator(), session(rows, model=model))[PeerArchitectures].peers["a"]
    network, x = peer.build(rng), torch.rand(3, 64, generator=rng)
    grid = cells(peer, network, network.cut_width)
    assert (grid and (grid.channels, grid.height, grid.width)) == shape
    assert not grid or torch.equal(grid.columns(grid.pixels(x)), x)
