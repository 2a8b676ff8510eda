"""A promise of label DP that a recording makes, held against its messages: what they tell about labels, beyond features.

docs/explain/proofs.md says what is computed, under which assumption, and how often it is wrong.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vflbench.attacks.direct import Direct
from vflbench.generators import Generators
from vflbench.messages.facts import ClassShares, Embeddings, Gradients, PartyFeatures
from vflbench.messages.recording_format import LabelDpClaim
from vflbench.messages.threat import Level, Round, View
from vflbench.metrics import observational
from vflbench.numerics.auc import auc
from vflbench.numerics.directions import column_vectors
from vflbench.results.schema import Observed
from vflbench.run.attackers import Attacker, RowIndex
from vflbench.run.recording import RecordedSource, RowTable

_Model = Callable[[Tensor, Tensor, Tensor, Tensor, int], Mapping[str, Tensor]]
"""Features (n, d), outcome (n,) bool, places to learn from, places to ask, seed -> name -> (k,) log odds of the outcome."""

_CONFIDENCE = 0.95
MOST_CHECKED_ROWS = 20_000
"""Rows of a recording that are looked at, at most; with more the bound is hardly tighter."""
_NARROW = 256  # columns that are features beside the embeddings
_MOST_ROWS = 50_000  # that are audited, at random; with more the bound is hardly tighter
_CHECKED_ROWS = 200  # of a class, to learn from and to ask about; of fewer, nothing is known about guesses
_TOLERATED, _ERRORS = 0.52, 3.0  # AUC of guesses by features that is too small to matter; standard errors


def observed_privacy(
    scores: Mapping[str, Tensor],
    labels: Tensor,
    features: Tensor,
    claimed: float,
    *,
    seed: int = 0,
    proxy: _Model = observational.proxy_scores,
    guess_model: _Model = observational.proxy_scores,
) -> Observed:
    """Hold a promise of eps-label-DP against scores that attacks gave to rows.

    claimed: eps that is promised for all messages together. eps_low: the bound at `confidence` under the assumption of
    docs/explain/proofs.md with G = odds_factor; 0 shows nothing. odds_factor: at least 1, and
    odds_factor_seen, what features alone, as far as the proxies know them, make of the guesses. odds_factor_needed: G from
    which on the messages fit the promise; 1 if they fit anyway. features_tell_guess: AUC by which features tell the guess
    about rows of one class; None if that could not be checked. reads_features: whether it is above 0.52 and 3 standard
    errors above 0.5. rows, counted: rows that were audited, and those in the tables of the decisive half. attack: whose
    scores. outcome: `against`, `undecided` or `nothing`. verdict: for the reader of a report. Neither ever says that a
    promise was kept, nor that it is proven broken.

    scores: attack -> (n,) scores of rows (over batches the mean of `guesses`), computed without any label of these rows;
    in particular not turned by the truth from batch to batch. Rows whose label an attack knew must be left out. labels: (n,)
    true classes; class 0 against all others is tested. features: (n, d) numbers; all that messages may depend on except
    labels: the party's columns, the label party's own, embeddings from before the row's label was used. claimed: eps of all
    messages together: of flips drawn again in each of T epochs, T times that of one. proxy: of P(label | features).
    guess_model: of P(guess | features) within a class.

    Of more than 50,000 rows so many are drawn. Either half of the rows is audited with a proxy, strata, an attack and a
    cut that are chosen on the labels of the other half alone, at (1 - CONFIDENCE) / 2 each; the larger bound counts.
    """
    known = {name: torch.nan_to_num(values.double().cpu(), 0.0) for name, values in scores.items()}
    rows = _Rows(known, labels.cpu() != 0, features.cpu(), seed, proxy, guess_model)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:_MOST_ROWS]
    parts = [order[start::4] for start in range(4)]
    halves = [rows.half(torch.cat(audited), learn) for audited, learn in ((parts[:2], parts[2:]), (parts[2:], parts[:2]))]
    best = max(filter(None, halves), key=lambda half: half.log_odds_low - half.explained, default=_Half())
    seen = math.exp(best.explained)
    factor = max(1.0, seen)
    eps = observational.epsilon_low(best.log_odds_low, factor)
    needed = observational.odds_factor_needed(best.log_odds_low, claimed)
    by_features, reads = best.by_features
    least, percent = f"at least eps {eps:.2f}", f"{100 * _CONFIDENCE:g} %"
    needs = (
        f"The recording claims eps {claimed:g}; what {best.attack} reads from the messages would need {least} at {percent}"
    )
    if eps <= claimed:
        outcome, missing = "nothing", f"what the messages show needs {least} at {percent}"
        verdict = f"Nothing against the claimed eps {claimed:g} was found: {missing}. This proves nothing."
    elif reads or math.isnan(by_features):
        outcome, why = "undecided", f"it reads features as well (AUC {by_features:.3f} within a class)"
        why = why if reads else "whether it reads features could not be checked"
        verdict = f"{needs}, but {why}, and features may predict labels without a leak. Undecided: only canaries can decide."
    else:
        outcome = "against"
        verdict = (
            f"{needs}, if features predict labels at most {factor:.2f} times better, in odds, than the proxy knows, or don't"
            f" enter the guess; with a factor of {needed:.2f} or more the claim can hold. This is evidence, no proof: "
            "planted canaries decide it."
        )
    figures: dict[str, Any] = {
        "claimed": claimed,
        "eps_low": eps,
        "confidence": _CONFIDENCE,
        "odds_factor": factor,
        "odds_factor_seen": seen,
        "odds_factor_needed": needed,
        "features_tell_guess": None if math.isnan(by_features) else by_features,
        "reads_features": reads,
        "rows": len(order),
        "counted": best.counted,
        "attack": best.attack,
    }
    return Observed(**figures, outcome=outcome, verdict=verdict)


class _Half(NamedTuple):
    """One half of the rows, with strata and a cut from the labels of the other half. log_odds_low: of the groups.
    explained: log odds ratio that features alone make. by_features: AUC of the guess by features, and whether it counts.
    """

    log_odds_low: float = 0.0
    explained: float = 0.0
    by_features: tuple[float, bool] = (math.nan, False)
    counted: int = 0
    attack: str = "none"


@dataclass(frozen=True)
class _Rows:
    scores: Mapping[str, Tensor]
    positive: Tensor
    features: Tensor
    seed: int
    proxy: _Model
    guess_model: _Model

    def half(self, audited: Tensor, others: Sequence[Tensor]) -> _Half | None:
        """Audit these rows. others: two quarters, whose proxies learn from each other, so that a cut is chosen as used."""
        learn = torch.cat(list(others))
        of_quarters = [self._chances(learn, ask) for learn, ask in ((others[1], others[0]), (others[0], others[1]))]
        learned = {name: torch.cat([chances[name] for chances in of_quarters]) for name in of_quarters[0]}
        asked, name = self._chances(learn, audited), observational.better(learned, self.positive[learn])
        cut = self._cut(learn, others, observational.strata(learned[name]))
        if cut is None:
            return None
        stratum, labels = observational.strata(asked[name]), self.positive[audited]
        high, low = cut.groups({cut.name: self.scores[cut.name][audited]})
        counts = observational.stratified_table(high, low, labels, stratum)
        explained = max(observational.explained_log_odds(high, low, labels, stratum, chances) for chances in asked.values())
        lowest = counts.log_odds_low((1 - _CONFIDENCE) / 2)
        return _Half(lowest, explained, self._by_features(cut, learn, audited), counts.rows, cut.name)

    def _chances(self, learn: Tensor, ask: Tensor) -> Mapping[str, Tensor]:
        return self.proxy(self.features, self.positive, learn, ask, self.seed)

    def _cut(self, learn: Tensor, quarters: Sequence[Tensor], stratum: Tensor) -> observational.Cut | None:
        """The best cut of an attack whose guesses don't follow features; of any attack if all do."""
        chosen, remaining = None, {name: values[learn] for name, values in self.scores.items()}
        while (cut := observational.best_cut(remaining, self.positive[learn], stratum)) is not None:
            chosen = chosen or cut
            if len(self.scores) == 1 or not self._by_features(cut, *quarters)[1]:
                return cut
            del remaining[cut.name]
        return chosen

    def _by_features(self, cut: observational.Cut, learn: Tensor, ask: Tensor) -> tuple[float, bool]:
        """AUC by which features tell the guess about rows of one class, the more telling class; and whether it counts."""
        high, low = cut.groups(self.scores)
        areas, reads = [], False
        for is_positive in (False, True):
            rows = (high | low) & (self.positive == is_positive)
            fit, asked = learn[rows[learn]], ask[rows[ask]]
            ones = int(high[asked].sum())
            zeros = len(asked) - ones
            if min(len(fit), len(asked)) < _CHECKED_ROWS or not self.features.shape[1]:
                continue
            if not ones or not zeros:  # one guess about all of the class: features tell nothing about it
                areas.append(0.5)
                continue
            error = math.sqrt((len(asked) + 1) / (12 * ones * zeros))
            of_models = self.guess_model(self.features, high, fit, asked, self.seed).values()
            of_class = [auc(values, high[asked]) for values in of_models]
            areas, reads = areas + of_class, reads or max(of_class) > max(_TOLERATED, 0.5 + _ERRORS * error)
        return max(areas, default=math.nan), reads


