"""ESA: equations solved for other parties' columns from the joint model's predictions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.attacks.joint_model import Coding, JointModel
from vflbench.errors import UserError
from vflbench.messages.facts import Auxiliary, Fact, Labels, LocalTop, PartyFeatures, PeerModels, Predictions
from vflbench.messages.threat import Role, Threat, View
from vflbench.options import Range, Rows, Sigma, options

Decimals = Annotated[int, Range(1, 12)]
"""Decimals of a published probability."""

LAYER = "logits"
"""The layer of answers that are made of predictions."""

ROUNDING = 2.0**-24
"""Largest relative error of one operation of float32."""

VARIANCE = 1 / 12
"""Of a number of which nothing is known but that it lies in [0, 1]."""

NARROW = 1e-4
"""A difference of logits that is known up to this counts as an equation."""

_TINY = 1.5e-38  # the smallest number that float32 keeps where denormals are flushed
_PROBES = 64  # points at which it is tested whether the model is affine; half of them are corners
_AFFINE = 1e-9  # relative error of float64 that passes for affine
_MOST_UNKNOWNS = 20_000
_SHRINK = 1e-2  # of the mean variance, added to a covariance
_TOLERANCE = 1e-6  # singular values below this share of the largest count as 0

_DUAL_STEPS = 2000
_CLOSE = 1e-10


@options
class Esa(Attack):
    """Solve the joint model for the columns of all other parties together, row by row.

        z_i = W u_i + V o_i + b;   u_i = argmin |u - g_i|^2  over W u = z_i - V o_i - b  and 0 <= u <= 1

    z: (outputs,) logits of row i, o: the label party's own columns, u: all numeric columns of the others and one-hot vectors
    of their categorical ones, g: a guess. W and V are measured in the parties' networks, in float64; whether the logits are
    affine is tested at 64 points, and a run in which they are not is refused (`grna` takes any model). A singular value of W
    below a millionth of the largest counts as 0. u is exact to rounding where the rank of W is the number of unknowns:

        |u_i - truth|_2 <= sqrt(outputs) d / s,   d: bound of the error of a float32 logit,  s: least singular value of W

    which is `error_bound`, if nothing changed what the parties sent (stated for model=logistic in float32). If the equations
    contradict one another, or the box, something was changed, and no bound is given. Otherwise `directions_missing` says how
    many directions are not determined. Without categorical columns, and with any prior but normal, the answer then lies at
    most as far from the truth as the guess does: a projection onto a convex set that holds the truth. Of a categorical
    column the answer is the id with the largest entry. `residual`: root mean square of the logits of the answer about the
    true ones.

    message: logits, all of which the label party computes itself; or probabilities as published, where K probabilities give
    K - 1 differences of logits. A probability that float32 or rounding has turned into 0 or 1 leaves an inequality.
    decimals: to which probabilities are rounded before the attacker gets them; it uses the intervals that this leaves.
    prior: the guess g: zero (the minimum-norm solution, as published), middle (1/2), mean (of auxiliary rows), class_mean
    (of those of the row's class, which the label party knows), or normal (their mean given the own columns and the class,
    with distances in their covariance about it). noise: standard deviation of what a defense adds to a logit, as far as the
    attacker knows; u is then the mean given z under a normal prior around g.

    Source: Luo, Wu, Xiao and Ooi, "Feature inference attack on model predictions in vertical federated learning", ICDE 2021,
    section IV-A. The box, inequalities, guesses other than zero, categories and noise are ours.
    """

    max_classes = math.inf

    rows: Rows = 32
    message: Literal["logits", "probabilities"] = "logits"
    decimals: Decimals | None = None
    prior: Literal["zero", "middle", "mean", "class_mean", "normal"] = "middle"
    noise: Sigma = 0.0
    auxiliary: Rows = 1000

    def __post_init__(self) -> None:
        if self.decimals is not None and self.message != "probabilities":
            raise UserError("it goes with message=probabilities", key="decimals", value=self.decimals)

    @property
    def threat(self) -> Threat:
        knows: set[type[Fact]] = {Predictions, PeerModels, LocalTop, PartyFeatures}
        knows |= {Auxiliary} if self.prior in ("mean", "class_mean", "normal") else set()
        knows |= {Labels} if self.prior in ("class_mean", "normal") else set()
        return Threat(Role.LABEL, knows)

    def batch(self, view: View) -> RebuiltRows:
        logits = view[Predictions].logits[: self.rows]
        local = view[PartyFeatures].rows(torch.arange(len(logits), device=logits.device))
        model = JointModel(view, torch.float64)
        system = System.of(model, local, view.rng)
        guess = guess_of(self.prior, model, local, view, self.auxiliary)
        columns, figures, fits = self._by_equations(system, logits, guess)
        figures["residual"] = float((model.in_parts(columns, local) - logits.double()).square().mean().sqrt())
        features = model.split(PartyFeatures(columns.numeric.float(), columns.categorical))
        return RebuiltRows(view.ids[: self.rows], LAYER, features, figures, _note(system, figures, fits=fits))

    def _by_equations(self, system: System, logits: Tensor, guess: Guess) -> tuple[PartyFeatures, dict[str, float], bool]:
        """Columns, figures, means over rows, and whether the predictions can be the model's."""
        u, fits = guess.mean.clone(), True
        missing, bound = (torch.zeros(len(logits), dtype=torch.float64, device=logits.device) for _ in range(2))
        for equations in equations_of(system, logits, self.message, self.decimals):
            at = equations.places
            u[at], missing[at], bound[at], consistent = self._solved(equations, guess.rows(at), system.sums())
            fits &= bool(consistent.all())
        figures = {"directions_missing": float(missing.mean())}
        if bool(bound.isfinite().all()) and fits:
            figures["error_bound"] = float(bound.mean())
        return system.coding.columns(u), figures, fits

    def _solved(self, equations: Equations, guess: Guess, sums: Tensor) -> tuple[Tensor, float, float, Tensor]:
        """u = argmin |u - guess|^2 under the equations, and within the box. guess: of the same rows.

        sums: (c, u), further left sides whose right side is 1. With noise, the mean of u given the right sides, under a
        normal prior around the guess.

        Returns u (m, unknowns) in [0, 1]; the number of directions that the equations leave open; a bound of |u - truth|_2,
        or inf, if the right sides are those of the model; and whether they can be (m,): False where they contradict one
        another, or the box, by more than rounding.
        """
        c, unknowns, noise = equations.c[equations.equal], equations.c.shape[1], self.noise
        weight = torch.linalg.matrix_norm(c, 2) if c.numel() else c.new_ones(())
        left = torch.cat([c, weight * sums])
        right = torch.cat([equations.right, weight * sums.new_ones(len(equations.places), len(sums))], dim=1)
        u, s, v = singular_rows(left)
        target = right @ u / s  # (m, rank): v x
        seen = v @ guess.times(v)
        noisy = torch.diag(noise**2 / s.square())
        step = torch.linalg.solve(seen + noisy, (target - guess.mean @ v.T).T).T if len(s) else target
        x = guess.mean + step @ guess.times(v).mT
        missing = unknowns - len(s)
        bound = math.sqrt(len(c)) * equations.rounding / float(s[-1]) if missing == 0 and len(s) else math.inf
        off = (x @ c.T - right[:, : len(c)]).norm(dim=1) if noise == 0 else x.new_zeros(len(x))
        fits = off <= 2 * math.sqrt(max(len(c), 1)) * equations.rounding + 1e-9 * weight
        if missing == 0 and noise == 0:
            fits &= ((x >= -bound - 1e-9) & (x <= 1 + bound + 1e-9)).all(dim=1)
        is_outside = ((x < 0) | (x > 1)).any(dim=1)
        wide = equations.c[~equations.equal]
        if noise == 0 and (missing or len(wide)):
            size = wide.norm(dim=1).clamp_min(1e-12)
            low, high = equations.low[:, ~equations.equal] / size, equations.high[:, ~equations.equal] / size
            wide = wide / size[:, None]
            value = x @ wide.T
            chosen = is_outside | ((value < low) | (value > high)).any(dim=1)
            if bool(chosen.any()):
                conditions = torch.cat([v, wide])
                least, most = (torch.cat([target[chosen], edge[chosen]], dim=1) for edge in (low, high))
                x = x.index_put((chosen.nonzero()[:, 0],), nearest_in_box(x[chosen], conditions, least, most))
        return x.clamp(0, 1), float(missing), bound, fits


