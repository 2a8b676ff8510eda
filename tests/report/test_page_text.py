"""Names that may break, and code in texts, on a page."""

from outputs_tree import FACTS, write_run

from vflbench.report.by import by_tables
from vflbench.report.facts import threats
from vflbench.report.page_text import breakable, coded
from vflbench.report.section_tables import tables
from vflbench.report.sections import Wishes, sections
from vflbench.results.tree import read_tree


def test_a_name_may_break_after_its_dots_and_underscores():
    assert breakable("defense.label_gdp.mu") == "defense.<wbr>label_<wbr>gdp.<wbr>mu"
    assert breakable("test AUC, <b>. a_") == "test AUC, &lt;b&gt;. a_"


def test_backticks_are_code_and_no_tag_gets_in():
    assert coded("as `attack=norm` and ``x`` <b>") == "as <code>attack=norm</code> and <code>x</code> &lt;b&gt;"
    assert coded("`<script>`") == "<code>&lt;script&gt;</code>"
    assert coded("one ` alone") == "one ` alone"


def test_attacks_that_were_not_run_are_not_among_those_who_attack(tmp_path):
    who = {**FACTS["threats"], "hints": {"text": "Knows labels.", "does": "Reads."}}
    attack = {name: {"_target_": f"vflbench.attacks.{name}.A"} for name in ("norm", "hints")}
    write_run(tmp_path / "run", config={"attack": attack}, facts={"threats": who, "skipped": {"hints": "no labels"}})
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    assert [name for name, _ in threats(section)] == ["norm"]


def test_no_heading_has_blanks_at_its_ends(tmp_path):
    for number in (1, 2):
        write_run(tmp_path / f"run{number}", config={"epochs": number})
    (section,) = sections(read_tree([tmp_path]).runs, Wishes(by=("epochs",)))
    headings = [name for table in (*by_tables(section), *tables(section)) for name in table.columns]
    assert "norm on gradients" in headings
    assert [name for name in headings if name != name.strip()] == []
