"""What plug-ins import from outside their folders and is not ours, nor a package whose version every run records."""

import ast
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from vflbench.run.plugin_files import listing, read_listing
from vflbench.run.sources import find_module

_RECORDED = {"vflbench", "torch", "numpy", "scipy", "sklearn", "pyarrow", "hydra", "omegaconf", "pydantic", "numba"}


def outside_modules(folders: Sequence[Path]) -> Mapping[str, str]:
    """Module -> what stands for its code, of each top-level module that a file in these folders names in an import.

    Of an installed package: its version and a digest of the files that its installer recorded. Of any other (an editable
    install, a folder in PYTHONPATH): a digest of its Python files, and then of what these import. `absent` for a module that
    can't be found. A computed name of such a module is not seen.
    """
    return _outside(tuple(folders))


@cache
def _outside(folders: tuple[Path, ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    waiting = [name for folder in folders for file in listing(folder) for name in _tops(folder / file)]
    while waiting:
        name = waiting.pop()
        if name in found or name in sys.stdlib_module_names or name in _RECORDED:
            continue
        spec = find_module(name, folders)
        if spec is not None and _is_within(spec, folders):
            continue
        if spec is None:
            found[name] = "absent"
        elif _is_installed(spec):
            found[name] = _distribution(name)
        else:
            files = _sources(spec)
            lines = [f"{place}\0{digest}\n" for place, (_, digest) in sorted(files.items())]
            found[name] = hashlib.sha256("".join(lines).encode()).hexdigest()
            waiting += [top for file, _ in files.values() for top in _tops(file)]
    return dict(sorted(found.items()))


def _tops(file: Path) -> Iterator[str]:
    """The first parts of the names of modules that a source imports, relative imports left out."""
    if file.suffix != ".py":
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # importing it will report that
        return
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ) if not name.startswith("."):
                yield name.partition(".")[0]


def _places(spec: ModuleSpec) -> list[Path]:
    places = list(spec.submodule_search_locations or []) or ([spec.origin] if spec.has_location and spec.origin else [])
    return [Path(place) for place in places]


def _is_within(spec: ModuleSpec, folders: Sequence[Path]) -> bool:
    return any(place.resolve().is_relative_to(folder.resolve()) for place in _places(spec) for folder in folders)


def _is_installed(spec: ModuleSpec) -> bool:
    return any({"site-packages", "dist-packages"} & set(place.parts) for place in _places(spec)) or not _places(spec)


def _sources(spec: ModuleSpec) -> dict[str, tuple[Path, str]]:
    """Path within the package -> (file, its digest), of a package's files or of a single module."""
    files: dict[str, tuple[Path, str]] = {}
    for place in _places(spec):
        if place.is_dir():
            files |= {name: (place / name, digest) for name, digest in read_listing(place).items() if name.endswith(".py")}
        else:
            files[place.name] = (place, hashlib.sha256(place.read_bytes()).hexdigest())
    return files


def _distribution(module: str) -> str:
    """The version of the package that installed a module, and a digest of its files as they were installed."""
    from importlib import metadata  # late: few commands need it

    try:
        one = metadata.distribution(module)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(module, [])
        if not names:
            return "installed, of no package"
        one = metadata.distribution(names[0])
    hashes = sorted(f"{file} {file.hash.value}" for file in one.files or () if file.hash and file.suffix in (".py", ".so"))
    return f"{one.version} {hashlib.sha256(chr(10).join(hashes).encode()).hexdigest()}"
