"""`python -m vflbench`, the same as `vflbench`."""

import os
import sys

# `python -m` puts the current folder first on the path: a file there with the name of a library would be imported in its
# place. The folder of a checkout that is not installed stays on the path, but last.
if not sys.flags.safe_path and os.path.realpath(sys.path[0] or os.curdir) == os.path.realpath(os.curdir):
    del sys.path[0]
checkout = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if checkout not in sys.path:
    sys.path.append(checkout)

from vflbench.cli.main import main  # noqa: E402

main()
