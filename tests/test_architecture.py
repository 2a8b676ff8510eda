"""The walls of the house, read from the source: who may import whom, and what no module does."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from size import rooms_of

PACKAGE = Path(__file__).resolve().parent.parent / "vflbench"

# Room -> what of ours it may import beside itself. A line names only rooms above it, so nothing imports in a circle.
TABLE = {
    "numerics": "",
    "metrics": "numerics",
    "messages": "numerics",
    "data": "numerics",
    "models": "numerics",
    "defenses": "messages metrics numerics",
    "attacks": "messages models numerics",
    "protocols": "data defenses messages metrics.privacy models numerics.optim numerics.system",
    "engines": "messages protocols",
    "results": "numerics",
    "run": "attacks data defenses engines messages metrics models numerics protocols results",
    "report": "numerics results",
    "cli": "attacks data defenses engines messages metrics models numerics protocols report results run",
    "hosts": "attacks cli data defenses engines messages metrics models numerics protocols results run",
}
LEAVES = "errors files generators options"  # open to every room

# Package of others -> the rooms, or rooms within rooms, that may import it.
GUARDED = {
    "hydra": "cli hosts",
    "omegaconf": "cli hosts",
    "torch": "attacks data defenses engines generators hosts messages metrics models numerics options protocols run",
    "numba": "data models.lazy_adam_numba numerics",
    "flint": "attacks.batch_reconstruction attacks.hidden_subset_sum",
    "pulp": "attacks.batch_reconstruction",
    "highspy": "attacks.batch_reconstruction",
    "sklearn": "attacks data defenses metrics",
    "skimage": "metrics",
    "dp_accounting": "metrics",
    "pyarrow": "data messages results",
    "safetensors": "messages",
    "PIL": "data report",
    "altair": "report",
    "vl_convert": "report",
    "jinja2": "report",
    "pandas": "report results",
    "tensorboard": "results.loggers",
    "nvflare": "engines.components hosts",
    "psutil": "engines.components hosts",
    "mlflow": "results.loggers",
}


KINDS = (ast.Import, ast.ImportFrom, ast.Attribute, ast.Call)


@functools.cache
def modules() -> dict[str, list[ast.AST]]:
    """Path below the package -> what of its source is looked at."""
    trees = {file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}
    return {name: [node for node in ast.walk(tree) if isinstance(node, KINDS)] for name, tree in trees.items()}


def imports(module: str) -> Iterator[str]:
    """Dotted names: `from a.b import c` is a.b.c."""
    for node in modules()[module]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_within(module: str) -> Iterator[str]:
    yield from (name.removeprefix("vflbench.") for name in imports(module) if name.split(".")[0] == "vflbench")


def within(name: str, doors: str) -> bool:
    return any(name == door or name.startswith(f"{door}.") for door in doors.split())


def room_of(module: str) -> str:
    return module.removesuffix(".py").split("/")[0]


def test_a_room_imports_only_what_the_table_says():
    rooms, leaves = list(TABLE), LEAVES.split()
    for number, (room, doors) in enumerate(TABLE.items()):
        assert {door.split(".")[0] for door in doors.split()} <= set(rooms[:number]), f"{room}: the table points up"
    assert {room_of(module) for module in modules()} == {*rooms, *leaves, "__init__", "__main__"}
    may_import = {**TABLE, **dict.fromkeys(leaves, ""), "__init__": " ".join(rooms), "__main__": "cli"}
    wrong = [
        f"{module} imports {name}"
        for module in modules()
        for name in imports_within(module)
        if not within(name, f"{room_of(module)} {may_import[room_of(module)]} {LEAVES} __version__")
    ]
    assert not wrong, "\n".join(wrong)


def test_a_package_of_others_is_imported_only_where_the_table_says_and_without_private_names_of_hydra():
    """Also each attribute of another object that begins with `_`, in the only room that knows Hydra."""
    wrong = []
    for module in modules():
        for name in imports(module):
            package, dotted = name.split(".")[0], module.removesuffix(".py").replace("/", ".")
            is_elsewhere = package in GUARDED and not within(dotted, GUARDED[package])
            if is_elsewhere or (package in ("hydra", "omegaconf") and "._" in name):
                wrong.append(f"{module} imports {name}")
        for node in modules()[module] if room_of(module) == "cli" else ():
            if isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) not in ("self", "cls"):
                wrong.append(f"{module}:{node.lineno} uses {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_nothing_seeds_or_draws_from_a_global_generator():
    seeds = {"manual_seed", "seed", "seed_everything", "use_deterministic_algorithms"}
    draws = {"bernoulli", "multinomial", "normal", "rand", "randint", "randn", "randperm"}
    wrong = []
    for module, nodes in modules().items():
        for node in nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner, name = ast.unparse(node.func.value), node.func.attr
            if name in seeds and not owner.startswith("torch.Generator("):
                wrong.append(f"{module}:{node.lineno} calls {owner}.{name}")
            if name in draws and owner == "torch" and "generator" not in {keyword.arg for keyword in node.keywords}:
                wrong.append(f"{module}:{node.lineno} draws without a generator: {owner}.{name}")
    assert not wrong, "\n".join(wrong)


# Room -> the most code lines it may have, as `python scripts/size.py` counts them. They only go down.
CAPS = {
    "scripts": 1_980,
    "vflbench": 287,
    "vflbench/attacks": 4_510,
    "vflbench/cli": 2_475,
    "vflbench/data": 3_194,
    "vflbench/defenses": 1_545,
    "vflbench/engines": 276,
    "vflbench/hosts": 1_010,
    "vflbench/messages": 1_768,
    "vflbench/metrics": 1_399,
    "vflbench/models": 1_052,
    "vflbench/numerics": 826,
    "vflbench/protocols": 1_644,
    "vflbench/report": 2_393,
    "vflbench/results": 1_181,
    "vflbench/run": 3_372,
}


@pytest.mark.slow
def test_no_room_grows():
    sizes = rooms_of(PACKAGE.parent, ("vflbench", "scripts"))
    larger = {room: sizes[room].lines for room, cap in CAPS.items() if room in sizes and sizes[room].lines > cap}
    assert not larger, f"more code lines than the caps: {larger}"
    assert {room for room in sizes if room.startswith("vflbench")} <= set(CAPS), "a room without a cap"


# Words that say nothing of what they name: parts of snake_case and CamelCase.
SEATS = {"seat", "seated", "seating", "seats"}
AVOIDED = {"apart", "beside", "desk", "elsewhere", "found", "own", "post", "posted", "told"} | SEATS
ALLOWED = {"__post_init__", "FileNotFoundError", "ModuleNotFoundError", "PackageNotFoundError"}


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.Name(id=name) | ast.alias(name=name) | ast.keyword(arg=str(name)) | ast.MatchAs(name=str(name)):
                yield name


def test_names_say_what_they_name():
    wrong = set()
    for file in PACKAGE.rglob("*.py"):
        for name in {*identifiers(ast.parse(file.read_text())), file.stem} - ALLOWED:
            if AVOIDED & {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}:
                wrong.add(f"{file.relative_to(PACKAGE)}: {name}")
    assert not wrong, "\n".join(sorted(wrong))


def test_no_public_name_is_defined_in_two_modules():
    where: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                where.setdefault(name, set()).add(file.relative_to(PACKAGE).as_posix())
    twice = [name for name, files in where.items() if len(files) > 1 and not name.startswith("_")]
    assert twice == ["Fsha"]  # the party that hijacks, and what it rebuilds by it: both are FSHA
