"""The walls of the house: which room may import which, read from the source."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "vflbench"

# Room -> what of ours it may import beside itself. `errors` and `options` are open to every room.
MAY_IMPORT = {
    "errors": set(),
    "options": set(),
    "state": set(),
    "identity": set(),
    "interruption": set(),
    "checkpoint": set(),
    "numerics": set(),
    "reconstruction": {"numerics"},
    "data": {"numerics.pixels"},
    "models": {"numerics.pixels"},
    "optimizers": {"numerics"},
    "encoding": {"numerics.packing"},
    "wire": {"encoding"},
    "generators": set(),
    "recorder": set(),
    "transcript": {"encoding", "wire"},
    "canaries": {"data.rows", "data.table", "metrics.canary"},
    "account": {"canaries", "defenses.base", "metrics"},
    "attacks": {"numerics", "reconstruction", "transcript", "wire"},
    "metrics": {"numerics"},
    "participants": {"defenses.base", "wire"},
    "defenses": {"numerics", "encoding", "metrics.privacy", "metrics.embedding_privacy", "state"},
    "parties": {
        *("data.table", "models.base", "defenses.base", "optimizers.base", "wire"),
        *("encoding", "metrics.embedding_privacy"),
    },
    "protocols": {
        *("parties", "participants", "wire", "transcript", "generators", "metrics.embedding_privacy", "data.batches"),
        *("data.rows", "data.table", "models.base", "defenses.base", "optimizers.base"),
    },
    "grading": {"attacks.base", "data.rows", "data.table", "metrics", "numerics.pixels", "wire"},
    "audit": {
        "attacks.base",
        "grading",
        "canaries",
        "data.rows",
        "data.table",
        "generators",
        "metrics",
        "numerics.mixing",
        "protocols.base",
        "state",
        "transcript",
        "wire",
    },
    "settings": set(),
    "results": {
        "account",
        "canaries",
        "data.rows",
        "data.table",
        "defenses.base",
        "metrics",
        "numerics.interval",
        "recorder",
        "wire",
    },
    "progress": {"audit", "generators", "metrics", "protocols.base", "results", "wire"},
    "resume": {"checkpoint", "progress", "recorder"},
    "evaluation": {"data", "metrics.utility", "progress", "protocols.base", "results"},
    "experiment": {
        *("attacks.base", "audit", "data", "defenses.base", "generators", "metrics", "models.base", "optimizers.base"),
        *("account", "machine", "protocols.base", "recorder", "results", "settings", "transcript", "wire"),
        *("checkpoint", "evaluation", "interruption", "progress", "resume"),
    },
    "earlier": {"identity"},
    "provenance": {"", "report.read"},
    "places": set(),
    "loggers": {"report.read"},
    "sweep": {"earlier", "report.read"},
    "composed": set(),
    "launch": {"composed", "earlier", "interruption", "mistakes", "provenance", "report.read", "sweep"},
    "experiments": {"places"},
    "report": {"experiments", "identity", "numerics.interval"},
    "machine": set(),
    "resolvers": {"identity"},
    "build": {
        *("experiment", "settings", "wire"),
        *(f"{room}.base" for room in ("attacks", "data", "defenses", "loggers", "models", "optimizers", "protocols")),
    },
    "catalog": {"attacks.base", "build", "experiments", "places"},
    "mistakes": {"catalog"},
    "cli": {
        *(
            "",
            "build",
            "catalog",
            "checkpoint",
            "data.file_dataset",
            "earlier",
            "experiment",
            "launch",
            "loggers.base",
            "places",
            "provenance",
            "recorder",
            "mistakes",
            "report",
            "resolvers",
            "sweep",
        ),
    },
    "__main__": {"cli"},
    "__init__": set(),
}
OPEN_TO_ALL = {"errors", "options"}

# Packages that only some rooms may touch.
GUARDED = {
    "hydra": {"cli", "composed", "launch", "mistakes"},
    "omegaconf": {"build", "cli", "catalog", "composed", "earlier", "launch", "mistakes", "resolvers"},
    "torch": {
        *("encoding", "numerics", "data", "models", "optimizers", "wire", "transcript", "generators", "defenses", "attacks"),
        *(
            "metrics",
            "machine",
            "participants",
            "parties",
            "protocols",
            "audit",
            "canaries",
            "settings",
            "provenance",
            "checkpoint",
            "evaluation",
            "grading",
            "progress",
            "resume",
        ),
    },
    "numba": {"numerics", "optimizers"},
    "flint": {"reconstruction"},
    "matplotlib": {"report"},
    "pyarrow": {"data"},
    "sklearn": {"data", "attacks", "metrics"},
    "pulp": {"attacks", "reconstruction"},
    "highspy": {"reconstruction"},
    "ortools": {"reconstruction"},
    "tensorboard": {"loggers"},
    "mlflow": {"loggers"},
    "PIL": {"data", "report"},
    "skimage": {"metrics"},
    "dp_accounting": {"metrics"},
    "csv": {"data", "recorder", "report"},
    "json": {"recorder", "report", "data", "identity", "experiments"},
    "jinja2": {"report"},
}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(file: Path) -> set[str]:
    """Dotted names that a module imports; `from vflbench.x import y` counts as vflbench.x."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found.add(node.module)
    return found


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_room_imports_only_what_its_door_opens_to(file):
    room = room_of(file)
    allowed = {room} | MAY_IMPORT[room] | OPEN_TO_ALL
    for name in imports_of(file):
        if name.split(".")[0] != "vflbench":
            continue
        inside = name.removeprefix("vflbench").removeprefix(".")
        assert any(inside == door or inside.startswith(f"{door}.") for door in allowed), f"{file.name} imports {name}"


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_guarded_package_stays_in_its_rooms(file):
    for package, rooms in GUARDED.items():
        touches = any(name.split(".")[0] == package for name in imports_of(file))
        assert not touches or room_of(file) in rooms, f"{file.name} imports {package}"


def test_every_room_is_in_the_table_and_every_line_of_the_table_is_a_room():
    assert {room_of(file) for file in modules()} == set(MAY_IMPORT)


def test_nothing_seeds_a_global_generator():
    banned = {"manual_seed", "seed", "seed_everything", "use_deterministic_algorithms"}
    for file in modules():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in banned:
                owner = ast.unparse(node.func.value)
                assert owner.startswith("torch.Generator("), f"{file.name}:{node.lineno} calls {owner}.{node.func.attr}"
