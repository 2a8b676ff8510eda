"""What a partner may put into a recording: whatever is no recording is refused in a paragraph that says what is wrong."""

import json
import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.recordings_by_hand import Told, as_safetensors, framed, manifest_of, safetensors_bytes, table_bytes, write

from vflbench.attacks.completion import Completion
from vflbench.attacks.hints import Hints
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.errors import UserError
from vflbench.messages.tables import read_features
from vflbench.run.offline import audit_recording

ROWS = 12
IDS = np.arange(2 * ROWS)
LABELS = IDS * 7 % 10 < 4
LAYERS = {"f1": 2, "cut": 2}
PARTIES = {"a": {"layers": LAYERS}, "b": {"layers": LAYERS}}
N = 4
H = np.ones((N, 2), np.float32)
GOOD = {"dtype": "I64", "shape": [N], "data_offsets": [0, 8 * N]}


def labels(**changes):
    made = {"id": IDS, "label": LABELS.astype(np.int64), **changes}
    return table_bytes({name: values for name, values in made.items() if values is not None})


def gradients(epoch, step, ids, **more):
    rng = np.random.default_rng(step)
    return Told(epoch, step, ids, {"gradient/cut": rng.standard_normal((len(ids), 2)).astype("<f4")}, **more)


def batches():
    """Of two epochs."""
    return [gradients(epoch, step, ids) for epoch in (0, 1) for step, ids in enumerate((IDS[::2], IDS[1::2]))]


TABLES = {"labels.parquet": labels(), "known.parquet": table_bytes({"id": IDS[:8], "label": LABELS[:8]})}


@pytest.fixture
def folder(tmp_path):
    """A recording of the parties a and b."""
    content = as_safetensors(batches())
    shards = {f"{party}-0.safetensors": content for party in "ab"}
    return write(tmp_path / "recording", manifest_of({"a": LAYERS, "b": LAYERS}, batch_size=ROWS), shards, TABLES)


@pytest.fixture
def run(tmp_path):
    """As one of vflbench's own runs."""
    head = {"seed": 3, "batches": "all", "epochs": "all", "steps": [2, 2], "recorded": [[0, 1], [0, 1]]}
    manifest = manifest_of({"a": LAYERS}, class_shares=[0.5, 0.5], complete=True)
    shards = {f"a-{i}.safetensors": as_safetensors([one]) for i, one in enumerate(batches())}
    return write(tmp_path / "run", manifest, shards, {**TABLES, "run.json": json.dumps(head).encode()})


def refusal(folder, **attacks):
    """The paragraph with which an audit ends."""
    with pytest.raises(UserError) as caught:
        audit_recording(folder, attacks or {"norm": Norm()}, probe=False)
    text = str(caught.value)
    assert text.isprintable(), text
    assert len(text) < 1200, text
    return text


