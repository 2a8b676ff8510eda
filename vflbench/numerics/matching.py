"""Points of two clouds matched one to one, class by class."""

import torch
from torch import Tensor

_MOST = 512  # points of a class that are matched at once; the time grows with the cube


def matched(points: Tensor, classes: Tensor, others: Tensor, classes_of_others: Tensor, rng: torch.Generator) -> Tensor:
    """(n,) for each point the place of its partner among the others, of the same class, at the least sum of |p - o|^2.

    Where there are more points than others of a class, each of these is a partner as often as the next, give or take one.
    Where there are fewer, as many others are drawn at random. A class of more than 512 points is matched in chunks of random
    points. Points of a class that no other has are matched with others of any class.

    points: (n, k). others: (m, k). classes: (n,), (m,).
    """
    from scipy.optimize import linear_sum_assignment  # late: it takes half a second to import

    partner = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    for k in classes.unique().tolist():
        own = (classes == k).nonzero()[:, 0]
        candidates = (classes_of_others == k).nonzero()[:, 0]
        if not len(candidates):
            candidates = torch.arange(len(others), device=points.device)
        own = own[torch.randperm(len(own), generator=rng, device=points.device)]
        for chunk in own.split(_MOST):
            order = candidates[torch.randperm(len(candidates), generator=rng, device=points.device)]
            drawn = order.repeat(-(-len(chunk) // len(order)))[: len(chunk)]
            cost = torch.cdist(points[chunk].double(), others[drawn].double()).square()
            rows, columns = linear_sum_assignment(cost.cpu().numpy())
            partner[chunk[torch.from_numpy(rows).to(chunk)]] = drawn[torch.from_numpy(columns).to(chunk)]
    return partner
