"""One module a topic: `python scripts/bench.py --list`."""
