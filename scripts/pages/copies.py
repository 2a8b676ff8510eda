"""Files of the repository that are pages of the site too: the change log, how to contribute, security, and the examples."""

import os
import re
from pathlib import Path

PROJECT = {
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "SECURITY.md": "security",
    "CODE_OF_CONDUCT.md": "conduct",
}
_LANGUAGES = {".py": "python", ".yaml": "yaml"}


def pages(root: Path) -> dict[str, str]:
    texts = {
        f"added/{name}.md": moved((root / file).read_text("utf-8"), root, "docs/added")
        for file, name in PROJECT.items()
        if (root / file).is_file()
    }
    examples = sorted(folder for folder in (root / "docs" / "examples").iterdir() if folder.is_dir())
    return texts | {f"added/example_{folder.name}.md": example(folder) for folder in examples}


def moved(text: str, root: Path, folder: str) -> str:
    """The text with its relative links as a page in this folder needs them."""

    def link(match: re.Match[str]) -> str:
        target = match[2]
        if ":" in target or not (root / target).exists():
            return match[0]
        return f"{match[1]}{os.path.relpath(root / target, root / folder)}{match[3]}"

    return re.sub(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))", link, text)


def example(folder: Path) -> str:
    """The files of an example, one after the other."""
    parts = [
        f"# Example: {folder.name}",
        "The whole of `docs/examples/" + folder.name + "`. [What it does](../howto/extend.md).",
    ]
    for file in sorted(folder.rglob("*")):
        if file.suffix in _LANGUAGES:
            parts.append(f"## {file.relative_to(folder).as_posix()}")
            parts.append(f"```{_LANGUAGES[file.suffix]}\n{file.read_text('utf-8').rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
