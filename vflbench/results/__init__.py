"""Results on disk: a run writes them, reports read them. `load` reads them as one Arrow table. Nothing here needs torch."""

from vflbench.results.arrow import load

__all__ = ["load"]
