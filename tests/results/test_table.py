"""The long table: what `load` and `report --export` give, that others read it, and that nothing but the runs decides it."""

import csv
import io
import json
import math
import re
import shutil
from pathlib import Path

import pyarrow
import pytest
from support.hostile_runs import TEXTS
from support.outputs_tree import interval, leak, marvell, reading, sweep, verdict, write_adversarial_run, write_run

from vflbench.errors import UserError
from vflbench.report.group import sections
from vflbench.results.runs import read_tree
from vflbench.results.schema import HEADER
from vflbench.results.table import ENDINGS, TABLE_COLUMNS, export, load


def exported(*folders, file):
    export(read_tree(folders).runs, folders, file)
    return file.read_bytes()


def strict(text):
    """A line as a reader has it that knows no NaN and no infinity."""

    return json.loads(text, parse_constant=pytest.fail)


def records(*folders, file):
    return [strict(line) for line in exported(*folders, file=file).decode("ascii").splitlines()]


def test_a_line_says_what_was_run_where_and_what_came_of_it_and_the_whole_run_has_figures_of_its_own(tmp_path):
    judged = verdict(None, levels={"messages only": reading(value=0.9, low=0.8, high=1.0, layer="f1")})
    how = {"seed": 3, "experiment": "marvell_sumkl", "verdict": judged, **marvell(0.5, 0.7)}
    run = write_run(tmp_path / "out" / "m", **how)
    made = records(tmp_path / "out", file=tmp_path / "results.jsonl")
    assert all(tuple(line) == TABLE_COLUMNS for line in made)
    (one,) = [line for line in made if line["epoch"] == 1 and line["metric"] == "leak_auc_two_sided"]
    options = json.loads(one.pop("options"))
    assert options["defense.marvell.sumkl"] == 0.5
    assert options["model._target_"] == "vflbench.models.networks.WideDeep"
    assert "seed" not in options
    assert (one["made_by"][0], one["setting"][0]) == ("m", "s")  # no reader of CSV takes 72e83572 for a number
    assert len(one.pop("made_by")) == len(one.pop("setting")) == 9
    facts = {"run": "m", "experiment": "marvell_sumkl", "dataset": "criteo", "data_digest": "f" * 64, "version": "0.1.0"}
    facts |= {"seed": 3, "adversary": "none", "defense": "marvell", "failed": None, "infinite": None}
    place = {"epoch": 1, "split": "train", "party": "a", "layer": "f2", "visible": True, "message": "gradient"}
    number = {"metric": "leak_auc_two_sided", "value": 0.9, "ci_low": None, "ci_high": None}
    assert one == facts | place | number | {"attack": "norm", "level": "messages only"}
    whole = {line["metric"]: line for line in made if line["split"] == "run"}
    assert len(made) == len((run / "metrics.csv").read_text().splitlines()) - 1 + len(whole)
    assert {name: line["value"] for name, line in whole.items()} == {
        "seconds": 2.5,
        "promised_leak_auc_one_message": 0.7,
        "promised_leak_auc_all_messages": pytest.approx(0.8),
        "worst_auc": 0.9,
    }
    worst = [whole["worst_auc"][name] for name in ("level", "layer", "ci_low", "ci_high")]
    assert worst == ["messages only", "f1", 0.8, 1.0]


def test_two_runs_share_a_setting_if_and_only_if_they_differ_in_nothing_but_the_seed(tmp_path):
    """As they share a group of a page."""

    def made(code="c", content="d", **facts):
        identity = {"vflbench": "0.2.0", "code": code * 64, "plugins": [], "data": {"dataset.path": content * 64}}
        return {"facts": {"identity": identity} | facts}

    runs = {"a": made(), "b": made(), "other rows": made(data={"fingerprint": "e" * 64, "path": "x/train.txt"})}
    runs |= {"code": made("e"), "data": made(content="e"), "device": made(device="cuda:0"), "older": {}}
    runs["options"] = made() | {"config": {"epochs": 3}}
    for seed, (name, how) in enumerate(runs.items()):
        write_run(tmp_path / name, seed=seed, **how)
    setting = {line["run"]: line["setting"] for line in records(tmp_path, file=tmp_path / "r.jsonl")}
    alike = [[name for name in runs if setting[name] == one] for one in dict.fromkeys(map(setting.get, runs))]
    assert alike == [["a", "b", "other rows"], *([name] for name in [*runs][3:])]
    groups = [group.runs for section in sections(read_tree([tmp_path]).runs) for group in section.groups]
    assert sorted([run.folder.name for run in group] for group in groups) == sorted(alike)


