"""The tables of a section: data frames, which pandas prints, writes as CSV, Markdown and LaTeX, and puts on the page."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pandas as pd

from vflbench.errors import UserError, nearest
from vflbench.numerics.interval import Interval
from vflbench.report import group, words
from vflbench.report.group import LEAKS, Section, Setting, data_parts, flattened, options_key, over_seeds, with_honest_runs
from vflbench.results.folder import cleaned, differing
from vflbench.results.runs import Run, rounding
from vflbench.results.schema import LEVELS, PROBE, REFERENCE, Privacy, Reading, base_name

BETA, COIN = 0.5, 0.5
"""The weight of the utility in DCS; the leak AUC of an attack that guesses."""
_CALIBRATION = ("test_calibration", "test_ece", "test_log_loss")
_ON_PAGE, _WIDTH = 400, 80  # lines on the page; columns of a terminal
_CHOSEN, _MOST_NAMED = ("dataset", "defense", "attack", "adversary"), 12
_ENDS = ("low", "high")
_LEDGER = {"epsilon": "eps of a run", "mu": "mu of a run", "epsilon_at_delta": "eps at delta"}
_LEDGER |= {"epsilon_low": "eps proven by canaries", "mu_low": "mu proven by canaries"}
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
        return self.frame.map(words.text_of).rename(columns=lambda name: cleaned(name, 500))

    def csv(self) -> str:
        """Numbers in full precision. An interval has three columns, the last two empty for fewer than three runs."""
        wide = {}
        for name, cells in self.frame.items():
            wide[csv_text(name)] = cells.map(_exact)
            if cells.map(lambda cell: isinstance(cell, Interval)).any():
                wide |= {csv_text(f"{name} {end}"): cells.map(lambda cell, e=end: getattr(cell, e, None)) for end in _ENDS}
        return pd.DataFrame(wide).to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        lines = self.texts.map(_markdown).rename(columns=_markdown).to_markdown(index=False, disable_numparse=True)
        return "\n\n".join(filter(None, [f"**{_markdown(self.title)}**", lines, _markdown(self.note)])) + "\n"

    def latex(self) -> str:
        """With caption and label; it needs the package booktabs."""
        note = f" {re.split(r'(?<=[.?!]) (?=[A-Z])', self.note, maxsplit=1)[0]}" if self.note else ""
        columns = "".join("r" if cells.map(_is_number).any() else "l" for _, cells in self.frame.items())
        escaped = pd.DataFrame({"text": [f"{self.title}.{note}"]}).to_latex(index=False, header=False, escape=True)
        caption = escaped.split("\\midrule\n")[1].split(" \\\\\n")[0]
        made = self.texts.to_latex(
            index=False, escape=True, caption=caption, label=f"tab:{self.slug}", column_format=columns, position="tbp"
        )
        lines = [re.sub(r"^(?=[\[*])", "{}", line) for line in made.splitlines()]  # or it is an option of the line before
        return "\n".join(["% needs \\usepackage{booktabs}", *lines, ""]).replace("±", r"$\pm$")

    def on_page(self) -> dict[str, Any]:
        """What the template needs. copies: format -> the table as text."""
        kept = self.frame.loc[:, self.texts.ne("-").any().to_numpy()]
        part, left = Table(self.slug, self.title, kept.head(_ON_PAGE), self.note), len(kept) - _ON_PAGE
        copies = {"LaTeX": part.latex(), "CSV": part.csv(), "Markdown": part.markdown()}
        return {
            "slug": self.slug,
            "title": cleaned(self.title),
            "note": self.note,
            "html": part.texts.to_html(index=False, border=0, table_id=self.slug, justify="unset", max_rows=None),
            "copies": json.dumps(copies).replace("<", "\\u003c"),
            "count": len(self.frame),
            "left": f"{left:,} more lines are in tables/{self.slug}.csv." * (left > 0),
        }


def csv_text(value: Any) -> str:
    """With an apostrophe before what a spreadsheet would compute; numbers stay numbers."""
    text = cleaned(value, 20_000)
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub(r"'\1", text)


def _exact(cell: Any) -> Any:
    cell = cell.mean if isinstance(cell, Interval) else cell
    is_empty = cell is None or (isinstance(cell, str) and not cell)
    return cell if is_empty or _is_number(cell) else csv_text(words.text_of(cell))


def _is_number(cell: Any) -> bool:
    return isinstance(cell, Interval | int | float) and not isinstance(cell, bool)


def _markdown(text: Any) -> str:
    """No tag, link or code begins in it."""
    return cleaned(text, 20_000).translate(_MARKDOWN)


def tables(section: Section) -> list[Table]:
    """Those that have lines, the open ones first."""
    compare = (worst_leaks, verdicts, settings, rebuilt_by_table, known_labels)
    details = (attacks, _layers, reconstructions, guarantees, ledgers, _figures, cost, without_result)
    made = [make(section) for make in (*compare, *details)]
    return [table for table in made if len(table.frame)]


def table(section: Section, name: str, title: str, frame: Any, note: str = "", **more: Any) -> Table:
    """frame: what pandas makes a data frame of. Its index isn't shown. more: of `Table`."""
    return Table(f"{section.slug}_{name}", title, pd.DataFrame(frame).reset_index(drop=True).astype(object), note, **more)


