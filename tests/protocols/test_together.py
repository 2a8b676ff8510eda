"""Parties that are computed in one pass train as they would one by one, to the bit; those that must not be, aren't."""

import pytest
import torch
from builders import session, table, weights
from torch import nn

from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.defenses.base import LabelDefense, NonLabelDefense, WithheldError
from vflbench.defenses.chain import Chain
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.max_norm import MaxNorm
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.split_guard import SplitGuard
from vflbench.messages.threat import Seat
from vflbench.models import stacked
from vflbench.models.mlp import Mlp
from vflbench.models.optimizers.adam import Adam
from vflbench.models.optimizers.lazy_adam import LazyAdam
from vflbench.models.optimizers.sgd import Sgd
from vflbench.models.wide_deep import WideDeep
from vflbench.protocols import together
from vflbench.protocols.adversary import Adversary
from vflbench.protocols.split import Split

EVERYTHING = Split().offers(Seat.NON_LABEL) | Split().offers(Seat.LABEL)
MODEL = WideDeep(bottom_layers=3, top_layers=1, width=8, cut_width=5)


class Shift(NonLabelDefense):
    def received(self, g, h, context):
        return g + 0.1 * h


def uneven(rng, rows=48):
    """Four parties, with 3, 1, 0 and 2 numeric columns, and 0, 2, 1 and 1 categorical ones."""
    features = {}
    for name, numeric, sizes in (("a", 3, ()), ("b", 1, (4, 9)), ("c", 0, (6,)), ("d", 2, (3,))):
        columns = Columns(
            tuple(f"{name}{j}" for j in range(numeric)), tuple(f"{name}C{j}" for j in range(len(sizes))), sizes
        )
        ids = [torch.randint(size, (rows,), generator=rng) for size in sizes]
        categorical = torch.stack(ids, dim=1).int() if ids else torch.empty(rows, 0, dtype=torch.int32)
        features[name] = Features(columns, torch.rand(rows, numeric, generator=rng), categorical)
    return VerticalTable(torch.arange(rows), features, torch.randint(2, (rows,), generator=rng), 2)


def groups(split):
    """The names of the parties of each group."""
    made = split._together
    return [] if made is None else [[party.name for party in group.parties] for group in made.groups]


def both(rows, **options):
    """Two sessions of the same parties, together and one by one."""
    return [session(rows, protocol=Split(together=mode), **options) for mode in ("auto", "never")]


def as_bits(value):
    """Nested facts as plain values, tensors as bytes."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype, value.detach().contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return {str(key): as_bits(each) for key, each in value.items()}
    return {name: as_bits(each) for name, each in vars(value).items()} if hasattr(value, "__dict__") else value


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Enough to tell on which side a machine is; that the draws are enough is shown beside `gives_same_bits`."""
    monkeypatch.setattr(stacked, "_MOST_DRAWS", 1)


CASES = {
    "adam": {"optimizer": Adam(lr=0.01)},
    "sgd with momentum": {"optimizer": Sgd(lr=0.1, momentum=0.9)},
    "lazy adam in torch": {"optimizer": LazyAdam(lr=0.01, kernel="torch")},
    "lazy adam": {"optimizer": LazyAdam(lr=0.01)},
    "linear parts": {"model": WideDeep(bottom_layers=3, top_layers=1, width=8, wide=True)},
    "one layer": {"model": WideDeep(bottom_layers=1, top_layers=1, width=8)},
    "defenses of messages": {"new_defense": lambda: Chain({"max_norm": MaxNorm(), "quantize": Quantize(learn_batches=2)})},
    "noise and a local penalty": {"new_defense": lambda: Chain({"shift": Shift(), "noise": EmbeddingNoise(eps=10.0)})},
    "batches in another order": {"new_defense": lambda: Chain({"guard": SplitGuard(p_fake=0.5, burn_in=1)})},
}


QUICK = ("adam", "linear parts", "batches in another order")


