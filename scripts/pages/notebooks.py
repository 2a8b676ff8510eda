"""Notebooks as pages: their text, their code, and the output that they were saved with."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def pages(folder: Path) -> dict[str, str]:
    return {f"notebooks/{file.stem}.md": page(file) for file in sorted(folder.glob("*.ipynb"))}


def page(file: Path) -> str:
    cells = json.loads(file.read_text("utf-8"))["cells"]
    note = f"This page is a notebook: {{download}}`{file.name}`."
    parts = [part for cell in cells for part in _cell(cell)]
    return "\n\n".join([parts[0], note, *parts[1:]]) + "\n"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        title, _, rest = source.partition("\n\n")
        yield from filter(None, (title, rest) if title.startswith("# ") else (source,))
    elif source:
        yield f"```python\n{source}\n```"
        for output in cell["outputs"]:
            yield from _output(output)


def _output(output: dict[str, Any]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        yield f'<img alt="{_plain(data)}" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    elif "image/svg+xml" in data:
        yield "".join(data["image/svg+xml"])
    else:
        text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
        if text:
            yield f"```text\n{text}\n```"


def _plain(data: dict[str, Any]) -> str:
    return "".join(data.get("text/plain", "a figure")).replace('"', "'")
