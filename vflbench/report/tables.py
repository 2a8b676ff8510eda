"""The tables of a section: data frames, which pandas prints, writes as CSV, Markdown and LaTeX, and puts on the page."""

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from vflbench.errors import UserError
from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import Interval, interval_text, over_runs
from vflbench.report import words
from vflbench.report.group import (
    LEAKS,
    TITLES,
    Section,
    beside_honest,
    data_parts,
    flat,
    over_seeds,
    paired,
)
from vflbench.report.words import short
from vflbench.report.words import shown as in_short
from vflbench.results.folder import shown
from vflbench.results.provenance import apart, essential, rounding
from vflbench.results.runs import Run
from vflbench.results.schema import LEVELS, OWN_COLUMNS, PROBE, Promise, Reading

BETA, COIN, TOLERABLE = 0.5, 0.5, 0.55
"""The weight of the utility in DCS; the leak AUC of an attack that guesses; the leak that headline numbers allow."""
_MOST_TEXT, _ON_PAGE, _WIDTH = 2_000, 400, 80  # letters of a cell; lines on the page; columns of a terminal
_CHOSEN, _MOST_NAMED = ("dataset", "defense", "attack", "adversary"), 12
_KNOWS = dict(zip(LEVELS, ("without labels", "with known labels", "active"), strict=True))
_REFERENCES = {PROBE: "probe, reference", "own columns": "own columns, reference"}
_FORMULA = re.compile(r"(?:^|(?<=[;\t]))(\s*)(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet takes what follows for a formula; after a semicolon too, which separates cells in many countries."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "|`*[]"} | {"\\": "&#92;", "<": "&lt;", "&": "&amp;"})
_MEANS = "Means over seeds (95 % t-interval; fewer than three runs have none)."


@dataclass(frozen=True)
class Table:
    """slug: the name of its files. frame: cells are texts, numbers, intervals or None. note: sentences below it.

    is_open: whether the page shows it unfolded.
    """

    slug: str
    title: str
    frame: pd.DataFrame
    note: str = ""
    is_open: bool = False

    @property
    def texts(self) -> pd.DataFrame:
        """As a person reads it."""
        return self.frame.map(text_of).rename(columns=lambda name: shown(name, 500))

    def csv(self) -> str:
        """Numbers in full precision. An interval has three columns, the last two empty for fewer than three runs."""
        wide = {}
        for place, name in enumerate(self.frame):
            cells = self.frame.iloc[:, place]
            ends = ("mean", "low", "high") if any(isinstance(cell, Interval) for cell in cells) else ("mean",)
            for end in ends:
                wide[csv_text(name if end == "mean" else f"{name} {end}")] = [_exact(cell, end) for cell in cells]
        return pd.DataFrame(wide).to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        lines = self.texts.map(_markdown).rename(columns=_markdown).to_markdown(index=False, disable_numparse=True)
        return "\n\n".join(filter(None, [f"**{_markdown(self.title)}**", lines, _markdown(self.note)])) + "\n"

    def latex(self) -> str:
        """With caption and label; it needs the package booktabs."""
        note = f" {re.split(r'(?<=[.?!]) (?=[A-Z])', self.note, maxsplit=1)[0]}" if self.note else ""
        columns = "".join("r" if self.frame.iloc[:, i].map(_is_number).any() else "l" for i in range(self.frame.shape[1]))
        escaped = pd.DataFrame({"text": [f"{self.title}.{note}"]}).to_latex(index=False, header=False, escape=True)
        caption = escaped.split("\\midrule\n")[1].split(" \\\\\n")[0]
        made = self.texts.to_latex(
            index=False, escape=True, caption=caption, label=f"tab:{self.slug}", column_format=columns, position="tbp"
        )
        lines = [re.sub(r"^(?=[\[*])", "{}", line) for line in made.splitlines()]  # or it is an option of the line before
        return "\n".join(["% needs \\usepackage{booktabs}", *lines, ""]).replace("±", r"$\pm$")

    def on_page(self) -> dict[str, Any]:
        """What the template needs. copies: format -> its lines before, of and after the lines of the table."""
        kept = self.frame.loc[:, [self.frame.iloc[:, i].map(text_of).ne("-").any() for i in range(self.frame.shape[1])]]
        part = Table(self.slug, self.title, kept.head(_ON_PAGE), self.note)
        texts, left = part.texts, len(self.frame) - len(part.frame)
        copies = {
            "LaTeX": _lines(part.latex(), len(texts), r"\bottomrule"),
            "CSV": _lines(part.csv(), len(texts)),
            "Markdown": _lines(part.markdown().split("\n\n")[1] + "\n", len(texts)),
        }
        return {
            "slug": self.slug,
            "title": shown(self.title),
            "note": self.note,
            "html": texts.to_html(index=False, border=0, table_id=self.slug, justify="unset", max_rows=None),
            "copies": json.dumps(copies).replace("<", "\\u003c"),
            "count": len(self.frame),
            "left": f"{left:,} more lines are in tables/{self.slug}.csv." * (left > 0),
            "is_open": self.is_open,
        }


def _lines(text: str, rows: int, end: str = "") -> list[list[str]]:
    """[head, rows, tail]."""
    lines = text.rstrip("\n").split("\n")
    last = lines.index(end) if end else len(lines)
    return [lines[: last - rows], lines[last - rows : last], lines[last:]]


