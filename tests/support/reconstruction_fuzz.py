"""Random batches against every claim of the batch reconstruction: `proved`, `unique`, `entries_certain` and others.

An instance is a private batch, the models of some rounds and the answers to them; some 40 % of the batches are structured
or rank-deficient (structured_batches.py). The messages are computed here, row by row. Small shapes are held against
all batches that explain every message (consistent_batches.py), larger ones against the true batch. PATHS:

    binary                    random models, some with several other participants
    mixed                     real-valued columns, -1/+1 columns, counts 0 to 3, beside binary columns
    selective, noisy          partly sent updates (random or the largest coordinates); noise, and float32
    zero                      gradient descent from theta = 0
    asynchronous              two or three local steps a round, rates from 1e-8 to 4
    enumeration, programme    the exact search, also of sums of no batch; the integer programmes

A claim is wrong if a batch that explains the messages contradicts it: one that is not among a proved list of candidates, a
second one where `unique` is said, a batch that no order of rows reconciles with the certain entries, another division
where `batches_separated` is said, or the true batch where none is said to exist. Candidates that match without an assumption
must have the products of the true batch. Whatever kind of numbers the true batch holds, it counts among those that
explain the messages.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from support import consistent_batches as oracle
from support.reconstruction_rounds import gradient
from support.structured_batches import draw_batch, draw_labels

from vflbench.attacks.batch_reconstruction import BatchReconstruction
from vflbench.attacks.batch_reconstruction.attack import SearchResult, Solved, search
from vflbench.attacks.batch_reconstruction.enumeration import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.messages.facts import Rules, Schema

Rng = np.random.Generator

# Every shape (rows, columns) whose batches can be tried one by one with their labels, and without.
_LABELLED = [(m, d) for d in range(1, 7) for m in range(1, 9) if oracle.number_of_batches(m, d, True) <= 50_000]
_UNLABELLED = [(m, d) for d in range(1, 8) for m in range(1, 9) if oracle.number_of_batches(m, d, False) <= 50_000]
_STEPS = [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (3, 2), (1, 3), (2, 3), (1, 4), (1, 5)]
_ULP = 2.0**-52


@dataclass
class Instance:
    """A private batch x (m, d) with labels y (m,), what is known of its columns, and what an attacker sees of it.

    declared: (d,) bool, the columns that everybody knows to be binary. groups: (start, size) of one-hot columns.
    step: (m,) the local step of each row. noise: whether messages are further off than by rounding. sent: (n, d) bool of
    partly sent updates. chosen: options of the attack.
    """

    x: np.ndarray
    y: np.ndarray
    structure: str
    intercept: bool
    declared: np.ndarray
    groups: list[tuple[int, int]]
    rules: Any = None
    thetas: Any = None
    updates: Any = None
    step: np.ndarray | None = None
    noise: bool = False
    sent: np.ndarray | None = None
    chosen: dict[str, Any] = field(default_factory=dict)

    def seen(self, rules: Rules, messages: tuple[np.ndarray, np.ndarray], **more: Any) -> "Instance":
        """With the rounds that an attacker sees of it."""
        return replace(self, rules=rules, thetas=messages[0], updates=messages[1], **more)

    def allows(self, batch: np.ndarray) -> bool:
        """Whether a batch is as the columns are known to be."""
        return bool(not self.intercept or batch[:, 0].all()) and all(
            bool((batch[:, start : start + size].sum(axis=1) == 1).all()) for start, size in self.groups
        )

    @property
    def binary(self) -> np.ndarray:
        return np.isin(self.x, (0, 1)).all(axis=0)


@dataclass
class Verdict:
    """claims: what was claimed. wrong: what is wrong with it."""

    claims: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------------- the sender


def local_steps(x: np.ndarray, y: np.ndarray, theta: np.ndarray, rules: Rules, dtype: Any) -> np.ndarray:
    """What one participant sends: theta_n - theta_0 after a step on each of its local batches."""
    model, size = theta.astype(dtype), rules.batch_size
    for i in range(rules.batches):
        part = slice(i * size, (i + 1) * size)
        step = rules.rate * gradient(x[part], y[part], model)
        model = (model - (step / size if rules.reduction == "mean" else step)).astype(dtype)
    return model - theta.astype(dtype)


def answers(x: np.ndarray, y: np.ndarray, theta: np.ndarray, rules: Rules, dtype: Any = np.float64) -> np.ndarray:
    """(others, d): what each of the other participants sends."""
    shares = zip(np.split(x, rules.parties - 1), np.split(y, rules.parties - 1), strict=True)
    return np.array([local_steps(xs, ys, theta, rules, dtype) for xs, ys in shares])


def training(
    x: np.ndarray, y: np.ndarray, n: int, rules: Rules, own: Callable[[], tuple[np.ndarray, np.ndarray]], dtype: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds of federated training from theta = 0. own: the attacker's batch of a round. Stops before it diverges."""
    theta = np.zeros(x.shape[1], dtype=dtype)
    thetas, updates = [], []
    for _ in range(n):
        mine = local_steps(*own(), theta, rules, dtype)
        sent = np.vstack([answers(x, y, theta, rules, dtype), mine[None]]).astype(dtype)
        after = (theta + sent.mean(axis=0)).astype(dtype)
        thetas.append(theta.astype(float))
        updates.append((rules.parties * (after - theta) - mine).astype(float))
        theta = after
        if np.abs(theta).max() > 1e6:
            break
    return np.array(thetas), np.array(updates)


