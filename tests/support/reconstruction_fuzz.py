"""Random batches against every claim of the batch reconstruction: `proved`, `unique`, `entries_certain` and others.

An instance is a private batch, the models of some rounds and the answers to them; some 40 % of the batches are structured
or rank-deficient (structured_batches.py). The messages are computed here, row by row. Small shapes are held against
all batches that explain every message (consistent_batches.py), larger ones against the true batch. PATHS:

    binary                    random models, some with several other participants
    mixed                     real-valued columns, -1/+1 columns, counts 0 to 3, beside binary columns
    selective, noisy          partly sent updates (random or the largest coordinates); noise, and float32
    zero                      gradient descent from theta = 0
    asynchronous              two or three local steps a round, rates from 1e-8 to 4

A claim is wrong if a batch that explains the messages contradicts it: one that is not among a proved list of candidates, a
second one where `unique` is said, a batch that no order of rows reconciles with the certain entries, another division
where `batches_separated` is said, or the true batch where none is said to exist. Candidates that match without an assumption
must have the products of the true batch. Whatever kind of numbers the true batch holds, it counts among those that
explain the messages.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from support import consistent_batches as oracle
from support.reconstruction_rounds import gradient
from support.structured_batches import draw_batch, draw_labels

from vflbench.attacks.batch_reconstruction import BatchReconstruction
from vflbench.attacks.batch_reconstruction.attack import SearchResult, Solved, search
from vflbench.messages.facts import Rules, Schema

Rng = np.random.Generator
Rounds = tuple[np.ndarray, np.ndarray]

# Every shape (rows, columns) whose batches can be tried one by one with their labels, and without.
_LABELLED = [(m, d) for d in range(1, 7) for m in range(1, 9) if oracle.number_of_batches(m, d, True) <= 50_000]
_UNLABELLED = [(m, d) for d in range(1, 8) for m in range(1, 9) if oracle.number_of_batches(m, d, False) <= 50_000]
_STEPS = [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (3, 2), (1, 3), (2, 3), (1, 4), (1, 5)]


@dataclass
class Instance:
    """A private batch x (m, d) with labels y (m,), what is known of its columns, and what an attacker sees of it.

    declared: (d,) bool, the columns that everybody knows to be binary. groups: (start, size) of one-hot columns.
    step: (m,) the local step of each row. noise: whether messages are further off than by rounding. sent: (n, d) bool of
    partly sent updates.
    """

    x: np.ndarray
    y: np.ndarray
    intercept: bool
    declared: np.ndarray
    groups: list[tuple[int, int]]
    rules: Any = None
    thetas: Any = None
    updates: Any = None
    step: np.ndarray | None = None
    noise: bool = False
    sent: np.ndarray | None = None

    def seen(self, rules: Rules, messages: Rounds, **more: Any) -> "Instance":
        """With the rounds that an attacker sees of it."""
        return replace(self, rules=rules, thetas=messages[0], updates=messages[1], **more)

    def allows(self, batch: np.ndarray) -> bool:
        """Whether a batch is as the columns are known to be."""
        sums = [batch[:, start : start + size].sum(axis=1) for start, size in self.groups]
        return all((one == 1).all() for one in [*sums, *([batch[:, 0]] if self.intercept else [])])

    @property
    def binary(self) -> bool:
        return bool(np.isin(self.x, (0, 1)).all())

    @property
    def rate(self) -> float:
        """Of summed gradients."""
        return self.rules.rate / (self.rules.batch_size if self.rules.reduction == "mean" else 1)


@dataclass
class Verdict:
    """claims: what was claimed. wrong: what is wrong with it."""

    claims: Counter
    wrong: list[str]


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


def training(drawn: Instance, n: int, rules: Rules, rng: Rng, *, fresh: bool = True) -> Rounds:
    """Rounds of federated training from theta = 0, some in float32. Stops before it diverges.

    The attacker's batches, fresh ones or always one, have columns that are 0 every time.
    """
    m, d = drawn.x.shape
    dtype = np.float32 if rng.random() < 0.1 else np.float64
    lacks, present = rng.random(d) < rng.choice([0.0, 0.3, 0.6]), rng.integers(1, 5)

    def own() -> tuple[np.ndarray, np.ndarray]:
        rows = draw_batch(m, d, rng, structured=0.1) * ~lacks
        rows[:, 0] |= drawn.intercept
        for start, width in drawn.groups:
            rows[:, start : start + width] = np.eye(width, dtype=np.int64)[rng.integers(0, min(present, width), m)]
        return rows, rng.choice([-1, 1], m)

    theta, fixed = np.zeros(d, dtype=dtype), own()
    thetas, updates = [], []
    while len(thetas) < n and np.abs(theta).max() < 1e6:
        mine = local_steps(*(own() if fresh else fixed), theta, rules, dtype)
        sent = np.vstack([answers(drawn.x, drawn.y, theta, rules, dtype), mine[None]]).astype(dtype)
        after = (theta + sent.mean(axis=0)).astype(dtype)
        thetas.append(theta.astype(float))
        updates.append((rules.parties * (after - theta) - mine).astype(float))
        theta = after
    return np.array(thetas), np.array(updates)


def training_rules(rng: Rng, m: int, drawn: Instance, **chosen: Any) -> Rules:
    """Rules for batches of m rows, with the schema of the columns."""
    schema = Schema(tuple(np.flatnonzero(drawn.declared).tolist()), drawn.intercept, tuple(drawn.groups))
    rate = float(rng.choice([1e-4, 0.01, 0.05, 0.1, 0.3, 1.0, 10.0]))
    return replace(Rules(2, rate, str(rng.choice(["sum", "mean"])), 1, m, schema, whole=True), **chosen)


def random_rounds(drawn: Instance, n: int, rules: Rules, rng: Rng, dtype: Any = np.float64) -> Rounds:
    """Random models, some of which hardly move in some directions, and the sums of the answers to them."""
    d = drawn.x.shape[1]
    thetas = rng.normal(size=(n, d))
    if rng.random() < 0.2:
        scales = np.where(rng.random(d) < 0.5, 1.0, 10 ** rng.uniform(-17, -3, d))
        directions = np.eye(d) if rng.random() < 0.5 else np.linalg.qr(rng.normal(size=(d, d)))[0]
        thetas = (thetas * scales) @ directions.T + rng.choice([0.0, 1.0]) * rng.normal(size=d)
    thetas = (thetas * rng.choice([1e-4, 0.03, 1.0, 10.0, 1e4])).astype(dtype).astype(float)
    updates = [answers(drawn.x, drawn.y, theta, rules, dtype).sum(axis=0) for theta in thetas]
    return thetas, np.array(updates).astype(float)


def private_batch(
    rng: Rng, shapes: list[tuple[int, int]], largest: tuple[int, int], *, small: float = 0.8, parts: int = 1
) -> tuple[int, int, Instance]:
    """Rows of a part, columns, and a batch of these parts: some with an intercept, some with one-hot columns.

    small: the share of shapes that are among `shapes`; the others have at most the largest one.
    """
    m, d = (rng.integers(2, most + 1) for most in largest) if rng.random() >= small else rng.choice(shapes)
    x, intercept, groups = draw_batch(parts * m, d, rng), bool(rng.random() < 0.3), []
    x[:, 0] |= intercept
    start = int(intercept)
    while rng.random() < 0.3 and d - start >= 2:
        width = int(rng.integers(2, min(4, d - start) + 1))
        x[:, start : start + width] = np.eye(width, dtype=np.int64)[rng.integers(0, width, parts * m)]
        groups.append((start, width))
        start += width
    return int(m), int(d), Instance(x, draw_labels(x, rng), intercept, np.ones(d, dtype=bool), groups)


# ------------------------------------------------------------------------------------------------------------ the paths


def binary(rng: Rng) -> Instance:
    others = 1 if rng.random() < 0.75 else int(rng.integers(2, 4))
    shapes = _UNLABELLED if others == 1 else [(m, d) for m in range(1, 4) for d in range(1, 5)]
    m, d, drawn = private_batch(rng, shapes, (12, 14), small=0.8 if others == 1 else 1.0, parts=others)
    rules = training_rules(rng, m, drawn, parties=others + 1)
    return drawn.seen(rules, random_rounds(drawn, d + int(rng.integers(0, 8)), rules, rng))


def other_columns(rng: Rng, m: int, k: int, x: np.ndarray) -> np.ndarray:
    """(m, k) real, coarse or nearly binary numbers, -1 and +1, or counts."""
    signs = rng.choice([-1, 1], (m, k), p=[0.3, 0.7])
    kinds = [
        rng.normal(size=(m, k)),
        rng.integers(-4, 5, (m, k)) / rng.choice([2, 10]),
        rng.integers(0, 2, (m, k)) + rng.choice([1e-2, 1e-4, 1e-6]) * rng.normal(size=(m, k)),
        rng.choice(4, (m, k), p=rng.dirichlet(np.ones(4))),
        signs,
        np.where(x.any(axis=1)[:, None], 1, signs),  # -1 only in rows that few other columns notice
    ]
    return kinds[rng.integers(len(kinds))]


def mixed(rng: Rng) -> Instance:
    """Some columns of another kind, after the binary ones, or among them if there is no one-hot group."""
    m, d, drawn = private_batch(rng, _UNLABELLED, (12, 14))
    added = other_columns(rng, m, int(rng.integers(1, 4)), drawn.x)
    start, whole = int(drawn.intercept), d + added.shape[1]
    order = np.arange(whole)
    if not drawn.groups:
        order[start:] = start + rng.permutation(whole - start)
    drawn.x = np.column_stack([drawn.x, added])[:, order]
    # A column may be binary here, and not in other rows; the intercept and one-hot columns are binary everywhere.
    declared = (order < d) & ((rng.random(whole) < 0.8) | bool(drawn.groups) | (order < start))
    drawn.declared = declared if rng.random() < 0.5 else order < d
    rules = training_rules(rng, m, drawn)
    return drawn.seen(rules, random_rounds(drawn, whole + int(rng.integers(1, 8)), rules, rng))


def selective(rng: Rng) -> Instance:
    m, d, drawn = private_batch(rng, _LABELLED, (8, 10))
    rules = training_rules(rng, m, drawn, whole=False)
    n = int(rng.integers(d + 1, 6 * d + 10))
    thetas = rng.normal(size=(n, d)) * rng.choice([0.03, 1.0, 10.0])
    kept, largest = int(rng.integers(1, d + 1)), bool(rng.random() < 0.4)
    noise = float(10 ** rng.uniform(-6, 0)) if rng.random() < 0.3 else 0.0
    updates, sent = np.zeros((n, d)), np.zeros((n, d), dtype=bool)
    for t, theta in enumerate(thetas):
        (part,) = answers(drawn.x, drawn.y, theta, rules)
        chosen = (np.argsort(-np.abs(part), kind="stable") if largest else rng.permutation(d))[:kept]
        updates[t, chosen] = (part + noise * np.linalg.norm(part) / np.sqrt(d) * rng.normal(size=d))[chosen]
        sent[t, chosen] = True
    return drawn.seen(rules, (thetas, updates), sent=sent, noise=noise > 0)


def noisy(rng: Rng) -> Instance:
    m, d, drawn = private_batch(rng, _UNLABELLED, (12, 14))
    rules = training_rules(rng, m, drawn)
    n = d + 1 + int(rng.choice([0, 1, 3, 10, 40, 200]))
    single = rng.random() < 0.6
    thetas, updates = random_rounds(drawn, n, rules, rng, np.float32 if single else np.float64)
    spread = 10 ** rng.uniform(-7, 0.5) * np.sqrt(np.mean(updates**2)) + 1e-300
    noise = spread * (not single or rng.random() < 0.5) * rng.normal(size=updates.shape)
    updates = np.round(updates / spread) * spread if rng.random() < 0.2 else updates + noise  # some are quantised
    return drawn.seen(rules, (thetas, updates), noise=True)


def zero(rng: Rng) -> Instance:
    m, d, drawn = private_batch(rng, _LABELLED, (8, 10))
    rules = training_rules(rng, m, drawn)
    return drawn.seen(rules, training(drawn, int(rng.integers(2, 3 * d + 6)), rules, rng, fresh=rng.random() < 0.7))


def asynchronous(rng: Rng) -> Instance:
    steps = 3 if rng.random() < 0.1 else 2
    m, d, drawn = private_batch(rng, _STEPS, (5, 10), small=0.85, parts=steps)
    special = rng.choice([0.9731, 1.7321, 3.1416, rng.integers(1, 17) / 4, 4 / rng.integers(1, 12), 0.1])
    rate = float(special) if rng.random() < 0.4 else float(10 ** rng.uniform(-8, 0.6))
    rules = training_rules(rng, m, drawn, batches=steps, rate=rate)
    n = d + int(rng.integers(0, 8))
    if rng.random() < 0.3:
        thetas, updates = training(drawn, n, rules, rng)
    else:
        thetas, updates = random_rounds(drawn, n, rules, rng, np.float32 if rng.random() < 0.1 else np.float64)
    noise = bool(rng.random() < 0.1)
    updates = updates + noise * 10 ** rng.uniform(-12, -1) * np.sqrt(np.mean(updates**2)) * rng.normal(size=updates.shape)
    return drawn.seen(rules, (thetas, updates), step=np.repeat(np.arange(steps), m), noise=noise)


PATHS: dict[str, tuple[Callable[[Rng], Instance], float]] = {
    "binary": (binary, 0.24),
    "mixed": (mixed, 0.3),
    "selective": (selective, 0.12),
    "noisy": (noisy, 0.1),
    "zero": (zero, 0.12),
    "asynchronous": (asynchronous, 0.17),
}
"""What draws an instance, and its share of all instances."""


# ---------------------------------------------------------------------------------------------------------- the verdicts


def slack_of(instance: Instance) -> float:
    """How far a message may be off: twice as much as the true batch is, and some rounding of our own."""
    x, y, thetas = (part.astype(np.longdouble) for part in (instance.x, instance.y, instance.thetas))
    exact = np.array([answers(x, y, theta, instance.rules, np.longdouble).sum(axis=0) for theta in thetas])
    off = np.abs(exact - instance.updates).astype(float)
    if instance.sent is not None:
        off = off[instance.sent]
    largest = max(np.abs(instance.updates).max(initial=0.0), np.abs(instance.thetas).max(initial=0.0))
    return float(2 * off.max(initial=0.0) + 2.0**-50 * largest)


def explanations(instance: Instance) -> list[np.ndarray] | None:
    """All batches of 0 and 1 that explain the messages, (m, d) each; None if there are too many to try."""
    x, y, thetas = instance.x, instance.y, instance.thetas
    if not instance.declared.all():
        return None
    design = np.column_stack([thetas, np.ones(len(thetas))])
    whole = instance.sent is None and len(thetas) > x.shape[1] and np.linalg.cond(design) < 1e6
    if instance.noise or whole:
        return oracle.with_sums(x.T @ x, x.T @ y, len(x))
    scale = instance.rules.rate / instance.rate
    how = (instance.rules.rate, len(x), scale * slack_of(instance), instance.sent)
    indices = oracle.explaining(thetas, scale * instance.updates, *how)
    return None if indices is None else [oracle.all_batches(*x.shape).x[k] for k in indices]


def with_any_others(instance: Instance) -> list[np.ndarray] | None:
    """The batches whose declared columns are binary, if the others may hold any numbers; of these columns, -9 elsewhere.

    Every [X_B, y] with the products of the true one explains the messages: an orthogonal Q maps the true one to it, and
    Q X has the products of X.
    """
    known = instance.x[:, instance.declared].astype(np.int64)
    batches = oracle.with_sums(known.T @ known, known.T @ instance.y, len(known))
    if batches is None:
        return None
    whole = np.full((len(batches), *instance.x.shape), -9, dtype=np.int64)
    whole[:, :, instance.declared] = np.array(batches).reshape(len(batches), *known.shape)
    return list(whole)


def sequences(instance: Instance) -> list[tuple[np.ndarray, ...]] | None:
    """All sequences of batches, one a local step, that explain the messages; None if there are too many to try."""
    rules, messages = instance.rules, (instance.thetas, instance.updates)
    if instance.noise:
        return None
    every = oracle.explaining_steps(*messages, instance.rate, rules.batch_size, rules.batches, slack_of(instance))
    return None if every is None else [parts for parts in every if all(map(instance.allows, parts))]


def judge(instance: Instance, result: SearchResult) -> Verdict:
    """What the result claims, held against the true batch and every other one that explains the messages."""
    says = {name for name in ("proved", "unique", "batches_separated") if result.figures.get(name) == 1}
    says |= {"certain"} if result.figures.get("entries_certain", 0.0) > 0 else set()
    if "proved" in says and not result.candidates:
        wrong = ["infeasible, and the batch is binary"] * instance.binary
        return Verdict(Counter(["infeasible"]), wrong)
    says |= {"matches"} if result.candidates and not result.assumption else set()
    verdict = Verdict(Counter(says or ["refused"]), [])
    if not says:
        return verdict
    columns, parts = np.flatnonzero(result.binary), None
    if instance.step is not None:
        parts = sequences(instance)
        every = None if parts is None else [np.concatenate(part) for part in parts]
    elif instance.declared[columns].all() and not instance.declared.all():
        every = with_any_others(instance)
    else:
        every = explanations(instance)
    every = None if every is None else [batch for batch in every if instance.step is not None or instance.allows(batch)]
    if every is not None:
        verdict.claims["exhausted"] += 1
        declared = {oracle.key(batch[:, instance.declared]) for batch in every}
        if instance.step is None and oracle.key(instance.x[:, instance.declared]) not in declared:
            verdict.wrong.append("FUZZ ITSELF: the true batch is not among the explanations")
    verdict.wrong += _of_rows(says, instance, result, columns, [instance.x, *(every or [])])
    if "batches_separated" in says:
        verdict.wrong += _of_division(instance, result, parts or [])
    if "unique" in says and not verdict.wrong and not instance.noise:
        verdict.wrong += _of_values(verdict, says, instance, result)
    return verdict


def _of_rows(
    says: set[str], instance: Instance, result: SearchResult, columns: np.ndarray, every: list[np.ndarray]
) -> Iterator[str]:
    """What is wrong with candidates and certain entries. every: batches that explain the messages, the true one first."""
    true = np.rint(instance.x[:, columns]).astype(np.int64)
    candidates = [candidate[:, columns].astype(np.int64) for candidate in result.candidates]
    if "matches" in says and not all(np.array_equal(rows.T @ rows, true.T @ true) for rows in candidates):
        yield "matches: the products of a candidate are others"
    listed, shares = set(map(oracle.key, candidates)), result.shares[:, columns]
    for k, batch in enumerate(every):
        name, part = "the true batch" if k == 0 else f"another batch, {batch.tolist()},", batch[:, columns]
        # Values as close as 0.001 to integers count as these: no message is so exact that it must distinguish them.
        near = np.where(np.abs(part - np.rint(part)) <= 1e-3, np.rint(part), part)
        this = oracle.key(near) if np.array_equal(near, np.rint(near)) else "not integers"
        if "proved" in says and this not in listed:
            yield f"proved: {name} is not among the candidates"
        if "unique" in says and {this} != listed:
            yield f"unique: {name} is possible as well"
        certain = (shares == 0) | (shares == 1)
        if "certain" in says and not oracle.matches_somehow(result.rows[:, columns], certain, near):
            yield f"entries_certain: {name} contradicts them"


def _of_division(instance: Instance, result: SearchResult, parts: list[tuple[np.ndarray, ...]]) -> Iterator[str]:
    claimed, true = (
        tuple(rows[steps == s] for s in (0, 1)) for rows, steps in ((result.rows, result.steps), (instance.x, instance.step))
    )
    for name, part in [("the true", true), *(("another", part) for part in parts)]:
        if list(map(oracle.key, part)) != list(map(oracle.key, claimed)):
            yield f"batches_separated: {name} division {[p.tolist() for p in part]}"


def _of_values(verdict: Verdict, says: set[str], instance: Instance, result: SearchResult) -> Iterator[str]:
    """Labels and real-valued columns of a unique batch have to explain the messages, where these are float64."""
    x, y, real = result.rows, result.labels, ~result.binary
    if real.any() and np.isfinite(x[:, real]).all():
        verdict.claims["real"] += 1
        true, rows = (of[np.lexsort(of[:, result.binary].T)] for of in (instance.x, x))
        off = np.abs(true - rows).max()
        if slack_of(instance) < 1e-10 and off > 1e-3 * max(1.0, np.abs(true).max()):
            yield f"real columns: {off:.2g} off"
    is_known = instance.binary and not real.any() and y is not None and np.isfinite(y[x.any(axis=1)]).all()
    if is_known and (instance.step is None or "batches_separated" in says):
        verdict.claims["labels"] += 1
        y = np.nan_to_num(y)
        explained = np.allclose(x.T @ y, instance.x.T @ instance.y, atol=1e-6)
        if instance.step is not None:
            predicted = np.array([answers(x, y, theta, instance.rules)[0] for theta in instance.thetas])
            explained = np.abs(predicted - instance.updates).max() <= 4 * slack_of(instance)
        if not explained:
            yield f"labels: they do not explain the messages, {y.tolist()}"


# --------------------------------------------------------------------------------------------------------- one instance


def try_one(path: str, seed: int, limit: float = 5.0) -> tuple[Verdict, dict[str, Any]]:
    """Draw an instance of a path from a seed and hold what the search says against it. Returns the verdict and the instance.

    limit: seconds of one search; what it cuts off claims nothing.
    """
    rng = np.random.default_rng([seed, list(PATHS).index(path)])
    instance = PATHS[path][0](rng)
    options = BatchReconstruction(time_limit=limit, max_batches=2000)
    fewer = int(rng.integers(0, len(instance.thetas) + 1)) if rng.random() < 0.2 else 0
    solved: Solved = {}
    for n in filter(None, (fewer, len(instance.thetas))):
        result = search(instance.thetas[:n], instance.updates[:n], instance.rules, options, solved=solved)
    return judge(instance, result), {**vars(instance), "result": result}