def text_of(cell: Any) -> str:
    """As a person reads it: `0.760 (0.751 to 0.769)`, or `0.760 (2 runs: no interval)`; of what is missing `-`."""
    if isinstance(cell, Interval):
        return interval_text(cell, _digits(cell.mean)).replace(" - ", " to ")
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if cell is None or cell is pd.NA or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    if isinstance(cell, float):
        return f"{cell:{_digits(cell)}}"
    return f"{cell:,}" if isinstance(cell, int) else shown(cell, _MOST_TEXT) or "-"


def slugged(text: str) -> str:
    """The text as part of a file name: lower case letters, digits and _."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:80] or "x"


def csv_text(value: Any) -> str:
    """With an apostrophe before what a spreadsheet would compute; numbers stay numbers."""
    text = shown(value, 20_000)
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub(r"'\1", text)


def _digits(value: float) -> str:
    return ".3f" if abs(value) < 10 else ".1f" if abs(value) < 1000 else ",.0f"


def _exact(cell: Any, end: str) -> Any:
    if isinstance(cell, Interval):
        cell = getattr(cell, end)
    elif end != "mean":
        return None
    if isinstance(cell, float):
        return None if math.isnan(cell) else cell
    return (
        cell if isinstance(cell, int) and not isinstance(cell, bool) else None if cell is None else csv_text(text_of(cell))
    )


def _is_number(cell: Any) -> bool:
    return isinstance(cell, Interval | int | float) and not isinstance(cell, bool)


def _markdown(text: Any) -> str:
    """No tag, link or code begins in it."""
    return shown(text, 20_000).translate(_MARKDOWN)


def tables(section: Section) -> list[Table]:
    """Those that have lines, the open ones first."""
    compare: list[Callable[[Section], Table | None]] = [verdicts]
    if not section.settings["is_audit"].all():  # audits have no utility to weigh a leak against
        compare += [headlines, settings, honest]
    compare += [differences, by_table, rebuilt_by_table, strongest, known_labels]
    details = (attacks, layers, reconstructions, guarantees, ledgers, figures, cost, links, without_result)
    made = [make(section) for make in (*compare, *details)]
    return [table for table in made if table is not None and len(table.frame)]


def table(section: Section, name: str, title: str, frame: Any, note: str = "", *, is_open: bool = False) -> Table:
    """frame: what pandas makes a data frame of. Its index isn't shown."""
    return Table(f"{section.slug}_{name}", title, pd.DataFrame(frame).reset_index(drop=True).astype(object), note, is_open)


# What compares settings


def verdicts(section: Section) -> Table | None:
    """A line a setting: utility, the worst attack at each level of knowledge, and references."""
    groups = section.runs.groupby("setting", sort=False)["run"]
    frame = _facts(section, section.utility)
    frame["falls to"] = groups.apply(_falls)
    for level in LEVELS:
        read = {name: [run.summary.verdict.levels.get(level) for run in runs] for name, runs in groups}
        changed = {name: [_of_changed(run, level) for run in runs] for name, runs in groups}
        there = [("", read)] if any(map(any, read.values())) else []
        if any(run.summary.verdict.on_changed.get(level) for run in section.runs["run"]):
            there.append((" on changed messages", changed))
        for which, readings in there:
            frame[f"worst attack{which}, {_KNOWS[level]}"] = [_named(readings[name]) for name in frame["setting"]]
            over = [words.over_seeds(readings[name]) for name in frame["setting"]]
            frame[f"its leak AUC{which}, {_KNOWS[level]}"] = over
    if len(frame.columns) == 4:
        return None
    for name, title in _REFERENCES.items():
        references = {key: [run.summary.verdict.references.get(name) for run in runs] for key, runs in groups}
        frame[title] = [words.over_seeds(references[key]) for key in frame["setting"]]
    note = (
        "The worst attack of a run is the one that reads most at any layer that an attacker sees; of several seeds the mean "
        "of each seed's worst. Leak AUC: max(a, 1 - a) of the mean over batches or, if larger, what an attack reaches if it "
        "knows in each batch which end is positive, less what a coin reaches. Changed messages: those that the defense "
        "changes, where a run's worst attack reads others. The interval is that of the worst of all attacks, layers and "
        "directions, whichever it is (95 %, Bonferroni): from the highest low end to the highest high end of all of them; "
        "over several seeds from the lowest low end to the highest high end. References are no attacks: the "
        "probe is trained on the labels of half of the rows, own columns are read without any message. A "
        "defense falls where a leak is surely above the ceiling that it promises or, without a ceiling, where "
        "an attack on messages that it changes is surely as good as the model: within 0.05 of its test AUC, and above 0.55."
    )
    return table(section, "verdicts", "Verdict: the worst attack at each level of knowledge", frame, note, is_open=True)