def training_rules(rng: Rng, m: int, drawn: Instance, **chosen: Any) -> Rules:
    """Rules for batches of m rows, with the schema of the columns."""
    binary = tuple(int(j) for j in np.flatnonzero(drawn.declared))
    schema = Schema(binary, drawn.intercept, tuple(drawn.groups))
    rate = float(rng.choice([1e-4, 0.01, 0.05, 0.1, 0.3, 1.0, 10.0]))
    rules = Rules(2, rate, str(rng.choice(["sum", "mean"])), 1, m, schema, whole=True)
    return replace(rules, **chosen)


def random_rounds(
    x: np.ndarray, y: np.ndarray, n: int, rules: Rules, rng: Rng, dtype: Any = np.float64
) -> tuple[np.ndarray, np.ndarray]:
    """Random models, some of which hardly move in some directions, and the sums of the answers to them."""
    d = x.shape[1]
    thetas = rng.normal(size=(n, d))
    if rng.random() < 0.2:
        scales = np.where(rng.random(d) < 0.5, 1.0, 10 ** rng.uniform(-17, -3, d))
        directions = np.eye(d) if rng.random() < 0.5 else np.linalg.qr(rng.normal(size=(d, d)))[0]
        thetas = (thetas * scales) @ directions.T + rng.choice([0.0, 1.0]) * rng.normal(size=d)
    thetas = thetas * rng.choice([1e-4, 0.03, 1.0, 10.0, 1e4])
    thetas = thetas.astype(dtype).astype(float)
    return thetas, np.array([answers(x, y, theta, rules, dtype).sum(axis=0) for theta in thetas]).astype(float)


def shape(
    rng: Rng, shapes: list[tuple[int, int]], largest: tuple[int, int] = (12, 14), small: float = 0.8
) -> tuple[int, int]:
    if rng.random() < small:
        return shapes[rng.integers(len(shapes))]
    return int(rng.integers(2, largest[0] + 1)), int(rng.integers(2, largest[1] + 1))


def private_batch(rng: Rng, m: int, d: int) -> Instance:
    """A batch, some with an intercept, some with one-hot columns."""
    x, structure = draw_batch(m, d, rng)
    intercept = bool(rng.random() < 0.3)
    if intercept:
        x[:, 0] = 1
    groups: list[tuple[int, int]] = []
    start = int(intercept)
    while rng.random() < 0.3 and d - start >= 2:
        width = int(rng.integers(2, min(4, d - start) + 1))
        x[:, start : start + width] = np.eye(width, dtype=np.int64)[rng.integers(0, width, m)]
        groups.append((start, width))
        start += width
    return Instance(x, draw_labels(x, rng), structure, intercept, np.ones(d, dtype=bool), groups)


# ------------------------------------------------------------------------------------------------------------ the paths


def binary(rng: Rng) -> Instance:
    others = 1 if rng.random() < 0.75 else int(rng.integers(2, 4))
    size, d = shape(rng, _UNLABELLED) if others == 1 else (int(rng.integers(1, 4)), int(rng.integers(1, 5)))
    drawn = private_batch(rng, others * size, d)
    rules = training_rules(rng, size, drawn, parties=others + 1)
    return drawn.seen(rules, random_rounds(drawn.x, drawn.y, d + int(rng.integers(0, 8)), rules, rng))


