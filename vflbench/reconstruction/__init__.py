"""Whole private batches of binary rows, from what their updates come to: pure functions of integer arrays."""