def headlines(section: Section) -> Table | None:
    """A line a defense, of the settings that may be compared."""
    if section.leak != "leak_auc" or len(section.settings) < 2:
        return None
    frame = section.settings.loc[section.front.settings].assign(
        utility=section.over_seeds(section.utility), leak=section.over_seeds("leak_auc"), dcs=dcs(section)
    )
    lines = []
    for (defense, adversary), of in frame.groupby(["defense", "adversary"], sort=False):
        tolerable = of[of["leak"].map(_mean) <= TOLERABLE]
        best = tolerable["utility"].map(_mean).idxmax() if len(tolerable) else None
        worst, top = of["leak"].map(_mean).idxmax(), of["dcs"].map(_mean)
        lines.append(
            {
                "defense": defense if adversary == "none" else f"{defense}, adversary {adversary}",
                "settings": len(of),
                "runs": int(of["seeds"].sum()),
                f"{TITLES.get(section.utility, section.utility)} at leak <= {TOLERABLE}": best and of.at[best, "utility"],
                f"setting with leak <= {TOLERABLE}": best or "no setting",
                "leak surely below": best and bool(of.at[best, "leak"].high <= TOLERABLE),
                "worst attack": ", ".join(section.worst[section.runs["setting"] == worst].dropna().unique()),
                f"its {section.titled('leak_auc')}": of.at[worst, "leak"],
                f"best DCS (beta {BETA})": of.at[top.idxmax(), "dcs"] if top.notna().any() else None,
                "setting with best DCS": top.idxmax() if top.notna().any() else "no undefended run to compare",
            }
        )
    note = (
        f"The largest mean utility among the settings whose mean leak to the worst attack, {section.where}, is at most "
        f"{TOLERABLE}. Surely: the upper end of the leak's interval is at most {TOLERABLE} as well. Only of "
        "settings that the same attacks read on the same rows, and whose models learned something. References do not count."
    )
    return table(section, "headlines", "Headline numbers", lines, note, is_open=True)


def settings(section: Section) -> Table:
    """A line a setting."""
    frame = _facts(section, section.x)
    frame[section.titled(section.y)] = section.over_seeds(section.y)
    frame["worst attack"] = _worst_attacks(section)
    frame["|leak AUC - 0.5|"] = section.over_seeds("leak_distance")
    for messages in ("one_message", "all_messages"):
        heights = section.runs["run"].map(lambda run, name=messages: ceiling(run, name))
        frame[f"ceiling, {messages.replace('_', ' ')}"] = heights.groupby(section.runs["setting"], sort=False).max()
    frame[f"DCS (beta {BETA})"] = dcs(section)
    left_out = section.front.left_out
    if left_out:
        frame["on the front"] = ["yes" if name in section.front.settings else left_out.get(name) for name in frame.index]
    note = (
        f"Leaks {section.where}, of each run's worst attack. {_MEANS} A ceiling is what a defense promises for one run."
        f"{assumptions(section.runs['run'])}"
    )
    is_open = len(section.settings) > 1 or verdicts(section) is None  # of a single setting the verdict says it
    return table(section, "settings", "Settings", frame, note, is_open=is_open)


def honest(section: Section) -> Table | None:
    """Settings with an adversary beside the honest runs that they keep."""
    deviate = section.settings.index[section.settings["adversary"] != "none"]
    if not len(deviate):
        return None
    beside = beside_honest(section)
    x, y = section.titled(section.x), section.titled(section.y)
    frame = pd.DataFrame({"setting": deviate, "adversary": section.settings.loc[deviate, "adversary"]}, index=deviate)
    for name, title in ((section.x, x), (section.y, y)):
        both = pd.DataFrame({"mine": section.values(name), "theirs": beside.values(name)})
        change = (both["mine"] - both["theirs"]).groupby(section.runs["setting"], sort=False)
        low, high = range_of(name)
        frame[title] = section.over_seeds(name)
        if name == section.y:
            frame["worst attack"] = _worst_attacks(section)
        frame[f"{title}, honest"] = beside.over_seeds(name)
        frame[f"change of {title}"] = change.apply(lambda values, ends=(low - high, high - low): over_runs(values, ends))
    frame["worst attack, honest"] = _worst_attacks(beside)
    note = (
        f"Leaks {section.where}. An adversary deviates from the protocol; the honest run has the same options and seed "
        "without it. Change: run with the adversary minus honest run, mean (95 % t-interval over pairs)."
    )
    return table(section, "honest", "Adversaries beside honest runs", frame, note, is_open=True)


def differences(section: Section) -> Table | None:
    """Paired with the undefended run of the same seed; of audits with the recording that leaks most."""
    audits = section.settings["is_audit"].all()
    leaks = section.over_seeds(section.y)
    most = leaks.map(_mean).idxmax() if audits and leaks.map(_mean).notna().any() else None
    lines = []
    for setting, baseline in section.settings["baseline"].items():
        beside = most if audits else baseline
        if pd.isna(beside) or beside == setting:
            continue
        line: dict[str, Any] = {"setting": setting, "beside": beside}
        if audits:
            line |= {section.titled(section.y): leaks[setting], f"{section.titled(section.y)}, beside": leaks[beside]}
        for name in [section.y] if audits else [section.x, section.y]:
            change = paired(section, str(setting), str(beside), name)
            line |= {f"change of {section.titled(name)}": change, "pairs": change.runs}
        lines += [line] if line["pairs"] else []
    note = (
        "Each recording minus the one that leaks most, of the same rows."
        if audits
        else "Setting minus undefended run with the same seed and all other options equal: mean (95 % t-interval over "
        "pairs). Undefended: no defense, or one that changes nothing (alpha_d = 0, sumKL = inf)."
    )
    title = "Recordings of the same rows" if audits else "Beside the undefended run with the same seed"
    return table(section, "differences", title, lines, note, is_open=True)