def _note(system: System, figures: dict[str, float], *, fits: bool) -> str:
    """fits: whether the predictions can be those of the model."""
    unknowns = system.coding.width - len(system.coding.cardinalities)
    missing = figures["directions_missing"]
    if not fits:
        changed = "noise, compression or coarser arithmetic changed them"
        return f"the predictions contradict the joint model: {changed}; nothing is exact"
    if missing == 0:
        return f"the predictions, if nothing changed them, determine all {unknowns} unknown numbers"
    return f"of {unknowns} unknown numbers a row, the predictions leave {missing:g} directions open"


@dataclass(frozen=True)
class Guess:
    """mean: (n, u) float64, of each row. covariance: (u, u), or None where all numbers count alike: then it is I / 12."""

    mean: Tensor
    covariance: Tensor | None = None

    def rows(self, index: Tensor) -> Guess:
        """Of these rows."""
        return Guess(self.mean[index], self.covariance)

    def times(self, rows: Tensor) -> Tensor:
        """covariance rows^T, (..., u, r); rows: (..., r, u)."""
        return VARIANCE * rows.mT if self.covariance is None else self.covariance @ rows.mT


def guess_of(prior: str, model: JointModel, local: PartyFeatures, view: View, rows: int) -> Guess:
    """A guess of each row.

    zero; middle: 1/2, and of a categorical column the same share for each id; mean of auxiliary rows; class_mean: of
    those of its class; normal: their mean given the own columns and the class, by a linear regression, and the covariance
    about it.

    local: of the rows that are guessed. rows: of the auxiliary ones, at most.
    """
    n = len(local.numeric)
    if prior in ("zero", "middle"):
        nothing = local.numeric.new_zeros(n, model.coding.width, dtype=torch.float64)
        return Guess(model.coding.decoded(nothing) if prior == "middle" else nothing)
    known = view[Auxiliary]
    x = model.coding.vectors(model.joined(known.columns))[:rows].double()
    if not len(x):
        raise UserError("there are no auxiliary rows", key="attack.esa.prior", value=prior)
    mean = x.mean(dim=0)
    if prior == "mean":
        return Guess(mean.expand(n, -1))
    classes, theirs = view[Labels].classes[:n].long(), known.labels[:rows].long().to(x.device)
    if prior == "class_mean":
        means = {k: x[theirs == k] for k in classes.unique().tolist()}
        return Guess(torch.stack([means[k].mean(dim=0) if len(means[k]) else mean for k in classes.tolist()]))
    count = int(torch.cat([classes, theirs]).max()) + 1
    others = [columns.numeric[:rows].double() for party, columns in known.columns.items() if party not in model.models]
    given = torch.cat([*others, F.one_hot(theirs, count)], dim=1).double()
    mine = torch.cat([*([local.numeric.double()] if others else []), F.one_hot(classes, count)], dim=1).double()
    left, right = x - mean, given - given.mean(dim=0)
    slope = torch.linalg.solve(_raised(right.T @ right), right.T @ left)  # (given, u)
    left = left - right @ slope
    return Guess(mean + (mine - given.mean(dim=0)) @ slope, _raised(left.T @ left / len(x)))


