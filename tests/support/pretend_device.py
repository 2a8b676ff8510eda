"""A device that isn't there: tensors on the CPU that say they lie on cuda:0, and refuse to meet others of the CPU."""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

CARD = torch.device("cuda:0")
_MARK = "_pretended"
_READS = {
    *("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__contains__"),
    *("equal", "allclose", "cpu"),
    *("nonzero", "argwhere", "unique", "unique_consecutive", "masked_select", "bincount", "repeat_interleave"),
}
_COPIES = {"to", "cpu", "cuda", "type_as", "copy_"}
_INDEXING = {"__getitem__", "__setitem__", "index_put_"}  # an index may lie on the CPU


class MixedDevicesError(Exception):
    """A function got tensors of both devices."""


class CardGenerator(torch.Generator):
    """Draws on the CPU, and says that it lies on the card."""

    device = CARD  # type: ignore[assignment]


class PretendCard(TorchFunctionMode):
    """Where `device` is a CUDA device, computes on the CPU and marks the result; refuses what CUDA refuses.

    Zero-dimensional tensors on the CPU may meet others, as for torch. Tensors that torch's own engine makes in back
    propagation carry no mark, and may meet any. reads: functions that make a processor wait for the card: their results are
    numbers of the host, or have a shape that depends on numbers.
    """

    def __init__(self):
        super().__init__()
        self.reads: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        owner = getattr(func, "__self__", None)
        if name == "__get__" and owner is Tensor.device:
            return CARD if _mark(args[0]) else func(*args, **kwargs)
        if name == "__get__" and owner is Tensor.is_cuda:
            return bool(_mark(args[0]))
        if name == "__set__" and owner is Tensor.data:
            func(*args, **kwargs)
            setattr(args[0], _MARK, _mark(args[1]))
            return None
        leaves = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
        marks = {_mark(leaf) for leaf in leaves}
        if name == "__get__":
            found = func(*args, **kwargs)
            if isinstance(found, Tensor) and found is not args[0] and _mark(args[0]) is not None:
                setattr(found, _MARK, _mark(args[0]))
            return found
        wanted, args, kwargs = _device_of(name, args, kwargs)
        if name == "numpy" and True in marks:
            raise MixedDevicesError("numpy: can't convert a tensor of cuda:0 to an array")
        sized = {_mark(leaf) for leaf in leaves if leaf.dim()}
        if name not in _COPIES | _INDEXING and {True, False} <= sized:
            places = [(tuple(leaf.shape), _mark(leaf)) for leaf in leaves]
            raise MixedDevicesError(f"{name}: expected all tensors to be on the same device, found {places}")
        rng = kwargs.get("generator") or next((a for a in args if isinstance(a, torch.Generator)), None)
        if rng is not None:
            place = wanted if wanted is not None else True in marks
            if isinstance(rng, CardGenerator) != bool(place):
                raise MixedDevicesError(f"{name}: expected a generator of the device of its numbers, found {rng.device}")
        if True in marks and (name in _READS or (name == "to" and wanted is False) or _masks(name, args)):
            self.reads.append(name)
        result = func(*args, **kwargs)
        of_leaves = True in marks if leaves and marks != {None} else (None if leaves else False)
        on = False if name == "cpu" else of_leaves if wanted is None else wanted
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, Tensor) and not (name in ("to", "type_as") and on is None):
                if name.endswith("_") and leaf is (args[0] if args else None):
                    continue
                if any(leaf is one for one in leaves) and getattr(leaf, _MARK, None) != on:
                    leaf = leaf.detach().clone()
                    result = leaf
                if on is not None:
                    setattr(leaf, _MARK, on)
        return result


def _masks(name, args):
    """Whether the number of places that a mask marks must be known to go on."""
    if name not in _INDEXING or (name == "__setitem__" and not isinstance(args[2], Tensor)):
        return False
    return any(isinstance(leaf, Tensor) and leaf.dtype == torch.bool for leaf in tree_flatten(args[1])[0])


def _mark(x):
    return getattr(x, _MARK, None)


def _device_of(name, args, kwargs):
    """Whether the function is asked for a device, and its arguments without CUDA."""
    wanted: bool | None = None
    device = kwargs.get("device")
    if device is not None:
        wanted = torch.device(device).type == "cuda"
        kwargs["device"] = torch.device("cpu")
    for value in args[1:] if name == "to" else ():
        if isinstance(value, torch.device | str):
            wanted = torch.device(value).type == "cuda"
        elif isinstance(value, Tensor):
            wanted = _mark(value)
    if name == "to":
        args = tuple(torch.device("cpu") if isinstance(value, torch.device | str) else value for value in args)
    return wanted, args, kwargs
