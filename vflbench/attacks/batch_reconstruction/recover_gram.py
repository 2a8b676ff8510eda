"""alpha and beta of a private batch, in integers, by the recovery that suits its rounds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.local_map import recover_map
from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import TotalSums, recover_total
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.real_columns import binary_columns
from vflbench.attacks.batch_reconstruction.recovery.affine import rounding_unit
from vflbench.attacks.batch_reconstruction.recovery.least_squares import least_squares
from vflbench.attacks.batch_reconstruction.recovery.rounding import RecoveredSums
from vflbench.attacks.batch_reconstruction.recovery.selective import selective_sums
from vflbench.messages.rules import Schema

_DEVIATIONS = 6.0  # standard errors that a true value may be off
_LARGEST_ERROR = 1e-3  # of alpha's entries; with a larger one real-valued columns can't be distinguished from noise
_ONLY_BINARY = "the columns hold only 0 and 1, which no schema says"
_NOTHING_WITHHELD = "updates are whole, which no rule says"
_NOTHING_BEYOND = "no row has a part in a direction that no model took"
_ZERO = 1e-12  # of the largest coordinate, and
_ROUNDINGS = 64.0  # of the models: the rounding of a coordinate that was sent as 0

RecoveryMethod = Literal["least_squares", "lattice"]


@dataclass(frozen=True)
class TrainingRules:
    """What the participants agreed on. others: participants whose updates are summed; batches: local steps of a round, each
    on `batch_size` rows. whole: whether every coordinate of an update is sent; whole_is_known: whether they agreed on that,
    or it is an assumption. schema: of the columns, or None if it isn't known: which ones are binary is an assumption then.
    """

    others: int
    rate: float
    reduction: Literal["sum", "mean"]
    batches: int
    batch_size: int
    whole: bool = True
    schema: Schema | None = None
    whole_is_known: bool = True

    @property
    def assumption(self) -> str:
        """What is taken for granted because the rules don't say it."""
        return _joined(
            _ONLY_BINARY if self.schema is None else "", "" if self.whole_is_known or not self.whole else _NOTHING_WITHHELD
        )


@dataclass(frozen=True)
class RecoveredGram:
    """gram: of the columns `kept`. real_alpha: (d, d) of all columns, unrounded, or None. total, eta: of several local
    batches, or None. note: why gram is None, or lacks columns. assumption: what alpha and beta take for granted beyond the
    rounds and the rules, one sentence, or "" if they are proved. What follows from an assumption is not certain.
    estimate: alpha and beta of all columns as far as noise leaves them, where there is no gram. likely: of the columns
    `likely_columns`, among them ones that the rounds do not determine, if no row has a part in a direction that no model
    took; for a guess.
    """

    figures: Mapping[str, float]
    gram: Gram | None = None
    kept: np.ndarray | None = None
    real_alpha: np.ndarray | None = None
    total: TotalSums | None = None
    eta: np.ndarray | None = None
    note: str = ""
    assumption: str = ""
    estimate: tuple[np.ndarray, np.ndarray] | None = None
    likely: Gram | None = None
    likely_columns: np.ndarray | None = None


