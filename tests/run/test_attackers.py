import pytest
import torch
from audited import Audited, clicks

from vflbench.attacks.base import Attack
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.messages.facts import BatchHints, ClassHints, Embeddings, Gradients, Known, OwnModel
from vflbench.messages.peer_facts import PeerModels
from vflbench.messages.threat import Seat, Threat, Unavailable, Undeclared
from vflbench.results.recorder import Meter
from vflbench.run.attackers import RUN_FACTS, Attacker, remembered, unmet_attacks


def test_a_follower_of_hidden_layers_never_sees_what_other_parties_sent():
    class Voyeur(Attack):
        threat = Threat(knows={Embeddings})
        follows = 100
        seen = []

        def observe(self, view):
            self.seen.append((view.party, view.visible, *view[Embeddings].layers))
            assert view[Embeddings].received == {}

        def epoch(self, view):
            return None

    Audited(clicks(parties=2), {"voyeur": Voyeur()})
    assert set(Voyeur.seen) == {("a", True, "f1", "f2"), ("b", True, "f1", "f2"), ("label", False, "h1")}


def test_an_attacker_at_the_label_party_sees_what_it_was_sent_by_sender():
    class Receiver(Attack):
        threat = Threat(Seat.LABEL, knows={Embeddings, PeerModels})
        seen = []

        def batch(self, view):
            embeddings = view[Embeddings]
            self.seen.append((view.party, view.visible, *embeddings.layers, *embeddings.received, *view[PeerModels].models))
            assert BatchHints not in view

    Audited(clicks(parties=2), {"receiver": Receiver()})
    assert set(Receiver.seen) == {("label", True, "h1", *"ab", *"ab")}


def test_attacks_that_can_not_run_here_say_why():
    class Wise(Attack):
        threat = Threat(knows={PeerModels, Embeddings})

    class Active(Attack):
        threat = Threat(knows={Gradients}, active=True)

    def offers(seat):
        return frozenset({Gradients}) if seat is Seat.NON_LABEL else frozenset()

    attacks = {"wise": Wise(), "active": Active(), "norm": Norm(), "no_message": NoMessage()}
    assert unmet_attacks(attacks, offers, 2) == {
        "wise": "embeddings and peer models are not in this protocol for the non-label party",
        "active": "it needs a party that cheats; choose one with adversary=NAME (see: vflbench list adversary)",
        "no_message": "own columns are not in this protocol for the non-label party",
    }
    assert set(unmet_attacks(attacks, offers, 2, cheating=["a"])) == {"wise", "no_message"}
    ten = unmet_attacks({"norm": Norm()}, offers, 10, where="this recording")
    assert ten == {"norm": "it tells 2 classes apart, and the labels have 10"}
    assert {Known, BatchHints, ClassHints} <= RUN_FACTS[Seat.NON_LABEL]
    assert not {Known, BatchHints, ClassHints} & RUN_FACTS[Seat.LABEL]  # it has every label


def test_attacks_at_a_party_that_cheats_are_active():
    audited = Audited(clicks(parties=2), {"norm": Norm(), "spectral": Spectral()}, epochs=0, cheating=["b"])
    assert {(one.name, one.party): one.threat.active for one in audited.auditor.attackers} == {
        ("norm", "a"): False,
        ("norm", "b"): True,
        ("spectral", "a"): False,
        ("spectral", "b"): True,
        ("spectral", "label"): False,
    }
    assert not Norm().threat.active


def test_an_attack_gets_copies():
    class Overwrites(Norm):
        def batch(self, view):
            view[Gradients].layers["f1"].fill_(0)

    x = torch.ones(3, 2)
    attacker = Attacker("a", Overwrites(), Overwrites().threat, "a", torch.Generator(), visible=True)
    attacker.attack.batch(attacker.view(0, 0, torch.arange(3), {Gradients: Gradients({"f1": x})}))
    assert bool((x == 1).all())


class Reads(Attack):
    threat = Threat(knows={Gradients})

    def __init__(self, fact):
        self.fact = fact

    def batch(self, view):
        return view[self.fact]


@pytest.mark.parametrize(("fact", "refusal"), [(Embeddings, Undeclared), (Gradients, Unavailable)])
def test_an_attack_that_reads_what_it_may_not_is_named(fact, refusal):
    """Of several attacks, a user must know which one to mend."""
    attacker = Attacker("mine", Reads(fact), Reads.threat, "a", torch.Generator(), visible=True)
    with pytest.raises(refusal, match=f"^attack=mine: the attack reads {fact.__name__}, "):
        attacker.ask(attacker.view(0, 0, torch.arange(2), {}), "batch", Meter())


def test_a_network_embeds_the_rows_of_the_end_once_and_attacks_may_change_what_they_get():
    calls = []

    def embed(ids):
        calls.append(len(ids))
        return {"f1": ids[:, None].double()}

    rows = torch.arange(5)
    parts = [rows, torch.arange(3, 9)]
    model = remembered({"a": {OwnModel: OwnModel(embed)}}, parts)["a"][OwnModel]
    model.embed(rows)["f1"].zero_()
    assert model.embed(rows.clone())["f1"][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert model.embed(rows[:2])["f1"][:, 0].tolist() == [0, 1]
    assert calls == [5, 6]
    mixed = torch.tensor([8, 1, 4, 20, 3])  # of both parts, the first counts; and of none
    assert model.embed(mixed)["f1"][:, 0].tolist() == mixed.tolist()
    assert calls == [5, 6, 5]
