"""vflbench: label leakage and protection in vertical federated and split learning, measured."""

from importlib import import_module
from typing import Any

__version__ = "0.3.0"

_PLACES = {
    "cli.train": ("train",),
    "run.offline": ("AuditResult",),
    "cli.audit": ("audit", "AuditReport"),
    "results.runs": ("load",),
    "messages.recordings": ("RecordedMessages",),
    "messages.recorder": ("Recording", "flush_labels", "write_batch"),
    "messages.threat": ("Threat", "Role", "View", "Undeclared", "Unavailable"),
    "messages.message": ("Message", "Kind"),
    "messages.fact": ("Fact", "Round"),
    "messages.facts": (
        *("Labels", "LocalTop"),
        *("Embeddings", "Gradients", "SummedGradients", "ClassShares", "Known", "KnownColumn", "BatchHints", "ClassHints"),
        *("PartyFeatures", "LocalModel", "Updates", "Predictions"),
    ),
    "messages.peer_facts": ("PeerModels", "PeerArchitectures", "Queries", "Auxiliary", "Compression", "NoiseMean"),
    "attacks.base": ("Attack", "Scores", "ColumnScores", "RebuiltRows", "RebuiltBatch", "ClassCounts"),
    "defenses.base": ("Defense", "LabelDefense", "NonLabelDefense", "ParticipantDefense", "Context", "WithheldError"),
    "protocols.adversary": ("Adversary",),
    "protocols.base": ("Protocol",),
    "models.base": ("Model",),
    "models.optimizers.base": ("Optimizer",),
    "data.base": ("Dataset",),
    "results.loggers": ("Logger",),
    "errors": ("UserError",),
}
"""Module -> the public names in it. They are imported when they are first used: `import vflbench` imports no torch."""

_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _PLACES.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
