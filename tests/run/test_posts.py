import torch
from audited import Audited, clicks

from vflbench.attacks.base import Attack
from vflbench.attacks.cosine import Cosine
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.messages.facts import BatchHints, ClassHints, ClassShares, Embeddings, Gradients, Known
from vflbench.messages.peer_facts import PeerModels
from vflbench.messages.threat import Seat, Threat
from vflbench.run.posts import Post
from vflbench.run.unmet import RUN_FACTS, unmet_attacks


def test_a_follower_of_hidden_layers_never_sees_what_other_parties_sent():
    class Voyeur(Attack):
        threat = Threat(knows={Embeddings})
        follows = 100
        seen = []

        def batch(self, view):
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
    posts = Audited(clicks(parties=2), {"norm": Norm(), "spectral": Spectral()}, epochs=0, cheating=["b"]).auditor.posts
    assert {(post.name, post.party): post.threat.active for post in posts} == {
        ("norm", "a"): False,
        ("norm", "b"): True,
        ("spectral", "a"): False,
        ("spectral", "b"): True,
        ("spectral", "label"): False,
    }
    assert not Norm().threat.active


def test_attacks_that_say_so_only_read(rng):
    """Every option of those that get no copies."""
    spectral = [
        Spectral(message=message, component=component, score=score, orient=orient)
        for message in ("embeddings", "gradients")
        for component in (1, 2, "auto")
        for score in ("signed", "abs", "cluster")
        for orient in ("smaller", "larger_score", "larger_deviation", "auto")
        if (message, component) != ("gradients", "auto")
    ]
    for attack in (Norm(), Norm(top=0.2), Norm(top="prior"), Cosine(), Cosine(k=2), *spectral):
        x, y = torch.randn(2, 40, 6, generator=rng).relu()
        kept = x.clone(), y.clone()
        hints = BatchHints(torch.arange(attack.threat.hints))
        facts = [Embeddings({"f1": x, "f2": y}), Gradients({"f1": y, "f2": x}), ClassShares((0.7, 0.3)), hints]
        post = Post("a", attack, attack.threat, "a", torch.Generator(), visible=True)
        assert post.only_reads
        view = post.view(0, 0, torch.arange(40), {type(fact): fact for fact in facts})
        attack.batch(view)
        assert torch.equal(x, kept[0]), attack
        assert torch.equal(y, kept[1]), attack


def test_a_class_derived_from_one_that_only_reads_gets_copies():
    class Overwrites(Norm):
        def batch(self, view):
            view[Gradients].layers["f1"].fill_(0)

    x = torch.ones(3, 2)
    post = Post("a", Overwrites(), Overwrites().threat, "a", torch.Generator(), visible=True)
    post.attack.batch(post.view(0, 0, torch.arange(3), {Gradients: Gradients({"f1": x})}))
    assert bool((x == 1).all())
