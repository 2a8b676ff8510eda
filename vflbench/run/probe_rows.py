"""What the probe is given: of some rows of each audited batch, the messages, the scores of every attack, and the labels."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from vflbench.data.table import LABEL_PARTY
from vflbench.messages.facts import Embeddings, Gradients
from vflbench.messages.message import Kind
from vflbench.messages.round import Facts, Round
from vflbench.metrics.leakage import Key, LeakTable
from vflbench.metrics.probe import probe
from vflbench.results.levels import PROBE

FOLLOWED = "followed rows"

_GROUPS = 8
_ROWS = 4096  # of each party in an epoch, at most


class ProbeRows:
    """Rows of the audited batches of an epoch, and all that was said about them.

    ids, labels: (n,). batch: (n,) number of the audited batch. usable: (n,) bool, neither canaries nor rows whose label an
    attack was given. messages: party -> kind and layer -> (n, d). scores: party -> kind of message, and attack and layer ->
    (n,) or (n, K), nan where the attack was not asked. followed: the same of attacks that follow rows of their own through
    the epochs: ids, labels, usable and scores of these rows.
    """

    def __init__(self) -> None:
        self.ids = torch.empty(0, dtype=torch.int64)
        self.labels, self.batch = self.ids.clone(), self.ids.clone()
        self.usable = torch.empty(0, dtype=torch.bool)
        self.messages: dict[str, dict[tuple[Kind, str], Tensor]] = {}
        self.scores: dict[str, dict[tuple[Kind, str], Tensor]] = {}
        self.followed: dict[str, dict[tuple[Kind, str], list[Tensor]]] = {}

    def meet(
        self,
        round_: Round,
        labels: Tensor,
        canary: Tensor,
        crossing: Mapping[str, Sequence[str]],
        batches: int,
    ) -> None:
        """The first rows of an audited batch. crossing: party -> layers that cross. batches: audited in this epoch."""
        rows = slice(0, max(1, _ROWS // batches))
        new = round_.ids[rows].cpu()
        number = int(self.batch[-1]) + 1 if len(self.batch) else 0
        self.ids, self.labels = torch.cat([self.ids, new]), torch.cat([self.labels, labels[rows].cpu()])
        self.batch = torch.cat([self.batch, torch.full_like(new, number)])
        self.usable = torch.cat([self.usable, ~canary[rows].cpu()])
        for party, layers in crossing.items():
            kept = self.messages.setdefault(party, {})
            for name, values in _messages(round_.facts, party, layers).items():
                before = (len(self.ids) - len(new), values.shape[1])
                filled = kept.get(name, values.new_full(before, torch.nan, device="cpu"))
                kept[name] = torch.cat([_padded(filled, len(self.ids) - len(new)), values[rows].float().cpu()])

    def hear(self, party: str, name: tuple[Kind, str], ids: Tensor, scores: Tensor, known: Tensor) -> None:
        """An attack's scores of rows. name: the kind of message, and attack and layer. known: (n,) bool, rows whose label it
        was given.
        """
        if not len(self.ids):
            return
        ordered, order = ids.cpu().sort()
        place = torch.searchsorted(ordered, self.ids).clamp_(max=max(len(ordered) - 1, 0))
        if not len(ordered):
            return
        is_asked = ordered[place] == self.ids
        self.usable &= ~(is_asked & known.cpu()[order[place]])
        kept = self.scores.setdefault(party, {})
        column = _padded(kept.get(name, scores.new_empty((0, *scores.shape[1:])).double().cpu()), len(self.ids))
        column[is_asked] = scores.double().cpu()[order[place[is_asked]]]
        kept[name] = column

    def hear_followed(
        self, party: str, name: tuple[Kind, str], ids: Tensor, labels: Tensor, scores: Tensor, unusable: Tensor
    ) -> None:
        """Scores of rows that an attack follows. unusable: (n,) bool."""
        new = [ids.cpu(), labels.cpu(), ~unusable.cpu(), scores.double().cpu()]
        kept = self.followed.setdefault(party, {}).get(name)
        self.followed[party][name] = new if kept is None else [torch.cat(pair) for pair in zip(kept, new, strict=True)]

    def grade(self, classes: int, rng: torch.Generator, table: LeakTable) -> None:
        """Fit probes at each party, and add their scores batch by batch, under the layers `embeddings`, `gradients` and,
        for both together, `messages`; and under `followed rows` what the scores of attacks that follow rows come to.
        """
        usable = self.usable.nonzero()[:, 0]
        labels, batch = self.labels[usable], self.batch[usable]
        for party in self.messages:
            kinds = {"embeddings": (Kind.EMBEDDING,), "gradients": (Kind.GRADIENT,)}
            for layer, of in {**kinds, "messages": tuple(Kind)}.items():
                blocks, heard = (
                    [
                        _padded(values, len(self.ids))[usable]
                        for (kind, _), values in given.get(party, {}).items()
                        if kind in of
                    ]
                    for given in (self.messages, self.scores)
                )
                if blocks:
                    scores, half = probe(blocks, heard, labels, batch, classes, rng)
                    if scores is not None:
                        _add(scores, half, labels, batch, (PROBE, "none", party, layer, True), table)
        for party, of_attacks in self.followed.items():
            self._grade_followed(list(of_attacks.values()), classes, rng, (PROBE, "none", party, FOLLOWED, True), table)

    def _grade_followed(
        self, heard: Sequence[Sequence[Tensor]], classes: int, rng: torch.Generator, key: Key, table: LeakTable
    ) -> None:
        """On the rows about which all of them were asked: those of the attack that follows fewest."""
        ids, asked_by = torch.cat([ids[usable] for ids, _, usable, _ in heard]).unique(return_counts=True)
        ids = ids[asked_by == len(heard)]
        labels, columns = torch.zeros_like(ids), []
        for asked, truth, usable, answer in heard:
            is_kept = usable & torch.isin(asked, ids)
            place = torch.searchsorted(ids, asked[is_kept])
            labels[place] = truth[is_kept]
            columns.append(answer.new_full((len(ids), *answer.shape[1:]), torch.nan))
            columns[-1][place] = answer[is_kept]
        order = torch.randperm(len(ids), generator=rng)
        batch = torch.arange(len(ids)) * _GROUPS // max(1, len(ids))
        scores, half = probe([], [column[order] for column in columns], labels[order], batch, classes, rng)
        if scores is not None:
            _add(scores, half, labels[order], batch, key, table)

    def state(self) -> dict[str, Any]:
        return {
            "rows": [self.ids, self.labels, self.batch, self.usable],
            "messages": [
                [party, str(kind), name, values]
                for party, given in self.messages.items()
                for (kind, name), values in given.items()
            ],
            "followed": [
                [party, str(kind), name, *values]
                for party, given in self.followed.items()
                for (kind, name), values in given.items()
            ],
            "scores": [
                [party, str(kind), name, values]
                for party, given in self.scores.items()
                for (kind, name), values in given.items()
            ],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        rows = cls()
        rows.ids, rows.labels, rows.batch, rows.usable = (values.clone() for values in state["rows"])
        for given, saved in ((rows.messages, state["messages"]), (rows.scores, state["scores"])):
            for party, kind, name, values in saved:
                given.setdefault(party, {})[Kind(kind), name] = values.clone()
        for party, kind, name, *parts in state["followed"]:
            rows.followed.setdefault(party, {})[Kind(kind), name] = [values.clone() for values in parts]
        return rows


def _add(scores: Tensor, half: Tensor, labels: Tensor, batch: Tensor, key: Key, table: LeakTable) -> None:
    """The halves are scored by two probes, whose scores don't compare."""
    for number in batch.unique():
        for which in (0, 1):
            rows = ((batch == number) & (half == which)).nonzero()[:, 0]
            table.add(key, scores[rows], labels[rows])


def _messages(facts: Mapping[str, Facts], party: str, layers: Sequence[str]) -> dict[tuple[Kind, str], Tensor]:
    """Kind and layer -> (n, d), of the layers that cross, in both directions; embeddings as they arrived, where the label
    party's facts are there.
    """
    crossed: dict[tuple[Kind, str], Tensor] = {}
    embeddings, gradients = (facts.get(party, {}).get(kind) for kind in (Embeddings, Gradients))
    arrived = facts.get(LABEL_PARTY, {}).get(Embeddings)
    sent: Mapping[str, Tensor] = embeddings.layers if isinstance(embeddings, Embeddings) else {}
    if isinstance(arrived, Embeddings):
        sent = {**sent, **arrived.received.get(party, {})}
    received = gradients.layers if isinstance(gradients, Gradients) else {}
    for kind, values in ((Kind.EMBEDDING, sent), (Kind.GRADIENT, received)):
        crossed |= {(kind, layer): values[layer] for layer in layers if layer in values}
    return crossed


def _padded(values: Tensor, rows: int) -> Tensor:
    """With nan for rows that are missing at the end."""
    missing = rows - len(values)
    return values if missing <= 0 else torch.cat([values, values.new_full((missing, *values.shape[1:]), torch.nan)])