def strongest(section: Section) -> Table | None:
    """What the strongest attack of each level reads of each kind of message, where there are both of both."""
    seen = section.leaks[section.leaks["visible"] & section.leaks["leak_auc"].notna()]
    kinds = [(level, message) for level in LEVELS[:2] for message in ("gradient", "embedding")]
    if not all(((seen["level"] == level) & (seen["message"] == message)).any() for level, message in kinds):
        return None
    frame = _facts(section, "test_auc")
    frame["train AUC"] = section.over_seeds("train_auc")
    for level, message in kinds:
        of = seen[(seen["level"] == level) & (seen["message"] == message)]
        means = _largest(of, ["setting", "name"]).map(_mean)
        best = means.dropna().groupby(level=0).idxmax()
        title = f"{message}s, {'no labels' if level == LEVELS[0] else 'known labels'}"
        frame[title] = _largest(of, ["setting", "name"]).reindex(best).droplevel(1)
        frame[f"strongest on {title}"] = best.str[1]
    references = section.leaks[section.leaks["is_reference"]]
    for message in ("gradient", "embedding"):
        of = references[(references["name"] == PROBE) & (references["layer"] == f"{message}s")]
        frame[f"probe on {message}s"] = _largest(of, ["setting"])
    frame["own columns"] = _largest(references[references["name"].str.endswith(OWN_COLUMNS)], ["setting"])
    note = f"At the visible layer where the attack reads most. {_MEANS} Of the attack with the largest mean."
    return table(section, "strongest", "The strongest attack on each kind of message", frame, note, is_open=True)


def known_labels(section: Section) -> Table | None:
    """A line for each setting and message, a column for each number of rows whose labels `completion` knows."""
    nodes = [(name, node or {}) for run in section.runs["run"] for name, node in (run.config.get("attack") or {}).items()]
    found = {name: node for name, node in nodes if str(node.get("_target_")).endswith(".Completion")}
    leaks = section.counted[section.counted["name"].isin(list(found))]
    leaks = leaks.assign(
        message=[found[name].get("message", "embeddings") for name in leaks["name"]],
        known=[found[name].get("known", 100) for name in leaks["name"]],
    )
    if leaks["known"].nunique() < 2:
        return None
    frame = _largest(leaks.sort_values("known"), ["setting", "message", "known"], "leak_two_sided").unstack("known")
    frame = frame.rename(columns=lambda known: f"{known} known").reset_index()
    frame.insert(2, "train AUC", frame["setting"].map(section.over_seeds("train_auc")))
    note = f"Two-sided leak AUC of completion {section.where}. {_MEANS}"
    return table(section, "known_labels", "Leak by the number of known labels", frame, note, is_open=True)


# Along options


def by_table(section: Section) -> Table | None:
    """A line for each value of the chosen options: utility, the worst leak, and each attack's."""
    if not section.by or not any(varies(section.runs["run"], key) for key in section.by):
        return None
    frame = along(section)
    frame[section.titled(section.utility)] = section.over_seeds(section.utility)
    frame[section.titled(section.leak)] = section.over_seeds(section.leak)
    frame["worst attack"] = _worst_attacks(section)
    frame = frame.join(_by_attack(section))
    note = f"A line has the runs that differ in nothing but the seed. {_MEANS} Leaks {section.where}."
    return table(section, "by", f"By {' and '.join(map(short, section.by))}", frame, note, is_open=True)


def rebuilt_by_table(section: Section) -> Table | None:
    """A line for each value and attack that rebuilt data: bits that cross, utility and the figures of what was rebuilt."""
    if not section.by or section.rebuilt.empty or not any(varies(section.runs["run"], key) for key in section.by):
        return None
    from vflbench.report.pictures import bits_per_row, rebuilt_by  # late: only of runs that rebuilt data

    rebuilt = rebuilt_by(section)
    answers = rebuilt[rebuilt["guess"] == ""]
    names = [name for name in answers if f"rebuilt.{name}" in section.rebuilt and answers[name].notna().any()]
    made = {name.replace("_", " "): over_seeds(answers, ["setting", "attack"], name) for name in names}
    wins = section.rebuilt[section.rebuilt["message"] != "none"].dropna(subset="beats_every_guess")
    of_runs = wins.groupby([wins.index, "setting", "attack"])["beats_every_guess"].all()
    won = of_runs.groupby(["setting", "attack"]).agg(lambda wins: f"{int(wins.sum())} of {len(wins)}")
    frame = pd.DataFrame(made | {"beats every guess": won}).reset_index("attack")
    bits = section.runs["run"].map(bits_per_row).groupby(section.runs["setting"], sort=False).mean()
    first = along(section).assign(
        **{"bits a row": bits, section.titled(section.utility): section.over_seeds(section.utility)}
    )
    note = (
        f"Of the last epoch, from messages: whole pictures where there are any, else the mean over the parties. "
        f"{_MEANS} Bits a row: of embeddings, to the label party, per training row and epoch. Beats every guess: the "
        "runs in which the attack does better than each guess without messages; the table of reconstructions has their "
        "figures."
    )
    joined = first.join(frame, how="inner")
    return table(section, "rebuilt_by", f"Rebuilt, by {' and '.join(map(short, section.by))}", joined, note, is_open=True)


