"""A promise of label DP that a recording makes, held against what attacks read from its messages."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.direct import Direct
from vflbench.generators import Generators
from vflbench.messages.facts import ClassShares, Embeddings, Gradients, OwnColumns
from vflbench.messages.manifest import LabelDpClaim
from vflbench.messages.round import Facts, Round
from vflbench.messages.threat import Level
from vflbench.messages.view import View
from vflbench.numerics.column_vectors import column_vectors
from vflbench.run.attackers import Attacker
from vflbench.run.joined_guesses import guesses
from vflbench.run.observed_privacy import observed_privacy
from vflbench.run.recorded_rows import RecordedRows, Table
from vflbench.run.recorded_source import RecordedSource

MOST_ROWS = 20_000
"""Rows that are looked at, at most; with more the bound is hardly tighter."""
_NARROW = 256  # columns that are features beside the embeddings


class ClaimCheck:
    """Collects guesses of attacks without labels, and what features say, about some rows; then compares with the labels.

    Features are the embedding of a row in the first batch in which it was recorded, of all parties, and their own columns.
    Beside the attacks of the audit, which may see few of the batches, `direct` reads the gradients of every one.
    """

    def __init__(self, source: RecordedSource, claim: LabelDpClaim, epochs: int):
        self._rows: RecordedRows = source.rows
        self._cut = {party: source.recording.manifest.cut(party) for party in source.recording.manifest.parties}
        self.claimed = claim.eps * (epochs if claim.fresh else 1)
        everyone = torch.from_numpy(source.ids.all)
        ids = everyone[~torch.isin(everyone, source.rows.canary_ids)]
        rng = Generators(source.seed)["claim check"]
        self._ids = ids[torch.randperm(len(ids), generator=rng)[:MOST_ROWS]].sort().values
        self._seen = torch.zeros(len(self._ids), dtype=torch.bool)
        self._barred = torch.zeros(len(self._ids), dtype=torch.bool)
        self._features: dict[str, Table] = {}
        self._guesses: dict[str, tuple[Tensor, Tensor]] = {}
        self._direct: dict[str, tuple[Direct, torch.Generator]] = {}

    def see(self, round_: Round) -> None:
        """A recorded round, in order: reads its gradients, and keeps features of rows that are met for the first time."""
        for party, of_party in round_.facts.items():
            self._read(party, round_, of_party)
        place, there = self._places(round_.ids)
        new = there.clone()
        new[there] = ~self._seen[place[there]]
        rows = new.nonzero()[:, 0]
        if not len(rows):
            return
        self._seen[place[rows]] = True
        for party, facts in round_.facts.items():
            embeddings, columns = facts.get(Embeddings), facts.get(OwnColumns)
            parts: dict[str, Tensor] = {}
            if isinstance(embeddings, Embeddings):
                parts |= {layer: embeddings.layers[layer][rows] for layer in self._cut[party] if layer in embeddings.layers}
            if isinstance(columns, OwnColumns):
                of_rows = columns.rows(rows)
                vectors = column_vectors(of_rows.numeric, of_rows.categorical)
                parts |= {"": vectors} if vectors.shape[1] <= _NARROW or not parts else {}
            if parts:
                self._features.setdefault(party, Table()).put(round_.ids[rows], parts)

    def hear(self, attacker: Attacker, layer: str, ids: Tensor, scores: Tensor, barred: Tensor) -> None:
        """An attack's scores of rows. barred: (n,) bool, rows whose label it was given, and coins."""
        if attacker.threat.level is not Level.MESSAGES or not attacker.visible or scores.ndim != 1:
            return
        place, there = self._places(ids)
        self._barred[place[there & barred]] = True
        self._count(f"{attacker.name} at {attacker.party} {layer}", ids, scores)

    def _read(self, party: str, round_: Round, facts: Facts) -> None:
        gradients = facts.get(Gradients)
        if not isinstance(gradients, Gradients):
            return
        crossing = {layer: gradients.layers[layer] for layer in self._cut[party] if layer in gradients.layers}
        attack, rng = self._direct.setdefault(party, (Direct(), torch.Generator().manual_seed(0)))
        shown = {Gradients: Gradients(crossing), ClassShares: ClassShares(self._rows.class_ratios)}
        view = View(party, round_.epoch, round_.step, round_.ids, rng, attack.threat, shown)
        for layer, scores in dict(attack.batch(view).layers).items() if crossing else ():
            if scores.ndim == 1:
                self._count(f"direct on every batch at {party} {layer}", round_.ids, scores)

    def _count(self, name: str, ids: Tensor, scores: Tensor) -> None:
        totals, counts = self._guesses.setdefault(
            name, (torch.zeros(len(self._ids), dtype=torch.float64), torch.zeros(len(self._ids), dtype=torch.int64))
        )
        place, there = self._places(ids)
        told = guesses(scores.double())[there]
        totals.index_add_(0, place[there], told)
        counts.index_add_(0, place[there], torch.ones_like(place[there]))

    def outcome(self) -> dict[str, Any]:
        """What it came to, for summary.json; on rows about which every attack that is used was asked."""
        usable = self._seen & ~self._barred
        used = self._widest(usable)
        for name in used:
            usable &= self._guesses[name][1] > 0
        ids = self._ids[usable]
        parts = [values for party in sorted(self._features) for values in self._features[party].filled(ids).values()]
        features = torch.cat(parts, dim=1) if parts else torch.zeros(len(ids), 0)
        scores = {name: self._guesses[name][0][usable] / self._guesses[name][1][usable] for name in used}
        found = observed_privacy(scores, self._rows.labels(ids), features.float(), self.claimed)
        return {**found.plain(), "attacks": list(used)}

    def _widest(self, usable: Tensor) -> Sequence[str]:
        """Attacks that were asked about at least half as many rows as the one that was asked about most."""
        asked = {name: int((counts[usable] > 0).sum()) for name, (_, counts) in self._guesses.items()}
        most = max(asked.values(), default=0)
        return [name for name, count in asked.items() if count and 2 * count >= most]

    def _places(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Places among the rows that are looked at, and (n,) bool: which are."""
        place = torch.searchsorted(self._ids, ids).clamp_(max=max(len(self._ids) - 1, 0))
        there = self._ids[place] == ids if len(self._ids) else torch.zeros_like(ids, dtype=torch.bool)
        return place, there