# What compares settings


def worst_leaks(section: Section) -> Table:
    """A line a setting of several: what its worst attack reads, and what the defense costs; what leaks most first."""
    leak, utility = section.titled(section.leak), section.titled(section.utility)
    frame = pd.DataFrame({"setting": section.settings.index}, section.settings.index)
    frame[leak], frame["worst attack"] = section.over_seeds(section.leak), _worst_attacks(section)
    if section.layer is None:  # as verdicts are at any layer
        frame["says"] = [words.standing(section, one) for one in section.groups]
    frame[utility] = section.over_seeds(section.utility)
    cost = section.changes(section.utility, section.of_baseline(section.values(section.utility)))
    frame[f"change of {utility}"] = cost.where(~section.settings["undefended"])
    note = f"Leaks {section.where}. {_MEANS} Change: this setting minus the undefended one, of the same seeds."
    frame = _worst_first(frame, leak) if len(frame) > 1 else frame[:0]
    return table(section, "worst", "Worst leak and cost", frame, note, is_open=True)


def _worst_first(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """A one-sided leak counts on either side."""
    signed = (lambda value: -abs(value - COIN)) if column.startswith(LEAKS["leak_raw"]) else (lambda value: -value)
    return frame.sort_values(column, key=lambda cells: cells.map(_mean).map(signed), kind="stable")


def verdicts(section: Section) -> Table:
    """A line for each setting and level of knowledge: utility, the worst attack, and references."""

    def of(run: Run) -> Iterator[dict[str, Any]]:
        verdict = run.summary.verdict
        yield from ({"knows": knows, "reading": one} for knows, one in words.verdict_lines(verdict, every=True))
        yield from ({"knows": "falls to", "reading": one} for one in [verdict.falls] if one)

    given = section.lines(of, ["knows", "reading"]).groupby(["setting", "knows"], sort=False)["reading"]
    reads = given.apply(lambda of: words.range_over_seeds(list(of)))
    frame = pd.DataFrame({"worst attack": given.agg(_named), "its leak AUC": reads, "runs": given.size()}).reset_index()
    frame.insert(1, section.titled(section.utility), frame["setting"].map(section.over_seeds(section.utility)))
    note = (
        f"{words.WORST}; over several seeds the mean of each seed's worst, from the lowest low end to the highest high "
        "end. Runs: those that have such a reading. Messages only: without labels. References are no attacks: the probe is "
        "trained on the labels of half of the rows, own columns are read without any message. A "
        "defense falls where a leak is surely above the ceiling that it promises or, without a ceiling, where an attack "
        "on messages that it changes is surely as good as the model: within 0.05 of its test AUC, and above 0.55."
    )
    frame = _worst_first(frame, "its leak AUC").sort_values(
        "knows", key=lambda cells: cells.str.startswith("reference"), kind="stable"
    )
    is_alone = len(section.settings) == 1
    return table(section, "verdicts", "Verdict: the worst attack at each level of knowledge", frame, note, is_open=is_alone)


def _named(readings: Iterable[Reading]) -> str:
    """The attacks by their names, the most frequent first."""
    names = [group.attack_on(one.attack, one.message) + f" ({one.figure})" * (one.figure != "AUC") for one in readings]
    return ", ".join(name for name, _ in Counter(names).most_common())


def settings(section: Section) -> Table:
    """A line a setting, beside the undefended run of the same seed and, with an adversary, beside its honest run.

    Recordings of the same rows stand beside the one that leaks most.
    """
    calibration = [name for name in _CALIBRATION if section.values(name).notna().any()]
    frame, baselines = _facts(section, section.x, *calibration, section.y), section.settings["baseline"]
    if section.settings["is_audit"].all() and (leaks := frame[section.titled(section.y)].map(_mean)).notna().any():
        baselines = pd.Series(leaks.idxmax(), baselines.index)
    frame["worst attack"] = _worst_attacks(section)
    frame["|leak AUC - 0.5|"] = section.over_seeds("leak_distance")
    for messages in ("one message", "all messages"):
        heights = section.runs[f"ceiling.{messages.replace(' ', '_')}"]
        frame[f"ceiling, {messages}"] = heights.groupby(section.runs["setting"], sort=False).max()
    frame[f"DCS (beta {BETA})"] = dcs(section)
    if left_out := section.front.left_out:
        frame["on the front"] = ["yes" if name in section.front.settings else left_out.get(name) for name in frame.index]
    is_other = baselines.notna() & (baselines != baselines.index)
    frame["beside"] = baselines.where(is_other)
    for name in (section.x, section.y):
        changes = section.changes(name, section.of_baseline(section.values(name), baselines))
        frame[f"change of {section.titled(name)}"] = changes.where(is_other)
    if (section.settings["adversary"] != "none").any():
        honest = with_honest_runs(section)
        for name in (section.x, section.y):
            frame[f"{section.titled(name)}, honest"] = honest.over_seeds(name)
            frame[f"change of {section.titled(name)} from honest"] = section.changes(name, honest.values(name))
        frame["worst attack, honest"] = _worst_attacks(honest)
    note = (
        f"Leaks {section.where}, of each run's worst attack. {_MEANS} A ceiling is what a defense promises for one run. "
        "Calibration: mean prediction over the base rate, 1 where predicted rates are right; an AUC sees none of it. "
        "Change: setting minus the one beside it, mean over pairs of runs with the same seed. Beside it is the undefended "
        "one with all other options equal (no defense, or one that changes nothing), of recordings that of the same rows "
        f"that leaks most. Honest: the same run in which no party deviates.{assumptions(section.runs['run'])}"
    )
    has_verdicts = any(run.summary.verdict.levels for run in section.runs["run"])  # of a single setting they say it
    frame = _worst_first(frame, section.titled(section.y))
    return table(section, "settings", "Settings", frame, note, is_open=len(section.settings) == 1 and not has_verdicts)


def assumptions(runs: Iterable[Run]) -> str:
    """Sentences on what the ceilings of these runs assume, and what was found where it was tested; empty if nothing."""
    tested: dict[tuple[str, str], list[bool]] = {}
    for name, promise in (item for run in runs for item in run.summary.guarantees.items()):
        if promise is not None and promise.assumption:
            tested.setdefault((name, promise.assumption), []).append(promise.assumption_holds is False)
    return "".join(
        f" The ceiling of {name} assumes that {what}, which does not hold in {sum(fails)} of {len(fails)} runs."
        for (name, what), fails in tested.items()
    )


def dcs(section: Section) -> pd.Series:
    """Setting -> defense capability score over seeds; 1 for a defense that stops the attack and costs nothing.

        DCS = 1 / (1 + sqrt((1 - beta) (AP - AP*)^2 + beta (MP - MP*)^2))

    AP: the leak AUC of the worst attack. AP* = 0.5: an attack that learns nothing. MP: the utility; MP*: that of the
    undefended run with the same seed. beta: the weight of the utility. Of leak AUC alone: for other leaks it is not defined
    what an attack that guesses reaches.

    Source: Zou et al., "VFLAIR: A Research Library and Benchmark for Vertical Federated Learning", ICLR 2024, section on
    metrics.
    """
    runs, utility = section.runs, section.values(section.utility)
    leak = section.values("leak_auc") if section.leak == "leak_auc" else math.nan
    distance = ((1 - BETA) * (leak - COIN) ** 2 + BETA * (utility - section.of_baseline(utility)) ** 2) ** 0.5
    return over_seeds(runs.assign(dcs=1 / (1 + distance)), ["setting"], "dcs").reindex(section.settings.index)


def known_labels(section: Section) -> Table:
    """A line for each setting and message, a column for each number of rows whose labels `completion` knows."""
    nodes = [(name, node or {}) for run in section.runs["run"] for name, node in (run.config.get("attack") or {}).items()]
    models = {name: node for name, node in nodes if str(node.get("_target_")).endswith(".Completion")}
    leaks = section.counted[section.counted["name"].isin(list(models))]
    leaks = leaks.assign(known=[models[name].get("known", 100) for name in leaks["name"]])
    leaks = leaks.assign(message=[models[name].get("message", "embeddings") for name in leaks["name"]]).sort_values("known")
    frame = largest_values(leaks, ["setting", "message", "known"], "leak_two_sided").unstack("known")
    frame = frame.rename(columns=lambda known: f"{known} known").reset_index()
    frame.insert(2, "train AUC", frame["setting"].map(section.over_seeds("train_auc")))
    note = f"Two-sided leak AUC of completion {section.where}. {_MEANS}"
    frame = frame if leaks["known"].nunique() > 1 else frame[:0]
    return table(section, "known_labels", "Leak by the number of known labels", frame, note, is_open=True)


# Along options


def attacks(section: Section) -> Table:
    """Every attack's leak in every setting, where leaks are taken; in the order of the chosen options, if there are any."""
    figure, by = section.leak_column, [key for key in section.by if varies(section.runs["run"], key)]
    made = by_attack(section, figure)
    made.columns = [f"{attack}, {level}" for level, attack in made]
    frame = along(section, section.utility, section.leak)
    frame = frame.assign(**{"worst attack": _worst_attacks(section)}).join(made)
    note = f"{LEAKS[figure]} {section.where}. {_MEANS} Reference: the probe, and attacks on a party's own columns."
    title = f"By {' and '.join(map(words.short, section.by))}" if by else f"Every attack: {LEAKS[figure]}"
    frame = frame if by or not made.empty else frame[:0]
    return table(section, "by" if by else "attacks", title, frame, note, is_open=bool(by))


def rebuilt_by(section: Section) -> pd.DataFrame:
    """A line for each run, attack and guess without messages, a column for each figure.

    guess: '' for what was rebuilt from messages. run: its number; setting. Of several parties: the figures of whole
    pictures, else the means over the parties.
    """
    lines = section.rebuilt.rename(columns=lambda name: name.removeprefix("rebuilt.")).rename_axis("run").reset_index()
    lines["guess"] = lines.layer.where(lines.message == "none", "")
    keys = ["run", "setting", "attack", "guess"]
    whole = lines.party.str.split(" by ").str[0] == "all"
    lines = lines[whole == whole.groupby([lines[key] for key in keys]).transform("any")]
    known = [name for name in lines if f"rebuilt.{name}" in section.rebuilt]
    return lines.groupby(keys, sort=False)[known].mean().reset_index()


def bits_per_row(run: Run) -> float:
    """Bits of embeddings to the label party per row of the last epoch's full batches, of all parties together."""
    which, sent = ("train", "embedding", "bytes_sent:label"), []
    with suppress(OSError, UserError):  # a run without metrics is still a run
        sent = [row for row in run.rows if (row.split, row.message, row.metric) == which]
    last = max((row.epoch for row in sent), default=0)
    rows, size = run.manifest.data.train_rows or 0, run.manifest.batch_size or 0
    return 8 * sum(row.value for row in sent if row.epoch == last) / (rows // size * size) if rows >= size > 0 else math.nan


def rebuilt_by_table(section: Section) -> Table:
    """A line for each value and attack that rebuilt data: bits that cross, utility and the figures of what was rebuilt."""
    title, by = f"Rebuilt, by {' and '.join(map(words.short, section.by))}", ["setting", "attack"]
    if section.rebuilt.empty or not any(varies(section.runs["run"], key) for key in section.by):
        return table(section, "rebuilt_by", title, ())
    answers = rebuilt_by(section).query("guess == ''")
    made = _mean_of(answers, by, {name: name.replace("_", " ") for name in answers if f"rebuilt.{name}" in section.rebuilt})
    wins = section.rebuilt[section.rebuilt["message"] != "none"].dropna(subset="beats_every_guess")
    won = wins.groupby([wins.index, *by])["beats_every_guess"].all().groupby(by).agg(_won)
    frame = along(section, section.utility)
    bits = section.runs["run"].map(bits_per_row).groupby(section.runs["setting"], sort=False).mean()
    frame.insert(len(frame.columns) - 1, "bits a row", bits)
    frame = frame.merge(made.join(won.rename("beats every guess"), on=by), on="setting")
    note = (
        f"Of the last epoch, from messages: whole pictures where there are any, else the mean over the parties. {_MEANS} "
        "Bits a row: of embeddings, to the label party, per training row and epoch. Beats every guess: the runs in which "
        "the attack does better than each guess without messages, whose figures are in the table of reconstructions."
    )
    return table(section, "rebuilt_by", title, frame, note, is_open=True)


def along(section: Section, *names: str) -> pd.DataFrame:
    """Setting -> the values of the chosen options, its name, and its `_facts`; in the order of the values."""
    firsts = [one.runs[0] for one in section.groups]
    columns = {key: [option_value(run, key) for run in firsts] for key in section.by}
    values = pd.DataFrame(columns, section.settings.index, dtype=object)
    frame = values.map(value_text).join(_facts(section, *names))
    order = values.apply(lambda column: pd.to_numeric(column, errors="coerce").fillna(-math.inf))
    ranks = order.assign(first=section.settings["defense"] != "none", then=section.settings["defense"])
    return frame.loc[ranks.sort_values(["first", "then", *section.by], kind="stable").index]


def printed(section: Section) -> list[str]:
    """The tables along options in at most 80 columns: their first columns and lines, means alone."""
    lines = []
    for one in [one for one in (attacks(section), rebuilt_by_table(section)) if one.is_open and len(one.frame)]:
        frame = one.frame.iloc[:, : len(section.by) + 5].map(lambda cell: words.text_of(getattr(cell, "mean", cell)))
        frame = frame.rename(columns=lambda name: words.short(cleaned(name)).removesuffix(f" {section.where}"))
        cut = frame.map(lambda text: text if len(text) <= 24 else f"{text[:21]}...")
        lines += cut.to_string(index=False, line_width=_WIDTH, max_rows=40).splitlines()
    return [section.title, *lines] if lines else []


def resolved(runs: Sequence[Run], wanted: Sequence[str]) -> tuple[str, ...]:
    """The dotted keys that a user means, who may give the last parts alone: `sumkl`.

    Raises UserError for a key that no run has, or several, and where no key has two values in any section.
    """
    parts = [part for _, _, part in data_parts(runs)]
    leaves = dict.fromkeys(name for run in runs for name in flattened(run.config) if name != "seed")
    heads = (".".join(name.split(".")[:n]) for name in leaves for n in range(1, name.count(".") + 1))
    there = dict.fromkeys([*_CHOSEN, *leaves, *heads])
    vary = [key for key in there if wanted and any(varies(part, key) for part in parts)]
    those = f"these vary: {', '.join(vary[:_MOST_NAMED]) or 'none'}"
    keys: list[str] = []
    for key in wanted:
        meant = [key] if key in there else [name for name in vary or there if name.endswith(f".{key}")]
        if len(meant) != 1:
            several = f"it may be {' or '.join(meant[:_MOST_NAMED])}; write the whole key"
            none = f"no run has this option{nearest(key, [*there, *map(words.short, there)])}; {those}"
            raise UserError(several if meant else none, key="--by", value=key)
        keys += meant
    if keys and not {*keys} & {*vary}:
        same = "it has one value in the runs of each data set and experiment"
        raise UserError(f"{same}; {those}", key="--by", value=",".join(keys))
    return tuple(dict.fromkeys(keys))


def option_value(run: Run, key: str) -> Any:
    """The value of a dotted key: a number, a text or None; of a group of options the name of what was chosen."""
    if key in ("dataset", "defense", "adversary"):
        return getattr(run, key)
    value = run.option(key)
    if key == "attack":
        return "+".join(value or {}) or "none"
    if isinstance(value, Mapping) and "." in str(value.get("_target_")):
        return str(run.manifest.choices.get(key) or str(value["_target_"]).rpartition(".")[2])
    return json.dumps(value, sort_keys=True, default=str) if isinstance(value, Mapping | list) else value


def value_text(value: Any) -> str:
    """An option's value in a cell."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else words.shown_text(value)


def varies(runs: Iterable[Run], key: str) -> bool:
    return len({value_text(option_value(run, key)) for run in runs}) > 1


# Details


def _layers(section: Section) -> Table:
    """A line for each setting, attack, party and layer."""
    by = ["setting", "attack", "level", "party", "layer", "visible"]
    titles = {name: title for name, title in LEAKS.items() if name not in ("leak_auc", "leak_distance")}
    frame = _mean_of(section.leaks, by, titles).rename(columns={"visible": "seen by an attacker"})
    return table(section, "layers", "Leak at every layer", frame, f"Values of the last epoch. {words.LEAK_FIGURES}")


def reconstructions(section: Section) -> Table:
    """What attacks on data, not on labels, rebuilt; a column a figure."""
    rebuilt, by = section.rebuilt, ["setting", "attack", "message", "party", "layer"]
    titles = {name: name.removeprefix("rebuilt.").replace("_", " ") for name in rebuilt if name.startswith("rebuilt.")}
    wins = rebuilt.dropna(subset="beats_every_guess").groupby(by, sort=False)["beats_every_guess"]
    frame = _mean_of(rebuilt, by, titles).join(wins.agg(_won).rename("beats every guess") + " runs", on=by)
    note = (
        f"{_MEANS} Answers under message none are guesses without messages. A run beats them if its error is smaller by the "
        "interval over rows, for each of them, and more rows than by chance are identified among rows of their class."
    )
    return table(section, "reconstructions", "Reconstructions", frame, note, is_open=True)


def guarantees(section: Section) -> Table:
    """What each defense of a setting promises, over its runs the weakest."""
    weakest = dict.fromkeys(("claim", "bounds", "messages", "assumption"), "first") | {"assumption_holds": "min"}
    weakest |= {f"leak_auc_{messages}": "max" for messages in ("one_message", "all_messages")}
    weakest |= {f"error_{messages}": "min" for messages in ("one_message", "all_messages")}

    def of(run: Run) -> Iterator[dict[str, Any]]:
        for name, promise in run.summary.guarantees.items():
            yield {"by": name} | (promise.model_dump(include={*weakest}) if promise else {"claim": "nothing"})

    lines = section.lines(of, ["by", *weakest])
    numbers = {name: float for name, pick in weakest.items() if pick != "first"}
    frame = lines.astype(numbers).groupby(["setting", "by"], sort=False).agg(weakest).reset_index()
    frame["assumption_holds"] = frame["assumption_holds"].map({1.0: True, 0.0: False})
    frame = frame.rename(columns=lambda name: {"by": "defense"}.get(name, name.replace("_", " ")))
    note = (
        "A guarantee holds for one run. Somebody who sees several runs on the same rows, such as the seeds of a sweep, sees "
        "their releases together, for which no single guarantee holds."
    )
    return table(section, "guarantees", "Guarantees", frame, note)


def ledgers(section: Section) -> Table:
    """Label differential privacy: what the runs of each setting spent, and the lower bound that canaries prove."""

    def spent(privacy: Privacy) -> str:
        amounts = [(one, f"{one.times} x {one.epsilon}" if one.mu is None else f"mu {one.mu}") for one in privacy.releases]
        return " + ".join(f"{amount} ({one.defense}, {one.mechanism})" for one, amount in amounts)

    def of(run: Run) -> list[dict[str, Any]]:
        return [{"one": one} | one.model_dump() for one in [run.summary.privacy] if one]

    lines = section.lines(of, ["one", "delta", *_LEDGER]).astype(dict.fromkeys(_LEDGER, float))
    given = lines.groupby("setting", sort=False)
    firsts = given.first()
    frame = pd.DataFrame({"setting": firsts.index, "runs": given.size(), "releases of a run": firsts["one"].map(spent)})
    frame = frame.join(given[list(_LEDGER)].max().rename(columns=_LEDGER))
    frame["delta"] = firsts["delta"].map("{:g}".format, na_action="ignore")
    frame["eps of all seeds together"] = given["epsilon"].sum(min_count=1)
    frame["violated, and what is caught"] = given["one"].agg(lambda ones: words.checked_text(list(ones)))
    note = (
        "Pure eps of releases about the same label adds up: over the epochs in which the label is randomized anew, over "
        "defenses, and over runs that are seen together. A promise that is not violated is not verified: the last column "
        "says how probably the canaries of a run would catch one that is 1.5 or 2 times too weak, at best."
    )
    return table(section, "ledger", "Label differential privacy", frame, note)


def _figures(section: Section) -> Table:
    """What the defenses counted and measured: a column for each figure."""
    by = ["setting", "party", "layer", "message"]

    def of(run: Run) -> Iterator[dict[str, Any]]:
        for one in run.summary.figures:
            value = math.nan if one.get("value") is None else float(one["value"])
            yield {key: one.get(key) for key in by[1:]} | {str(one.get("figure")): value}

    lines = section.lines(of, by[1:])
    names = [name for name in lines if name not in (*by, "defense", "seed")]
    frame = _mean_of(lines, by, {name: name.replace("_", " ") for name in names})
    return table(section, "figures", "What the defenses counted and measured", frame)


def cost(section: Section) -> Table:
    frame = _facts(section, "seconds").rename(columns={"seconds": "seconds a run"})
    frame.insert(2, "epochs", [one.runs[0].summary.epochs for one in section.groups])

    def parts(name: str, unit: float) -> pd.Series:
        kinds = [kind for kind in section.runs if str(kind).startswith(f"{name}.")]
        means = section.runs.groupby("setting", sort=False)[kinds].mean().astype(float) / unit
        means = means.rename(columns=lambda kind: kind.removeprefix(f"{name}."))
        return means.apply(lambda of: ", ".join(f"{kind} {size:.3g}" for kind, size in of.dropna().items()), axis=1)

    if any(str(kind).startswith("cpu_seconds.") for kind in section.runs):
        frame["of the CPU"] = parts("cpu_seconds", 1.0)
    frame["MB sent in training"] = section.runs.groupby("setting", sort=False)["bytes_sent"].mean().astype(float) / 1e6
    frame["of which"] = parts("bytes_sent", 1e6)
    note = (
        "Seconds on the machines named below; of the CPU by phase (audit: attacks and grades) and by attack; MB on the wire."
    )
    return table(section, "cost", "Cost", frame, note)


def without_result(section: Section) -> Table:
    """Attacks that did not run (skipped), and attacks none of whose answers could be scored."""
    by = ["attack", "outcome", "why"]

    def of(run: Run) -> Iterator[dict[str, str]]:
        for outcome, reasons in (("skipped", run.summary.skipped), ("not scored", run.summary.unscored)):
            yield from (dict(zip(by, (attack, outcome, why), strict=True)) for attack, why in reasons.items())

    names = section.lines(of, by).groupby(by, sort=False)["setting"].unique()
    few = names.map(lambda of: "; ".join(of[:3]) + " ..." * (len(of) > 3))
    frame = pd.DataFrame({"settings": names.map(len), "such as": few}).reset_index()
    note = "Skipped: the attack did not run. Not scored: it ran, but none of its answers could be scored."
    return table(section, "skipped", "Attacks without a result", frame, note)


# What tables are made of


def not_averaged(section: Section) -> list[str]:
    """A sentence on rows that have the same options and yet are several, and one on rows that average over versions."""
    alike: dict[str, list[Setting]] = {}
    for one in section.groups:
        alike.setdefault(options_key(one.runs[0].config, ("seed",)), []).append(one)
    lines = [
        f"{of[0].defense}: its runs are in {len(of)} rows, not averaged, as they differ in "
        f"{differing(*(one.runs[0].origin for one in of))}."
        for of in alike.values()
        if len(of) > 1
    ]
    versions = {one.name: rounding(one.runs) for one in section.groups}
    return lines + [f"{name}: averaged over {text}, which may round differently." for name, text in versions.items() if text]


def _facts(section: Section, *names: str) -> pd.DataFrame:
    """Setting -> its name, its number of runs, and quantities where they are known."""
    frame = pd.DataFrame({"setting": section.settings.index, "runs": section.settings["seeds"]})
    return frame.assign(**{section.titled(name): section.over_seeds(name) for name in names})


def _mean_of(lines: pd.DataFrame, by: Sequence[str], titles: Mapping[str, str]) -> pd.DataFrame:
    """A line a group: means and intervals over runs of each column that has a value. titles: of these columns."""
    known = {title: over_seeds(lines, by, name) for name, title in titles.items() if lines[name].notna().any()}
    return pd.DataFrame(known, lines.groupby(list(by), sort=False, dropna=False).size().index).reset_index()


def by_attack(section: Section, figure: str, name: str = "attack") -> pd.DataFrame:
    """Setting -> each attack's largest leak where leaks are taken, mean and interval over seeds; columns (level, attack).

    References are last: the best of the probes, and the strongest attack on own columns. name: attack | name, of
    `Section.leaks`.
    """
    leaks = section.leaks[(section.leaks["counts"] | section.leaks["is_reference"]) & section.leaks[figure].notna()]
    on_columns = leaks["is_reference"] & (leaks["name"].map(base_name) != PROBE)
    leaks = leaks.assign(column=leaks[name].map(base_name).mask(on_columns, "own columns"), on_columns=on_columns)
    levels = dict.fromkeys([*LEVELS, *leaks["level"], REFERENCE])  # one that a stranger's run names is a level too
    leaks["level"] = pd.Categorical(leaks["level"].mask(leaks["is_reference"], REFERENCE), list(levels))
    columns = leaks.sort_values(["level", "on_columns"], kind="stable")[["level", "column"]].drop_duplicates()
    leaks = leaks.astype({"level": object})
    made = largest_values(leaks, ["setting", "level", "column"], figure).unstack(["level", "column"])
    return made[[*map(tuple, columns.to_numpy())]]


def largest_values(leaks: pd.DataFrame, by: Sequence[str], column: str = "leak_auc", figure: str | None = None) -> pd.Series:
    """Mean and interval over runs of the largest value that each has in a group. figure: what the column is, if not so."""
    most = leaks.groupby([leaks.index.rename("of"), *by], sort=False)[column].max().rename("value").reset_index()
    return over_seeds(most, by, "value", column if figure is None else figure)


def _worst_attacks(section: Section) -> pd.Series:
    """Setting -> the attack that reads most in each of its runs, the most frequent first."""
    return section.worst.groupby(section.runs["setting"]).agg(lambda names: ", ".join(names.value_counts().index) or None)


def _won(beats: pd.Series) -> str:
    return f"{int(beats.sum())} of {len(beats)}"


def _mean(value: Any) -> float:
    return value.mean if isinstance(value, Interval) else math.nan
