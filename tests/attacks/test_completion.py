import torch
from attacks.views import gradients, view_of

from vflbench.attacks.completion import Completion, _ridges
from vflbench.messages.facts import ClassShares, Known, LocalModel
from vflbench.numerics.auc import auc

WIDE = 16


def asked(attack, first, labels, embedded=None, *, known=None, shares=(0.75, 0.25)):
    """Scores of the rows from `first` on at the end of an epoch. embedded: (n, d) activations of rows 0, 1, ...

    known: rows whose labels are known, all before them unless given.
    """
    known, ids = torch.arange(first) if known is None else known, torch.arange(first, len(labels))
    facts = Known(known, labels[known]), ClassShares(shares), LocalModel(lambda rows: {"f1": embedded[rows]})
    return attack.epoch(view_of(attack.threat, *facts, ids=ids, step=None)).layers["f1"]


def planted(rng, n=3000, nuisance=10.0):
    """Labels, and embeddings whose best direction has AUC 0.921; another one has `nuisance` times the deviation."""
    y = (torch.rand(n, generator=rng) < 0.25).long()
    h = torch.randn(n, WIDE, generator=rng) * torch.linspace(1, 0.2, WIDE)
    h[:, 0] += 2.0 * y
    h[:, 1] *= nuisance
    return y, h @ torch.linalg.qr(torch.randn(WIDE, WIDE, generator=rng)).Q


def test_a_planted_direction_is_reached_next_to_a_larger_nuisance(rng):
    y, h = planted(rng)
    assert auc(asked(Completion(), 100, y, h), y[100:]) > 0.921 - 0.02


def test_the_scores_of_two_classes_are_log_odds(rng):
    y, h = planted(rng)
    chances = asked(Completion(known=400), 400, y, h).sigmoid()
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 1.0)):
        inside = (chances >= low) & (chances < high)
        assert abs(float(chances[inside].mean()) - float(y[400:][inside].double().mean())) < 0.1


def test_more_classes_have_a_column_each_also_those_of_which_no_row_is_known(rng):
    y = torch.arange(4).repeat(500)
    h = torch.randn(2000, WIDE, generator=rng) + 6 * torch.eye(4, WIDE)[y]
    scores = asked(Completion(), 40, y, h, shares=(0.25,) * 4)
    assert (scores.argmax(dim=1) == y[40:]).double().mean() > 0.98
    few = asked(Completion(), 40, y, h, known=torch.tensor([0, 1, 4, 5]), shares=(0.25,) * 4)
    assert few.shape == (1960, 4)
    assert bool(few.isfinite().all())


def logistic_gradients(rng, y):
    """(p - y) along one direction, as a logistic top sends it."""
    direction = torch.nn.functional.normalize(torch.randn(1, WIDE, generator=rng))
    return (torch.randn(len(y), generator=rng).sigmoid() - y)[:, None] * direction


def test_noise_that_one_class_alone_gets_shows_in_its_length(rng):
    y = (torch.rand(2000, generator=rng) < 0.25).long()
    g = logistic_gradients(rng, y) + 0.5 * (1 - y)[:, None] * torch.randn(2000, WIDE, generator=rng)
    attack = Completion(known=20, message="gradients")
    attack.observe(view_of(attack.threat, gradients(g)))
    assert auc(asked(attack, 20, y), y[20:]) > 0.99


def test_gradients_and_features_add_up_where_labels_are_randomized(rng):
    """Given the label, the released one and the features are independent: their log-likelihood ratios add up."""
    y, h = planted(rng, 4000)
    flipped, reached = torch.rand(4000, generator=rng) < torch.sigmoid(torch.tensor(-1.0)), {}
    released = torch.where(flipped, 1 - y, y)
    g = logistic_gradients(rng, released)
    for message in ("embeddings", "gradients", "both"):
        attack = Completion(known=200, message=message)
        if message != "embeddings":
            attack.observe(view_of(attack.threat, gradients(g)))
        reached[message] = auc(asked(attack, 200, y, h), y[200:])
    assert abs(reached["gradients"] - auc(released[200:].double(), y[200:])) < 0.03
    inputs = torch.cat([h - h.mean(0), released[:, None] - released.float().mean()], dim=1)
    best = torch.linalg.lstsq(inputs, y[:, None] - y.float().mean()).solution  # with every label
    optimum = auc((inputs @ best)[200:, 0], y[200:])
    assert reached["both"] > max(reached["embeddings"] + 0.01, reached["gradients"] + 0.01, optimum - 0.02)


def test_errors_of_left_out_rows_are_those_of_fits_without_them(rng):
    x, y = torch.randn(9, 4, generator=rng).double(), torch.randn(9, 2, generator=rng).double()
    y = y - y.mean(dim=0)
    total = float((x - x.mean(dim=0)).square().sum())
    for noise, left_out in zip([10.0 ** (e / 2) for e in range(-10, 5)], _ridges(x, torch.ones(4), y)[2], strict=True):
        for i in range(9):
            rest = torch.arange(9) != i
            a, b = x[rest] - x[rest].mean(dim=0), y[rest] - y[rest].mean(dim=0)
            w = torch.linalg.solve(a.T @ a + noise * total * torch.eye(4), a.T @ b)
            assert torch.allclose(left_out[i], y[rest].mean(dim=0) + (x[i] - x[rest].mean(dim=0)) @ w, atol=1e-8)


def test_the_evidence_is_that_of_a_gaussian_process(rng):
    """log N(y; 0, s (x x^T + ridge)) maximised over s, in the space of contrasts that a free mean leaves."""
    x, y = torch.randn(7, 3, generator=rng).double(), torch.randn(7, 1, generator=rng).double()
    y = y - y.mean()
    c = x - x.mean(dim=0)
    contrasts = torch.linalg.svd(torch.eye(7) - torch.full((7, 7), 1 / 7)).U[:, :6].double()
    expected = []
    for e in range(-10, 5):
        kernel = contrasts.T @ (c @ c.T + 10.0 ** (e / 2) * float(c.square().sum()) * torch.eye(7)) @ contrasts
        z = contrasts.T @ y
        expected.append(float(-0.5 * (6 * torch.log(z.T @ torch.linalg.solve(kernel, z)) + torch.logdet(kernel))))
    assert torch.allclose(_ridges(x, torch.ones(3), y)[0], torch.tensor(expected).double(), atol=1e-5)