def assert_refused(folder, name, content, expected, **attacks):
    """With this content of a file, an audit ends with a paragraph that names the file and says what is wrong."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    text = refusal(folder, **attacks)
    assert name in text or str(path) in text, text
    assert expected in text, text


def of_parties(folder, **messages):
    """The same recording with these messages in place of all others. messages: party -> batches, or the bytes of a shard."""
    for path in (folder / "messages").iterdir():
        path.unlink()
    for party, content in messages.items():
        made = content if isinstance(content, bytes) else as_safetensors(content)
        (folder / "messages" / f"{party}-0.safetensors").write_bytes(made)
    return folder


def tensors(**changes):
    made = {"0/ids": np.arange(N), "0/embedding/f1": H, "0/gradient/f1": H}
    return safetensors_bytes(made | {"0/" + name.replace("__", "/"): values for name, values in changes.items()})


def header(described, **more):
    """A file whose header says this of 0/ids."""
    return framed(json.dumps({"0/ids": described, **more}).encode(), bytes(8 * N))


SHARDS = {
    "a header cut off": (tensors()[:60], "can't be read"),
    "a type of eight bits": (header({**GOOD, "dtype": "F8_E4M3"}), "can't be read"),
    "a step of 10^30": (header(GOOD, __metadata__={"0": '{"step": 1' + "0" * 30 + "}"}), "metadata of 0: step"),
    "no ids": (safetensors_bytes({"0/embedding/f1": H}), "0/ids: there must be"),
    "an id twice": (tensors(ids=np.array([0, 1, 2, 1])), "id 1 occurs twice in a batch"),
    "fewer rows": (tensors(gradient__f1=H[:3]), "its shape is (3, 2), and it must be (4, width)"),
    "another width": (tensors(gradient__f1=np.ones((N, 3), np.float32)), "its width is 3, and that of the layer is 2"),
    "infinities that cancel": (tensors(embedding__f1=np.array([[np.inf, -np.inf]] * N, np.float32)), "not finite"),
    "beyond float32": (tensors(embedding__f1=np.full((N, 2), 1e300)), "too large for float32"),
    "whole numbers": (tensors(embedding__f1=np.ones((N, 2), np.int64)), "floating-point numbers, not int64"),
    "logits of five classes": (tensors(prediction__logits=np.ones((N, 5), np.float32)), "logits of 2 classes"),
    "categories that are reals": (tensors(columns__categorical=H), "it must hold int32 or int64"),
    "columns of another name": (tensors(columns__text=H), "columns are `columns/numeric`"),
    "models in float32": (tensors(update__before=H[0]), "vectors in float64"),
    "a path for a layer": (tensors(**{"embedding__../../up": H}), "manifest.json has no such layer"),
    "control characters": (tensors(**{"embedding__\x1b[2J": H}), "it is no `KIND/NAME`"),
    "negative categories": (tensors(columns__categorical=np.full((N, 1), -1)), "ids of categories"),
    "half of an update": (tensors(update__before=np.ones(3)), "before, sent and after must be there"),
} | {f"the step {step!r}": (safetensors_bytes({f"{step}/ids": IDS}), "is no `STEP/KIND/NAME`") for step in ("007", "٣", "a")}


def test_shards_that_are_refused(folder):
    audit_recording(of_parties(folder, a=tensors()), {"norm": Norm()}, probe=False)  # the frame of the others is sound
    for case, (content, expected) in SHARDS.items():
        text = refusal(of_parties(folder, a=content))
        assert "messages/a-0.safetensors can't be read: " in text, (case, text)
        assert expected in text, (case, text)


def test_a_batch_that_does_not_fit_memory_is_refused(folder):
    """A sparse file of 80 GB whose header fits it."""
    n = 10**10
    described = json.dumps({"0/ids": {"dtype": "I64", "shape": [n], "data_offsets": [0, 8 * n]}}).encode()
    path = of_parties(folder, a=framed(described)) / "messages" / "a-0.safetensors"
    os.truncate(path, len(framed(described)) + 8 * n)
    assert "the batch has 80,000,000,000 bytes, and 2,147,483,648 are read at most" in refusal(folder)


MANIFESTS = [
    ({"format": "vflbench-messages/2"}, "can't be read: its format is 'vflbench-messages/2'"),
    ({"klass": 2}, "klass"),
    ({"parties": {**PARTIES, "../up": {"layers": LAYERS}}}, "'../up' is no name"),
    ({"parties": {"a": {"layers": LAYERS, "cut": ["f9"]}}}, "some of its layers, each once, not 'f9'"),
    ({"parties": {f"p{i}": {"layers": {}} for i in range(65)}}, "parties"),
    ({"labels": "../label"}, "labels"),
    ({"class_shares": [1.0, 1.0]}, "class_shares: they must add up to 1"),
    ({"producer": "x" * 2**20}, "it is larger than 1,048,576 bytes"),
]
TEXTS = ["", "[" * 10**5, "[]", '{"format": "\\ud800"}', "\udcff"]


def test_manifests_that_are_refused(folder):
    plain = json.loads((folder / "manifest.json").read_text())
    for changes, expected in MANIFESTS:
        assert_refused(folder, "manifest.json", json.dumps({**plain, **changes}).encode(), expected)
    for text in TEXTS:
        assert_refused(folder, "manifest.json", text.encode(errors="surrogateescape"), "can't be read: ")


HEADS = [
    ({"steps": [2]}, "run.json speaks of 0 steps in epoch 1, and there are messages"),
    ({"steps": [2, 1]}, "run.json speaks of 1 steps in epoch 1, and there are messages of step 1"),
    ({"steps": [2, 2] + [10**7 - 1] * 9_998}, "rounds of epoch 2 are missing, the first at step 0"),
    ({"code": "x"}, "code"),
]


def test_heads_of_runs_that_are_refused(run):
    path = run / "run.json"
    plain = json.loads(path.read_text())
    for changes, expected in HEADS:
        path.write_text(json.dumps({**plain, **changes}))
        assert expected in refusal(run)
    path.write_text(json.dumps({**plain, "seed": 10**4000}))
    audit_recording(run, {"norm": Norm()}, probe=False)  # any whole number seeds a generator


def test_a_run_that_names_no_rounds_to_attack_is_not_taken_for_one_without_leaks(run):
    """A partner who may write run.json can't make an audit look at nothing."""
    for name, changes in (("manifest", {"complete": False}), ("run", {"recorded": [], "steps": [9, 9], "batches": 3})):
        path = run / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    audit_recording(run, {"norm": Norm()}, probe=False)  # steps 0, 4 and 8 are named, and step 0 is there
    for number in (0, 2):
        (run / "messages" / f"a-{number}.safetensors").unlink()
    assert "none of the rounds that run.json names is there to be attacked" in refusal(run)


