"""write_batch: NumPy arrays become the files that docs/reference/messages.md describes."""

import json
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open

from vflbench import UserError, write_batch


def read(path):
    """Name -> values, and the place of the only batch."""
    with safe_open(path, "pt") as file:
        ((step, place),) = file.metadata().items()
        return {name.removeprefix(f"{step}/"): file.get_tensor(name) for name in sorted(file.keys())}, json.loads(place)


def arrays(rng, dtype=np.float32):
    h = rng.normal(size=(5, 3)).astype(dtype)
    return h, (h * 0.5).astype(dtype)


@pytest.fixture
def generator():
    return np.random.default_rng(3)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_a_batch_is_written_as_it_is(tmp_path, generator, dtype):
    h, g = arrays(generator, dtype)
    ids = np.arange(5, dtype=np.int32) * 7
    path = write_batch(
        tmp_path,
        party="media",
        ids=ids,
        embeddings={"cut": h},
        gradients={"cut": g},
        summed_gradients={"weight": np.ones((3, 4), dtype)},
        numeric=h[:, :2],
        categorical=ids[:, None],
        epoch=1,
        step=12,
        y=[True, False, True, False, True],
        claims={"label_dp": {"eps": 2.0}},
        model={"test_auc": 0.7},
    )
    batch, place = read(path)
    assert place == {"epoch": 1, "step": 12, "phase": "train"}
    for name, expected in {"embedding/cut": h, "gradient/cut": g, "columns/numeric": h[:, :2]}.items():
        assert np.array_equal(batch[name].numpy(), expected)
        assert batch[name].numpy().dtype == np.dtype(dtype).newbyteorder("=")
    assert batch["ids"].tolist() == batch["columns/categorical"].flatten().tolist() == ids.tolist()
    assert batch["summed_gradient/weight"].shape == (3, 4)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["parties"] == {"media": {"layers": {"cut": 3}, "cut": []}}
    assert (manifest["batch_size"], manifest["claims"]["label_dp"]["eps"], manifest["model"]) == (5, 2.0, {"test_auc": 0.7})
    assert pq.read_table(tmp_path / "labels.parquet").to_pydict() == {"id": ids.tolist(), "label": [1, 0, 1, 0, 1]}


def test_steps_follow_one_another_and_parties_share_a_folder(tmp_path, generator):
    for party in ("shop", "media"):
        for number in range(3):
            h, g = arrays(generator)
            layers = {"a": h, "b": g[:, 0]}
            write_batch(
                tmp_path, party=party, ids=range(5), embeddings=layers, gradients=layers, cut="b", y=[number > 5] * 5
            )
        write_batch(tmp_path, party=party, ids=range(5), embeddings=layers, epoch=2)
    names = sorted(path.name for path in (tmp_path / "messages").iterdir())
    assert names == [f"{p}-{n:08d}.safetensors" for p in ("media", "shop") for n in (0, 1, 2, 200000000)]
    of_party = {"layers": {"a": 3, "b": 1}, "cut": ["b"]}
    assert json.loads((tmp_path / "manifest.json").read_text())["parties"] == {"media": of_party, "shop": of_party}


def test_a_batch_is_not_replaced_unasked(tmp_path, generator):
    h, g = arrays(generator)
    path = write_batch(tmp_path, party="media", ids=range(5), embeddings={"cut": h}, step=4)
    with pytest.raises(
        UserError, match=r"step=4 of epoch 0: this batch is there already.* write_batch\(overwrite=True\) replaces it"
    ):
        write_batch(tmp_path, party="media", ids=range(5), embeddings={"cut": g}, step=4)
    assert np.array_equal(read(path)[0]["embedding/cut"].numpy(), h)
    write_batch(tmp_path, party="media", ids=range(5), embeddings={"cut": g}, step=4, overwrite=True)
    assert np.array_equal(read(path)[0]["embedding/cut"].numpy(), g)


H = np.ones((3, 2), np.float32)
REFUSED = {
    "nothing": ({"embeddings": None}, "a batch has embeddings, gradients or summed_gradients"),
    "rows": ({"embeddings": {"cut": H[:2]}}, r"embeddings=\(2, 2\): .* it must be \(3, width\), as there are 3 ids"),
    "NaN": (
        {"embeddings": {"cut": H * np.nan}},
        "embeddings: embedding/cut: it has numbers that are not finite .*; leave the batch out, step 0",
    ),
    "a row twice": ({"ids": [1, 1, 2]}, "id 1 is there more than once"),
    "an epoch": ({"epoch": -1}, "epoch=-1: it is counted from 0"),
    "a class": ({"y": [0, 1, 2]}, "labels=2: labels of 2 `classes` are whole numbers from 0 to 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_format_does_not_take_is_refused_before_anything_is_written(tmp_path, name):
    changed, message = REFUSED[name]
    with pytest.raises(UserError, match=message):
        write_batch(tmp_path / "r", **({"party": "media", "ids": range(3), "embeddings": {"cut": H}} | changed))
    assert not list(tmp_path.rglob("*.safetensors"))
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", "deleted"])
def test_labels_that_wait_are_those_of_their_folder_and_are_not_lost(tmp_path, how):
    """By forked workers, and where a folder is made again."""
    script = (
        "import multiprocessing, shutil, sys, numpy as np\n"
        "from vflbench import write_batch\n"
        "def record(party, start, batches, shift=0):\n"
        "    for n in range(start, start + batches):\n"
        "        ids = np.arange(10 * n, 10 * n + 10)\n"
        "        write_batch('r', party=party, ids=ids, embeddings={'cut': np.ones((10, 2), 'f4')}, y=(ids + shift) % 2)\n"
        "how = sys.argv[1]\n"
        "record('a', 0, 22)\n"
        "if how == 'fork':\n"
        "    worker = multiprocessing.get_context('fork').Process(target=record, args=('b', 22, 32))\n"
        "    worker.start(); worker.join()\n"
        "else:\n"
        "    shutil.rmtree('r'); record('a', 0, 3, shift=1)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, how], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    table = pq.read_table(tmp_path / "r" / "labels.parquet").to_pydict()
    shift, rows = (1, 30) if how == "deleted" else (0, 540)
    assert table["label"] == [(row + shift) % 2 for row in table["id"]]
    assert table["id"] == list(range(rows))


def test_another_width_is_refused(tmp_path):
    write_batch(tmp_path, party="media", ids=range(3), embeddings={"cut": H})
    with pytest.raises(UserError, match=r"layer=cut: it has 1 columns here, and 2 in manifest.json"):
        write_batch(tmp_path, party="media", ids=range(3), embeddings={"cut": H[:, :1]})
    assert len(list((tmp_path / "messages").iterdir())) == 1