def other_columns(rng: Rng, m: int, k: int, x: np.ndarray) -> np.ndarray:
    """(m, k) real, coarse or nearly binary numbers, -1 and +1, or counts."""
    signs = rng.choice([-1, 1], (m, k), p=[0.3, 0.7])
    kinds = [
        rng.normal(size=(m, k)),
        rng.integers(0, 11, (m, k)) / 10,
        rng.integers(-2, 3, (m, k)) / 2,
        rng.integers(0, 2, (m, k)) + rng.choice([1e-2, 1e-4, 1e-6]) * rng.normal(size=(m, k)),
        rng.random((m, k)),
        rng.choice(4, (m, k), p=rng.dirichlet(np.ones(4))),
        signs,
        np.where(x.any(axis=1)[:, None], 1, signs),  # -1 only in rows that few other columns notice
    ]
    return kinds[rng.integers(len(kinds))]


def mixed(rng: Rng) -> Instance:
    """Some columns of another kind, before or after the binary ones, or among them if there is no one-hot group."""
    m, d = shape(rng, _UNLABELLED)
    drawn = private_batch(rng, m, d)
    added = other_columns(rng, m, int(rng.integers(1, 4)), drawn.x)
    k = added.shape[1]
    start = int(drawn.intercept)
    order = np.r_[: d + k]
    if not drawn.groups:
        order[start:] = start + rng.permutation(d + k - start)
    elif rng.random() < 0.5:
        order = np.r_[:start, d : d + k, start:d]
        drawn.groups = [(first + k, size) for first, size in drawn.groups]
    drawn.x = np.column_stack([drawn.x, added])[:, order]
    # A column may be binary here, and not in other rows; the intercept and one-hot columns are binary everywhere.
    declared = (order < d) & ((rng.random(d + k) < 0.8) | bool(drawn.groups) | (order < start))
    drawn.declared = declared if rng.random() < 0.5 else order < d
    rules = training_rules(rng, m, drawn)
    return drawn.seen(rules, random_rounds(drawn.x, drawn.y, d + k + int(rng.integers(1, 8)), rules, rng))


