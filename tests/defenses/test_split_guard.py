import math
from dataclasses import replace

import pytest
import torch
from defenses.contexts import drawing
from support.builders import session, table

from vflbench.data.pictures import Digits
from vflbench.defenses.chain import Chain
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.split_guard import SplitGuard, split_guard_score
from vflbench.messages.facts import Embeddings, Gradients
from vflbench.models.lazy_adam import LazyAdam
from vflbench.models.networks import Cnn, WideDeep
from vflbench.numerics.interval import alarm

ALWAYS = 1 - 1e-9
FAKING, NONE = {"p_fake": ALWAYS, "burn_in": 0}, {}
FACTS = frozenset({Embeddings, Gradients})


def score(fakes, firsts, seconds, **options):
    groups = [torch.tensor(group, dtype=torch.float64) for group in (fakes, firsts, seconds)]
    lengths = [float(group.norm(dim=1).sum()) for group in groups]
    return split_guard_score([group.sum(0) for group in groups], lengths, [len(group) for group in groups], **options)


def test_the_score_of_gradients_by_hand():
    """d(F, R) = 3 - 1 and theta(F, R) = pi / 2; d(R1, R2) = 0: S is the angle."""
    assert score([[0, 3], [0, 3]], [[1, 0]], [[1, 0], [1, 0]]) == pytest.approx((1 + math.exp(-5 * math.pi / 2)) ** -2)
    assert score([[-2, 0]], [[1, 0]], [[1, 0]], alpha=2, beta=3) == pytest.approx((1 + math.exp(-2 * math.pi)) ** -3)
    # d(F, R) = |2 - 2| = 0, d(R1, R2) = 2, theta(R1, R2) = pi / 2: S = -pi / 2.
    assert score([[2, 0]], [[1, 0]], [[0, 3]]) == pytest.approx((1 + math.exp(5 * math.pi / 2)) ** -2)
    # |F| = 4, |R| = 2, d(R1, R2) = 2: S = (angle(F, R1 + R2) 2 - angle(R1, R2) 2) / 4.
    angles = math.atan2(3, 1), math.pi / 2
    s = (angles[0] - angles[1]) / 2
    assert score([[4, 0]], [[1, 0]], [[0, 3]]) == pytest.approx((1 + math.exp(-5 * s)) ** -2)


def test_policies_by_hand():
    scores = [0.9, 0.2, 0.9, 0.9, 0.1, 0.1, 0.1, 0.1]
    alarms = {policy: [alarm(scores[: n + 1], policy, 2, 0.5) for n in range(8)] for policy in ("fast", "average", "voting")}
    assert alarms["fast"] == [False, True, False, False, True, True, True, True]
    assert alarms["average"] == [False, False, False, False, False, True, True, True]  # 0.55, 0.55, 0.9, 0.5, 0.1
    assert alarms["voting"] == [False] * 8  # two of four groups
    assert alarm([*scores, 0.1, 0.1], "voting", 2, 0.5)


def test_a_fake_batch_gives_each_row_the_place_of_another(rng):
    guard = SplitGuard(p_fake=ALWAYS, burn_in=1)
    context = drawing(rng, torch.arange(9))
    assert guard.arrange(context) is None
    orders = [guard.arrange(context) for _ in range(20)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(9))
        assert not (order == torch.arange(9)).any()
    assert len({tuple(order.tolist()) for order in orders}) > 15
    assert guard.arrange(drawing(rng, torch.arange(1))) is None


def guarded(rows, guard=FAKING, others=NONE, **options):
    return session(rows, new_defense=lambda: Chain({**others, "split_guard": SplitGuard(**guard)}), **options)


@pytest.mark.parametrize("optimizer", [None, LazyAdam(kernel="torch")])
def test_the_party_sends_its_rows_in_another_order_and_does_not_learn(rng, optimizer):
    rows = table(rng, parties=("a", "b"))
    options = {"model": WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True), "optimizer": optimizer}
    split, honest = guarded(rows, **options), session(rows, **options)
    before = [p.clone() for party in split.parties for p in party.bottom.parameters()]
    ours, theirs = (one.round(rows.ids, watch=FACTS).facts for one in (split, honest))
    for party in ("a", "b"):
        sent, true = (facts["label"][Embeddings].received[party] for facts in (ours, theirs))
        order = torch.cdist(sent["f2"], true["f2"]).argmin(dim=1)
        assert sorted(order.tolist()) == list(range(64))
        assert not (order == torch.arange(64)).any()
        for layer in ("f2", "wide"):  # the same order at every layer
            torch.testing.assert_close(sent[layer], true[layer][order])
        torch.testing.assert_close(ours[party][Embeddings].layers["f1"], theirs[party][Embeddings].layers["f1"][order])
    assert all(map(torch.equal, before, [p for party in split.parties for p in party.bottom.parameters()]))