@pytest.mark.parametrize("case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES])
def test_together_is_one_by_one_to_the_bit_whatever_is_watched(rng, case):
    rows = uneven(rng)
    at_once, apart_ = both(rows, **{"model": MODEL, **CASES[case]})
    assert groups(at_once) == [["a", "b", "c", "d"]]
    assert groups(apart_) == []
    for step in range(4):
        ids = rows.ids.roll(step)[: 30 + step // 2]
        watch = EVERYTHING if step % 2 else frozenset()
        done = [split.round(ids, step=step, watch=watch) for split in (at_once, apart_)]
        assert done[0].training.loss == done[1].training.loss, step
        for party, facts in done[0].facts.items():
            for kind, fact in facts.items():
                if kind.__name__ not in ("OwnModel", "PeerModels", "PeerArchitectures", "Queries", "OwnTop"):
                    assert as_bits(fact) == as_bits(done[1].facts[party][kind]), (party, kind)
    assert all(map(torch.equal, weights(at_once), weights(apart_)))
    assert torch.equal(at_once.predict(rows.ids), apart_.predict(rows.ids))


def test_a_session_goes_on_in_the_other_way(rng):
    rows = uneven(rng)
    first, second = both(rows, model=MODEL)
    whole = session(rows, model=MODEL)
    for step in range(3):
        first.round(rows.ids, step=step)
        whole.round(rows.ids, step=step)
    second.restore(first.state())
    for step in range(3):
        second.round(rows.ids, step=step)
        whole.round(rows.ids, step=step)
    assert all(map(torch.equal, weights(second), weights(whole)))
    saved = first.state()["parties"]["a"]["network"]
    assert all(values.untyped_storage().nbytes() == values.nbytes for values in saved.values()), "others' weights beside"


def test_a_party_whose_gradient_is_withheld_stays_as_it_is(rng):
    def sulky():
        class Sulky(LabelDefense):
            """Withholds from the second party from the second batch on."""

            met = []

            def gradient(self, g, y, context):
                if self not in self.met:
                    self.met.append(self)
                elif self is self.met[1]:
                    raise WithheldError("no")
                return g

        return lambda: Chain({"sulky": Sulky()})

    rows = uneven(rng)
    made = [session(rows, model=MODEL, protocol=Split(together=mode), new_defense=sulky()) for mode in ("auto", "never")]
    for step in range(3):
        watch = EVERYTHING if step == 2 else frozenset()
        notes = [split.round(rows.ids, step=step, watch=watch).training.notes for split in made]
        assert notes[0] == notes[1] == (("no gradient is sent to party b: no",) if step else ())
    assert all(map(torch.equal, *map(weights, made)))


def test_what_an_attacker_gets_shares_no_memory_with_another_party(rng):
    rows = uneven(rng)
    facts = session(rows, model=MODEL).round(rows.ids, watch=EVERYTHING).facts["a"]
    for kind, fact in facts.items():
        for tensors in (value for value in vars(fact).values() if isinstance(value, dict)):
            for values in tensors.values():
                assert not isinstance(values, torch.Tensor) or values.untyped_storage().nbytes() == values.nbytes, kind


def test_those_that_can_not_be_relied_on_are_computed_alone(rng):
    rows = uneven(rng)

    class Mixed(WideDeep):
        """Dropout for b; c's layers are narrower; d's first layer is frozen."""

        def bottom(self, numeric, cardinalities, outputs, generator):
            if len(cardinalities) == 2:
                return Dropping()
            if not numeric:
                return WideDeep(bottom_layers=3, width=6, cut_width=5).bottom(numeric, cardinalities, outputs, generator)
            made = super().bottom(numeric, cardinalities, outputs, generator)
            made.stack.layers["f1"].requires_grad_(len(numeric) != 2)
            return made

    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.drop = nn.Linear(1, 5), nn.Dropout()

        def forward(self, numeric, categorical):
            return self.drop(self.layer(numeric))

    model = Mixed(bottom_layers=3, top_layers=1, width=8, cut_width=5)
    assert groups(session(rows, model=model)) == []
    cheat = {"cheat": Adversary(party="b")}
    assert groups(session(rows, model=MODEL, adversaries=cheat)) == [["a", "c", "d"]]
    at_once, one_by_one = both(rows, model=MODEL, adversaries={"cheat": Adversary(party="b")})
    for step in range(3):
        at_once.round(rows.ids, step=step)
        one_by_one.round(rows.ids, step=step)
    assert all(map(torch.equal, weights(at_once), weights(one_by_one)))
    assert session(rows, protocol=Split(staleness=1))._together is None
    assert session(rows, precision="bf16")._together is None
    assert session(table(rng))._together is None, "one party"
    mixed = session(rows, model=MODEL)
    mixed.parties = [*mixed.parties, object()]  # one that lives elsewhere
    mixed.compute_together("auto")
    assert mixed._together is None


class Accumulating(torch.optim.SGD):
    """A step every second batch, on the sum of the gradients."""

    seen = 0

    def zero_grad(self, set_to_none=True):
        if self.seen % 2 == 0:
            super().zero_grad(set_to_none)

    def step(self, closure=None):
        self.seen += 1
        if self.seen % 2 == 0:
            super().step(closure)


class OfAUser(Sgd):
    def attach(self, network):
        return Accumulating(network.parameters(), lr=0.1)


def test_an_optimiser_of_a_user_gets_the_gradients_of_each_party_alone(rng):
    at_once, alone = both(uneven(rng), model=MODEL, optimizer=OfAUser())
    for split in (at_once, alone):
        for step in range(4):
            split.round(torch.arange(12 * step, 12 * step + 12), step=step)
    assert groups(at_once) == []
    assert all(torch.equal(a, b) for a, b in zip(weights(at_once), weights(alone), strict=True))


def test_two_parties_with_the_same_weights_are_not_copied_apart(rng):
    shared = MODEL.bottom(("x",), (), 1, rng)

    class Shared(WideDeep):
        def bottom(self, *_):
            return shared

    rows = table(rng, parties=("a", "b"))
    columns = Columns(("x",))
    features = {p: Features(columns, f.numeric[:, :1], f.categorical[:, :0]) for p, f in rows.features.items()}
    rows = VerticalTable(rows.ids, features, rows.labels, 2)
    assert session(rows, model=Shared(bottom_layers=3, top_layers=1, width=8, cut_width=5))._together is None


def test_large_batches_and_other_bits_are_left_to_each_party_unless_always_is_chosen(rng, monkeypatch):
    rows, passes = uneven(rng), []
    forward = together._Group.forward
    monkeypatch.setattr(together._Group, "forward", lambda *a, **k: (passes.append(1), forward(*a, **k))[1])
    tried = []
    monkeypatch.setattr(together, "gives_same_bits", lambda _, rows: (tried.append(rows), rows != 40)[1])
    split = session(rows, model=MODEL)
    for count in (40, 41, 40, 41, 41):
        split.round(rows.ids[:count])
    assert (tried, len(passes)) == ([40, 41], 3), "tried once for each number of rows"
    monkeypatch.setattr(together, "_MOST_PRODUCTS", 41 * 8**2 - 1)
    split.round(rows.ids[:41])
    assert len(passes) == 3
    always, watched = (session(rows, model=MODEL, protocol=Split(together="always")) for _ in range(2))
    always.round(rows.ids[:40])
    watched.round(rows.ids[:40], watch=EVERYTHING)
    assert len(passes) == 5
    assert all(map(torch.equal, weights(always), weights(watched)))
    never = session(rows, model=MODEL, protocol=Split(together="never"))
    never.round(rows.ids[:40])
    for ours, theirs in zip(weights(always), weights(never), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_numeric_columns_alone(rng):
    rows = table(rng, parties=("a", "b", "c"))
    none = torch.empty(64, 0, dtype=torch.int32)
    features = {p: Features(Columns(("I1", "I2")), f.numeric, none) for p, f in rows.features.items()}
    rows = VerticalTable(rows.ids, features, rows.labels, 2)
    at_once, one_by_one = both(rows, model=Mlp(bottom_layers=2, top_layers=1, width=8))
    assert groups(at_once) == [["a", "b", "c"]]
    for step in range(3):
        at_once.round(rows.ids, step=step)
        one_by_one.round(rows.ids, step=step)
    assert all(map(torch.equal, weights(at_once), weights(one_by_one)))
