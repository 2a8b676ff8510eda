"""Engines: where parties live, and how messages travel between them."""
