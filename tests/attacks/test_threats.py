"""Threats follow the options of an attack, and declare no more than it reads."""

import pytest
import torch
from attacks.views import embeddings, gradients, positives, shares, view_of

from vflbench.attacks.averaging import Averaging
from vflbench.attacks.batch_reconstruction import BatchReconstruction
from vflbench.attacks.cosine import Cosine
from vflbench.attacks.directions import Directions
from vflbench.attacks.esa import Esa
from vflbench.attacks.hidden_subset_sum import HiddenSubsetSum
from vflbench.attacks.hints import Hints
from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.model_inversion import ModelInversion
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.attacks.residual import Residual
from vflbench.attacks.spectral import Spectral
from vflbench.messages.facts import (
    BatchHints,
    ClassHints,
    ClassShares,
    Embeddings,
    Gradients,
    LocalModel,
    LocalTop,
    PartyFeatures,
    Predictions,
    Rules,
    Schema,
    Updates,
)
from vflbench.messages.message import Kind
from vflbench.messages.peer_facts import Auxiliary, PeerModels, Queries
from vflbench.messages.threat import Role, Threat, View

ATTACKS = [
    Norm(),
    Cosine(k=2),
    Hints(k=4),
    Spectral(),
    Spectral(message="gradients"),
    Directions(),
    Residual(),
    Kmeans(),
    Kmeans(message="gradients", map="hints"),
    NoMessage(k=7),
    Averaging(base="norm"),
    Averaging(base="cosine", k=3),
    BatchReconstruction(),
    HiddenSubsetSum(),
]


@pytest.mark.parametrize(
    ("attack", "threat", "message"),
    [
        (Hints(k=4), Threat(knows={Gradients, BatchHints}, hints=4), Kind.GRADIENT),
        (Spectral(message="gradients"), Threat(knows={Gradients, ClassShares}), Kind.GRADIENT),
        (NoMessage(k=7), Threat(knows={PartyFeatures, BatchHints}, hints=7), None),
        (ModelInversion(mode="black_box"), Threat(Role.LABEL, {Embeddings, Queries, Auxiliary}), Kind.EMBEDDING),
        (Esa(), Threat(Role.LABEL, {Predictions, PeerModels, LocalTop, PartyFeatures}), Kind.PREDICTION),
        (BatchReconstruction(), Threat(Role.PARTICIPANT, {Updates, PartyFeatures, ClassShares}), Kind.UPDATE),
    ],
)
def test_threats_follow_the_options(attack, threat, message):
    assert attack.threat == threat
    assert attack.threat.message is message


def test_attacks_read_all_that_they_declare(rng, monkeypatch):
    """A threat that declared more would overstate the attacker. At the label party the same is tested where they are run."""
    read: set[type] = set()
    original = View.__getitem__

    def noted(view: View, kind: type) -> object:
        read.add(kind)
        return original(view, kind)

    monkeypatch.setattr(View, "__getitem__", noted)
    columns = PartyFeatures(torch.rand(40, 3, generator=rng), torch.randint(4, (40, 2), generator=rng))
    theta = torch.zeros(3, dtype=torch.float64)
    facts = (
        embeddings(torch.randn(40, 5, generator=rng)),
        gradients(torch.randn(40, 5, generator=rng)),
        columns,
        LocalModel(lambda ids: {"f1": torch.randn(len(ids), 5, generator=rng)}),
        shares(0.25),
        positives([0, 3, 5, 7, 9, 11, 13]),
        ClassHints(torch.tensor([1, 0])),
        Updates(Rules(2, 0.1, "sum", 1, 40, Schema((0, 1))), theta, theta, theta),
    )
    for attack in ATTACKS:
        read.clear()
        for answer in (attack.observe, attack.batch, attack.epoch):
            answer(view_of(attack.threat, *facts))
        assert read == attack.threat.knows, attack
