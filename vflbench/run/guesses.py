"""Guesses without messages: what anybody could have answered who knows held-out rows, the class, or columns of its own."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.numerics.decoder import Decoder, fit_decoder
from vflbench.run.judges import whole

_DRAWS, _COPIES = 24, 8
"""Pictures that are made up, and held-out rows, among which the best draw is chosen."""
_DIRECTIONS = 20
_SHRINK = 0.1
_WIDTH, _STEPS = 128, 500
_IDS = 32  # of a column, the most frequent ones, are inputs of the network of own columns

GUESSES = ("mean", "class_mean", "random_row", "class_row", "best_draw", "own_columns", "own_linear")
"""Answers that need no message, in the order of the tables."""
OF_THE_TRUTH = ("nearest_row", "true")
"""Answers that take the truth: what copying could reach at most, and what a perfect answer gets."""


class Guesses:
    """Answers that take no message about a row.

        mean          of the held-out rows; of categories the most frequent id
        class_mean    the same by class, which the label party knows
        random_row    a held-out row, drawn at random
        class_row     a held-out row of the class, drawn at random
        best_draw     of pictures: of 24 draws from a normal distribution of the class, and 8 held-out rows of it, the one
                      that a classifier of the attacker's own takes for its class most surely
        own_columns   where the attacker's seat has columns of the row: what a network makes of these and of the class
        own_linear    the same by ridge regression; ids are those of the network

    The class mean is also what the network of `own_columns`, or a decoder as that of a black box, tends to without messages
    and without own columns: it has the least squared error of all answers that depend on the class alone.

    nearest_row, the held-out row nearest to the true one, and true are no guesses: they take the truth.

    held_out: rows that aren't trained on.
    """

    def __init__(self, held_out: VerticalTable, seed: int):
        self._held_out, self._seed = held_out, seed
        self._of_class = [(held_out.labels == k).nonzero()[:, 0] for k in range(held_out.classes)]
        everyone = torch.arange(len(held_out), device=held_out.ids.device)
        self._of_class = [places if len(places) else everyone for places in self._of_class]
        self._networks: dict[tuple[str, ...], Mapping[str, Decoder]] = {}

    def of(
        self, rows: VerticalTable, parties: Sequence[str], own: str | None, rng: torch.Generator
    ) -> dict[str, dict[str, Features]]:
        """Guess -> party -> columns of these rows. own: the party that attacks, if it has columns of its own."""
        held_out, device = self._held_out, rows.ids.device
        drawn = torch.randint(len(held_out), (len(rows),), generator=rng).to(device)
        apart = torch.stack([_distances(rows.features[p], held_out.features[p]) for p in parties])  # (parties, n, m)
        nearest = apart.sum(dim=0).argmin(dim=1)
        alike = [self._of_class[k] for k in rows.labels.tolist()]
        of_class = torch.stack([places[int(torch.randint(len(places), (), generator=rng))] for places in alike])
        means = {k: held_out.rows(self._of_class[k]) for k in rows.labels.unique().tolist()}
        guesses = {
            "mean": {p: _means(held_out.features[p], len(rows)) for p in parties},
            "class_mean": {p: _by_label(p, means, rows.labels) for p in parties},
            "random_row": {p: held_out.features[p].rows(drawn) for p in parties},
            "class_row": {p: held_out.features[p].rows(of_class) for p in parties},
        }
        if whole(held_out.features, parties) is not None:
            guesses["best_draw"] = self._best_draws(rows, parties, rng)
        if own is not None:
            guesses["own_columns"] = self._from_own_columns(rows, parties, own)
            guesses["own_linear"] = {
                p: Features(block.columns, self._linear(rows, p, own), block.categorical)
                for p, block in guesses["own_columns"].items()
            }
        guesses["nearest_row"] = {p: held_out.features[p].rows(nearest) for p in parties}
        return guesses | {"true": {p: rows.features[p] for p in parties}}

    def _best_draws(self, rows: VerticalTable, parties: Sequence[str], rng: torch.Generator) -> dict[str, Features]:
        """Pictures that look most like their class to a linear discriminant of the held-out rows' main directions."""
        held_out = self._held_out
        x = torch.cat([held_out.features[p].numeric for p in parties], dim=1).double().cpu()
        mean, labels = x.mean(dim=0), held_out.labels.cpu()
        covariance = (x - mean).T @ (x - mean) / len(x)
        directions = torch.linalg.eigh(covariance).eigenvectors[:, -_DIRECTIONS:]  # (d, q)
        z = (x - mean) @ directions
        centres = torch.stack([z[places.cpu()].mean(dim=0) for places in self._of_class])
        within = z - centres[labels]
        spread = within.T @ within / len(z)
        spread = (1 - _SHRINK) * spread + _SHRINK * spread.diagonal().mean() * torch.eye(len(spread), dtype=z.dtype)
        factor, precision = torch.linalg.cholesky(spread), torch.linalg.inv(spread)
        chosen = []
        for label in rows.labels.tolist():
            noise = torch.randn(_DRAWS, factor.shape[0], generator=rng, dtype=z.dtype)
            made_up = (mean + (centres[label] + noise @ factor.T) @ directions.T).clamp(0, 1)
            of_class = self._of_class[label].cpu()
            copies = x[of_class[torch.randint(len(of_class), (_COPIES,), generator=rng)]]
            candidates = torch.cat([made_up, copies])
            off = ((candidates - mean) @ directions)[:, None] - centres[None]  # (32, classes, q)
            log_odds = -0.5 * torch.einsum("ckq,qr,ckr->ck", off, precision, off)
            chosen.append(candidates[log_odds.log_softmax(dim=1)[:, label].argmax()])
        blocks = [held_out.features[p] for p in parties]
        parts = torch.stack(chosen).to(blocks[0].numeric).split([b.numeric.shape[1] for b in blocks], dim=1)
        return {
            p: Features(block.columns, part, block.categorical[:1].expand(len(rows), -1))
            for p, block, part in zip(parties, blocks, parts, strict=True)
        }

    def _from_own_columns(self, rows: VerticalTable, parties: Sequence[str], own: str) -> dict[str, Features]:
        """What a network that is fitted to held-out rows makes of the class and of the attacker's own columns."""
        held_out = self._held_out
        key = (own, *parties)
        if key not in self._networks:
            h = self._known(held_out, own)
            self._networks[key] = {
                p: fit_decoder(
                    h,
                    held_out.features[p].numeric,
                    held_out.features[p].categorical,
                    torch.Generator(h.device).manual_seed(self._seed),
                    width=_WIDTH,
                    steps=_STEPS,
                )
                for p in parties
            }
        h = self._known(rows, own)
        return {p: Features(held_out.features[p].columns, *network(h)) for p, network in self._networks[key].items()}

    def _linear(self, rows: VerticalTable, party: str, own: str) -> Tensor:
        """(n, k): ridge regression on the held-out rows, its strength by generalised cross-validation."""
        x, y = self._known(self._held_out, own).double(), self._held_out.features[party].numeric.double()
        if not y.shape[1]:
            return y[:1].expand(len(rows), -1).float()
        mean, scale, middle = x.mean(dim=0), x.std(dim=0).clamp_min(1e-6), y.mean(dim=0)
        u, s, vt = torch.linalg.svd((x - mean) / scale, full_matrices=False)
        uy = u.T @ (y - middle)
        total, best = (y - middle).square().sum(), (math.inf, torch.zeros_like(s))
        for strength in torch.logspace(-4, 4, 17, dtype=s.dtype).tolist():
            kept = s.square() / (s.square() + strength)  # of each direction
            error = total - ((2 * kept - kept.square())[:, None] * uy.square()).sum()
            score = float(error) / max(1 - float(kept.sum() + 1) / len(x), 1e-6) ** 2
            best = min(best, (score, kept / s.clamp_min(1e-12)), key=lambda pair: pair[0])
        answer = middle + (self._known(rows, own).double() - mean) / scale @ vt.T @ (best[1][:, None] * uy)
        return answer.clamp(0, 1).float()

    def _known(self, rows: VerticalTable, own: str) -> Tensor:
        """(n, d): the class, numeric columns, and the most frequent ids of each categorical one, as 0 and 1."""
        block, known = rows.features[own], self._held_out.features[own]
        parts = [torch.nn.functional.one_hot(rows.labels, rows.classes).to(block.numeric.dtype), block.numeric]
        for column, of_known in zip(block.categorical.T, known.categorical.T, strict=True):
            values, counts = of_known.unique(return_counts=True)
            ids = values[counts.argsort(descending=True)[:_IDS]]
            parts.append((column[:, None] == ids).to(block.numeric.dtype))
        return torch.cat(parts, dim=1)


def _distances(block: Features, others: Features) -> Tensor:
    """(n, m) squared distance of each row from each other row; each category that differs counts as 1."""
    apart = torch.cdist(block.numeric.double(), others.numeric.double()).square()
    for own, other in zip(block.categorical.T, others.categorical.T, strict=True):
        apart = apart + (own[:, None] != other[None])
    return apart


def _means(block: Features, rows: int) -> Features:
    """The mean row, or the most frequent id, so many times."""
    columns: Columns = block.columns
    categorical = block.categorical.mode(dim=0).values if len(columns.categorical) else block.categorical[0]
    return Features(columns, block.numeric.mean(dim=0).expand(rows, -1), categorical.expand(rows, -1))


def _by_label(party: str, means: Mapping[int, VerticalTable], labels: Tensor) -> Features:
    mean_of = {k: _means(rows.features[party], 1) for k, rows in means.items()}
    numeric = torch.cat([mean_of[k].numeric for k in labels.tolist()])
    categorical = torch.cat([mean_of[k].categorical for k in labels.tolist()])
    return Features(next(iter(mean_of.values())).columns, numeric, categorical)