def test_nothing_but_the_runs_decides_the_bytes(tmp_path):
    first, copy = sweep(tmp_path / "first", seeds=1), tmp_path / "elsewhere" / "second"
    for folder in sorted(first.iterdir(), reverse=True):  # made in another order
        shutil.copytree(folder, copy / folder.name)
    files = [tmp_path / f"r{ending}" for ending in ENDINGS]
    written = [exported(first, file=file) for file in files]
    assert [exported(first, file=file) for file in files] == written
    assert [exported(copy, file=tmp_path / f"s{ending}") for ending in ENDINGS] == written


def test_numbers_that_json_does_not_have_are_null_and_infinity_keeps_its_sign(tmp_path):
    out = tmp_path / "out"
    run = write_run(out / "m", seconds=None, **marvell(math.inf))
    cells = ("nan,nan,inf", "inf,0.5,inf", "-inf,,", "1e999,,", ",,", "0.30000000000000004,-0.0,1e-320")
    (run / "metrics.csv").write_text(HEADER + "".join(f"{i},test,,,,,m,{cell},\n" for i, cell in enumerate(cells)))
    made = [line for line in records(out, file=tmp_path / "r.jsonl") if line["metric"] == "m"]
    assert [line["infinite"] for line in made] == [None, 1, -1, 1, None, None]
    assert [line["value"] for line in made] == [None] * 5 + [0.1 + 0.2]
    assert (made[1]["ci_low"], made[1]["ci_high"], made[5]["ci_high"]) == (0.5, None, 1e-320)
    assert strict(made[0]["options"])["defense.marvell.sumkl"] == "inf"


def test_every_reader_gets_the_same_columns_of_the_same_types(tmp_path):
    """All three formats: of runs that have nothing in common, with columns that begin with null."""
    import polars

    out = tmp_path / "out"
    write_run(out / "a", seed=None, facts=None, test_auc=None)
    write_run(out / "b", seed=1, **marvell(0.5, 0.7))
    (out / "a" / "metrics.csv").write_text(HEADER + "0,test,,,,,auc,,,,\n" * 300)
    write_run(out / "c", config={"defense": {"mine": {"_target_": "mine.D", "size": "large"}}})
    files = {ending: tmp_path / f"r{ending}" for ending in ENDINGS}
    lines, *_ = records(out, file=files[".jsonl"]), *(exported(out, file=file) for file in files.values())
    types = dict.fromkeys(("seed", "epoch", "infinite"), polars.Int64) | {"visible": polars.Boolean}
    types |= dict.fromkeys(("value", "ci_low", "ci_high"), polars.Float64)
    schema = {name: types.get(name, polars.String) for name in TABLE_COLUMNS}
    frames = {
        ".jsonl": polars.read_ndjson(files[".jsonl"], schema=schema),
        ".csv": polars.read_csv(files[".csv"], schema=schema, null_values=[""]),
        ".parquet": polars.read_parquet(files[".parquet"]),
    }
    for ending, frame in frames.items():
        assert dict(frame.schema) == schema, ending
        assert frame.to_dicts() == lines, ending


def test_hostile_texts_stay_in_their_line_and_column(tmp_path):
    names = [text for text in TEXTS if 0 < len(text) < 20_000 and "\ud800" not in text and "\x00" not in text]
    cells = ['"' + text.replace('"', '""') + '"' for text in names]
    lines = [f"0,train,{cell},{cell},{cell},{cell},{cell},0.5,,,true\n" for cell in cells]
    (write_run(tmp_path / "run") / "metrics.csv").write_text("".join([HEADER, *lines]), encoding="utf-8")
    made = records(tmp_path, file=tmp_path / "r.jsonl")
    assert len(made) == len(names) + 1
    assert all(value.isprintable() for line in made for value in line.values() if isinstance(value, str))
    text = exported(tmp_path, file=tmp_path / "r.csv").decode()
    attacks = {row["attack"] for row in csv.DictReader(io.StringIO(text))}
    assert {"'=cmd|'/c calc'!A0", "'+1+cmd", "'-2+3", "'@SUM(A1)"} <= attacks
    assert not any(name[:1] in "=+-@\t" for name in attacks if name)