def recover_gram(
    thetas: np.ndarray, updates: np.ndarray, rules: TrainingRules, method: RecoveryMethod, *, knows_batch_size: bool
) -> RecoveredGram:
    """alpha and beta, in integers, of as many columns as the updates determine.

    thetas, updates: (n, d), the models before n rounds and the sums of the others' updates.
    """
    if rules.batches > 1:
        return _of_several_batches(thetas, updates, rules)
    rows = rules.others * rules.batch_size if knows_batch_size else None
    if knows_batch_size and rules.reduction == "mean":
        updates = updates * rules.batch_size
    elif rules.reduction == "mean":
        updates = updates / rules.others
    reduction = "sum" if knows_batch_size else rules.reduction
    if not rules.whole and rules.others > 1:
        why = "partly shared updates of several participants do not show who sent which coordinates"
        return RecoveredGram({"rounds": float(len(thetas))}, note=why)
    if not rules.whole and rows is None:
        return RecoveredGram({"rounds": float(len(thetas))}, note="partly shared updates need a known batch size")
    known: dict[str, Any] = {"rate": rules.rate, "reduction": reduction, "rows": rows}
    likely: RecoveredSums | None = None
    if not rules.whole:
        recovered = selective_sums(
            thetas, updates, _shared(thetas, updates), rate=rules.rate, rows=rows, schema=rules.schema
        )
    elif method == "lattice":
        if rules.schema is not None and len(rules.schema.binary) < thetas.shape[1]:
            why = "integer relations take binary columns only, and by the schema there are others"
            return RecoveredGram({"rounds": float(len(thetas))}, note=why)
        from vflbench.attacks.batch_reconstruction.recovery.integer_relations import integer_relations

        recovered = integer_relations(thetas, updates, **known)
    else:
        recovered = least_squares(thetas, updates, **known, schema=rules.schema)
        if recovered.undetermined or (recovered.columns is None and len(thetas) > thetas.shape[1]):
            beyond = least_squares(thetas, updates, **known, schema=rules.schema, nothing_beyond=True)
            if beyond.refusal is None and beyond.rows is not None and recovered.columns is None:
                recovered = replace(beyond, assumption=_NOTHING_BEYOND)
            elif beyond.refusal is None and beyond.rows is not None:
                likely = beyond
    figures = _figures(recovered)
    if recovered.refusal is None and recovered.rows is None:
        return RecoveredGram(figures, note="the batch size is not known, and sums of gradients do not determine it")
    if recovered.refusal is not None:
        mixed = _of_mixed_columns(recovered, rules.schema, figures)
        return mixed if mixed.gram is not None else replace(mixed, estimate=_estimate(recovered))
    assumption = _joined(
        recovered.assumption,
        "the batch has the least size that fits" if rows is None and reduction == "mean" else "",
        rules.assumption,
    )
    left_out = _left_out(recovered, rules)
    real_alpha = _precise_alpha(recovered) if left_out else None
    whole = RecoveredGram(
        figures, recovered.gram, recovered.columns, real_alpha, note=_joined(left_out, assumption), assumption=assumption
    )
    return whole if likely is None else replace(whole, likely=likely.gram, likely_columns=likely.columns)


def _estimate(recovered: RecoveredSums) -> tuple[np.ndarray, np.ndarray] | None:
    """alpha and beta with standard errors so small that they still tell more of a batch than its size."""
    if recovered.real_alpha is None or recovered.rows is None or not np.isfinite(recovered.real_alpha).all():
        return None
    error = max(recovered.alpha_error.max(initial=0.0), recovered.beta_error.max(initial=0.0))
    return (recovered.real_alpha, recovered.real_beta) if error < _DEVIATIONS else None


def _of_mixed_columns(recovered: RecoveredSums, schema: Schema | None, figures: Mapping[str, float]) -> RecoveredGram:
    """The binary columns among others, recognised by their sums if no schema names them and alpha is precise enough."""
    if schema is not None or recovered.real_alpha is None or recovered.rows is None or recovered.columns is None:
        return RecoveredGram(figures, note=recovered.refusal or "")
    columns = recovered.columns
    block = np.ix_(columns, columns)
    error = _DEVIATIONS * max(recovered.alpha_error[block].max(), recovered.beta_error[columns].max())
    if not error < _LARGEST_ERROR:
        return RecoveredGram(figures, note=recovered.refusal)
    binary = binary_columns(
        recovered.real_alpha[block], recovered.real_beta[columns], recovered.rows, tolerance=max(error, 1e-6)
    )
    if not len(binary.kept) or not binary.left_out:
        return RecoveredGram(figures, note=recovered.refusal)
    left_out = _listed("not binary", {int(columns[j]): why for j, why in binary.left_out.items()})
    gram = Gram(binary.alpha, binary.beta, recovered.rows)
    note = _joined(left_out, _not_determined(recovered), _ONLY_BINARY)
    return RecoveredGram(figures, gram, columns[binary.kept], _precise_alpha(recovered), note=note, assumption=_ONLY_BINARY)


