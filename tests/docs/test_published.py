"""docs/experiments/published.md and its data: every published value is there, with ours or with a reason."""

import json
import math
import os
import re
from collections import Counter
from pathlib import Path

import outputs_tree
import pytest
import script_runs

from vflbench.defenses.marvell import Marvell
from vflbench.errors import UserError
from vflbench.report.documents import leaves, numbers_in, read_documents
from vflbench.report.reproductions import read_experiments

DOCS = Path(__file__).resolve().parents[2] / "docs" / "experiments"
DOCUMENTS = read_documents(DOCS / "published")
EXPERIMENTS = read_experiments()
CLAIMS = script_runs.load("published_claims")
PARTS = [pytest.param(document, part, id=f"{document.name} {part.key}") for document in DOCUMENTS for part in document.parts]
WITHOUT = ("not available here", "not known here")


def of_part(document, part, *, see=True):
    """All numbers of a part: what it says, the values of its experiments, and the parts that it refers to."""
    values = [(value.number, dict(value.options), value.what) for _, value in part.values(EXPERIMENTS)]
    found = [*numbers_in(part.name), *numbers_in(part.said), *numbers_in(values), *numbers_in(part.select)]
    return found + [n for other in part.see * see for n in of_part(document, document.part(other), see=False)]


def published_parts(text):
    """key -> what the document says, of tables, figures and claims."""
    said = {f"{kind} {entry['id']}": entry for kind in ("table", "figure") for entry in text[f"{kind}s"]}
    return said | {f"claim {entry['claim']}": entry for entry in text["claims"]}


@pytest.mark.parametrize(("document", "part"), PARTS)
def test_every_part_has_ours_or_a_reason(document, part):
    assert part.view == "" or part.view in CLAIMS.VIEWS
    assert part.ours == "" or part.ours in CLAIMS.ANSWERS
    assert all(name in EXPERIMENTS for name in (*part.experiments, *part.more)), part.experiments
    assert all(document.part(key) for key in part.see)
    assert part.experiments or part.more or part.view or part.ours or part.reason or part.see


@pytest.mark.parametrize(("document", "part"), PARTS)
def test_a_part_that_leaves_its_numbers_to_an_experiment_finds_them_there(document, part):
    for name in part.experiments:
        values = [value for of, value in part.values(EXPERIMENTS) if of == name]
        assert any(value.number is not None for value in values), (document.name, name)


def test_facts_of_settings_are_computed():
    facts = CLAIMS.FACTS
    for document in DOCUMENTS:
        assert {here[1:] for here in document.here.values() if here.startswith("@")} <= set(facts), document.name
        keys = dict(leaves(document.setting))
        assert all(any(key == k or key.startswith(f"{k}.") for k in document.here) for key in keys), document.name


def test_formulas_are_those_of_the_documents():
    formulas = script_runs.load("published_formulas")
    assert [Marvell(error_bound=bound).target for bound in (0.4, 0.3, 0.2)] == pytest.approx([0.16, 0.64, 1.44])
    assert [formulas.error_at_least(s) for s in (0.16, 0.64)] == pytest.approx([0.4, 0.3])
    assert formulas.response(1.0, 2)[1] == pytest.approx(1 / (1 + math.e))
    assert "rank 10, d + 1 pairs 11" in formulas.pairs()
    assert "equal in 20 of 20 cells" in formulas.constraints()
    assert "4 as well" in formulas.unknowns()
    least, most = (float(word) for word in formulas.power_search().split("ends at ")[1].split(" times")[0].split(" to "))
    assert 1 <= least <= most <= 1.5


def test_agreement_counts_the_pairs_that_the_order_separates():
    order = [["a"], ["b", "c"], ["d"]]
    assert "5 of the 5 pairs" in CLAIMS.agreement(order, {"a": 4.0, "b": 2.0, "c": 3.0, "d": 1.0})
    text = CLAIMS.agreement(order, {"a": 4.0, "b": 2.0, "c": 1.0, "d": 1.0})
    assert "4 of the 5 pairs" in text
    assert "c and d are equal" in text


def test_sentences_belong_to_parts():
    for document in DOCUMENTS:
        assert set(document.sentences) <= {"claims", *(part.key for part in document.parts)}, document.name
        tables = {part.key for part in document.parts if part.kind == "table"}
        assert tables <= set(document.sentences), f"{document.name}: a sentence for each table"


