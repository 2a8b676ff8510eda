"""Results on disk: a run writes them, reports read them. `load` reads them as one Arrow table. Nothing here needs torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflbench.results.runs import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """`load`, imported when it is first used: whoever only names a file of a run waits for nothing that reads one."""
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vflbench.results.runs import load

    return load
