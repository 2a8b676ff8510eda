import csv
import json
import math

import pytest

from vflbench.errors import UserError
from vflbench.recorder import COLUMNS, Recorder, Row


def test_metrics_have_the_documented_columns_and_values_survive_the_round_trip(tmp_path):
    recorder = Recorder(tmp_path / "run", "seed: 0\n", {"seed": 0})
    recorder.begin()
    recorder.write([Row(0, "train", metric="loss", value=0.1 + 0.2), Row(1, "test", metric="auc", value=math.nan)])
    recorder.write([Row(1, "train", "a", "f5", "gradient", "norm", "leak_auc", 0.9, 0.8, 1.0, True)])
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        first, undefined, leak = csv.DictReader(file)
    assert ",".join(first) == "epoch,split,party,layer,message,attack,metric,value,ci_low,ci_high,visible"
    assert tuple(first) == COLUMNS
    assert float(first["value"]) == 0.1 + 0.2
    assert undefined["value"] == first["ci_low"] == first["visible"] == ""
    assert (leak["ci_low"], leak["ci_high"], leak["visible"]) == ("0.8", "1.0", "true")


def test_summary_comes_last_and_is_strict_json(tmp_path):
    recorder = Recorder(tmp_path, "", {"seed": 0})
    recorder.begin(device="cpu")
    assert json.loads((tmp_path / "manifest.json").read_text())["end"] is None
    assert not (tmp_path / "summary.json").exists()
    recorder.finish({"test_auc": math.nan, "leaks": [{"raw": math.inf}], "train_auc": 0.5})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["end"] >= manifest["start"]
    assert manifest["device"] == "cpu"
    summary = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)
    assert summary == {"test_auc": None, "leaks": [{"raw": None}], "train_auc": 0.5}


def test_a_folder_that_holds_a_run_is_left_as_it_is(tmp_path):
    first, late = Recorder(tmp_path, "first", {}), Recorder(tmp_path, "late", {})
    first.begin()
    first.write([Row(0, "train", metric="loss", value=1.0)])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(UserError, match="already holds a run"):
        Recorder(tmp_path, "second", {})
    with pytest.raises(UserError, match="already holds a run"):
        late.begin()  # it looked before the first one began
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="hydra.run.dir"):
        Recorder(tmp_path / "file" / "run", "", {}).begin()


def test_a_run_that_never_began_leaves_the_folder_free(tmp_path):
    Recorder(tmp_path / "run", "", {})
    assert not (tmp_path / "run").exists()


def test_quiet_prints_only_what_must_not_be_missed(tmp_path, capsys):
    recorder = Recorder(tmp_path, "", {}, quiet=True)
    recorder.say("an epoch")
    recorder.say("a skipped attack", always=True)
    assert capsys.readouterr().out == "a skipped attack\n"
    assert (tmp_path / "train.log").read_text() == "an epoch\na skipped attack\n"