def test_nothing_is_written_where_there_is_nothing_to_write(tmp_path):
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no finished run"):
        exported(empty, file=tmp_path / "r.csv")
    out = sweep(tmp_path / "out", seeds=1)
    with pytest.raises(UserError, match=r"\.jsonl, \.csv or \.parquet"):
        exported(out, file=tmp_path / "r.xlsx")
    with pytest.raises(UserError, match="can't be written"):
        exported(out, file=tmp_path / "nowhere" / "r.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "out"]


def test_the_example_of_the_documentation_gives_the_numbers_of_the_page(tmp_path, monkeypatch):
    """Two-sided 0.6 and net of a coin 0.7: the page has 0.7. Another layer reads 0.8."""
    monkeypatch.chdir(tmp_path)
    worst = {"verdict": {"levels": {"messages only": reading(value=0.8, layer="f1")}}}
    how = {"leaks": [leak("norm", "f2", 0.6) | {"net": interval(0.7)}], **worst, **marvell(0.5)}
    cells = (("f1", "two_sided,0.8"), ("f2", "two_sided,0.6"), ("f2", "net,0.7"))
    lines = [f"1,train,a,{layer},gradient,norm,leak_auc_{figure},,,true\n" for layer, figure in cells]
    for seed in (0, 1):
        run = write_run(tmp_path / "out" / str(seed), seed=seed, **how)
        (run / "metrics.csv").write_text("".join([HEADER, *lines]))
    exported(tmp_path / "out", file=tmp_path / "results.jsonl")
    text = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "results.md").read_text()
    example = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0].replace('"f5"', '"f2"')
    found = {}
    exec(compile(example, "results.md", "exec"), found)
    (section,) = sections(read_tree([tmp_path / "out"]).runs, layer="cut")
    ((*_, sumkl, _, attack, value, runs),) = found["leaks"].rows()
    assert (sumkl, attack, value, runs) == ("0.5", "norm", pytest.approx(section.over_seeds("leak_auc").iloc[0].mean), 2)
    assert value == pytest.approx(0.7)
    assert found["worst"]["value"].to_list() == pytest.approx([0.8, 0.8])
    named = re.findall(r"^\| (`.+?) \|", text.partition("### Columns")[2].partition("Every line")[0], re.MULTILINE)
    assert re.findall(r"\w+", " ".join(named)) == list(TABLE_COLUMNS)


@pytest.fixture
def folder(tmp_path):
    write_run(tmp_path / "none", seed=3, norm=0.9)
    write_run(tmp_path / "deep" / "marvell", experiment="marvell_sumkl", norm=0.53, **marvell(0.04, 0.54))
    write_adversarial_run(tmp_path / "scaled")
    write_run(tmp_path / "broken promise", seed=9, failed="the promise is broken")
    write_run(tmp_path / "stopped").joinpath("summary.json").unlink()
    return tmp_path


DAMAGED = {
    "deleted": None,
    "a short row": HEADER.encode() + b"0,train,a\n",
    "a number that is none": HEADER.encode() + b"0,test,,,,,auc,high,,,\n",
    "a quote that is never closed": b'epoch,split\nx,"',
    "no text": b"\x00\xff" * 50,
    "one wide cell": HEADER.encode() + b"x" * 10**6,
}


def test_a_run_without_its_measurements_is_left_out_with_a_warning_that_names_it(folder):
    for number, (name, content) in enumerate(DAMAGED.items()):
        file = write_run(folder / f"lost: {name}", seed=10 + number) / "metrics.csv"
        file.unlink() if content is None else file.write_bytes(content)
    with pytest.warns(UserWarning, match="is left out") as caught:
        table = load(folder)
    said = "\n".join(str(warning.message) for warning in caught)
    for name in DAMAGED:
        assert re.search(rf"lost: {name} is left out: (no metrics\.csv|metrics\.csv can't be read: .+)", said), name
    assert not any("lost" in run for run in table["run"].to_pylist())
    tree = read_tree([folder])
    tree.set_aside(export(tree.runs, [folder], folder / "r.jsonl")[1])
    assert tree.counts() == "3 runs taken; left out: 1 failed, 1 unfinished, 6 unreadable"
    assert not any("lost" in strict(line)["run"] for line in (folder / "r.jsonl").read_text().splitlines())


def test_an_option_is_a_column_of_the_type_of_its_values(folder):
    table = load(folder, options=["defense.marvell.sumkl", "model.bottom_layers", "attack.norm"])
    sumkl = dict(zip(table["run"].to_pylist(), table["defense.marvell.sumkl"].to_pylist(), strict=True))
    assert sumkl == dict.fromkeys(("none", "scaled", "broken promise")) | {"deep/marvell": 0.04}
    assert table.schema.field("model.bottom_layers").type == pyarrow.int64()
    assert set(table["attack.norm"].to_pylist()) == {"{'_target_': 'vflbench.attacks.norm.Norm'}"}
    of_kinds = (([1, 2.5], "double"), ([True, False], "bool"), ([1, "auto"], "string"), ([True, 1], "string"))
    for kinds, type_ in (*of_kinds, ([2**64, 1], "string")):
        for run, value in zip(("none", "scaled"), kinds, strict=True):
            (folder / run / "config.yaml").write_text(json.dumps({"seed": 2**64, "defense": {}, "mine": value}))
        assert str(load(folder, ["mine"]).schema.field("mine").type) == type_, kinds


def test_a_folder_without_a_finished_run_or_an_option_named_as_a_column_is_refused(folder):
    for place, options, problem in (
        *(("stopped", [], "no finished run"), ("nowhere", [], "no such folder")),
        (".", ["epoch"], "options=epoch: the table has another column of this name"),
    ):
        with pytest.raises(UserError, match=problem):
            load(folder / place, options)
