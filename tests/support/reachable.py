"""Every object that can be reached from one, as code that holds it could."""

import gc
import types

import numpy as np
import torch

_SHARED = (type, types.ModuleType, types.CodeType)
"""What is the program's and not the object's: classes, modules, code. What modules hold can be reached from anywhere."""


def reachable(root):
    """`root` and all that hangs on it: attributes, items, closures, defaults, arguments of partial functions, owners of
    bound methods, what views and tensors are views of, gradients. Not: the globals of a function, classes, modules.
    """
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen[id(one)] = one
        yield one
        waiting += _next(one)


def _next(one):
    if isinstance(one, types.FunctionType):
        cells = [_kept(cell, "cell_contents") for cell in one.__closure__ or ()]
        return [*cells, one.__defaults__, one.__kwdefaults__, one.__dict__]
    if isinstance(one, torch.Tensor):
        return [one.grad if one.is_leaf or one.retains_grad else None, one._base, one.grad_fn, one.__dict__]
    if isinstance(one, np.ndarray):
        return [one.base, *(one.ravel() if one.dtype == object else ())]
    if isinstance(one, memoryview):
        return [one.obj]
    found: list[object] = gc.get_referents(one)
    found += [getattr(one, name) for base in type(one).__mro__ for name in _slots(base) if hasattr(one, name)]
    if hasattr(one, "next_functions"):
        found += [_kept(one, name) for name in dir(one) if name.startswith("_saved_")]
        found += [node for node, _ in one.next_functions]
        found += [one.variable] if hasattr(one, "variable") else []
    return found + ([vars(one)] if hasattr(one, "__dict__") else [])


def _slots(base):
    slots = base.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _kept(one, name):
    """None for what is not there yet, as of a cell, or no more, as what backward has freed."""
    try:
        return getattr(one, name)
    except (ValueError, RuntimeError):
        return None


def arrays(root):
    """All numbers that can be reached, as arrays: whole memory of tensors, arrays, and mapped or plain bytes."""
    for one in reachable(root):
        if isinstance(one, torch.Tensor) and one.device.type == "cpu" and one.numel():
            whole = torch.empty(0, dtype=one.dtype).set_(one.untyped_storage())  # rows beyond those of a view
            yield whole.float().numpy() if one.dtype == torch.bfloat16 else whole.numpy()
            if not one.is_contiguous():
                yield one.detach().float().numpy()
        elif isinstance(one, np.ndarray) and one.dtype != object:
            yield one
        elif (isinstance(one, (bytes, bytearray)) and len(one) >= 64) or type(one).__name__ == "mmap":
            yield np.frombuffer(one, np.uint8)
