import subprocess
import sys

import pytest
import scipy.special

from vflbench.numerics import special


def test_they_are_scipys():
    for name in special.__all__:
        assert getattr(special, name) is getattr(scipy.special, name)


@pytest.mark.slow
def test_they_are_loaded_without_the_rest_which_can_follow():
    code = (
        "import sys, vflbench.numerics.special as ours\n"
        "assert 'scipy.special' not in sys.modules and 'numpy.testing' not in sys.modules\n"
        "import scipy.special, scipy.stats, scipy.optimize\n"
        "assert all(getattr(ours, name) is getattr(scipy.special, name) for name in ours.__all__)\n"
        "assert scipy.special.logsumexp([0.0, 0.0]) > 0 and scipy.special.__file__\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_with_other_threads_the_whole_is_loaded():
    code = (
        "import sys, threading\n"
        "end = threading.Event()\n"
        "threading.Thread(target=end.wait).start()\n"
        "import vflbench.numerics.special\n"
        "end.set()\n"
        "assert hasattr(sys.modules['scipy.special'], 'logsumexp')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numpy_keeps_its_parser_of_fortran():
    """It isn't loaded, and can still be."""
    code = (
        "import sys, vflbench.numerics.special\n"
        "assert 'numpy.f2py' not in sys.modules and 'charset_normalizer' not in sys.modules\n"
        "import numpy, numpy.f2py\n"
        "assert numpy.f2py.run_main and numpy.f2py is sys.modules['numpy.f2py']\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