def _precise_alpha(recovered: RecoveredSums) -> np.ndarray:
    """alpha, unrounded, nan where it is too imprecise to solve for real values."""
    return np.where(_DEVIATIONS * recovered.alpha_error < _LARGEST_ERROR / 10, recovered.real_alpha, np.nan)


def _left_out(recovered: RecoveredSums, rules: TrainingRules) -> str:
    """The columns that are not searched for, and why."""
    if rules.schema is None:
        return _not_determined(recovered)
    others = sorted(set(range(len(recovered.real_beta))) - set(rules.schema.binary))
    return _joined(_listed("not binary", dict.fromkeys(others, "by the schema")), _not_determined(recovered))


def _not_determined(recovered: RecoveredSums) -> str:
    names = recovered.undetermined
    if not names:
        return ""
    some = ", ".join(map(str, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"not determined by these rounds: column {some}"


def _listed(title: str, reasons: Mapping[int, str]) -> str:
    """The first five columns and why, or "" for none."""
    if not reasons:
        return ""
    some = "; ".join(f"column {j}: {why}" for j, why in sorted(reasons.items())[:5])
    return f"{title}: {some}" + ("" if len(reasons) <= 5 else f" and {len(reasons) - 5} more")


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _of_several_batches(thetas: np.ndarray, updates: np.ndarray, rules: TrainingRules) -> RecoveredGram:
    """The sums over all local batches, from the affine map that their steps compose."""
    if rules.others > 1:
        why = "the summed differences of several participants with several local steps each are no single map"
        return RecoveredGram({"rounds": float(len(thetas))}, note=why)
    if rules.schema is not None and len(rules.schema.binary) < thetas.shape[1]:
        why = "several local steps are undone for binary columns only, and by the schema there are others"
        return RecoveredGram({"rounds": float(len(thetas))}, note=why)
    labelled = rules.batches * (rules.batch_size if rules.reduction == "sum" else 1)
    if not rules.whole:
        why = "partly shared updates of several local steps are no map of the models"
        return RecoveredGram({"rounds": float(len(thetas))}, note=why)
    local_map = recover_map(thetas, updates, intermediate=rules.rate / 2 * labelled)
    figures = {"rounds": float(len(thetas)), **({} if local_map.condition is None else {"condition": local_map.condition})}
    if local_map.refusal is not None:
        return RecoveredGram(figures, note=local_map.refusal)
    total = recover_total(
        local_map.gamma,
        local_map.eta,
        rules.rate,
        rules.batches,
        rows=rules.batch_size,
        reduction=rules.reduction,
        error=max(local_map.gamma_error.max(), local_map.eta_error.max()),
    )
    if total.refusal is not None:
        return RecoveredGram(figures, note=total.refusal)
    gram = Gram(total.alpha_sum, total.beta_sum, rules.batches * rules.batch_size)
    assumption = _joined(total.assumption, rules.assumption)
    return RecoveredGram(
        figures, gram, np.arange(thetas.shape[1]), None, total, local_map.eta, note=assumption, assumption=assumption
    )


def _shared(thetas: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """(n, d) bool: which coordinates were sent; the others are 0 up to rounding, of the models that they are differences of.

    A coordinate that was never sent must not pass for one whose updates are 0, and so for a column of zeros.
    """
    rounding = _ROUNDINGS * rounding_unit(thetas, updates) * (np.abs(thetas).max() + np.abs(updates).max())
    return np.abs(updates) > np.maximum(_ZERO * np.abs(updates).max(axis=1, keepdims=True), rounding)


def _figures(recovered: RecoveredSums) -> dict[str, float]:
    optional = {"condition": recovered.condition, "residual": recovered.residual}
    return {
        "rounds": float(recovered.rounds),
        **{name: float(value) for name, value in optional.items() if value is not None},
    }
