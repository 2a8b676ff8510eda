"""Code lines, files and importers of the project by room: python scripts/size.py

A code line holds a token that is neither a comment nor of a docstring: formulas, shapes and sources cost nothing.
"""

import ast
import subprocess
import tokenize
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

_FREE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass
class Room:
    """files: path -> code lines. importers: module of the room -> how many files of the package import it."""

    files: dict[str, int] = field(default_factory=dict)
    importers: dict[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        return sum(self.files.values())


def code_lines(path: Path) -> int:
    docstrings = {
        line
        for node in ast.walk(ast.parse(path.read_text("utf8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in _FREE]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docstrings)


def rooms_of(root: Path, folders: tuple[str, ...] = ("vflbench", "scripts", "tests", "docs")) -> dict[str, Room]:
    """Room -> its files: `vflbench/cli`, `vflbench` for modules at its top, and each other folder that has Python files."""
    rooms: dict[str, Room] = defaultdict(Room)
    imported: dict[str, int] = defaultdict(int)
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).parts
            name = "/".join(parts[:2]) if folder == "vflbench" and len(parts) > 2 else folder
            rooms[name].files["/".join(parts)] = code_lines(path)
            nodes = ast.walk(ast.parse(path.read_text("utf8"))) if folder == "vflbench" else ()
            for module in {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}:
                imported[module] += 1
    for room in rooms.values():
        modules = {name.removesuffix(".py").replace("/", ".") for name in room.files}
        room.importers = {module: imported[module] for module in modules if module in imported}
    return dict(rooms)


def main() -> None:
    root = Path(
        subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True).stdout.strip()
    )
    rooms = rooms_of(root)
    package = Room()
    for room in [room for name, room in rooms.items() if name.startswith("vflbench")]:
        package.files |= room.files
        package.importers |= room.importers
    print(f"{'room':22}{'code lines':>12}{'files':>8}{'under 40':>10}{'one importer':>14}")
    largest = sorted(rooms.items(), key=lambda item: -item[1].lines)
    for name, room in [*largest, ("package", package)]:
        small = sum(0 < lines < 40 for lines in room.files.values())
        once = sum(count == 1 for count in room.importers.values())
        print(f"{name:22}{room.lines:12,}{len(room.files):8}{small:10}{once:14}")


if __name__ == "__main__":
    main()
