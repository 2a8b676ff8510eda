"""L-BFGS, torch's own, without its import of torch's compiler (1.5 s)."""

import inspect

import torch


class Lbfgs(torch.optim.LBFGS):
    """torch.optim.LBFGS. What keeps its methods from being compiled is taken off two of them, which also are never compiled
    here: it would load torch's compiler to say so.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
