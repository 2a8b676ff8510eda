"""What our classes say of themselves, read from their source: a hundred of them are listed without importing any.

Their modules import torch, which takes seconds. A docstring is text in the source. The threat of an attack is computed by
the class's own code from the options: that code alone is run, with what it names, in place of the whole module.
"""

import __future__

import ast
import builtins
import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

_OURS = Path(__file__).resolve().parents[1]
_LIGHT = tuple(f"vflbench.messages.{name}" for name in ("threat", "message", "fact", "facts", "label_facts", "peer_facts"))
"""Modules of ours that need no torch: they are imported."""
_LATER = __future__.annotations.compiler_flag
"""Annotations are not evaluated."""


class UnclearError(LookupError):
    """The source doesn't say it without running more of it; importing the class does."""


def declared(path: str) -> "Class":
    """The class at `vflbench.MODULE.CLASS`. Raises UnclearError, OSError or SyntaxError."""
    module, _, name = path.rpartition(".")
    found = source(module).value(name)
    if not isinstance(found, Class):
        raise UnclearError(path)
    return found


@cache
def source(module: str) -> "Source":
    """The source of a module of ours."""
    package, *below = module.split(".")
    if package != _OURS.name:
        raise UnclearError(module)
    place = _OURS.joinpath(*below)
    return Source(module, place / "__init__.py" if place.is_dir() else place.with_suffix(".py"))


class Source:
    """A module, parsed and not run: the values of its top-level names are computed as they are asked for."""

    def __init__(self, name: str, file: Path):
        self.name, self.file = name, file
        self._nodes = {bound: node for node in _top(ast.parse(file.read_bytes()).body) for bound in _bound(node)}
        self._values: dict[str, Any] = {}
        self._asked: set[str] = set()

    def value(self, name: str) -> Any:
        """Of a top-level name. Raises UnclearError."""
        if name not in self._values:
            if name in self._asked or name not in self._nodes:  # it depends on itself, or is bound in another way
                raise UnclearError(f"{self.name}.{name}")
            self._asked.add(name)
            self._values[name] = self._computed(name, self._nodes[name])
        return self._values[name]

    def _computed(self, name: str, node: ast.stmt) -> Any:
        match node:
            case ast.ClassDef():
                return Class(self, node)
            case ast.FunctionDef(decorator_list=[]):
                return self.function(node)
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return self.expression(value)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                original = next(alias.name for alias in names if (alias.asname or alias.name) == name)
                if module in _LIGHT or module.partition(".")[0] in sys.stdlib_module_names:
                    return getattr(importlib.import_module(module), original)
                return source(module).value(original)
        raise UnclearError(f"{self.name}.{name}")

    def expression(self, node: ast.expr, instance: Any = None) -> Any:
        """Its value, where all that it names is known. instance: what `self` stands for."""
        code = compile(ast.Expression(node), self.file, "eval", dont_inherit=True)
        names = self._named_in(node) | {"self": instance}
        try:
            return eval(code, names)  # nosec B307  # of our own source, which an import would run as well
        except NameError as error:
            raise UnclearError(f"{self.name}: {error}") from error

    def function(self, node: ast.FunctionDef) -> Any:
        """Without its decorators."""
        bare = ast.FunctionDef(**{**dict(ast.iter_fields(node)), "decorator_list": []})
        code = compile(ast.Module([ast.copy_location(bare, node)], []), self.file, "exec", _LATER, dont_inherit=True)
        names = self._named_in(node)
        exec(code, names)  # nosec B102  # of our own source, which an import would run as well
        return names[node.name]

    def _named_in(self, node: ast.AST) -> dict[str, Any]:
        """The values of the names in it. Those that are unclear are left out: where they are needed, it fails."""
        found: dict[str, Any] = {}
        for name in {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - vars(builtins).keys():
            try:
                found[name] = self.value(name)
            except (UnclearError, OSError, NameError):
                continue
        return found


class Class:
    """A class in a source. Called with options, it gives an instance, which has what can be computed from them."""

    def __init__(self, of: Source, node: ast.ClassDef):
        self.source, self._node = of, node
        self._members = {bound: part for part in node.body for bound in _bound(part)}

    @property
    def docstring(self) -> str:
        text = ast.get_docstring(self._node)
        if text is None:  # that of a base would count
            raise UnclearError(self._node.name)
        return text

    def member(self, name: str) -> tuple[Source, ast.stmt]:
        """The statement that binds a name, in the class or its bases, and where it stands."""
        if name in self._members:
            return self.source, self._members[name]
        for base in self._node.bases:
            found = self.source.value(base.id) if isinstance(base, ast.Name) else None
            if isinstance(found, Class):
                try:
                    return found.member(name)
                except UnclearError:
                    continue
        raise UnclearError(f"{self._node.name}.{name}")

    def assigned(self, name: str) -> tuple[Source, ast.expr]:
        """What `__post_init__` assigns to `self.NAME`, and where it stands."""
        where, made = self.member("__post_init__")
        for node in made.body if isinstance(made, ast.FunctionDef) else ():
            match node:
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)], value=value):
                    if attribute == name:
                        return where, value
        raise UnclearError(f"{self._node.name}.{name}")

    def __call__(self, **options: Any) -> "Instance":
        return Instance(self, options)


class Instance:
    """An instance of which nothing is computed before it is asked for."""

    def __init__(self, cls: Class, options: Mapping[str, Any]):
        self._cls, self._options = cls, options

    def __getattr__(self, name: str) -> Any:
        if name in self._options:
            return self._options[name]
        try:
            where, node = self._cls.member(name)
        except UnclearError:
            where, value = self._cls.assigned(name)
            return where.expression(value, self)
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return where.expression(value)
            case ast.FunctionDef(decorator_list=[]):
                return partial(where.function(node), self)
            case ast.FunctionDef(decorator_list=[ast.Name(id="property")]):
                return where.function(node)(self)
        raise UnclearError(name)


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, and those for type checkers: a package that loads its classes late names them there."""
    for node in body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=within):
                yield from within
            case _:
                yield node


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement binds, if it is of a kind that is understood here."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=[ast.Name(id=name)]):
            yield name
        case ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name for alias in names)
