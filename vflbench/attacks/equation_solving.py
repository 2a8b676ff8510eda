"""Equation solving: other parties' columns from the joint model's predictions."""

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.attacks.equation_solving_ids import fitting_ids
from vflbench.attacks.equation_solving_linear import Equations, Solved, equations_of, solved
from vflbench.attacks.equation_solving_newton import newton
from vflbench.attacks.equation_solving_prior import Guess, guess_of
from vflbench.attacks.equation_solving_system import System
from vflbench.attacks.joint_model import FlatModel, JointModel, from_shares, one_hot
from vflbench.attacks.prediction_message import log_odds, probabilities
from vflbench.errors import UserError
from vflbench.messages.fact import Fact
from vflbench.messages.facts import OwnColumns, Predictions
from vflbench.messages.label_facts import Labels, OwnTop
from vflbench.messages.peer_facts import Auxiliary, PeerModels
from vflbench.messages.threat import Seat, Threat
from vflbench.messages.view import View
from vflbench.options import Count, Fraction, Range, Rows, Sigma, Steps, options

Decimals = Annotated[int, Range(1, 12)]
"""Decimals of a published probability."""

LAYER = "logits"
"""The layer of answers that are made of predictions."""


@options
class EquationSolving(Attack):
    """Solve the joint model for the columns of all other parties together, row by row.

        z_i = W u_i + V o_i + b;   u_i = argmin |u - g_i|^2  over W u = z_i - V o_i - b  [and 0 <= u <= 1]

    z: (outputs,) logits of row i, o: the label party's own columns, u: all numeric columns of the others and one-hot vectors
    of their categorical ones, g: a guess. W and V are measured in the parties' networks, in float64; whether the logits are
    affine is tested at 64 points. A singular value of W below `tolerance` times the largest counts as 0. u is exact to
    rounding where the rank of W is the number of unknowns:

        |u_i - truth|_2 <= sqrt(outputs) d / s,   d: bound of the error of a float32 logit,  s: least singular value of W

    which is `error_bound`, if nothing changed what the parties sent (stated for model=logistic in float32). If the equations
    contradict one another, or the box, something was changed, and no bound is given. Otherwise `directions_missing` says how
    many directions are not determined. Without categorical columns the answer then lies at most as far from the truth as the
    guess does: a projection onto a convex set that holds the truth. Up to `combinations` combinations of ids are all tried,
    and `matches` is the mean number of those that fit up to rounding. If there are more, each column is searched in turn,
    from the largest entries of its relaxed vector. `residual`: root mean square of the logits of the answer about the true
    ones.

    message: logits, all of which the label party computes itself; or probabilities as published, where K probabilities give
    K - 1 differences of logits. A probability that float32 or rounding has turned into 0 or 1 leaves an inequality.
    decimals: to which probabilities are rounded before the attacker gets them; it uses the intervals that this leaves.
    prior: the guess g: zero (the minimum-norm solution, as published), middle (1/2), mean (of auxiliary rows),
    class_mean (of those of the row's class, which the label party knows), or normal (their mean given the own columns and
    the class, with distances in their covariance about it). box: the nearest solution within the box; otherwise the
    nearest of all, clipped. noise: standard deviation of what a defense adds to a logit, as far as the attacker knows; u
    is then the mean given z under a normal prior around g. nonlinear: where logits are not affine, newton takes steps
    within the box from the guess and from `restarts` - 1 random points (`attacks.equation_solving_newton`), which is
    ours and not exact, with each category relaxed to shares of its ids; refuse stops the run.

    Source: Luo, Wu, Xiao and Ooi, "Feature inference attack on model predictions in vertical federated learning", ICDE 2021,
    section IV-A. The box, inequalities, guesses other than zero, ids and the last case are ours.
    """

    max_classes = math.inf

    rows: Rows = 32
    message: Literal["logits", "probabilities"] = "logits"
    decimals: Decimals | None = None
    prior: Literal["zero", "middle", "mean", "class_mean", "normal"] = "middle"
    box: bool = True
    noise: Sigma = 0.0
    tolerance: Fraction = 1e-6
    combinations: Count = 4096
    nonlinear: Literal["newton", "refuse"] = "newton"
    restarts: Count = 4
    steps: Steps = 40
    auxiliary: Rows = 1000

    def __post_init__(self) -> None:
        if self.decimals is not None and self.message != "probabilities":
            raise UserError("it goes with message=probabilities", key="decimals", value=self.decimals)

    @property
    def threat(self) -> Threat:
        knows: set[type[Fact]] = {Predictions, PeerModels, OwnTop, OwnColumns}
        knows |= {Auxiliary} if self.prior in ("mean", "class_mean", "normal") else set()
        knows |= {Labels} if self.prior in ("class_mean", "normal") else set()
        return Threat(Seat.LABEL, knows)

    def batch(self, view: View) -> RebuiltRows:
        logits = view[Predictions].logits[: self.rows]
        own = view[OwnColumns].rows(torch.arange(len(logits), device=logits.device))
        model = FlatModel(JointModel(view, torch.float64))
        system = System.of(model, own, view.rng)
        guess = guess_of(self.prior, model, own, view, self.auxiliary)
        if system is None:
            x, ids = self._by_newton(model, own, logits, guess, view.rng)
            figures: dict[str, float] = {}
            note = "the logits are not affine in the unknown columns: the answer fits them, and is not exact"
        else:
            x, ids, figures, fits = self._by_equations(system, logits, guess)
            note = _note(system, figures, fits=fits)
        fitted = model.in_parts(x, ids, own)
        figures["residual"] = float((fitted - logits.double()).square().mean().sqrt())
        parts = model.split(x.float(), ids)
        features = {party: OwnColumns(numeric, categorical) for party, (numeric, categorical) in parts.items()}
        return RebuiltRows(view.ids[: self.rows], LAYER, features, figures, note)

    def _by_equations(self, system: System, logits: Tensor, guess: Guess) -> tuple[Tensor, Tensor, dict[str, float], bool]:
        """Numeric columns (n, k), ids (n, c), figures, means over rows, and whether the predictions can be the model's."""
        n, k, sizes = len(logits), system.numeric, system.cardinalities
        u, ids = guess.mean.clone(), torch.zeros(n, len(sizes), dtype=torch.int32, device=logits.device)
        fits = True
        missing, bound, fit = (torch.zeros(n, dtype=torch.float64, device=logits.device) for _ in range(3))
        for equations in equations_of(system, logits, self.message, self.decimals):
            at = equations.places
            one = self._solved(equations, guess.rows(at), system.sums())
            u[at], missing[at], bound[at] = one.u, float(one.missing), one.bound
            fits &= bool(one.fits.all())
            if sizes:
                ids[at], fit[at] = fitting_ids(
                    *(equations, sizes, one.u[:, k:], guess.mean[at, :k]),
                    combinations=self.combinations,
                    tolerance=self.tolerance,
                )
                rest = equations.less(k, one_hot(ids[at], sizes))
                u[at, :k] = self._solved(rest, guess.rows(at).columns(k), system.sums()[:0, :k]).u
        figures = {"directions_missing": float(missing.mean())}
        if bool(bound.isfinite().all()) and fits:
            figures["error_bound"] = float(bound.mean())
        if sizes and not bool(fit.isnan().any()):
            figures["matches"] = float(fit.mean())
        return u[:, :k], ids, figures, fits

    def _solved(self, equations: Equations, guess: Guess, sums: Tensor) -> Solved:
        return solved(equations, guess, sums, box=self.box, noise=self.noise, tolerance=self.tolerance)

    def _by_newton(
        self, model: FlatModel, own: OwnColumns, logits: Tensor, guess: Guess, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Numeric columns (n, k) and ids (n, c)."""
        if self.nonlinear == "refuse":
            problem = "the logits are not affine in the other parties' columns; use nonlinear=newton, or model=logistic"
            raise UserError(problem, key="attack.equation_solving.nonlinear", value="refuse")
        k, sizes = model.columns, model.cardinalities
        observed, reference = logits.double(), torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
        if self.message == "probabilities":
            reference, low, high = log_odds(probabilities(logits, self.decimals), self.decimals)
            observed = (low + high) / 2
        is_difference = self.message == "probabilities" and logits.shape[1] > 1
        is_known = observed.isfinite()
        ones = observed.new_ones(len(observed), len(sizes))
        observed = torch.cat([observed.masked_fill(~is_known, 0.0), ones], dim=1)
        is_known = torch.cat([is_known, ones.bool()], dim=1)

        def f(u: Tensor, rows: Tensor) -> Tensor:
            shares = u[:, k:].split(sizes, dim=1) if sizes else []
            out = from_shares(model, u[:, :k], shares, own.rows(rows))
            out = out - out.gather(1, reference[rows][:, None]) if is_difference else out
            return torch.cat([out, *(share.sum(dim=1, keepdim=True) for share in shares)], dim=1)

        u, _ = newton(f, observed, is_known, guess, rng, starts=self.restarts, steps=self.steps, noise=self.noise)
        columns = [share.argmax(dim=1) for share in u[:, k:].split(sizes, dim=1)] if sizes else []
        ids = torch.stack(columns, dim=1).int() if columns else torch.empty(len(u), 0, dtype=torch.int32, device=u.device)
        return u[:, :k], ids


def _note(system: System, figures: dict[str, float], *, fits: bool) -> str:
    """fits: whether the predictions can be those of the model."""
    unknowns = system.numeric + sum(system.cardinalities) - len(system.cardinalities)
    missing = figures["directions_missing"]
    if not fits:
        changed = "noise, compression or coarser arithmetic changed them"
        return f"the predictions contradict the joint model: {changed}; nothing is exact"
    if missing == 0:
        return f"the predictions, if nothing changed them, determine all {unknowns} unknown numbers"
    return f"of {unknowns} unknown numbers a row, the predictions leave {missing:g} directions open"
