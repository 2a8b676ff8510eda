"""Parties as sites of NVIDIA FLARE: the label party is the server, each other party a client."""