def selective(rng: Rng) -> Instance:
    m, d = shape(rng, _LABELLED, largest=(8, 10))
    drawn = private_batch(rng, m, d)
    others = 2 if m % 2 == 0 and rng.random() < 0.15 else 1
    rules = training_rules(rng, m // others, drawn, parties=others + 1, whole=False)
    n = int(rng.integers(d + 1, 6 * d + 10))
    thetas = rng.normal(size=(n, d)) * rng.choice([0.03, 1.0, 10.0])
    kept, largest = int(rng.integers(1, d + 1)), bool(rng.random() < 0.4)
    noise = float(10 ** rng.uniform(-6, 0)) if rng.random() < 0.3 else 0.0
    updates, sent = np.zeros((n, d)), np.zeros((n, d), dtype=bool)
    for t, theta in enumerate(thetas):
        for part in answers(drawn.x, drawn.y, theta, rules):
            order = np.argsort(-np.abs(part), kind="stable") if largest else rng.permutation(d)
            chosen = order[:kept]
            noisy = part + noise * np.linalg.norm(part) / np.sqrt(d) * rng.normal(size=d)
            updates[t, chosen] += noisy[chosen]
            sent[t, chosen] = True
    return drawn.seen(rules, (thetas, updates), sent=sent, noise=noise > 0 or others > 1)


def disturbed(updates: np.ndarray, rng: Rng) -> np.ndarray:
    """Updates with noise, some of it with long tails or in one round only; or quantised; or clipped."""
    spread = 10 ** rng.uniform(-7, 0.5) * np.sqrt(np.mean(updates**2)) + 1e-300
    noise = spread * rng.normal(size=updates.shape)
    norms = np.linalg.norm(updates, axis=1, keepdims=True) + 1e-300
    one = np.arange(len(updates)) == rng.integers(len(updates))
    kinds = [
        updates + noise,
        updates + spread * rng.laplace(size=updates.shape),
        updates + one[:, None] * noise,
        np.round(updates / spread) * spread,
        updates * np.minimum(1, np.quantile(norms, rng.uniform(0.3, 1)) / norms),
    ]
    return kinds[rng.integers(len(kinds))]


def noisy(rng: Rng) -> Instance:
    m, d = shape(rng, _UNLABELLED)
    drawn = private_batch(rng, m, d)
    rules = training_rules(rng, m, drawn)
    n = d + 1 + int(rng.choice([0, 1, 3, 10, 40, 200]))
    single = rng.random() < 0.6
    thetas, updates = random_rounds(drawn.x, drawn.y, n, rules, rng, np.float32 if single else np.float64)
    if not single or rng.random() < 0.5:
        updates = disturbed(updates, rng)
    return drawn.seen(rules, (thetas, updates), noise=True)


def attackers_rows(rng: Rng, drawn: Instance) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Draws a batch as large as the other one, in which some columns are 0 every time."""
    m, d = drawn.x.shape
    lacks = rng.random(d) < rng.choice([0.0, 0.3, 0.6])
    lacks[0] &= not drawn.intercept

    def draw() -> tuple[np.ndarray, np.ndarray]:
        rows, _ = draw_batch(m, d, rng, structured=0.1)
        rows[:, lacks] = 0
        if drawn.intercept:
            rows[:, 0] = 1
        for start, width in drawn.groups:
            present = np.flatnonzero(~lacks[start : start + width])
            chosen = rng.choice(present, m) if len(present) else rng.integers(0, width, m)
            rows[:, start : start + width] = np.eye(width, dtype=np.int64)[chosen]
        return rows, rng.choice([-1, 1], m)

    return draw


def zero(rng: Rng) -> Instance:
    m, d = shape(rng, _LABELLED, largest=(8, 10))
    drawn = private_batch(rng, m, d)
    rules = training_rules(rng, m, drawn)
    own = attackers_rows(rng, drawn)
    fixed = own()
    fresh = rng.random() < 0.7
    n = int(rng.integers(2, 3 * d + 6))
    dtype = np.float32 if rng.random() < 0.1 else np.float64
    return drawn.seen(rules, training(drawn.x, drawn.y, n, rules, own if fresh else lambda: fixed, dtype))


def asynchronous(rng: Rng) -> Instance:
    steps = 3 if rng.random() < 0.1 else 2
    m, d = shape(rng, _STEPS, largest=(5, 10), small=0.85)
    drawn = private_batch(rng, steps * m, d)
    special = rng.choice([0.9731, 1.7321, 3.1416, rng.integers(1, 17) / 4, 4 / rng.integers(1, 12), 0.1])
    rate = float(special) if rng.random() < 0.4 else float(10 ** rng.uniform(-8, 0.6))
    rules = training_rules(rng, m, drawn, batches=steps, rate=rate)
    dtype = np.float32 if rng.random() < 0.1 else np.float64
    n = d + int(rng.integers(0, 8))
    if rng.random() < 0.3:
        thetas, updates = training(drawn.x, drawn.y, n, rules, attackers_rows(rng, drawn), dtype)
    else:
        thetas, updates = random_rounds(drawn.x, drawn.y, n, rules, rng, dtype)
    noise = bool(rng.random() < 0.1)
    if noise:
        updates = updates + 10 ** rng.uniform(-12, -1) * np.sqrt(np.mean(updates**2)) * rng.normal(size=updates.shape)
    return drawn.seen(rules, (thetas, updates), step=np.repeat(np.arange(steps), m), noise=noise)


def programme(rng: Rng) -> Instance:
    m, d = _UNLABELLED[rng.integers(len(_UNLABELLED))]
    drawn = private_batch(rng, m, d)
    rules = training_rules(rng, m, drawn)
    chosen = {"solver": str(rng.choice(["highs", "cbc"])), "formulation": str(rng.choice(["tight", "published"]))}
    return drawn.seen(rules, random_rounds(drawn.x, drawn.y, d + 3, rules, rng), chosen=chosen)


PATHS: dict[str, tuple[Callable[[Rng], Instance] | None, float]] = {
    "binary": (binary, 0.2),
    "mixed": (mixed, 0.28),
    "selective": (selective, 0.1),
    "noisy": (noisy, 0.09),
    "zero": (zero, 0.1),
    "asynchronous": (asynchronous, 0.15),
    "programme": (programme, 0.01),
    "enumeration": (None, 0.17),
}
"""What draws an instance (None: `enumeration`, which starts from sums), and its share of all instances."""


# ---------------------------------------------------------------------------------------------------------- the verdicts


def slack_of(instance: Instance) -> float:
    """How far a message may be off: twice as much as the true batch is, and some rounding of our own."""
    exact = [
        answers(instance.x.astype(np.longdouble), instance.y.astype(np.longdouble), theta, instance.rules, np.longdouble)
        for theta in instance.thetas.astype(np.longdouble)
    ]
    off = np.abs(np.array([a.sum(axis=0) for a in exact]) - instance.updates).astype(float)
    if instance.sent is not None:
        off = off[instance.sent]
    largest = max(np.abs(instance.updates).max(initial=0.0), np.abs(instance.thetas).max(initial=0.0))
    return float(2 * off.max(initial=0.0) + 4 * _ULP * largest)


def well_spread(thetas: np.ndarray) -> bool:
    return float(np.linalg.cond(np.column_stack([thetas, np.ones(len(thetas))]))) < 1e6


def explanations(instance: Instance) -> list[np.ndarray] | None:
    """All batches of 0 and 1 that explain the messages, (m, d) each; None if there are too many to try."""
    x, y, rules = instance.x, instance.y, instance.rules
    if not instance.declared.all():
        return None
    m, d = x.shape
    scale = rules.batch_size if rules.reduction == "mean" else 1
    whole = instance.sent is None and len(instance.thetas) > d and well_spread(instance.thetas)
    if instance.noise or whole:
        found = oracle.with_sums(x.T @ x, x.T @ y, m)
    else:
        indices = oracle.explaining(
            instance.thetas, scale * instance.updates, rules.rate, m, scale * slack_of(instance), instance.sent
        )
        found = None if indices is None else [oracle.all_batches(m, d).x[k] for k in indices]
    return None if found is None else [batch for batch in found if instance.allows(batch)]


def with_any_others(instance: Instance) -> list[np.ndarray] | None:
    """The batches whose declared columns are binary, if the others may hold any numbers; of these columns, -9 elsewhere.

    Every [X_B, y] with the products of the true one explains the messages: an orthogonal Q maps the true one to it, and
    Q X has the products of X.
    """
    known = instance.x[:, instance.declared].astype(np.int64)
    found = oracle.with_sums(known.T @ known, known.T @ instance.y, len(known))
    if found is None:
        return None
    whole = np.full((len(found), *instance.x.shape), -9, dtype=np.int64)
    whole[:, :, instance.declared] = np.array(found).reshape(len(found), *known.shape)
    return [batch for batch in whole if instance.allows(batch)]


def sequences(instance: Instance) -> list[tuple[np.ndarray, ...]] | None:
    rules = instance.rules
    rate = rules.rate / (rules.batch_size if rules.reduction == "mean" else 1)
    found = oracle.explaining_steps(
        instance.thetas, instance.updates, rate, rules.batch_size, rules.batches, slack_of(instance)
    )
    return None if found is None else [parts for parts in found if all(instance.allows(part) for part in parts)]


def judge(instance: Instance, result: SearchResult) -> Verdict:
    """What the result claims, held against the true batch and every other one that explains the messages."""
    verdict = Verdict()
    says = {name: result.figures.get(name, 0.0) == 1 for name in ("proved", "unique", "batches_separated")}
    says["certain"] = result.figures.get("entries_certain", 0.0) > 0
    says["infeasible"] = says["proved"] and not result.candidates
    says["proved"] &= bool(result.candidates)
    says["matches"] = bool(result.candidates) and not getattr(result, "assumption", "")
    verdict.claims.update(name for name, said in says.items() if said)
    if not any(says.values()):
        return verdict
    if says["infeasible"]:
        if instance.binary.all():
            verdict.wrong.append("infeasible, and the batch is binary")
        return verdict
    columns = np.flatnonzero(result.binary)
    parts = None
    if instance.step is not None:
        parts = None if instance.noise else sequences(instance)
        found = None if parts is None else [np.concatenate(part) for part in parts]
    elif instance.declared[columns].all() and not instance.declared.all():
        found = with_any_others(instance)
    else:
        found = explanations(instance)
    if found is not None:
        verdict.claims["exhausted"] += 1
        declared = {oracle.key(batch[:, instance.declared]) for batch in found or []}
        if instance.step is None and oracle.key(instance.x[:, instance.declared]) not in declared:
            verdict.wrong.append("FUZZ ITSELF: the true batch is not among the explanations")
    _judge_sums(verdict, says, instance, result, columns)
    whole = [instance.x, *(found or [])]
    _judge_rows(verdict, says, result, columns, whole, not instance.chosen)
    if says["batches_separated"]:
        _judge_division(verdict, instance, result, parts)
    _judge_labels(verdict, says, instance, result)
    _judge_real(verdict, says, instance, result)
    return verdict


def _judge_sums(
    verdict: Verdict, says: dict[str, bool], instance: Instance, result: SearchResult, columns: np.ndarray
) -> None:
    """What is said to match, without an assumption, has the products of the true batch."""
    true = np.rint(instance.x[:, columns]).astype(np.int64)
    for candidate in result.candidates if says["matches"] else ():
        rows = candidate[:, columns].astype(np.int64)
        if not np.array_equal(rows.T @ rows, true.T @ true):
            verdict.wrong.append(f"matches: the products of {rows.tolist()} are others")
            return


def _judge_rows(
    verdict: Verdict, says: dict[str, bool], result: SearchResult, columns: np.ndarray, whole: Iterable, exact: bool
) -> None:
    listed = {oracle.key(candidate[:, columns]) for candidate in result.candidates}
    shares = result.shares[:, columns]
    certain = (shares == 0) | (shares == 1)
    reference = result.rows[:, columns] if result.rows is not None else None
    for k, batch in enumerate(whole):
        name = "the true batch" if k == 0 else f"another batch, {batch.tolist()},"
        part = batch[:, columns]
        this = key_of(part)
        if says["proved"] and exact and this not in listed:
            verdict.wrong.append(f"proved: {name} is not among the candidates")
        if says["unique"] and {this} != listed:
            verdict.wrong.append(f"unique: {name} is possible as well")
        if says["certain"] and not oracle.matches_somehow(reference, certain, _near(part)):
            verdict.wrong.append(f"entries_certain: {name} contradicts them")
        if verdict.wrong:
            return


def _near(part: np.ndarray) -> np.ndarray:
    return np.where(np.abs(part - np.rint(part)) <= 1e-3, np.rint(part), part)


def key_of(part: np.ndarray) -> oracle.Key | str:
    """Values as close as 0.001 to integers count as these: no message is so exact that it must distinguish them."""
    return oracle.key(np.rint(part)) if np.allclose(part, np.rint(part), rtol=0, atol=1e-3) else "not integers"


def _judge_division(
    verdict: Verdict, instance: Instance, result: SearchResult, parts: list[tuple[np.ndarray, ...]] | None
) -> None:
    claimed = tuple(oracle.key(result.rows[result.steps == s]) for s in (0, 1))
    true = tuple(instance.x[instance.step == s] for s in (0, 1))
    for name, part in [("the true", true), *(("another", part) for part in parts or [])]:
        if tuple(oracle.key(rows) for rows in part) != claimed:
            verdict.wrong.append(f"batches_separated: {name} division {[p.tolist() for p in part]}")
            return


def _judge_labels(verdict: Verdict, says: dict[str, bool], instance: Instance, result: SearchResult) -> None:
    """Labels of a unique batch have to explain the messages."""
    if not says["unique"] or result.labels is None or verdict.wrong or instance.noise or not instance.binary.all():
        return
    if not result.binary.all() or not np.isfinite(result.labels[result.rows.any(axis=1)]).all():
        return
    x, y = result.rows, np.nan_to_num(result.labels)
    if instance.step is None:
        explained = np.allclose(x.T @ y, instance.x.T @ instance.y, atol=1e-6)
    elif says["batches_separated"]:
        predicted = np.array([answers(x, y, theta, instance.rules)[0] for theta in instance.thetas])
        explained = np.abs(predicted - instance.updates).max() <= 4 * slack_of(instance)
    else:
        return
    verdict.claims["labels"] += 1
    if not explained:
        verdict.wrong.append(f"labels: they do not explain the messages, {y.tolist()}")


def _judge_real(verdict: Verdict, says: dict[str, bool], instance: Instance, result: SearchResult) -> None:
    """Real-valued columns of a unique batch have to be the true ones, where messages are float64."""
    if not says["unique"] or verdict.wrong or instance.noise or result.binary.all():
        return
    if not np.isfinite(result.rows[:, ~result.binary]).all():
        return
    verdict.claims["real"] += 1
    true = instance.x[np.lexsort(instance.x[:, result.binary].T)]
    rows = result.rows[np.lexsort(result.rows[:, result.binary].T)]
    off = np.abs(true - rows).max()
    if slack_of(instance) < 1e-10 and off > 1e-3 * max(1.0, np.abs(true).max()):
        verdict.wrong.append(f"real columns: {off:.2g} off")


def judge_enumeration(rng: Rng, options: BatchReconstruction) -> tuple[Verdict, dict[str, Any]]:
    """The exact search alone, from the sums of a batch, or from sums next to these, of which there may be no batch."""
    if rng.random() < 0.02:  # where distances in floating point are no longer exact
        m, d = int(rng.integers(30, 50)), int(rng.integers(30, 70))
        x, structure = draw_batch(m, d, rng, structured=1.0, names=("odd_triangle", "near_dependent", "duplicate_rows"))
    else:
        m, d = shape(rng, _UNLABELLED, largest=(24, 30) if rng.random() < 0.2 else (14, 16), small=0.85)
        x, structure = draw_batch(m, d, rng, structured=0.6)
    y = draw_labels(x, rng) if rng.random() < 0.6 else None
    gram = Gram.of(x, y)
    alpha, beta, exists = gram.alpha.copy(), gram.beta, True
    if rng.random() < 0.2:
        i, j = rng.integers(0, d, 2)
        alpha[i, j] += 1 if rng.random() < 0.5 else -1
        alpha[j, i] = alpha[i, j]
        gram, exists = Gram(alpha, beta, m), False
    limit = options.time_limit if m * d < 60 else min(options.time_limit, 2.0)
    solutions = enumerate_batches(gram, time_limit=limit, max_batches=options.max_batches)
    verdict = Verdict()
    claims = {"proved": solutions.complete and len(solutions.batches) > 0, "unique": solutions.unique}
    claims["matches"] = len(solutions.batches) > 0
    claims["infeasible"] = solutions.status == "infeasible"
    verdict.claims.update(name for name, said in claims.items() if said)
    found = oracle.with_sums(alpha, beta, m)
    listed = [oracle.key(batch) for batch in solutions.batches]
    if solutions.complete:
        if exists and oracle.key(x) not in listed:
            verdict.wrong.append(f"{solutions.status}: the true batch is missing")
        if found is not None:
            verdict.claims["exhausted"] += 1
            if sorted(listed) != sorted(map(oracle.key, found)):
                verdict.wrong.append(f"{solutions.status}: {len(found)} batches exist, {len(listed)} are listed")
            if beta is not None and m <= 8 and not verdict.wrong and "more labellings" not in solutions.note:
                verdict.claims["labels"] += 1
                number = sum(len(oracle.labellings(batch, beta)) for batch in found)
                if (listed_labels := sum(map(len, solutions.labels))) != number:
                    verdict.wrong.append(f"{listed_labels} labellings, and there are {number}")
    return verdict, {"x": x, "y": y, "alpha": alpha, "beta": beta, "structure": structure}


# --------------------------------------------------------------------------------------------------------- one instance


def try_one(path: str, seed: int, limit: float = 5.0) -> tuple[Verdict, dict[str, Any]]:
    """Draw an instance of a path from a seed and hold what the search says against it. Returns the verdict and the instance.

    limit: seconds of one search; what it cuts off claims nothing.
    """
    rng = np.random.default_rng([seed, list(PATHS).index(path)])
    options = BatchReconstruction(time_limit=limit, max_batches=2000)
    draw = PATHS[path][0]
    if draw is None:
        return judge_enumeration(rng, options)
    instance = draw(rng)
    fewer = int(rng.integers(0, len(instance.thetas) + 1)) if rng.random() < 0.2 else 0
    solved: Solved = {}
    for n in (fewer, len(instance.thetas)):
        if n:
            chosen = replace(options, **instance.chosen)
            result = search(instance.thetas[:n], instance.updates[:n], instance.rules, chosen, solved=solved)
    verdict = judge(instance, result)
    if not verdict.claims:
        verdict.claims["refused"] = 1
    return verdict, {**vars(instance), "figures": dict(result.figures), "note": result.note, "candidates": result.candidates}
