from unittest.mock import MagicMock

import pytest
import torch
from attacks.views import view_of
from defenses.contexts import drawing
from support.audited import Audited, clicks

from vflbench.attacks.attribute import Attribute
from vflbench.attacks.base import ColumnScores
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings, KnownColumn, Labels, PartyFeatures
from vflbench.numerics.auc import auc
from vflbench.run.attackers import attribute_target

N, K = 1500, 100


def fact(values, count=2):
    return KnownColumn("a", "age", torch.arange(K), values[:K], count)


def show(attack, ids, h, y, values, columns=None, count=2):
    columns = torch.empty(len(ids), 0) if columns is None else columns
    features = PartyFeatures(columns, torch.empty(len(ids), 0, dtype=torch.int32))
    facts = Embeddings({}, {"a": {"f1": h}}), features, Labels(y), fact(values, count)
    attack.observe(view_of(attack.threat, *facts, ids=ids))


def asked(attack, values, count=2):
    """The answer about rows that are not known."""
    return attack.epoch(view_of(attack.threat, fact(values, count), ids=torch.arange(K, N), step=None))


def areas(attack, values):
    """AUC of the answer, and of the guess."""
    answer = asked(attack, values)
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
    area, guess = areas(attack, values)
    assert area > 0.921 - 0.03  # that of the best direction
    assert abs(guess - 0.5) < 0.06


def test_a_column_that_the_label_or_other_columns_tell_is_guessed_without_messages(rng):
    """The difference is what messages say: nothing, where they say no more than the label."""
    values, y, h = planted(rng, strength=0.0)
    like_the_label = torch.where(torch.rand(N, generator=rng) < 0.8, y, 1 - y)
    for column, shown in ((like_the_label, None), (values, values[:, None] + torch.randn(N, 1, generator=rng))):
        attack = Attribute()
        show(attack, torch.arange(N), torch.cat([h, y[:, None].float()], dim=1), y, column, shown)
        area, guess = areas(attack, column)
        assert guess > 0.7
        assert area - guess < 0.03


@pytest.mark.slow
def test_fresh_noise_averages_out_over_the_epochs_and_memoised_noise_does_not(rng):
    values, y, h = planted(rng, strength=3.0)
    reached = {}
    for memoise in ("none", "noise", "message"):
        attack, noise = Attribute(), EmbeddingNoise(norm=5.0, eps=10.0, memoise=memoise)
        for _ in range(12):
            show(attack, torch.arange(N), noise.embedding(h, drawing(rng, torch.arange(N))), y, values)
        reached[memoise] = areas(attack, values)[0]
    assert reached["none"] > max(0.7, reached["noise"], reached["message"]) + 0.1


def test_more_values_have_a_score_each(rng):
    values = torch.randint(3, (N,), generator=rng)
    h = torch.randn(N, 6, generator=rng) + 4 * torch.eye(6)[values]
    attack = Attribute()
    show(attack, torch.arange(N), h, values % 2, values, count=3)
    answer = asked(attack, values, count=3)
    assert (answer.scores.argmax(dim=1) == values[K:]).double().mean() > 0.95
    assert answer.guess.shape == (N - K, 3)


def target_of(**options):
    """The column that is attacked in a table of three parties, and the values that it has."""
    none, x = torch.empty(600, 0, dtype=torch.int32), torch.rand(600, 2, generator=torch.Generator().manual_seed(3))
    ones, city = torch.ones(600, 1), torch.tensor([[0] * 300 + [4] * 200 + [2] * 90 + [1] * 10]).T.int()
    ones[:100] = 0.25
    features = {
        "label": Features(Columns(("mine",)), x[:, :1], none),
        "a": Features(Columns(("x", "ones"), ("city",), (5,)), torch.cat([x[:, 1:], ones], dim=1), city),
        "b": Features(Columns(("zero",)), torch.zeros(600, 1), none),
    }
    table = VerticalTable(torch.arange(600), features, torch.arange(600) % 2, 2)
    target = attribute_target("attribute", Attribute(**options), MagicMock(sample=lambda _: table, __len__=lambda _: 600))
    return target, features["a"].numeric[:, 0], target.values(features[target.party]).tolist()


def test_a_column_is_cut_at_the_median_or_the_threshold_and_rare_values_count_as_one():
    first, x, values = target_of()
    assert first.name == "x"  # the first one of another party
    assert sum(values) == pytest.approx(300, abs=6)
    assert target_of(column="x", threshold=0.9)[2] == (x > 0.9).long().tolist()
    assert target_of(column="ones")[2] == [0] * 100 + [1] * 500  # whose median is its maximum
    city, _, values = target_of(column="city", values=2)
    assert (city.party, city.count) == ("a", 3)
    assert values == [0] * 300 + [1] * 200 + [2] * 100


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"column": "salary"}, r"attack.attribute.column=salary: there is no such column; others hold x \(a\), ones \(a\)"),
        ({"column": "mine"}, "the label party holds it itself; others hold x"),
        ({"column": "zero"}, "it has one value alone"),
        ({"column": "x", "threshold": 0.9999999}, "it has one value alone"),
    ],
)
def test_a_column_that_there_is_not_is_refused_with_those_that_there_are(options, problem):
    with pytest.raises(UserError, match=problem):
        target_of(**options)


@pytest.mark.slow
def test_in_a_run_it_stands_next_to_its_guess_and_counts_for_no_leak_of_the_label():
    run = Audited(clicks(), {"attribute": Attribute(rows=300, known=50)}, steps=5, epochs=1)
    assert run.leaks == []
    by_message = {entry.message: entry for entry in run.findings[-1].reconstructions}
    area, gain = (by_message["embedding"].figures[name].mean for name in ("attribute_auc", "attribute_gain"))
    assert 0.4 < (guess := by_message["none"].figures["attribute_auc"].mean) < 0.8
    assert gain <= area - max(guess, 0.5) + 1e-12
    assert by_message["embedding"].party == "a"


class Cheat(Attribute):
    """Scores every row alike, but for those whose value it was given."""

    def epoch(self, view):
        scores = (view.ids[:, None] == view[KnownColumn].ids).float() @ (view[KnownColumn].values - 0.5)
        return ColumnScores(view.ids, "f1", scores, torch.zeros(len(view.ids)))


def test_rows_whose_value_is_known_are_never_scored():
    run = Audited(clicks(), {"attribute": Cheat(rows=400, known=300)}, steps=6)
    figures = next(e.figures for e in run.findings[0].reconstructions if e.message == "embedding")
    assert figures["attribute_auc"].mean == 0.5