def test_rows_that_are_predicted_keep_their_order(rng):
    rows = table(rng)
    assert torch.equal(guarded(rows).predict(rows.ids), session(rows).predict(rows.ids))


def test_what_stands_beside_it_meets_the_rows_as_they_are_sent(rng):
    """Quantization and noise by row are about the row whose values are in hand."""
    seen = []

    class Watch(Quantize):
        def embedding(self, h, context):
            seen.append((h.clone(), context.ids.clone(), context.columns.numeric.clone()))
            return super().embedding(h, context)

    rows = table(rng)
    split = guarded(rows, others={"quantize": Watch()})
    true = split.parties[0].activations_of(rows.ids)["f2"]
    split.round(rows.ids)
    h, ids, numeric = seen[0]
    torch.testing.assert_close(h, true[ids])
    assert torch.equal(numeric, rows.features["a"].numeric[ids])
    assert not torch.equal(ids, rows.ids)


def test_an_honest_label_party_that_has_learned_scores_high_and_one_that_ignores_the_order_does_not():
    """Against an answer that is a function of each embedding alone, a fake batch looks like any other."""
    drawn = Digits().load(torch.Generator().manual_seed(0)).train.sample(2000)
    rows = replace(drawn, ids=torch.arange(len(drawn)))  # a table of their own, where an id is a row's place
    guard = {"p_fake": 0.2, "burn_in": 10}
    split = guarded(rows, guard=guard, model=Cnn(bottom_layers=1, width=4))
    order = torch.Generator().manual_seed(1)
    for _ in range(80):
        split.round(rows.ids[torch.randperm(len(rows), generator=order)[:32]])
    assert split.parties[0].defenses["f1"].named["split_guard"].figures()["score"] > 0.9
    cheated, context = SplitGuard(**guard), drawing(order, torch.arange(32))
    for _ in range(300):
        cheated.arrange(context)
        cheated.learns(torch.tensor([1.0, 2.0]) + 0.3 * torch.randn(2, generator=order), context)
    figures = cheated.figures()
    assert figures["score"] < 0.5
    assert figures["noticed_step"] < 300
    assert "noticed_step" not in cheated.figures()  # said once, so that a run's sum is the step


def test_a_late_hijacker_hides_behind_what_it_sent_before_unless_the_guard_forgets(rng):
    """Honest gradients (fake ones long and elsewhere) for 200 batches, then answers that don't depend on the order."""
    noticed, context = {}, drawing(rng, torch.arange(8))
    for memory in (None, 5):
        guard = SplitGuard(p_fake=0.2, burn_in=0, memory=memory)
        for number in range(400):
            is_fake = guard.arrange(context) is not None
            mean = torch.tensor([-1.0, 3.0] if is_fake and number < 200 else [1.0, 0.0])
            guard.learns(mean + 0.3 * torch.randn(2, generator=rng), context)
        noticed[memory] = guard.figures().get("noticed_step")
    assert noticed[None] is None
    assert 200 < noticed[5] < 400


def test_stopping_says_who_noticed_and_when(rng):
    rows = table(rng)
    hasty = {"p_fake": 0.5, "burn_in": 0, "policy": "fast", "threshold": 1 - 1e-9}
    reports, stops = (guarded(rows, guard={**hasty, "on_alarm": on_alarm}) for on_alarm in ("report", "stop"))
    notes = [note for _ in range(12) for note in stops.round(rows.ids).training.notes]
    for _ in range(12):
        reports.round(rows.ids)
    assert reports.stopped == ""
    assert "party a stopped: split_guard noticed at batch" in stops.stopped
    (noticed,) = (note for note in notes if "noticed" in note)
    assert noticed.startswith("party a: split_guard noticed at batch ")