def along(section: Section) -> pd.DataFrame:
    """Setting -> the values of the chosen options, its name, and the number of its runs; in the order of the values."""
    firsts = section.runs.groupby("setting", sort=False)["run"].first()
    columns = {key: [option_value(run, key) for run in firsts] for key in section.by}
    values = pd.DataFrame(columns, index=firsts.index, dtype=object)
    frame = values.map(value_text)
    frame["setting"] = firsts.index
    frame["runs"] = section.settings["seeds"]
    order = values.apply(lambda column: pd.to_numeric(column, errors="coerce").fillna(-math.inf))
    ranks = order.assign(first=section.settings["defense"] != "none", then=section.settings["defense"])
    return frame.loc[ranks.sort_values(["first", "then", *section.by], kind="stable").index]


def printed(section: Section) -> list[str]:
    """The tables along options in at most 80 columns: their first columns, means alone."""
    made = [one for one in (by_table(section), rebuilt_by_table(section)) if one is not None]
    lines = [section.title] if made else []
    for one in made:
        short_frame = one.frame.iloc[:40, : len(section.by) + 5].map(lambda cell: text_of(getattr(cell, "mean", cell)))
        frame = short_frame.rename(columns=lambda name: short(shown(name)).removesuffix(f" {section.where}"))
        lines += frame.map(_cut).to_string(index=False, line_width=_WIDTH).splitlines()
        left = len(one.frame) - 40
        lines += [f"and {left} more lines on the page"] if left > 0 else []
    return lines


def _cut(text: str, most: int = 24) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def resolved(runs: Sequence[Run], wanted: Sequence[str]) -> tuple[str, ...]:
    """The dotted keys that a user means, who may give the last parts alone: `sumkl`.

    Raises UserError for a key that no run has, or several, and where no key has two values in any section.
    """
    keys = tuple(dict.fromkeys(_resolved(runs, key) for key in wanted))
    if runs and keys and not any(varies(part, key) for _, _, part in data_parts(runs) for key in keys):
        values = dict.fromkeys(value_text(option_value(run, keys[0])) or "not there" for run in runs)
        where = "all runs" if len(values) == 1 else "all runs of each data set and experiment, which share no table"
        it_is = f"it is {next(iter(values))} in {where}" if len(values) == 1 else f"it has one value in {where}"
        raise UserError(f"{it_is}, so there is nothing to compare{_varying(runs)}", key="--by", value=",".join(keys))
    return keys


def _resolved(runs: Sequence[Run], key: str) -> str:
    if key == "seed":
        problem = f"runs that differ in nothing but the seed are averaged; choose another option{_varying(runs)}"
        raise UserError(problem, key="--by", value=key)
    leaves = dict.fromkeys(name for run in runs for name in flat(run.config) if name != "seed")
    heads = (".".join(name.split(".")[:n]) for name in leaves for n in range(1, name.count(".") + 1))
    there = dict.fromkeys([*leaves, *heads])
    if key in there or key in _CHOSEN:
        return key
    meant = [name for name in there if name.endswith(f".{key}")]
    meant = [name for name in meant if varies(runs, name)] or meant
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UserError(f"it may be {' or '.join(meant[:_MOST_NAMED])}; write the whole key", key="--by", value=key)
    near = difflib.get_close_matches(key, [*there, *map(short, there)], 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"no run has this option{hint}{_varying(runs)}", key="--by", value=key)


def _varying(runs: Sequence[Run]) -> str:
    """The end of an error: the options that vary among the runs of a part; those of a choice, where it was chosen."""
    parts = [part for _, _, part in data_parts(runs)]
    options = [name for run in runs for name in flat(run.config) if name != "seed" and not name.endswith("_target_")]

    def differs(part: Sequence[Run], key: str) -> bool:
        values = [option_value(run, key) for run in part]
        return len({value_text(v) for v in values if v is not None or key.split(".")[0] not in _CHOSEN}) > 1

    vary = [key for key in dict.fromkeys([*_CHOSEN, *options]) if any(differs(part, key) for part in parts)]
    if not vary:
        return "; no option varies between runs of one data set and experiment"
    return f"; these vary: {', '.join(vary[:_MOST_NAMED])}{' and more' if len(vary) > _MOST_NAMED else ''}"


def option_value(run: Run, key: str) -> Any:
    """The value of a dotted key: a number, a text or None; of a group of options the name of what was chosen."""
    named = {"dataset": run.dataset, "defense": run.defense, "adversary": run.adversary}
    if key in named:
        return named[key]
    value = run.option(key)
    if key == "attack":
        return "+".join(value or {}) or "none"
    if isinstance(value, Mapping):
        parts = str(value.get("_target_") or "").split(".")
        return parts[-2] if len(parts) > 1 else json.dumps(value, sort_keys=True, default=str)
    return json.dumps(value, default=str) if isinstance(value, list) else value


def value_text(value: Any) -> str:
    """An option's value in a cell."""
    if value is None or value is True or value is False:
        return "" if value is None else str(value).lower()
    return in_short(value)


def varies(runs: Iterable[Run], key: str) -> bool:
    return len({value_text(option_value(run, key)) for run in runs}) > 1


# Details


