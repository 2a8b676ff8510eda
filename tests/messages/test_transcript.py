import pytest
import torch

from vflbench.messages.codec import Encoded, Grid
from vflbench.messages.transcript import Knowledge, OwnFeatures, Transcript, UndeclaredKnowledgeError
from vflbench.messages.wire import Kind, Message

EVERYTHING = frozenset(Knowledge)


def transcript():
    ids = torch.arange(3)
    seen = Transcript(ids, epoch=1, step=5, class_ratios=(0.75, 0.25), hints=torch.tensor([2, 0]))
    seen.received(Message("a", "label", Kind.EMBEDDING, ids, {"f10": torch.ones(3, 2)}))
    seen.received(Message("label", "a", Kind.GRADIENT, ids, {"f10": torch.full((3, 2), 7.0)}))
    seen.computed("a", Kind.EMBEDDING, {f"f{i}": torch.full((3, 2), float(i)) for i in (1, 2, 10)})
    seen.computed("a", Kind.GRADIENT, {"f2": torch.ones(3, 2), "f10": torch.zeros(3, 2)})
    seen.computed("label", Kind.EMBEDDING, {"h1": torch.ones(3, 2)})
    return seen


def view(party, **options):
    return transcript().view(party, EVERYTHING, torch.Generator(), **options)


def test_a_party_sees_its_layers_in_order_and_nobody_elses():
    assert list(view("a").embeddings) == ["f1", "f2", "f10"]
    assert list(view("b").embeddings) == []


def test_the_received_gradient_stands_over_one_worked_out():
    assert torch.equal(view("a").gradients["f10"], torch.full((3, 2), 7.0))
    assert list(view("a").gradients) == ["f2", "f10"]


def test_the_label_party_sees_what_it_was_sent_under_the_senders_name():
    assert set(view("label").embeddings) == {"h1", "a.f10"}


def test_a_hidden_view_holds_the_label_partys_own_layers_only():
    hidden = view("label", visible=False)
    assert list(hidden.embeddings) == ["h1"]
    assert not hidden.visible


def test_a_view_is_a_copy_of_what_was_declared():
    seen = transcript()
    first = seen.view("a", frozenset({Knowledge.GRADIENTS}), torch.Generator())
    first.gradients["f10"].zero_()
    first.ids.zero_()
    second = seen.view("a", EVERYTHING, torch.Generator())
    assert torch.equal(second.gradients["f10"], torch.full((3, 2), 7.0))
    assert second.ids.tolist() == [0, 1, 2]
    assert first._class_ratios is first._hints is first._class_hints is first._features is None
    assert Kind.EMBEDDING not in first._values


def test_compression_and_the_noises_mean_are_told_to_who_declares_them():
    ids, grid = torch.arange(2), Grid(0.0, 0.5, 3, 3 + 8, noise_mean=4.0)
    encoded = Encoded(2, torch.tensor([[4, 6], [3, 11]]), grid)
    seen = Transcript(ids, 0, 0, (0.5, 0.5))
    seen.received(Message("a", "label", Kind.EMBEDDING, ids, {"f1": encoded.values}, {"f1": encoded}))
    told = seen.view("label", EVERYTHING, torch.Generator())
    assert (told.embeddings["a.f1"] - told.noise_means["a.f1"]).tolist() == [[0.0, 1.0], [-0.5, 3.5]]
    assert told.compression["a.f1"](torch.tensor([[-3.0, 0.6], [0.8, 3.0]])).tolist() == [[0.0, 0.5], [1.0, 1.0]]
    assert seen.view("label", EVERYTHING, torch.Generator(), rows=torch.tensor([1])).noise_means["a.f1"].shape == (1, 2)
    assert not seen.view("label", EVERYTHING, torch.Generator(), visible=False).compression
    naive = seen.view("label", frozenset({Knowledge.EMBEDDINGS, Knowledge.COMPRESSION}), torch.Generator())
    with pytest.raises(UndeclaredKnowledgeError, match="noise mean"):
        naive.noise_means  # noqa: B018


def test_a_view_tells_when_and_which_rows():
    seen = view("a")
    assert (seen.epoch, seen.step, seen.ids.tolist(), seen.prior) == (1, 5, [0, 1, 2], 0.25)


def test_an_attack_is_told_as_many_hints_as_it_needs():
    assert view("a", hints=1).hints.tolist() == [2]
    assert view("a", hints=2).hints.tolist() == [2, 0]
    with pytest.raises(UndeclaredKnowledgeError, match="hints"):
        _ = transcript().view("a", frozenset({Knowledge.GRADIENTS}), torch.Generator(), hints=1).hints


def test_a_view_of_some_rows_holds_these_and_no_hints():
    some = view("a", rows=torch.tensor([2, 1]))
    assert some.ids.tolist() == [2, 1]
    assert some.gradients["f10"].tolist() == [[7.0, 7.0]] * 2
    assert some._hints is None


def test_another_attack_may_be_shown_other_gradients_of_the_same_rows():
    first = view("a", hints=1)
    second = first.holding(frozenset({Knowledge.GRADIENTS, Knowledge.HINTS}), {"f1": torch.zeros(3, 1)})
    assert list(second.gradients) == ["f1"]
    assert second.hints.tolist() == [2]
    with pytest.raises(UndeclaredKnowledgeError):
        _ = second.embeddings
    less = transcript().view("a", frozenset({Knowledge.GRADIENTS}), torch.Generator())
    with pytest.raises(UndeclaredKnowledgeError, match="prior"):
        less.holding(frozenset({Knowledge.PRIOR}), {})


def test_a_party_sees_its_own_columns_and_only_if_it_says_so():
    own = OwnFeatures(torch.rand(3, 2), torch.zeros(3, 1, dtype=torch.int32))
    seen = Transcript(torch.arange(3), 0, 0, (0.2, 0.5, 0.3), class_hints=torch.tensor([1, 0, 2]), features={"a": own})
    whole = seen.view("a", EVERYTHING, torch.Generator())
    assert torch.equal(whole.features.numeric, own.numeric)
    whole.features.numeric.zero_()
    assert own.numeric.any()  # a copy
    assert torch.equal(
        seen.view("a", EVERYTHING, torch.Generator(), rows=torch.tensor([2])).features.numeric, own.numeric[2:]
    )
    assert seen.view("b", EVERYTHING, torch.Generator()).features is None
    assert whole.class_ratios == (0.2, 0.5, 0.3)
    assert whole.prior == 0.8
    assert whole.class_hints.tolist() == [1, 0, 2]
    with pytest.raises(UndeclaredKnowledgeError, match="features"):
        _ = seen.view("a", frozenset({Knowledge.GRADIENTS}), torch.Generator()).features
