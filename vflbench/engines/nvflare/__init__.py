"""NVIDIA FLARE: parties as processes of a simulator, of a proof of concept, or on hosts of their own."""
