"""`python -m vflbench`, the same as `vflbench`."""

from vflbench.cli import main

main()
