"""Hidden subset sum: a whole private batch from a single update, by orthogonal lattices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from flint import fmpz_mat

from vflbench.attacks.base import Attack, RebuiltBatch
from vflbench.attacks.batch_reconstruction.gram import PRIME, guesses_by_columns, kernel_modulo
from vflbench.attacks.batch_reconstruction.recover import rounding_unit
from vflbench.messages.facts import ClassShares, PartyFeatures, Rules, Updates
from vflbench.messages.threat import Role, Threat, View
from vflbench.options import options

MOST_ROWS = 16
"""Of one update: 2^16 vectors are tried for rows."""
_MOST_CANDIDATES = 128
_GAP = 1.5  # in length, between relations of the rows and those of chance
_MARGIN = 64.0  # times the rounding that an explanation may be off


@dataclass(frozen=True)
class OneUpdate:
    """x: (m, d) of 0 and 1, y: (m,) of -1 and 1, None with a refusal. relations: short ones that were used. candidates: 0/1
    vectors that the relations leave. refusal: why there is no batch, or "".
    """

    x: np.ndarray | None = None
    y: np.ndarray | None = None
    relations: int = 0
    candidates: int = 0
    refusal: str = ""


def rows_of_one_update(update: np.ndarray, theta: np.ndarray, rows: int, step: float, error: float) -> OneUpdate:
    """A batch X, y with the update u = X^T s, whose weights s_r = step (y_r / 2 - x_r.theta / 4) are not known either.

    A relation w, integers with w.u = 0, holds for every row, X w = 0, unless it is as long as chance makes it: the weights
    are generic numbers. LLL finds d - rank X short ones where d numbers have enough digits. The rows are 0/1 vectors in the
    lattice orthogonal to them, where 2^rank combinations are tried. How often each occurs, and with which label, are whole
    numbers n that solve  sum_c,y n_cy c step (y / 2 - c.theta / 4) = u.

    update, theta: (d,) float64. rows: m. step: rate / m of a mean, rate of a sum. error: largest rounding of an entry of
    the update. What is returned gives the update up to 64 errors; that no other batch does is not proved.

    Source: Nguyen and Stern, "The Hardness of the Hidden Subset Sum Problem and Its Cryptographic Implications", CRYPTO
    1999; that weights are known up to the label, and the integer programme, are ours.
    """
    d = len(update)
    if not theta.any():
        return OneUpdate(refusal="at theta = 0 all rows have the same weight")
    if rows > MOST_ROWS or rows >= d:
        return OneUpdate(refusal=f"one update reveals at most {min(MOST_ROWS, d - 1)} rows of {d} columns, not {rows}")
    relations = _short_relations(update, error, d - rows)
    if relations is None:
        return OneUpdate(refusal="the update has no short integer relations: noise, or too few digits")
    candidates = _binary_vectors(relations)
    counts = len(relations), len(candidates)
    if not 0 < len(candidates) <= _MOST_CANDIDATES:
        return OneUpdate(None, None, *counts, refusal=f"{len(candidates)} vectors can be rows")
    solved = _multiplicities(candidates, update, theta, rows, step, error)
    if solved is None:
        return OneUpdate(None, None, *counts, refusal="no rows and labels give this update")
    return OneUpdate(*solved, *counts)


def _short_relations(update: np.ndarray, error: float, least: int) -> list[list[int]] | None:
    """(k, d) integers orthogonal to the update up to its error, those before the largest gap in length; k >= least."""
    d, largest = len(update), float(np.abs(update).max())
    digits = math.floor(math.log2(largest / error)) if largest > error > 0 else 0
    if digits < 8:
        return None
    scaled = [round(float(u) / largest * 2**digits) for u in update]
    basis = fmpz_mat([[int(i == j) for j in range(d)] + [scaled[i]] for i in range(d)]).lll()
    vectors = sorted(([int(basis[i, j]) for j in range(d + 1)] for i in range(d)), key=lambda v: sum(x * x for x in v))
    lengths = [math.sqrt(sum(x * x for x in v)) for v in vectors]
    gaps = [lengths[k] / lengths[k - 1] for k in range(least, d)]
    count = least + int(np.argmax(gaps)) if max(gaps) > _GAP else least
    return [v[:d] for v in vectors[:count]]


def _binary_vectors(relations: list[list[int]]) -> np.ndarray:
    """(n, d) uint8: the 0/1 vectors, but 0, that are orthogonal to the relations, modulo the prime."""
    basis = kernel_modulo((np.array(relations, dtype=object) % PRIME).astype(np.int64))
    if len(basis) > MOST_ROWS:
        return np.zeros((0, basis.shape[1]), dtype=np.uint8)
    bits = (np.arange(1, 2 ** len(basis))[:, None] >> np.arange(len(basis))) & 1
    for column in basis.T:  # column by column, as most combinations fail early
        bits = bits[bits @ column % PRIME <= 1]
    return (bits @ basis % PRIME).astype(np.uint8)


def _multiplicities(
    candidates: np.ndarray, update: np.ndarray, theta: np.ndarray, rows: int, step: float, error: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows (m, d) and labels (m,) that give the update, or None."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

    zero = np.zeros((1, len(update)), dtype=np.uint8)  # a row of zeros adds nothing, whatever its label
    x = np.vstack([candidates, candidates, zero])
    y = np.repeat([1.0, -1.0, 1.0], [len(candidates), len(candidates), 1])
    parts = x * (step * (y / 2 - x @ theta / 4))[:, None]
    scale = step / 2
    slack = max(_MARGIN * error / scale, 1e-6)
    matching = LinearConstraint(parts.T / scale, update / scale - slack, update / scale + slack)
    total = LinearConstraint(np.ones((1, len(x))), rows, rows)
    options = {"node_limit": 10_000}
    result = milp(
        np.zeros(len(x)), constraints=[matching, total], bounds=Bounds(0, rows), integrality=np.ones(len(x)), options=options
    )
    if result.x is None:
        return None
    n = np.rint(result.x).astype(int)
    if n.sum() != rows or (np.abs(n @ parts - update) > _MARGIN * error).any():
        return None
    return np.repeat(x, n, axis=0), np.repeat(y, n)


@options
class HiddenSubsetSum(Attack):
    """Rebuild the rows and labels of the others' batch from one update alone, also if every round has a new batch.

        u = X^T s,   s_r = step (y_r / 2 - x_r.theta / 4):   integers w with w.u = 0 that are short have X w = 0,
        and the rows of X are the 0/1 vectors in the lattice orthogonal to them

    It needs binary columns, more columns than rows, at most 16 rows, one local step, complete updates that are exact up to
    rounding, and a model other than 0. With 20 columns it rebuilds up to 12 or 13 rows in float64, and 4 in float32. Its
    answer gives the update. It is not proved that no other batch does.

    Source: Nguyen and Stern, "The Hardness of the Hidden Subset Sum Problem and Its Cryptographic Implications", 1999; its
    use on updates is ours.
    """

    threat = Threat(Role.PARTICIPANT, {Updates, PartyFeatures, ClassShares})

    def batch(self, view: View) -> RebuiltBatch:
        """Side by side what each update gave; rows that none gave are unknown."""
        updates, shares, rules = view[Updates], view[PartyFeatures].numeric.double().cpu().mean(dim=0), view[Updates].rules
        seen = list(updates.received.values()) or [updates.others]
        alone = len(seen) > 1 or rules.parties == 2
        rows = rules.batches * rules.batch_size * (1 if alone else rules.parties - 1)
        theta, after = (values.double().cpu().numpy() for values in (updates.before, updates.after))
        solutions = [_solved(rules, theta, after, update.double().cpu().numpy(), rows) for update in seen]
        x = np.vstack([np.full((rows, len(theta)), np.nan) if part.x is None else part.x for part in solutions])
        y = np.concatenate([np.full(rows, np.nan) if part.y is None else part.y for part in solutions])
        y[(x == 0).all(axis=1)] = np.nan  # a row of zeros has no label that the update tells
        known = [part for part in solutions if part.x is not None]
        step = view.step or 0
        guesses = torch.from_numpy(guesses_by_columns(shares.numpy(), rows * len(seen), seed=step)).double()
        return RebuiltBatch(
            step,
            (shares > 0.5).double(),
            1.0 if view[ClassShares].positive > 0.5 else -1.0,
            rows=torch.from_numpy(x) if known else None,
            labels=torch.from_numpy(y) if known else None,
            candidates=(torch.from_numpy(x),) if len(known) == len(solutions) else (),
            guessed_rows=guesses[0],
            column_guesses=guesses,
            figures={
                "explained": len(known) / len(solutions),
                "row_candidates_count": float(np.mean([part.candidates for part in solutions])),
            },
            note="; ".join(dict.fromkeys(part.refusal for part in solutions if part.refusal)),
        )


def _solved(rules: Rules, theta: np.ndarray, after: np.ndarray, u: np.ndarray, rows: int) -> OneUpdate:
    """u: (d,), of `rows` rows."""
    if rules.whole is False:
        return OneUpdate(refusal="updates are shared in part")
    if rules.batches > 1:
        return OneUpdate(refusal="the update is of several local steps")
    if len(rules.schema.binary) < len(theta):
        return OneUpdate(refusal="by the schema some columns are not binary")
    step = rules.rate / (rules.batch_size if rules.reduction == "mean" else 1)
    largest = np.abs(theta).max() + np.abs(after).max() + np.abs(u).max()
    error = 4 * rounding_unit(theta[None], u[None]) * (rules.parties * largest + step * rules.batch_size)
    return rows_of_one_update(u, theta, rows, step, float(error))
