"""Threats follow the options of an attack, and declare no more than it reads."""

import torch
from attacks.views import embeddings, gradients, positives, shares, view_of

from vflbench.attacks.averaging import Averaging
from vflbench.attacks.batch_reconstruction import BatchReconstruction
from vflbench.attacks.cosine import Cosine
from vflbench.attacks.directions import Directions
from vflbench.attacks.esa import Esa
from vflbench.attacks.grna import Grna
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
    Labels,
    OwnColumns,
    OwnModel,
    OwnTop,
    Predictions,
    Rules,
    Updates,
)
from vflbench.messages.message import Kind
from vflbench.messages.peer_facts import Auxiliary, Compression, NoiseMean, PeerModels, Queries
from vflbench.messages.threat import Seat, Threat, View

THREATS = [
    (Norm(), Threat(knows={Gradients}), Kind.GRADIENT),
    (Cosine(k=2), Threat(knows={Gradients, BatchHints}, hints=2), Kind.GRADIENT),
    (Hints(k=4), Threat(knows={Gradients, BatchHints}, hints=4), Kind.GRADIENT),
    (Spectral(), Threat(knows={Embeddings, ClassShares}), Kind.EMBEDDING),
    (Spectral(message="gradients"), Threat(knows={Gradients, ClassShares}), Kind.GRADIENT),
    (Spectral(component=2), Threat(knows={Embeddings, ClassShares}), Kind.EMBEDDING),
    (Spectral(component="auto"), Threat(knows={Embeddings, Gradients, ClassShares}), Kind.GRADIENT),
    (Directions(), Threat(knows={OwnModel, Gradients, ClassShares}), Kind.GRADIENT),
    (Directions(component=2), Threat(knows={OwnModel, ClassShares}), Kind.EMBEDDING),
    (Residual(), Threat(knows={OwnModel, Gradients, ClassShares}), Kind.GRADIENT),
    (Kmeans(), Threat(knows={Embeddings, ClassShares}), Kind.EMBEDDING),
    (Kmeans(message="gradients", map="hints"), Threat(knows={Gradients, ClassHints}), Kind.GRADIENT),
    (NoMessage(k=7), Threat(knows={OwnColumns, BatchHints}, hints=7), None),
    (Averaging(base="norm"), Threat(knows={Gradients}), Kind.GRADIENT),
    (Averaging(base="cosine", k=3), Threat(knows={Gradients, BatchHints}, hints=3), Kind.GRADIENT),
    (Averaging(base="hints", k=6), Threat(knows={Gradients, BatchHints}, hints=6), Kind.GRADIENT),
    (ModelInversion(), Threat(Seat.LABEL, {Embeddings, PeerModels}), Kind.EMBEDDING),
    (ModelInversion(mode="black_box"), Threat(Seat.LABEL, {Embeddings, Queries, Auxiliary}), Kind.EMBEDDING),
    (
        ModelInversion(knows_compression=True, knows_noise_mean=True),
        Threat(Seat.LABEL, {Embeddings, PeerModels, Compression, NoiseMean}),
        Kind.EMBEDDING,
    ),
    (ModelInversion(prior="pca"), Threat(Seat.LABEL, {Embeddings, PeerModels, Queries, Auxiliary}), Kind.EMBEDDING),
    (Esa(), Threat(Seat.LABEL, {Predictions, PeerModels, OwnTop, OwnColumns}), Kind.PREDICTION),
    (
        Esa(prior="normal"),
        Threat(Seat.LABEL, {Predictions, PeerModels, OwnTop, OwnColumns, Auxiliary, Labels}),
        Kind.PREDICTION,
    ),
    (Grna(), Threat(Seat.LABEL, {Predictions, PeerModels, OwnTop, OwnColumns}), Kind.PREDICTION),
    (BatchReconstruction(), Threat(Seat.PARTICIPANT, {Updates, OwnColumns, ClassShares}), Kind.UPDATE),
    (HiddenSubsetSum(), Threat(Seat.PARTICIPANT, {Updates, OwnColumns, ClassShares}), Kind.UPDATE),
]


def test_threats_follow_the_options():
    for attack, threat, message in THREATS:
        assert attack.threat == threat, attack
        assert attack.threat.message is message, attack


def test_attacks_read_all_that_they_declare(rng, monkeypatch):
    """A threat that declared more would overstate the attacker. At the label party the same is tested where they are run."""
    read: set[type] = set()
    original = View.__getitem__

    def noted(view: View, kind: type) -> object:
        read.add(kind)
        return original(view, kind)

    monkeypatch.setattr(View, "__getitem__", noted)
    columns = OwnColumns(torch.rand(40, 3, generator=rng), torch.randint(4, (40, 2), generator=rng))
    theta = torch.zeros(3, dtype=torch.float64)
    facts = (
        embeddings(torch.randn(40, 5, generator=rng)),
        gradients(torch.randn(40, 5, generator=rng)),
        columns,
        OwnModel(lambda ids: {"f1": torch.randn(len(ids), 5, generator=rng)}),
        shares(0.25),
        positives([0, 3, 5, 7, 9, 11, 13]),
        ClassHints(torch.tensor([1, 0])),
        Updates(Rules(2, 0.1, "sum", 1, 40), theta, theta, theta),
    )
    for attack, threat, _ in THREATS:
        if threat.seat is Seat.LABEL:
            continue
        read.clear()
        for answer in (attack.observe, attack.batch, attack.epoch):
            answer(view_of(threat, *facts))
        assert read == threat.knows, attack
