"""docs/experiments/published.md: every published value beside ours, as Markdown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vflbench.report.documents import Document, Part, leaves
from vflbench.report.published import NOT_MEASURED, Compared, over_sections, scale_of
from vflbench.report.published_tables import (
    plain,
    published_text,
    settings_table,
    spectral_at,
    summary_sentence,
    table,
    values_table,
)
from vflbench.report.reproductions import PublishedExperiment
from vflbench.report.sections import Section, Wishes, sections
from vflbench.results.layers import marked
from vflbench.results.runs import Run
from vflbench.results.table_formats import markdown_text, text_of

View = Callable[[Part, "Results"], str]
_FEW = 5  # values that a claim repeats
Answer = Callable[["Results"], str]


@dataclass(frozen=True)
class Results:
    """The runs, and what the experiments publish. parts: experiment -> a section for each data set."""

    runs: Sequence[Run]
    experiments: Mapping[str, PublishedExperiment]
    parts: Mapping[str, Sequence[Section]] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Sequence[Run], experiments: Mapping[str, PublishedExperiment]) -> "Results":
        by_name: dict[str, list[Section]] = {}
        for section in sections([run for run in runs if run.experiment], Wishes()):
            by_name.setdefault(section.experiment, []).append(section)
        return cls(runs, experiments, by_name)

    def sections(self, names: Iterable[str]) -> list[Section]:
        return [section for name in names for section in self.parts.get(name, ())]


@dataclass(frozen=True)
class Ours:
    """What is computed or measured here. answers: to claims. facts: of settings. views: of parts. All by their names in
    docs/experiments/published/*.json.
    """

    answers: Mapping[str, Answer]
    facts: Mapping[str, Answer]
    views: Mapping[str, View]


def page(documents: Sequence[Document], results: Results, ours: Ours, head: str) -> str:
    return "\n\n".join([head, *(document_text(document, results, ours) for document in documents)]) + "\n"


def document_text(document: Document, results: Results, ours: Ours) -> str:
    source = document.source
    authors = ", ".join(source.get("authors") or ())
    where = ", ".join(str(source[key]) for key in ("venue", "year") if source.get(key))
    title = f"## {document.name}: {source['title']}"
    blocks = [title, f"{authors}{f'; {where}' if where else ''}.", _setting(document, results, ours)]
    named = [part for part in document.parts if part.kind != "claim"]
    drawings = [part for part in named if part.reason and not (part.more or part.see or part.view)]
    for part in named:
        if part not in drawings:
            blocks += _part_blocks(document, part, results, ours)
    if drawings:
        lines = [f"- {heading(part)}: {part.reason}" for part in drawings]
        blocks += ["### Without anything to compare", "\n".join(lines)]
    blocks += ["### Claims of the text", _claims(document, results, ours)]
    if "claims" in document.sentences:
        blocks.append(document.sentences["claims"])
    notes = "\n".join(f"- {text}" for text in document.ambiguous)
    blocks += ["<details><summary>Where the text is damaged or contradicts itself</summary>", notes, "</details>"]
    return "\n\n".join(block for block in blocks if block)


def heading(part: Part) -> str:
    """`Table 1: ...`, `Figure "gradient norms": ...`."""
    name = part.name if part.name[0].isdigit() else f'"{part.name}"'
    return f"{part.kind.capitalize()} {name}: {part.said.get('title', '')}"


def _part_blocks(document: Document, part: Part, results: Results, ours: Ours) -> list[str]:
    blocks = [f"### {heading(part)}"]
    panels = part.said.get("panels")
    said = [f"Panels: {'; '.join(f'{name}: {text}' for name, text in panels.items())}."] if panels else []
    said += [f"The document: {part.said['states']}."] if part.said.get("states") else []
    said += [f"Note: {part.said['note']}"] if part.said.get("note") else []
    said += [f"{sign}: {text}." for sign, text in (part.said.get("marks") or {}).items()]
    said += [f"Settings: {plain(part.said['settings'])}."] if part.said.get("settings") else []
    blocks.append(" ".join(said))
    compared = _compared(part, results)
    if part.view != "cells" and compared:
        blocks += [values_table(compared), summary_sentence(compared)]
    names = (name for name in (*part.experiments, *part.more) if name in results.experiments)
    note = next((text for name in names if (text := results.experiments[name].note)), "")
    if part.view:
        blocks.append(ours.views[part.view](part, results))
    elif part.ours:
        blocks.append(f"Here: {ours.answers[part.ours](results)}.")
    elif part.see and part.reason:
        blocks.append(f"{part.reason[0].upper()}{part.reason[1:]}.")
    if part.reason and part.view:
        blocks.append(f"No published number: {part.reason}.")
    blocks.append(f"Note: {note}" if note else "")
    if part.key in document.sentences:
        blocks.append(document.sentences[part.key])
    return blocks


def _compared(part: Part, results: Results) -> list[Compared]:
    """Its values, without those for which the document says nothing."""
    return [
        one
        for name, value in part.values(results.experiments)
        if value.number is not None or value.mark or value.reason
        for one in over_sections(value, results.experiments[name], results.parts.get(name, ()))
    ]


def settings_view(part: Part, results: Results) -> str:
    return "\n\n".join(settings_table(section) for section in _shown(part, results)) or _no_runs(part)


def layers_view(part: Part, results: Results) -> str:
    """The two-sided leak AUC of the spectral attack at every layer."""
    blocks = []
    for section in _shown(part, results):
        order = section.runs[0].layers.order
        crossing = section.runs[0].layers.crossing
        names = [markdown_text(marked(layer, layer in crossing)) for layer in order]
        rows = [
            [markdown_text(g.name), len(g.runs), g.interval("test_auc"), *(spectral_at(g, layer) for layer in order)]
            for g in section.groups
        ]
        note = f"Two-sided leak AUC of the spectral attack. Here on {markdown_text(scale_of(section))}."
        blocks.append(f"{table(('setting', 'runs', 'test AUC', *names), rows)}\n\n{note}")
    return "\n\n".join(blocks) or _no_runs(part)


def _shown(part: Part, results: Results) -> list[Section]:
    return results.sections((*part.experiments, *part.more))


def _no_runs(part: Part) -> str:
    return f"Not measured here: no runs of {', '.join((*part.experiments, *part.more))} were given."


def _setting(document: Document, results: Results, ours: Ours) -> str:
    rows = []
    for key, said in leaves(document.setting):
        here = document.here.get(key) or document.here.get(key.partition(".")[0], "nothing to compare")
        if here.startswith("@"):
            name, _, argument = here[1:].partition(":")
            here = ours.facts[name](results) if not argument else ours.facts[f"{name}:{argument}"](results)
        rows.append([key.replace("_", " ").replace(".", ": "), plain(said), here])
    return f"### Setting\n\n{table(('setting', 'published', 'here'), rows)}"


def _claims(document: Document, results: Results, ours: Ours) -> str:
    rows = []
    for part in document.parts:
        if part.kind == "claim":
            values = part.said.get("values")
            compared = _compared(part, results)
            published = [plain(values)] if values else [f"{one.value.what}: {published_text(one)}" for one in compared]
            published += [
                _numbers_of(document.part(see), results, part.which) for see in part.see if not values and not compared
            ]
            here = [f"{text_of(one.here)} on {markdown_text(one.where)}" for one in compared if one.here.runs]
            here += [ours.answers[part.ours](results)] if part.ours else []
            here += [part.reason] if part.reason else []
            here += [f"see {see}" for see in part.see if not here]
            rows.append(
                [part.name, "; ".join(published) or "no number", "; ".join(here) or NOT_MEASURED, part.said.get("where")]
            )
    return table(("claim", "published", "here", "where in the text"), rows)


def _numbers_of(part: Part, results: Results, which: str) -> str:
    """The values of another part, or its name if they are many. which: a word of what they are."""
    compared = [one for one in _compared(part, results) if which in one.value.what]
    if 0 < len(compared) <= _FEW:
        return "; ".join(f"{one.value.what}: {published_text(one)}" for one in compared)
    return f"{plain(part.said['settings'])}" if part.said.get("settings") else f"the numbers of {part.key}"
