"""`python -m vflbench`, the same as `vflbench`."""

from vflbench.cli.main import main

main()
