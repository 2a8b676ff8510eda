import pytest
import torch
from attacks.views import view_of
from support.audited import Audited, clicks

from vflbench.attacks.attribute import Attribute
from vflbench.attacks.base import ColumnScores
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.defenses.base import Context
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings, KnownColumn, Labels, PartyFeatures
from vflbench.numerics.auc import auc
from vflbench.options import restore_state, state_of
from vflbench.run.attackers import attribute_target

N, K = 1500, 100


def show(attack, ids, h, y, values, own=None, count=2):
    own = torch.empty(len(ids), 0) if own is None else own
    facts = [
        Embeddings({}, {"a": {"f1": h}}),
        PartyFeatures(own, torch.empty(len(ids), 0, dtype=torch.int32)),
        Labels(y),
        KnownColumn("a", "age", torch.arange(K), values[:K], count),
    ]
    attack.observe(view_of(attack.threat, *facts, ids=ids))


def asked(attack, values, count=2):
    """AUC of the answer, and of the guess, on rows that are not known."""
    fact = KnownColumn("a", "age", torch.arange(K), values[:K], count)
    answer = attack.epoch(view_of(attack.threat, fact, ids=torch.arange(K, N), step=None))
    if count > 2:
        return answer
    return [auc(scores, values[answer.ids] == 1) for scores in (answer.scores, answer.guess)]


def planted(rng, strength=2.0):
    """A column of two values, a label that has nothing to do with it, and embeddings in which the column is a direction."""
    values, y = torch.randint(2, (2, N), generator=rng)
    h = torch.randn(N, 8, generator=rng)
    h[:, 3] += strength * values
    return values, y, h


def test_what_embeddings_tell_of_a_column_is_read_and_a_guess_without_them_is_a_coin(rng):
    values, y, h = planted(rng)
    attack = Attribute()
    for part in torch.randperm(N, generator=rng).split(250):
        show(attack, part, h[part], y[part], values)
    area, guess = asked(attack, values)
    assert area > 0.921 - 0.03  # that of the best direction
    assert abs(guess - 0.5) < 0.06


def test_a_column_that_the_label_and_own_columns_tell_is_guessed_without_messages(rng):
    """The difference is what messages say: nothing, where they say no more than the label."""
    values, y, h = planted(rng, strength=0.0)
    told = torch.where(torch.rand(N, generator=rng) < 0.8, y, 1 - y)
    own = values[:, None] + torch.randn(N, 1, generator=rng)
    for column, shown in ((told, None), (values, own)):
        attack = Attribute()
        show(attack, torch.arange(N), torch.cat([h, y[:, None].float()], dim=1), y, column, shown)
        area, guess = asked(attack, column)
        assert guess > 0.7
        assert area - guess < 0.03


@pytest.mark.slow
def test_fresh_noise_averages_out_over_the_epochs_and_memoised_noise_does_not(rng):
    values, y, h = planted(rng, strength=3.0)
    areas = {}
    for memoise in ("none", "noise", "message"):
        attack, noise = Attribute(), EmbeddingNoise(norm=5.0, eps=10.0, memoise=memoise)
        for _ in range(12):
            sent = noise.embedding(h, Context(torch.arange(N), None, 0, rng))
            show(attack, torch.arange(N), sent, y, values)
        areas[memoise] = asked(attack, values)[0]
    assert areas["none"] > 0.8
    assert areas["none"] > max(areas["noise"], areas["message"]) + 0.1


def test_more_values_have_a_score_each(rng):
    values = torch.randint(3, (N,), generator=rng)
    h = torch.randn(N, 6, generator=rng) + 4 * torch.eye(6)[values]
    attack = Attribute()
    show(attack, torch.arange(N), h, values % 2, values, count=3)
    answer = asked(attack, values, count=3)
    assert (answer.scores.argmax(dim=1) == values[K:]).double().mean() > 0.95
    assert answer.guess.shape == (N - K, 3)


