"""The exact solver: every binary batch with a given Gram matrix, with proof."""