REFUSED_LABELS = [
    (pickle.dumps({"id": [1]}), "can't be read"),
    (labels(label=None), "it has no column label"),
    (labels(id=np.where(IDS == 3, 5, IDS)), "id 5 is there twice"),
    (labels(id=pa.array(IDS, pa.timestamp("s"))), "column id must hold a whole number"),
    (labels(id=pa.array(2**63 + IDS.astype(np.uint64))), "can't be read"),
    (labels(label=pa.array([None, *LABELS[1:].tolist()])), "column label must hold"),
    (labels(label=-LABELS.astype(int)), "column label holds -1 to 0, and classes are 0 to 1"),
]


@pytest.mark.parametrize("name", ["labels.parquet", "known.parquet"])
def test_labels_that_are_refused(folder, name):
    for content, expected in REFUSED_LABELS:
        assert_refused(folder, name, content, expected, hints=Hints(k=2))


def test_labels_and_columns_that_lack_rows_of_the_messages(folder):
    (folder / "labels.parquet").write_bytes(table_bytes({"id": IDS[:-1], "label": LABELS[:-1]}))
    assert "there is no label of 1 rows" in refusal(folder)
    (folder / "labels.parquet").unlink()
    assert "there are no labels to grade answers with" in refusal(folder)
    (folder / "labels.parquet").write_bytes(labels())
    lacking = table_bytes({"id": IDS[:-1], "x": IDS[:-1] * 1.0})
    assert_refused(folder, "features/a.parquet", lacking, "it lacks rows of the messages")


