"""`vflbench.audit` of arrays: the numbers of the command, what is found and what isn't, and what is refused."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hydra import compose, initialize_config_dir
from support.warm_command import command

import vflbench
from vflbench.errors import UserError
from vflbench.files import config_folder
from vflbench.numerics.system import flushes_denormals
from vflbench.results.table import load

ROWS, BATCHES, WIDTH = 64, 12, 4


def made():
    """Embeddings and gradients of noise, and labels; the gradients' length is the label and one."""
    rng = np.random.default_rng(4)
    labels = [rng.integers(0, 2, ROWS) for _ in range(BATCHES)]
    h, g = rng.normal(size=(2, BATCHES, ROWS, WIDTH)).astype(np.float32)
    g *= (1 + np.array(labels))[..., None] / np.linalg.norm(g, axis=2, keepdims=True)
    return {"embeddings": list(h), "gradients": list(g), "labels": labels}


def leak_lines(text):
    return [line for line in text.splitlines() if ",leak_" in line]


@pytest.mark.slow
def test_an_audit_of_arrays_has_the_numbers_of_the_command_bit_for_bit(tmp_path):
    arrays, options = made(), ("attack=[norm,cosine,spectral]", "seed=3", "audit.batches=5", "audit.probe=false")
    ids = [np.arange(ROWS) + ROWS * step for step in range(BATCHES)]
    for step, (h, g) in enumerate(zip(arrays["embeddings"], arrays["gradients"], strict=True)):
        place = {"party": "features", "ids": ids[step], "step": step}
        vflbench.write_batch(tmp_path / "recorded", embeddings={"cut": h}, gradients={"cut": g}, **place)
    table = {"id": np.concatenate(ids), "label": np.concatenate(arrays["labels"])}
    pq.write_table(pa.table(table), tmp_path / "recorded" / "labels.parquet")
    result = command("audit", "recorded", *options, "--out", "audited", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    report = vflbench.audit(**arrays, attack=["norm", "cosine", "spectral"], seed=3, batches=5, probe=False)
    expected = leak_lines((tmp_path / "audited" / "metrics.csv").read_text())
    assert len(expected) >= 18
    assert leak_lines(report.files["metrics.csv"].decode()) == expected
    assert report.table.schema == load(tmp_path / "audited").schema
    text = (tmp_path / "audited" / "table.txt").read_text()
    taken = report.text.partition("CPU seconds of")[0]  # times aside
    assert taken.replace("in_memory/arrays", "recorded") in text.replace(f"{tmp_path.name}/recorded", "recorded")
    assert " ".join(report.verdict.split()) in " ".join(result.stdout.split())


@pytest.mark.slow
def test_a_planted_leak_is_found_in_torch_tensors_and_shown(tmp_path):
    arrays = {name: [torch.tensor(of) for of in batches] for name, batches in made().items()}
    report = vflbench.audit(**arrays, attack="norm", probe=False)
    assert report.verdict.startswith("Gradients at the cut give 100 % of label pairs away")
    assert repr(report) == report.text
    assert " ".join(report.text.split()).startswith(report.verdict)
    assert re.search(r"^norm +gradient +features +cut +1\.000", report.text, re.MULTILINE)
    assert "<pre" in report._repr_html_()
    report.save(tmp_path / "audited")
    assert "100 % of label pairs" in (tmp_path / "audited" / "report" / "report.html").read_text()
    assert command("report", "audited", cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_the_process_that_asks_stays_as_it_was(tmp_path):
    """In an application of Hydra's, without gradients; no path of a folder that is gone is left in what is saved."""
    before = torch.get_float32_matmul_precision(), flushes_denormals(), torch.get_num_threads()
    with initialize_config_dir(str(config_folder()), version_base="1.3"), torch.inference_mode():
        report = vflbench.audit(**made(), attack="norm")
        assert compose("audit", ["recording=x"]).recording == "x"
    assert (torch.get_float32_matmul_precision(), flushes_denormals(), torch.get_num_threads()) == before
    report.save(tmp_path / "audited")
    assert not any(b"/tmp" in file.read_bytes() for file in (tmp_path / "audited").rglob("*.*") if file.is_file())
    with pytest.raises(UserError, match="folder=.*: it can't be written"):
        report.save(tmp_path / "audited" / "manifest.json")


H, Y = np.ones((6, 3), "f4"), np.array([0, 1] * 3)
NAN = np.where(np.arange(18).reshape(6, 3) == 7, np.nan, H)
MISTAKES = {
    "nothing": ({}, r"^embeddings or gradients: missing: an array, or a list with one a batch$"),
    "rows": ({"embeddings": H, "labels": Y[:5]}, r"^embeddings=\[\(6, 3\)\]: .* the rows of labels: \[\(5,\)\]$"),
    "widths": ({"embeddings": [H, H[:, :2]], "labels": [Y, Y]}, r"^embeddings=.* need one width"),
    "nan": ({"embeddings": [H, NAN], "labels": [Y, Y]}, r"^embeddings: .* not finite \(NaN .*leave the batch out, step 1$"),
    "a missing label": ({"embeddings": H, "labels": np.where(Y, np.nan, 0)}, "^labels=nan: .* none is missing$"),
    "-1 and 1": ({"embeddings": H, "labels": 2 * Y - 1}, "^labels=-1: .* whole numbers from 0 to 999"),
    "one-hot": ({"embeddings": H, "labels": np.eye(2)[Y]}, r"^labels=\(6, 2\): there must be one label a row"),
    "two labels": ({"embeddings": [H] * 2, "labels": [Y, 1 - Y], "ids": [np.arange(6)] * 2}, "^ids=0: .* two labels"),
    "an attack": ({"embeddings": H, "labels": Y, "attack": "nrom"}, "^attack=nrom: .* did you mean norm"),
    "no name": ({"embeddings": H, "labels": Y, "attack": torch.nn.ReLU()}, "^attack=.*: it must be the name of an attack, "),
    "no option": ({"gradients": H, "labels": Y, "embedings": H}, r"^embedings=.* there is no such option"),
}


@pytest.mark.parametrize(("arrays", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_refused_names_the_argument_and_no_folder(arrays, message):
    with pytest.raises(vflbench.UserError, match=message) as refused:
        vflbench.audit(**arrays)
    assert "/tmp" not in str(refused.value)
    assert "\n" not in str(refused.value)
