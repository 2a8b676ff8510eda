"""Special functions of scipy, those of C alone, which load in 0.02 s. `scipy.special` as a whole takes 0.1 s: with it come
wrappers for arrays of other libraries, which look at everything that numpy offers, its tests and its parser of Fortran too.
"""

import importlib
import sys
import threading
import types
from importlib.machinery import PathFinder
from typing import Any

import scipy

_WHOLE = "scipy.special"
_OF_C = "scipy.special._ufuncs"


def _functions() -> Any:
    """A module with these functions: the very objects that `scipy.special` offers, which may be loaded before or later.

    For as long as `_ufuncs` is loaded, an empty package stands in the place of the whole. In a process with other threads,
    which might ask for the whole meanwhile, and wherever this fails, the whole is imported.
    """
    spec = PathFinder.find_spec(_WHOLE, scipy.__path__)
    if _WHOLE not in sys.modules and spec is not None and threading.active_count() == 1:
        package = types.ModuleType(_WHOLE)
        package.__path__, package.__spec__ = list(spec.submodule_search_locations or ()), spec
        sys.modules[_WHOLE] = package
        try:
            return importlib.import_module(_OF_C)
        except Exception:  # nosec B110  # of another version of scipy, whose parts lean on the whole
            pass
        finally:
            del sys.modules[_WHOLE]
    return importlib.import_module(_WHOLE)


_of_c = _functions()
betainc, betaincinv, expit, gammaln = _of_c.betainc, _of_c.betaincinv, _of_c.expit, _of_c.gammaln
log_ndtr, ndtr, stdtrit = _of_c.log_ndtr, _of_c.ndtr, _of_c.stdtrit

__all__ = ["betainc", "betaincinv", "expit", "gammaln", "log_ndtr", "ndtr", "stdtrit"]