def guesses(scores: Tensor) -> Tensor:
    """(n,) 0 or 1; 1/2 for a score that isn't a number."""
    finite = scores[scores.isfinite()]
    if not len(finite):
        return torch.full_like(scores, 0.5)
    threshold = 0.0 if finite.min() < 0 < finite.max() else _middle(finite.sort().values)
    return torch.where(scores.isfinite(), (scores > threshold).double(), 0.5)


def _middle(ordered: Tensor) -> float:
    """The threshold between the two groups with the largest variance between them (Otsu, 1979)."""
    n = len(ordered)
    if n < 2 or ordered[0] == ordered[-1]:
        return float(ordered[0])
    count = torch.arange(1, n, dtype=torch.float64)
    sums = ordered.cumsum(0)
    lower, upper = sums[:-1] / count, (sums[-1] - sums[:-1]) / (n - count)
    split = int((count * (n - count) * (upper - lower).square()).argmax())
    return float((lower[split] + upper[split]) / 2)


class ClaimCheck:
    """Collects guesses of attacks without labels, and what features say, about some rows; then compares with the labels.

    Features are the embedding of a row in the first batch in which it was recorded, of all parties, and their own columns.
    Beside the attacks of the audit, which may see few of the batches, `direct` reads the gradients of every one.
    """

    def __init__(self, source: RecordedSource, claim: LabelDpClaim):
        self._rows = source.rows
        self._cut = {party: source.recording.manifest.cut(party) for party in source.recording.manifest.parties}
        self.claimed = claim.eps * (len(source.recording.epochs) if claim.fresh else 1)
        everyone = torch.from_numpy(source.ids)
        ids = everyone[~torch.isin(everyone, source.rows.canary_ids)]
        rng = Generators(source.head.seed)["claim check"]
        self._checked = RowIndex(ids[torch.randperm(len(ids), generator=rng)[:MOST_CHECKED_ROWS]].sort().values)
        self._seen = torch.zeros(len(self._checked), dtype=torch.bool)
        self._barred = self._seen.clone()
        self._features: dict[str, RowTable] = {}
        self._guesses: dict[str, Tensor] = {}
        self._direct: dict[str, Direct] = {}

    def see(self, round_: Round) -> None:
        """A recorded round, in order: reads its gradients, and keeps features of rows that are met for the first time."""
        there, place = self._checked.find(round_.ids)
        rows = (there & ~self._seen[place]).nonzero()[:, 0]
        self._seen[place[rows]] = True
        for party, facts in round_.facts.items():
            columns, layers = facts.get(PartyFeatures), getattr(facts.get(Embeddings), "layers", {})
            parts = {layer: layers[layer][rows] for layer in self._cut[party] if layer in layers}
            if isinstance(columns, PartyFeatures):
                vectors = column_vectors(columns.numeric[rows], columns.categorical[rows])
                parts |= {"": vectors} if vectors.shape[1] <= _NARROW or not parts else {}
            if parts:
                self._features.setdefault(party, RowTable()).put(round_.ids[rows], parts)
            gradients = getattr(facts.get(Gradients), "layers", {})
            if crossing := {layer: gradients[layer] for layer in self._cut[party] if layer in gradients}:
                attack = self._direct.setdefault(party, Direct())
                shown = {Gradients: Gradients(crossing), ClassShares: ClassShares(self._rows.class_ratios)}
                view = View(party, round_.epoch, round_.step, round_.ids, torch.Generator(), attack.threat, shown)
                for layer, scores in dict(attack.batch(view).layers).items():
                    if scores.ndim == 1:
                        self._count(f"direct on every batch at {party} {layer}", round_.ids, scores)

    def hear(self, attacker: Attacker, layer: str, ids: Tensor, scores: Tensor, barred: Tensor) -> None:
        """An attack's scores of rows. barred: (n,) bool, rows whose label it was given, and coins."""
        if attacker.threat.level is Level.MESSAGES and attacker.visible and scores.ndim == 1:
            there, place = self._checked.find(ids)
            self._barred[place[there & barred]] = True
            self._count(f"{attacker.name} at {attacker.party} {layer}", ids, scores)

    def _count(self, name: str, ids: Tensor, scores: Tensor) -> None:
        """Guesses of 1 about each row, and all guesses."""
        totals = self._guesses.setdefault(name, torch.zeros(2, len(self._checked), dtype=torch.float64))
        there, place = self._checked.find(ids)
        guessed = guesses(scores.double())[there]
        totals.index_add_(1, place[there], torch.stack([guessed, torch.ones_like(guessed)]))

    def outcome(self) -> Observed:
        """What it came to, for summary.json; of attacks that were asked about at least half as many rows as the one that was
        asked about most, on rows about which each of them was asked.
        """
        usable = self._seen & ~self._barred
        asked = {name: int((counts[usable] > 0).sum()) for name, (_, counts) in self._guesses.items()}
        used = [name for name, count in asked.items() if count and 2 * count >= max(asked.values())]
        for name in used:
            usable &= self._guesses[name][1] > 0
        ids = self._checked.ids[usable]
        parts = [values for party in sorted(self._features) for values in self._features[party].filled(ids).values()]
        features = torch.cat(parts, dim=1) if parts else torch.zeros(len(ids), 0)
        scores = {name: self._guesses[name][0][usable] / self._guesses[name][1][usable] for name in used}
        return observed_privacy(scores, self._rows.labels(ids), features.float(), self.claimed)