def attacks(section: Section) -> Table | None:
    """Every attack's leak in every setting, where leaks are taken."""
    made = _by_attack(section)
    if made.empty:
        return None
    frame = _facts(section, section.utility).join(made)
    figure = _figure(section)
    note = f"{LEAKS[figure]} {section.where}. {_MEANS} Reference: the probe, and attacks on a party's own columns."
    return table(section, "attacks", f"Every attack: {LEAKS[figure]}", frame, note)


def layers(section: Section) -> Table | None:
    """A line for each setting, attack, party and layer."""
    by = ["setting", "attack", "level", "party", "layer", "visible"]
    names = [name for name in LEAKS if name not in ("leak_auc", "leak_distance") and section.leaks[name].notna().any()]
    if section.leaks.empty or not names:
        return None
    frame = pd.DataFrame({LEAKS[name]: over_seeds(section.leaks, by, name) for name in names}).reset_index()
    frame["visible"] = frame["visible"].map(bool)
    note = (
        "Values of the last epoch. Two-sided: max(a, 1 - a) of the mean over batches. Oriented: the mean over batches of "
        "max(a, 1 - a). Beside it are the value that a coin reaches there, and oriented without the part of a coin (net). A "
        "leak counts as the larger of two-sided and net."
    )
    frame = frame.rename(columns={"visible": "seen by an attacker"})
    return table(section, "layers", "Leak at every layer", frame, note)


def reconstructions(section: Section) -> Table | None:
    """What attacks on data, not on labels, rebuilt; a column a figure."""
    rebuilt = section.rebuilt
    if rebuilt.empty:
        return None
    by = ["setting", "attack", "message", "party", "layer"]
    names = [name for name in rebuilt if name.startswith("rebuilt.")]
    made = {name.removeprefix("rebuilt.").replace("_", " "): over_seeds(rebuilt, by, name) for name in names}
    wins = rebuilt.dropna(subset="beats_every_guess").groupby(by, sort=False)["beats_every_guess"]
    made["beats every guess"] = wins.agg(lambda won: f"{int(won.sum())} of {len(won)} runs")
    note = (
        f"{_MEANS} Answers under message none are guesses without messages. A run beats them if its error is smaller by the "
        "interval over rows, for each of them, and more rows than by chance are identified among rows of their class."
    )
    frame = pd.DataFrame(made).reindex(made[next(iter(made))].index).reset_index()
    return table(section, "reconstructions", "Reconstructions", frame, note, is_open=True)


def guarantees(section: Section) -> Table:
    lines = []
    for setting, runs in section.runs.groupby("setting", sort=False)["run"]:
        for defense in dict.fromkeys(name for run in runs for name in run.summary.guarantees):
            given = [p for run in runs if (p := run.summary.guarantees.get(defense)) is not None]
            line: dict[str, Any] = {"setting": setting, "defense": defense, "promises": "nothing"}
            if given:
                line |= {
                    "promises": given[0].claim,
                    "bounds": given[0].bounds or "the leak",
                    "assumes": "; ".join(dict.fromkeys(map(_assumption, given))),
                    "messages a run": given[0].messages,
                }
                for key, pick in (("leak_auc", max), ("error", min)):
                    for messages in ("one_message", "all_messages"):
                        values = [v for p in given if (v := getattr(p, f"{key}_{messages}")) is not None]
                        most = "leak AUC at most" if key == "leak_auc" else "error at least"
                        line[f"{most}, {messages.replace('_', ' ')}"] = pick(values, default=None)
            lines.append(line)
    note = (
        "A guarantee holds for one run. Somebody who sees several runs on the same rows, such as the seeds of a sweep, sees "
        "their releases together, for which no single guarantee holds."
    )
    return table(section, "guarantees", "Guarantees", lines, note)


def _assumption(promise: Promise) -> str:
    answers = {True: "tested: not refused", False: "tested: does not hold", None: "not tested"}
    return f"{promise.assumption} ({answers[promise.assumption_holds]})" if promise.assumption else "nothing"


def ledgers(section: Section) -> Table:
    """Label differential privacy: what the runs of each setting spent, and the lower bound that canaries prove."""
    lines = []
    for setting, runs in section.runs.groupby("setting", sort=False)["run"]:
        privacy = [run.summary.privacy for run in runs if run.summary.privacy is not None]
        if not privacy:
            continue
        known = pd.DataFrame([one.model_dump() for one in privacy])
        numbers = known[["epsilon", "mu", "epsilon_at_delta", "epsilon_low", "mu_low"]].astype(float).max()
        spent = [
            f"{r.times} x {r.epsilon} ({r.defense}, {r.mechanism})"
            if r.mu is None
            else f"mu {r.mu} ({r.defense}, {r.mechanism})"
            for r in privacy[0].releases
        ]
        lines.append(
            {
                "setting": setting,
                "runs": len(privacy),
                "releases of a run": " + ".join(spent) or None,
                "eps of a run": numbers["epsilon"],
                "mu of a run": numbers["mu"],
                "eps at delta": numbers["epsilon_at_delta"],
                "delta": None if privacy[0].delta is None else f"{privacy[0].delta:g}",
                "eps proven by canaries": numbers["epsilon_low"],
                "mu proven by canaries": numbers["mu_low"],
                "eps of all seeds together": known["epsilon"].astype(float).sum() or None,
                "violated, and what is caught": words.checked(privacy),
            }
        )
    note = (
        "Pure eps of releases about the same label adds up: over the epochs in which the label is randomized anew, over "
        "defenses, and over runs that are seen together. A promise that is not violated is not verified: the last column "
        "says how probably the canaries of a run would catch one that is 1.5 or 2 times too weak, at best."
    )
    return table(section, "ledger", "Label differential privacy", lines, note)


