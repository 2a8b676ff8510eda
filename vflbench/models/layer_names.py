"""Names of layers that mean something to others than their network. It loads no torch."""

WIDE = "wide"
"""The name of the linear part's output where a model sends one across the cut."""