def test_the_page_shows_every_published_value():
    """The page of the repository: each value that the data holds is on it, in its document."""
    page = (DOCS / "published.md").read_text()
    assert not [words for words in WITHOUT if words in page]
    chapters = dict(zip((document.name for document in DOCUMENTS), page.split("\n## ")[1:], strict=True))
    for document in DOCUMENTS:
        words = Counter(numbers_in(chapters[document.name].translate(str.maketrans(dict.fromkeys("|;:()[]`", " ")))))
        for part in document.parts:
            values = [v.number for _, v in part.values(EXPERIMENTS) if v.number is not None]
            for number in (*values, *numbers_in(part.said.get("values")), *numbers_in(part.said.get("rows"))):
                assert words[number], f"{document.name} {part.key}: {number}"


def test_every_line_of_a_table_has_as_many_cells():
    width = None
    for line in (DOCS / "published.md").read_text().splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert width is None or cells is None or cells == width, line
        width = cells


@pytest.mark.slow
def test_the_page_is_made_without_runs(tmp_path):
    out = tmp_path / "page.md"
    script = script_runs.load("published")
    done = script_runs.run(script, "--out", out)
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert [f"## {document.name}: " in text for document in DOCUMENTS] == [True] * len(DOCUMENTS)
    assert not [words for words in WITHOUT if words in text]
    assert "| 11, 20 | 1634.821 s |" in text
    assert r"| 9, 5 | \* |" in text


@pytest.mark.slow
def test_a_run_stands_beside_its_published_value(tmp_path):
    value = next(v for v in EXPERIMENTS["forward_table1"].values if v.number is not None)
    alpha, layers = value.options["defense.dcor.alpha_d"], value.options["model.top_layers"]
    for seed, auc in enumerate((0.74, 0.75, 0.76)):
        folder = tmp_path / "runs" / f"r{seed}"
        options = {"defense": {"dcor": {"alpha_d": alpha}}, "config": {"model": {"top_layers": layers}}}
        outputs_tree.write_run(folder, seed=seed, experiment="forward_table1", test_auc=auc, **options)
    out = tmp_path / "page.md"
    assert script_runs.run("published", tmp_path / "runs", "--out", out).returncode == 0
    line = next(line for line in out.read_text().splitlines() if line.startswith(f"| {value.what} |"))
    assert f"| {value.number} | 0.750 (0.725 to 0.775) | 3 | {0.75 - value.number:.3f} (" in line


def test_the_error_for_a_broken_document_names_it(tmp_path):
    with pytest.raises(UserError, match="no documents"):
        read_documents(tmp_path)
    (tmp_path / "005.json").write_text('{"document": "005"}')
    with pytest.raises(UserError, match=r"005\.json"):
        read_documents(tmp_path)


@pytest.fixture(scope="module")
def shared():
    """The published values beside the data, where they are there."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("VFLBENCH_DATA", default)).resolve().parent / "published"
    if not folder.is_dir():
        pytest.skip("the published values are not beside the data")
    return {file.name[:3]: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}


def test_the_copy_has_every_published_number(shared):
    assert sorted(shared) == [document.name for document in DOCUMENTS]
    for document in DOCUMENTS:
        text = shared[document.name]
        assert document.setting == text["setting"]
        assert list(document.ambiguous) == text["ambiguous"]
        said = published_parts(text)
        assert set(said) == {part.key for part in document.parts}
        for key, entry in said.items():
            ours = Counter(of_part(document, document.part(key)))
            published = Counter(numbers_in(entry.get("rows")) + numbers_in(entry.get("values")))
            assert set(published) <= set(ours), (document.name, key, set(published) - set(ours))
            if "rows" in entry and "rows" not in document.part(key).said:  # a cell may come twice
                cells = Counter(n for row in entry["rows"] for n in numbers_in(row[-2:]) if n != int(n))
                assert cells <= ours, (document.name, key, cells - ours)


def test_the_experiments_have_every_value_that_is_listed_for_them(shared):
    """`experiments` of the published files: the same numbers, for whatever experiment holds them here."""
    held = {value.number for experiment in EXPERIMENTS.values() for value in experiment.values}
    held |= {n for document in DOCUMENTS for part in document.parts for n in of_part(document, part)}
    for text in shared.values():
        for name, values in text["experiments"].items():
            for value in values:
                assert value["number"] is None or any(
                    number is not None and math.isclose(number, value["number"]) for number in held
                ), (name, value["what"])