def figures(section: Section) -> Table | None:
    """What the defenses counted and measured."""
    lines = _lines_of(section, lambda run: [one.model_dump() for one in run.summary.figures])
    if lines.empty:
        return None
    by = ["setting", "figure", "party", "layer", "message"]
    lines["value"] = lines["value"].astype(float)
    parts = [over_seeds(of, by, "value", str(figure)) for figure, of in lines.groupby("figure", sort=False)]
    frame = pd.concat(parts).rename("value").reset_index()
    frame["figure"] = frame["figure"].str.replace("_", " ")
    return table(section, "figures", "What the defenses counted and measured", frame)


def cost(section: Section) -> Table:
    frame = _facts(section, "seconds").rename(columns={"seconds": "seconds a run"})
    frame.insert(2, "epochs", section.runs.groupby("setting", sort=False)["run"].first().map(lambda run: run.summary.epochs))
    kinds = [name for name in section.runs if str(name).startswith("bytes_sent")]
    sent = section.runs.groupby("setting", sort=False)[kinds].mean().astype(float) / 1e6
    frame["MB sent in training"] = sent["bytes_sent"]
    parts = sent.drop(columns="bytes_sent").rename(columns=lambda name: name.removeprefix("bytes_sent."))
    frame["of which"] = [
        ", ".join(f"{kind} {size:.3g}" for kind, size in line.dropna().items()) for _, line in parts.iterrows()
    ]
    note = "Seconds of one run with evaluation and attacks, on the machines named below; megabytes between the parties."
    return table(section, "cost", "Cost", frame, note)


def links(section: Section) -> Table | None:
    """What crossed each link, where embeddings go to more than one party."""

    def of(run: Run) -> list[dict[str, Any]]:
        several = len({one.receiver for one in run.summary.links if one.message == "embedding"}) > 1
        return [one.model_dump() for one in run.summary.links] if several else []

    lines = _lines_of(section, of)
    if lines.empty:
        return None
    sent = lines.groupby(["setting", "sender", "receiver", "message"], sort=False)["bytes"]
    frame = pd.DataFrame({"runs": sent.size(), "MB sent in training": sent.mean() / 1e6}).reset_index()
    frame["runs"] = frame["runs"].map(int)
    return table(section, "links", "Traffic by link", frame.rename(columns={"sender": "from", "receiver": "to"}))


def without_result(section: Section) -> Table | None:
    """Attacks that did not run (skipped), and attacks none of whose answers could be scored."""

    def of(run: Run) -> list[dict[str, str]]:
        outcomes = {"skipped": run.skipped, "not scored": run.unscored}
        return [{"attack": a, "outcome": o, "why": why} for o, reasons in outcomes.items() for a, why in reasons.items()]

    lines = _lines_of(section, of)
    if lines.empty:
        return None
    names = lines.groupby(["attack", "outcome", "why"], sort=False)["setting"].agg(lambda names: list(dict.fromkeys(names)))
    frame = names.reset_index()
    frame.insert(3, "settings", frame["setting"].map(len))
    frame["such as"] = frame.pop("setting").map(lambda names: "; ".join(names[:3]) + " ..." * (len(names) > 3))
    note = "Skipped: the attack did not run. Not scored: it ran, but none of its answers could be scored."
    return table(section, "skipped", "Attacks without a result", frame, note)


# Figures of settings


def dcs(section: Section) -> pd.Series:
    """Setting -> defense capability score over seeds; 1 for a defense that stops the attack and costs nothing.

        DCS = 1 / (1 + sqrt((1 - beta) (AP - AP*)^2 + beta (MP - MP*)^2))

    AP: the leak AUC of the worst attack. AP* = 0.5: an attack that learns nothing. MP: the utility; MP*: that of the
    undefended run with the same seed. beta: the weight of the utility. Of leak AUC alone: for other leaks it is not defined
    what an attack that guesses reaches.

    Source: Zou et al., "VFLAIR: A Research Library and Benchmark for Vertical Federated Learning", ICLR 2024, section on
    metrics.
    """
    utility, runs = section.values(section.utility), section.runs[["setting", "seed"]]
    known = dict(zip(runs.itertuples(index=False, name=None), utility, strict=True))
    baselines = runs["setting"].map(section.settings["baseline"])
    ideal = pd.Series(
        [known.get(key, math.nan) for key in zip(baselines, runs["seed"], strict=True)], runs.index, dtype=float
    )
    leak = section.values("leak_auc") if section.leak == "leak_auc" else pd.Series(math.nan, runs.index)
    distance = ((1 - BETA) * (leak - COIN) ** 2 + BETA * (utility - ideal) ** 2) ** 0.5
    return over_seeds(runs.assign(dcs=1 / (1 + distance)), ["setting"], "dcs").reindex(section.settings.index)


