"""vflbench: label leakage and protection in vertical federated and split learning, measured."""

__version__ = "0.1.0"