def test_columns_that_are_refused_and_texts_that_are_categories(folder):
    for changes, expected in (
        ({"x": np.where(IDS == 3, np.nan, 0.0)}, "not finite"),
        ({"x": pa.array([None] * len(IDS), pa.float32())}, "column x has rows without a value"),
        ({"c": IDS + 2**40}, "ids of categories are whole numbers from 0"),
    ):
        assert_refused(folder, "features/a.parquet", table_bytes({"id": IDS, **changes}), expected)
    path = folder / "features" / "a.parquet"
    texts = ["b", "a", "", "b"] * (len(IDS) // 4)
    for column in (texts, pa.array(texts).dictionary_encode(), pa.array(texts, pa.large_string())):
        path.write_bytes(table_bytes({"id": IDS, "t": column, "x": IDS * 0.5}, row_group_size=5))
        columns = read_features(path)
        codes = columns.categorical[:, 0].tolist()
        assert len(set(zip(texts, codes, strict=True))) == len(set(texts)) == len(set(codes))
        assert columns.numeric[:, 0].tolist() == (IDS * 0.5).tolist()


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a device", "a link"])
def test_pipes_folders_devices_and_links_are_refused_and_never_waited_for(run, kind):
    (run / "elsewhere").write_bytes(b"PAR1")
    make = {
        "a pipe": os.mkfifo,
        "a folder": os.mkdir,
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "a link": lambda path: path.symlink_to(run / "elsewhere"),
    }[kind]
    names = ["manifest.json", "run.json", "labels.parquet", "known.parquet", "features/a.parquet", "samples/20000.parquet"]
    names += ["messages/a-0.safetensors", "messages/a-9.safetensors", "private/0000_00000000.safetensors"]
    for name in names:
        path = run / name
        path.parent.mkdir(exist_ok=True)
        content = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        make(path)
        text = refusal(run, completion=Completion(known=4))
        assert path.name in text, (name, text)
        path.rmdir() if kind == "a folder" else path.unlink()
        if content is not None:
            path.write_bytes(content)


def test_files_of_other_kinds_and_names_are_refused_and_never_run(folder, tmp_path):
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self):
            return open, (str(trap), "w")

    pickled = pickle.dumps(Trap())
    names = ["a-0.pt", "a.safetensors", "a-1.safetensors\n", "a-٣.safetensors", "..-1.safetensors", ".hidden", "\udcff-1.pt"]
    for name in names:
        path = folder / "messages" / name
        path.write_bytes(pickled)
        assert "only files PARTY-NNN.safetensors belong there" in refusal(folder), name
        path.unlink()
    (folder / "messages" / "a-7.safetensors").write_bytes(pickled)
    assert "a-7.safetensors can't be read" in refusal(folder)
    (folder / "messages" / "a-7.safetensors").rename(folder / "messages" / "c-0.safetensors")
    assert "manifest.json has no party c" in refusal(folder)
    (folder / "messages" / "c-0.safetensors").unlink()
    marks = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled}
    schema = pa.schema([pa.field("id", pa.int64(), metadata=marks), pa.field("label", pa.int64())])
    pq.write_table(pa.table([IDS, LABELS.astype(np.int64)], schema=schema), folder / "labels.parquet")
    # Arrow once unpickled the types that a file named (CVE-2023-47248)
    audit_recording(folder, {"norm": Norm()}, probe=False)
    assert not trap.exists()
    (folder / "messages").rename(tmp_path / "elsewhere")
    (folder / "messages").symlink_to(tmp_path / "elsewhere")
    assert "there is no folder messages in it" in refusal(folder)


def test_parties_and_rounds_that_do_not_fit(folder):
    one, two, more = gradients(0, 0, IDS[:9]), gradients(0, 1, IDS[9:]), gradients(0, 1, IDS[8:])
    assert "party b has no messages of epoch 0, step 1, and a has" in refusal(of_parties(folder, a=[one, two], b=[one]))
    assert "party b has other ids than the other parties" in refusal(of_parties(folder, a=[one, two], b=[one, more]))
    assert "epoch 0, step 0 of party a is there twice" in refusal(of_parties(folder, a=[one, one]))
    assert "there are no messages of training" in refusal(of_parties(folder, a=[gradients(0, 0, IDS[:9], phase="end")]))


def test_odd_recordings_are_audited(folder):
    """One batch, batches of one row or of different sizes, epochs and steps with gaps, one party of two, one class."""
    cases = {
        "rows alone": [gradients(0, i, IDS[i : i + 1]) for i in range(len(IDS))],
        "different sizes": [gradients(0, 0, IDS[:3]), gradients(0, 1, IDS[3:])],
        "gaps": [gradients(epoch, step, IDS) for epoch, step in ((3, 7), (3, 900), (70, 0), (10**6 - 1, 10**9 - 1))],
        "one batch": [gradients(0, 0, IDS)],
    }
    for case, given in cases.items():
        result = audit_recording(of_parties(folder, a=given), {"norm": Norm(), "spectral": Spectral(message="gradients")})
        assert result.skipped == {}, case
        assert len(result.findings) == len({one.epoch for one in given}), case
        assert "party b has no messages here" in " ".join(result.notes), case
    (folder / "labels.parquet").write_bytes(table_bytes({"id": IDS, "label": np.zeros(len(IDS), np.int64)}))
    assert audit_recording(folder, {"norm": Norm()}).unscored