def _raised(matrix: Tensor) -> Tensor:
    """With a hundredth of its mean diagonal entry added to the diagonal."""
    diagonal = matrix.diagonal()
    return matrix + torch.diag_embed((_SHRINK * diagonal.mean() + 1e-9).expand(len(diagonal)))


@dataclass(frozen=True)
class System:
    """Logits of a row as an affine function of what is unknown.

        z_i = offset_i + effects u_i,   u_i = (numeric columns, one-hot vectors of categorical ones)

    effects: (outputs, unknowns) float64. offsets: (n, outputs). coding: of the unknowns. rounding: bound of the error of a
    float32 logit about this function, for model=logistic.
    """

    effects: Tensor
    offsets: Tensor
    coding: Coding
    rounding: float

    @classmethod
    def of(cls, model: JointModel, local: PartyFeatures, rng: torch.Generator) -> System:
        """The equations of a model in float64, tested at 64 random points, half of them corners.

        local: the label party's columns of the rows. Raises UserError if the logits are not affine, or
        there are more than 20,000 unknowns.
        """
        k, sizes, n, device = model.coding.numeric, model.coding.cardinalities, len(local.numeric), local.numeric.device
        if k + sum(sizes) > _MOST_UNKNOWNS:
            held = f"the other parties hold {k} numeric columns and {sum(sizes)} ids together"
            problem = f"{held}; it solves for {_MOST_UNKNOWNS} at most"
            raise UserError(problem, key="attack", value="esa")
        x = F.pad(torch.eye(k, dtype=torch.float64, device=device), (0, 0, 1, sum(sizes)))  # each unknown alone
        ids = torch.block_diag(torch.empty(1 + k, 0), *(torch.arange(size)[:, None] for size in sizes)).int().to(device)
        first = torch.zeros(max(n, len(x)), dtype=torch.int64, device=device)
        alone = PartyFeatures(x, ids)
        at = model.in_parts(alone, local.rows(first[: len(x)]))
        effects = (at[1:] - at[:1]).T
        offsets = model.in_parts(alone.rows(first[:n]), local)
        numeric, *blocks = model.coding.split(effects)  # sums of absolute terms of a logit over the box
        size_of = sum((block.abs().amax(dim=1) for block in blocks), numeric.abs().sum(dim=1)).amax()
        x = torch.rand(_PROBES, k, generator=rng, device=device, dtype=torch.float64)
        x[_PROBES // 2 :] = x[_PROBES // 2 :].round()
        drawn = [torch.randint(size, (_PROBES,), generator=rng, device=device) for size in sizes]
        ids = torch.stack(drawn, dim=1).int() if drawn else torch.empty(_PROBES, 0, dtype=torch.int32, device=device)
        rows = torch.randint(n, (_PROBES,), generator=rng, device=device)
        true = model.in_parts(PartyFeatures(x, ids), local.rows(rows))
        affine = offsets[rows] + model.coding.vectors(PartyFeatures(x, ids)) @ effects.T
        if not bool((true - affine).abs().amax() <= _AFFINE * (1 + size_of + true.abs().amax())):
            problem = "the logits are not affine in the other parties' columns; use attack=grna, or model=logistic"
            raise UserError(problem, key="attack", value="esa")
        operations = max(model.numeric, default=0) + local.numeric.shape[1] + len(sizes) + len(model.models) + 4
        size_of = size_of + offsets.abs().amax() + _local_size(model, local)
        return cls(effects, offsets, model.coding, float(operations * ROUNDING * size_of))

    def sums(self) -> Tensor:
        """(c, unknowns): each one-hot vector adds up to 1."""
        ones = [self.effects.new_ones(1, size) for size in self.coding.cardinalities]
        return torch.block_diag(self.effects.new_empty(0, self.coding.numeric), *ones)


def _local_size(model: JointModel, local: PartyFeatures) -> Tensor:
    """The largest sum of absolute terms that the label party's own numeric columns add to a logit."""
    k = local.numeric.shape[1]
    nothing = model.coding.columns(local.numeric.new_zeros(1 + k, model.coding.width, dtype=torch.float64))
    numeric = F.pad(torch.eye(k).to(local.numeric), (0, 0, 1, 0))
    at = model.in_parts(nothing, PartyFeatures(numeric, local.categorical[:1].expand(1 + k, -1)))
    return (at[1:] - at[:1]).abs().sum(dim=0).amax() + at[0].abs().amax()


@dataclass(frozen=True)
class Equations:
    """What the predictions of some rows say: low <= c u <= high.

    places: (m,) of these rows. c: (r, u) float64, the same for all of them. low, high: (m, r). equal: (r,) bool, where a
    bound is as good as an equation, whose right side is then (low + high) / 2. rounding: bound of the error of a right side.
    """

    places: Tensor
    c: Tensor
    low: Tensor
    high: Tensor
    equal: Tensor
    rounding: float

    @property
    def right(self) -> Tensor:
        """(m, equations)."""
        return (self.low[:, self.equal] + self.high[:, self.equal]) / 2


def equations_of(system: System, logits: Tensor, message: str, decimals: int | None) -> Iterator[Equations]:
    """The equations of groups of rows that have the same left sides.

    logits: (n, outputs) as the label party computed them.
    """
    places = torch.arange(len(logits), device=logits.device)
    if message == "logits":
        right = logits.double() - system.offsets
        everything = torch.ones(right.shape[1], dtype=torch.bool, device=right.device)
        yield Equations(places, system.effects, right, right, everything, system.rounding)
        return
    r, low, high = log_odds(probabilities(logits, decimals), decimals)
    width = high - low
    is_equal = width < NARROW
    outputs = logits.shape[1]
    key = torch.cat([r[:, None], is_equal.long()], dim=1)
    for kind in key.unique(dim=0):
        at = places[(key == kind).all(dim=1)]
        reference = int(kind[0])
        others = [j for j in range(outputs) if outputs == 1 or j != reference]
        base = system.effects[reference] if outputs > 1 else torch.zeros_like(system.effects[0])
        offset = system.offsets[at][:, others] - (system.offsets[at][:, [reference]] if outputs > 1 else 0.0)
        equal = kind[1:].bool()[others]
        widest = float(width[at][:, others][:, equal].amax()) / 2 if bool(equal.any()) else 0.0
        low_of, high_of = (bound[at][:, others] - offset for bound in (low, high))
        yield Equations(at, system.effects[others] - base, low_of, high_of, equal, 2 * system.rounding + widest)


def probabilities(logits: Tensor, decimals: int | None = None) -> Tensor:
    """Softmax of (n, K) logits, or of (n, 1) the probability of class 1, in float32; rounded to so many decimals."""
    logits = logits.float()
    p = torch.sigmoid(logits) if logits.shape[1] == 1 else torch.softmax(logits, dim=1)
    return p if decimals is None else (p.double() * 10**decimals).round() / 10**decimals


def log_odds(p: Tensor, decimals: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """What probabilities say of logits: the differences z_j - z_r, between bounds.

    p: (n, K), or (n, 1) for two classes, of which class 0 is then r and z_r = 0. r: the likeliest class of the row.
    Returns r (n,), lower and upper bounds (n, K) of the differences; infinite where a probability is 0, or 1 - p is:
    there float32, or the rounding, has kept nothing but an inequality. decimals: to which they were rounded.
    """
    p = p.double()
    half = 0.5 * 10.0**-decimals if decimals is not None else 0.0
    terms = p.shape[1] if p.shape[1] > 1 else 0
    error = half + ROUNDING * p * (terms + 4 - p.clamp_min(_TINY).log())
    low, high = torch.where(p > _TINY, p - error, 0.0).clamp_min(0), (p + error).clamp(2 * _TINY, 1)
    if not terms:
        return torch.zeros(len(p), dtype=torch.int64, device=p.device), low.logit(), high.logit()
    r = p.argmax(dim=1)
    at = r[:, None]
    lower = low.log() - high.gather(1, at).log()
    upper = high.log() - low.gather(1, at).log()
    return r, lower.scatter(1, at, 0.0), upper.scatter(1, at, 0.0)


def singular_rows(c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U (r, m), s (m,), V (m, u) of the singular value decomposition c = U diag(s) V, without values that count as 0.

    c: (r, u) float64. m is the rank.
    """
    u, s, v = torch.linalg.svd(c, full_matrices=False)
    rank = int((s > _TOLERANCE * s[:1]).sum()) if len(s) and s[0] > 0 else 0
    return u[:, :rank], s[:rank], v[:rank]


def nearest_in_box(start: Tensor, c: Tensor, low: Tensor, high: Tensor, steps: int = _DUAL_STEPS) -> Tensor:
    """argmin |x - start_i|^2 over x in [0, 1]^u with low_i <= c x <= high_i, for each row i.

    Solved in the dual, x = clip(start - c^T l, 0, 1), by accelerated proximal gradient steps with restarts. If the
    conditions contradict each other by a little, as with rounded numbers, the answer is off by about as much; the box
    always holds. No point that fulfils the conditions is nearer to start than to the answer: a projection onto a convex
    set.

    start: (n, u) float64. c: (r, u). low, high: (n, r), infinite where there is no bound.
    """
    x = start.clamp(0, 1)
    scale = torch.linalg.matrix_norm(c, 2).square() if c.numel() else c.new_zeros(())
    if not scale > 0:
        return x
    step = 1 / scale
    dual = torch.zeros_like(low)
    ahead, momentum = dual, torch.ones(len(start), 1, dtype=start.dtype, device=start.device)
    for _ in range(steps):
        point = ahead + step * ((start - ahead @ c).clamp(0, 1) @ c.T)
        new = point - step * torch.minimum(torch.maximum(point / step, low), high)
        is_turning = ((ahead - new) * (new - dual)).sum(dim=1, keepdim=True) > 0
        momentum = torch.where(is_turning, 1.0, momentum)
        following = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        ahead = new + torch.where(is_turning, 0.0, (momentum - 1) / following) * (new - dual)
        moved = float((new - dual).abs().amax()) if dual.numel() else 0.0
        dual, momentum = new, following
        if moved * float(scale) ** 0.5 < _CLOSE:
            break
    return (start - dual @ c).clamp(0, 1)