DCS = (
    f"DCS = 1 / (1 + sqrt((1 - beta) (AP - AP*)² + beta (MP - MP*)²)) with beta = {BETA}, after VFLAIR (Zou et al., "
    f"ICLR 2024). Here AP is the leak AUC that the worst attack reads, AP* = {COIN} that of a coin, MP the test AUC, "
    "and MP* the test AUC of the undefended run with the same seed. A defense that stops the attack and costs nothing "
    "has DCS = 1. As in the paper, the distance has no sign: a model better than the undefended one has DCS < 1 too."
)


def ceiling(run: Run, messages: str) -> float:
    """The lowest leak AUC that any of its defenses promises for `one_message` or `all_messages`; nan without a promise."""
    heights = [getattr(p, f"leak_auc_{messages}") for p in run.summary.guarantees.values() if p is not None]
    return min((height for height in heights if height is not None), default=math.nan)


def assumptions(runs: Iterable[Run]) -> str:
    """Sentences on what the ceilings of these runs assume, and what was found where it was tested; empty if nothing."""
    promises = [(name, p) for run in runs for name, p in run.summary.guarantees.items() if p is not None and p.assumption]
    tested = pd.DataFrame([(name, p.assumption, p.assumption_holds is False) for name, p in promises], columns=list("nah"))
    return "".join(
        f" The ceiling of {name} assumes that {what}, which does not hold in {fails.sum()} of {len(fails)} runs."
        for (name, what), fails in tested.groupby(["n", "a"], sort=False)["h"]
    )


def not_averaged(section: Section) -> list[str]:
    """A sentence on rows that have the same options and yet are several, and one on rows that average over versions."""
    runs = section.runs.groupby("setting", sort=False)["run"].apply(list)
    keys = runs.map(lambda of: json.dumps({**essential(of[0].config), "seed": None}, sort_keys=True, default=str))
    alike = [list(of) for _, of in runs.groupby(keys, sort=False) if len(of) > 1]
    lines = [
        f"{of[0][0].defense}: its runs are in {len(of)} rows, not averaged, as they differ in "
        f"{apart([one[0] for one in of])}."
        for of in alike
    ]
    versions = {name: rounding(of) for name, of in runs.items()}
    return lines + [f"{name}: averaged over {text}, which may round differently." for name, text in versions.items() if text]


def _facts(section: Section, name: str) -> pd.DataFrame:
    """setting, runs, and a quantity where it is known."""
    frame = pd.DataFrame({"setting": section.settings.index, "runs": section.settings["seeds"].map(int)})
    return frame.assign(**{section.titled(name): section.over_seeds(name)})


def _by_attack(section: Section) -> pd.DataFrame:
    """Setting -> a column for each attack, references last."""
    leaks = section.leaks[section.leaks["counts"] | section.leaks["is_reference"]]
    figure = _figure(section)
    leaks = leaks[leaks[figure].notna()]
    kind = leaks["level"].where(~leaks["is_reference"], "reference")
    leaks = leaks.assign(column=leaks["attack"] + ", " + kind).sort_values("is_reference", kind="stable")
    return _largest(leaks, ["setting", "column"], figure).unstack()[list(dict.fromkeys(leaks["column"]))]


def _largest(leaks: pd.DataFrame, by: Sequence[str], figure: str = "leak_auc") -> pd.Series:
    """Mean and interval over runs of the largest value that each has in a group."""
    largest = leaks.groupby([leaks.index, *by], sort=False)[figure].max().rename("value").reset_index()
    return over_seeds(largest, by, "value", figure)


def _figure(section: Section) -> str:
    head = section.y.partition(":")[0]
    return head if head in LEAKS else "leak_auc"


def _worst_attacks(section: Section) -> pd.Series:
    """Setting -> the attack that reads most in each of its runs, the most frequent first."""
    return section.worst.groupby(section.runs["setting"]).agg(lambda names: ", ".join(names.value_counts().index) or None)


def _lines_of(section: Section, of: Callable[[Run], list[dict[str, Any]]]) -> pd.DataFrame:
    """What each run has a list of, with its setting."""
    pairs = section.runs[["setting", "run"]].itertuples(index=False)
    return pd.DataFrame([{"setting": setting, **line} for setting, run in pairs for line in of(run)])


def _of_changed(run: Run, level: str) -> Reading | None:
    """The worst attack of a level on messages that the defense changes: the worst of all where that reads such messages."""
    verdict = run.summary.verdict
    worst = verdict.levels.get(level)
    return verdict.on_changed.get(level) or (worst if worst and worst.message in verdict.changed else None)


def _named(readings: Sequence[Reading | None]) -> str | None:
    """The attacks by their names, the most frequent first."""
    given = [one for one in readings if one is not None]
    names = [f"{one.attack} on {one.message}s" + (f" ({one.figure})" if one.figure != "AUC" else "") for one in given]
    return ", ".join(pd.Series(names, dtype=object).value_counts().index) or None


def _falls(runs: Sequence[Run]) -> str | None:
    falls = [run.summary.verdict.falls for run in runs if run.summary.verdict.falls]
    often = f" ({len(falls)} of {len(runs)} runs)" if len(falls) < len(runs) else ""
    return f"{_named(falls)}{often}" if falls else None


def _mean(value: Any) -> float:
    return value.mean if isinstance(value, Interval) else math.nan