def test_an_interrupted_attack_goes_on_from_its_state(rng):
    values, y, h = planted(rng)
    whole, first, second = Attribute(), Attribute(), Attribute()
    parts = torch.randperm(N, generator=rng).split(500)
    for attack in (whole, first):
        show(attack, parts[0], h[parts[0]], y[parts[0]], values)
        asked(attack, values)
        show(attack, parts[1], h[parts[1]], y[parts[1]], values)
    restore_state(second, state_of(first))
    for attack in (whole, second):
        show(attack, parts[2], h[parts[2]], y[parts[2]], values)
    assert asked(whole, values) == asked(second, values)


@pytest.fixture(scope="module")
def table():
    rng = torch.Generator().manual_seed(3)
    numeric = torch.rand(600, 2, generator=rng)
    numeric[:, 1] = 1.0
    numeric[:100, 1] = 0.25
    categorical = torch.tensor([[0] * 300 + [4] * 200 + [2] * 90 + [1] * 10]).T.int()
    held = Features(Columns(("x", "ones"), ("city",), (5,)), numeric, categorical)
    own = Features(Columns(("mine", "flat")), torch.rand(600, 2, generator=rng), torch.empty(600, 0, dtype=torch.int32))
    flat = Features(Columns(("zero",)), torch.zeros(600, 1), torch.empty(600, 0, dtype=torch.int32))
    return VerticalTable(torch.arange(600), {"label": own, "a": held, "b": flat}, torch.arange(600) % 2, 2)


class Train:
    """Rows that are in memory."""

    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def sample(self, wanted):
        return self.table.rows(slice(0, wanted))


def column_of(table, **options):
    return attribute_target("attribute", Attribute(**options), Train(table))


def test_a_column_is_cut_at_the_median_or_the_threshold_and_rare_values_count_as_one(table):
    features = table.features["a"]
    assert column_of(table).name == "x"  # the first one of another party
    assert column_of(table, column="x").values(features).double().mean() == pytest.approx(0.5, abs=0.01)
    cut = column_of(table, column="x", threshold=0.9)
    assert torch.equal(cut.values(features), (features.numeric[:, 0] > 0.9).long())
    assert column_of(table, column="ones").values(features).tolist() == [0] * 100 + [1] * 500  # whose median is its maximum
    city = column_of(table, column="city", values=2)
    assert (city.party, city.count) == ("a", 3)
    assert city.values(features).tolist() == [0] * 300 + [1] * 200 + [2] * 100


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"column": "salary"}, r"attack.attribute.column=salary: there is no such column; others hold x \(a\), ones \(a\)"),
        ({"column": "mine"}, "the label party holds it itself; others hold x"),
        ({"column": "zero"}, "it has one value alone"),
        ({"column": "x", "threshold": 0.9999999}, "it has one value alone"),
    ],
)
def test_a_column_that_there_is_not_is_refused_with_those_that_there_are(table, options, problem):
    with pytest.raises(UserError, match=problem):
        column_of(table, **options)


@pytest.mark.slow
def test_in_a_run_it_stands_beside_its_guess_and_counts_for_no_leak_of_the_label():
    run = Audited(clicks(), {"attribute": Attribute(rows=300, known=50)}, steps=5, epochs=1)
    assert run.leaks == []
    rebuilt = {entry.message: entry for entry in run.findings[-1].reconstructions}
    assert set(rebuilt) == {"embedding", "none"}
    figures = rebuilt["embedding"].figures
    guess = rebuilt["none"].figures["attribute_auc"].mean
    assert figures["attribute_gain"].mean <= figures["attribute_auc"].mean - max(guess, 0.5) + 1e-12
    assert 0.4 < guess < 0.8
    assert rebuilt["embedding"].party == "a"


class Cheat(Attribute):
    """Scores every row alike, but for those whose value it was given."""

    def epoch(self, view):
        fact = view[KnownColumn]
        scores = torch.zeros(len(view.ids))
        for name, value in zip(fact.ids, fact.values, strict=True):
            scores[view.ids == name] = float(value) - 0.5
        return ColumnScores(view.ids, "f1", scores, torch.zeros(len(view.ids)))


def test_rows_whose_value_is_known_are_never_scored():
    run = Audited(clicks(), {"attribute": Cheat(rows=400, known=300)}, steps=6)
    figures = next(e.figures for e in run.findings[0].reconstructions if e.message == "embedding")
    assert figures["attribute_auc"].mean == 0.5
