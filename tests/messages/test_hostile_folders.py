"""What a malicious partner may do with the files around the messages, and with their sizes; each gets a paragraph."""

import io
import json
import os
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_folders import copied, one_batch, refusal
from mutated_recordings import ROWS, recordings
from recordings_by_hand import Told, as_safetensors, framed, manifest_of, table_bytes

from vflbench.attacks.completion import Completion
from vflbench.attacks.hints import Hints
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.run.offline import audit

IDS = np.arange(2 * ROWS)
LABELS = IDS * 7 % 10 < 4


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return recordings(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sources, tmp_path):
    return copied(sources[0], tmp_path / "recording")


@pytest.fixture
def run(sources, tmp_path):
    """As one of vflbench's own runs."""
    return copied(sources[1], tmp_path / "run")


LAYERS = {"f1": 2, "cut": 2}
PARTIES = {"a": {"layers": LAYERS}, "b": {"layers": LAYERS}}
MANIFESTS = {
    "another format": ({"format": "vflbench-messages/2"}, "its format is 'vflbench-messages/2'"),
    "a format that is a list": ({"format": [1]}, "its format is '[1]'"),
    "a misspelt key": ({"klass": 2}, "klass"),
    "one class": ({"classes": 1}, "classes"),
    "too many classes": ({"classes": 10**6}, "classes"),
    "text for classes": ({"classes": "many"}, "classes"),
    "no parties": ({"parties": {}}, "parties"),
    "a party in a list": ({"parties": [PARTIES]}, "parties"),
    "a path for a party": ({"parties": {**PARTIES, "../up": {"layers": LAYERS}}}, "parties: '../up' is no name"),
    "an absolute path": ({"parties": {**PARTIES, "/etc": {"layers": LAYERS}}}, "parties: '/etc' is no name"),
    "a party of no name": ({"parties": {**PARTIES, "": {"layers": LAYERS}}}, "parties: '' is no name"),
    "two dots": ({"parties": {**PARTIES, "..": {"layers": LAYERS}}}, "parties: '..' is no name"),
    "escapes": ({"parties": {**PARTIES, "\x1b[2J": {"layers": LAYERS}}}, "is no name"),
    "65 parties": ({"parties": {f"p{i}": {"layers": {}} for i in range(65)}}, "parties"),
    "1001 layers": ({"parties": {"a": {"layers": {f"f{i}": 1 for i in range(1001)}}}}, "more than 1000 layers"),
    "a width of 0": ({"parties": {"a": {"layers": {"f1": 0}}}}, "parties.a.layers.f1"),
    "a width of 10^18": ({"parties": {"a": {"layers": {"f1": 10**18}}}}, "parties.a.layers.f1"),
    "a layer without a name": ({"parties": {"a": {"layers": {"": 1}}}}, "a layer of a has a name"),
    "a layer of control characters": ({"parties": {"a": {"layers": {"\n": 1}}}}, "a layer of a has a name"),
    "a layer of 201 characters": ({"parties": {"a": {"layers": {"x" * 201: 1}}}}, "a layer of a has a name"),
    "a cut that isn't there": ({"parties": {"a": {"layers": LAYERS, "cut": ["f9"]}}}, "cut layer 'f9' of a"),
    "a cut layer twice": ({"parties": {"a": {"layers": LAYERS, "cut": ["f1", "f1"]}}}, "a cut layer that is there twice"),
    "no label party": ({"labels": "../label"}, "labels"),
    "shares of one class": ({"class_shares": [1.0]}, "class_shares: there are 1, for 2 classes"),
    "shares that add up to 2": ({"class_shares": [1.0, 1.0]}, "class_shares: they must add up to 1"),
    "shares below 0": ({"class_shares": [1.5, -0.5]}, "class_shares"),
    "no rows a batch": ({"batch_size": 0}, "batch_size"),
    "eps below 0": ({"claims": {"label_dp": {"eps": -1}}}, "claims.label_dp.eps"),
    "another claim": ({"claims": {"safe": True}}, "claims"),
    "a figure above 1": ({"model": {"test_auc": 1.5}}, "model"),
    "rules of another kind": ({"rules": {"parties": -2}}, "rules"),
    "a producer of 1 MB": ({"producer": "x" * 2**20}, "it is larger than 1,048,576 bytes"),
}
TEXTS = {
    "nothing": "",
    "a list": "[]",
    "a number": "3",
    "no JSON": "{",
    "no end": "[" * 10**5,
    "half a pair": '{"format": "' + "\\ud800" * 3 + '"}',
    "a huge number": '{"classes": ' + "9" * 5000 + "}",
    "a key twice": '{"classes": 2, "classes": 3}',
    "NaN": '{"classes": NaN}',
    "no text": "\udcff",
}


def test_manifests_that_are_refused(folder):
    path = folder / "manifest.json"
    plain = json.loads(path.read_text())
    for case, (changes, expected) in MANIFESTS.items():
        path.write_text(json.dumps({**plain, **changes}))
        text = refusal(folder)
        assert "manifest.json can't be read: " in text, case
        assert expected in text, (case, text)
    for case, content in TEXTS.items():
        path.write_text(content, errors="surrogateescape")
        assert "manifest.json can't be read: " in refusal(folder), case
    for key in ("format", "classes", "parties"):
        path.write_text(json.dumps({name: value for name, value in plain.items() if name != key}))
        assert "manifest.json can't be read: " in refusal(folder), key


def test_a_manifest_of_a_gigabyte_is_not_read(folder):
    os.truncate(folder / "manifest.json", 2**30)
    assert "it is larger than 1,048,576 bytes" in refusal(folder)


HEADS = {
    "a seed below 0": ({"seed": -1}, "seed"),
    "a seed that is text": ({"seed": "x"}, "seed"),
    "10,001 epochs": ({"steps": [1] * 10_001}, "steps"),
    "steps below 0": ({"steps": [-1, 2]}, "steps"),
    "10^7 steps": ({"steps": [10**7, 2]}, "steps"),
    "another epoch": ({"steps": [2]}, "run.json speaks of 1 epochs, and there are messages of epoch 1"),
    "no epochs": ({"steps": []}, "run.json speaks of 0 epochs, and there are messages of epoch 0"),
    "fewer steps": ({"steps": [1, 2]}, "run.json speaks of 1 steps in epoch 0, and there are messages of step 1"),
    "more steps": ({"steps": [2, 3]}, "rounds of epoch 1 are missing, the first at step 2"),
    "10^7 - 1 steps": ({"steps": [2, 10**7 - 1]}, "rounds of epoch 1 are missing, the first at step 2"),
    "10,000 epochs": ({"steps": [2, 2] + [10**7 - 1] * 9_998}, "rounds of epoch 2 are missing, the first at step 0"),
    "batches below 0": ({"batches": -1}, "batches"),
    "other epochs": ({"epochs": "some"}, "epochs"),
    "an unknown key": ({"code": "x"}, "code"),
}


@pytest.mark.slow
def test_heads_of_runs_that_are_refused(run):
    path = run / "run.json"
    plain = json.loads(path.read_text())
    audit(run, {"norm": Norm()}, probe=False)
    for case, (changes, expected) in HEADS.items():
        path.write_text(json.dumps({**plain, **changes}))
        text = refusal(run)
        assert expected in text, (case, text)
    for case, content in TEXTS.items():
        path.write_text(content, errors="surrogateescape")
        assert "run.json can't be read: " in refusal(run), case
    path.write_text(json.dumps({**plain, "seed": 10**4000}))
    audit(run, {"norm": Norm()}, probe=False)  # any whole number seeds a generator


def test_a_run_that_names_no_rounds_to_attack_is_not_taken_for_one_without_leaks(run):
    """A partner who may write run.json can't make an audit look at nothing."""
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "complete": False}))
    plain = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**plain, "recorded": [], "steps": [9, 9], "batches": 3}))
    audit(run, {"norm": Norm()}, probe=False)  # steps 0, 4 and 8 are named, and step 0 is there
    for name in ("a-0.safetensors", "a-3.safetensors"):
        (run / "messages" / name).unlink()
    assert "none of the rounds that run.json names is there to be attacked" in refusal(run)


def labels(**changes):
    made = {"id": IDS, "label": LABELS.astype(np.int64), **changes}
    return table_bytes({name: values for name, values in made.items() if values is not None})


def twice_named():
    sink = pa.BufferOutputStream()
    table = pa.table({"id": IDS, "label": LABELS})
    pq.write_table(table.append_column("label", table.column("label")), sink)
    return sink.getvalue().to_pybytes()


TABLES = {
    "nothing": (b"", "can't be read"),
    "text": (b"id,label\n1,0\n", "can't be read"),
    "a pickle": (pickle.dumps({"id": [1]}), "can't be read"),
    "cut off": (labels()[:-20], "can't be read"),
    "no ids": (labels(id=None), "it has no column id"),
    "no labels": (labels(label=None), "it has no column label"),
    "a column twice": (twice_named(), "two of its columns have one name"),
    "an id twice": (labels(id=np.where(IDS == 3, 5, IDS)), "id 5 is there twice"),
    "ids that are text": (labels(id=[str(i) for i in IDS]), "column id must hold a whole number in every row, not"),
    "ids that are reals": (labels(id=IDS * 1.0), "column id must hold a whole number in every row, not double"),
    "ids that are times": (labels(id=pa.array(IDS, pa.timestamp("s"))), "column id must hold a whole number"),
    "a missing id": (labels(id=pa.array([None, *IDS[1:].tolist()])), "column id must hold a whole number"),
    "ids of 2^63": (labels(id=pa.array(2**63 + IDS.astype(np.uint64))), "can't be read"),
    "a missing label": (labels(label=pa.array([None, *LABELS[1:].tolist()])), "column label must hold"),
    "labels that are text": (labels(label=["a"] * len(IDS)), "column label must hold"),
    "labels that are reals": (labels(label=LABELS * 1.0), "column label must hold"),
    "a class below 0": (labels(label=-LABELS.astype(int)), "column label holds -1 to 0, and classes are 0 to 1"),
    "more classes than said": (labels(label=IDS % 3), "column label holds 0 to 2, and classes are 0 to 1"),
    "lists": (labels(label=pa.array([[1]] * len(IDS))), "column label must hold"),
    "canaries that are numbers": (labels(canary=IDS), "column canary must hold a truth value"),
}


def test_labels_that_are_refused(folder):
    for name in ("labels.parquet", "known.parquet"):
        plain = (folder / name).read_bytes()
        for case, (content, expected) in TABLES.items():
            (folder / name).write_bytes(content)
            text = refusal(folder, hints=Hints(k=2))
            assert name in text, (case, text)
            assert expected in text, (case, text)
        (folder / name).write_bytes(plain)


def test_labels_and_columns_that_lack_rows_of_the_messages(folder):
    (folder / "labels.parquet").write_bytes(table_bytes({"id": IDS[:-1], "label": LABELS[:-1]}))
    assert "there is no label of 1 rows" in refusal(folder)
    (folder / "labels.parquet").write_bytes(table_bytes({"id": IDS[:0], "label": LABELS[:0]}))
    assert f"there is no label of {len(IDS)} rows" in refusal(folder)
    (folder / "labels.parquet").unlink()
    assert "there are no labels to grade answers with" in refusal(folder)
    (folder / "labels.parquet").write_bytes(labels())
    features = folder / "features"
    features.mkdir()
    (features / "a.parquet").write_bytes(table_bytes({"id": IDS[:-1], "x": IDS[:-1] * 1.0}))
    assert "it lacks rows of the messages" in refusal(folder)


FEATURES = {
    "NaN": ({"x": np.where(IDS == 3, np.nan, 0.0)}, "not finite"),
    "a missing value": ({"x": pa.array([None] * len(IDS), pa.float32())}, "column x has rows without a value"),
    "categories below 0": ({"c": -IDS}, "ids of categories are whole numbers from 0"),
    "huge categories": ({"c": IDS + 2**40}, "ids of categories are whole numbers from 0"),
    "dates": ({"x": pa.array(IDS, pa.timestamp("s"))}, "column x must hold numbers or text, not timestamp"),
    "lists": ({"x": pa.array([[1.0]] * len(IDS))}, "column x must hold numbers or text, not list"),
    "bytes": ({"x": pa.array([b"a"] * len(IDS))}, "column x must hold numbers or text, not"),
    "ids that are text": ({"id": [str(i) for i in IDS]}, "column id must hold a whole number"),
    "ids that are reals": ({"id": IDS * 1.0}, "column id must hold a whole number"),
    "a missing id": ({"id": pa.array([None, *IDS[1:].tolist()])}, "column id"),
    "20,001 columns": ({f"x{i}": np.zeros(len(IDS), np.bool_) for i in range(20_001)}, "20,002 columns, and 20,000"),
}


@pytest.mark.slow
def test_columns_that_are_refused(folder):
    path = folder / "features" / "a.parquet"
    path.parent.mkdir()
    for case, (changes, expected) in FEATURES.items():
        path.write_bytes(table_bytes({"id": IDS, **changes}))
        text = refusal(folder)
        assert "a.parquet" in text, (case, text)
        assert expected in text, (case, text)


def test_text_columns_are_categories_equal_where_texts_are(folder):
    path = folder / "features" / "a.parquet"
    path.parent.mkdir()
    texts = ["b", "a", "", "b"] * (len(IDS) // 4)
    from vflbench.messages.tables import read_features

    for column in (texts, pa.array(texts).dictionary_encode(), pa.array(texts, pa.large_string())):
        path.write_bytes(table_bytes({"id": IDS, "t": column, "x": IDS * 0.5}, row_group_size=5))
        columns = read_features(path)
        codes = columns.categorical[:, 0].tolist()
        assert len(set(zip(texts, codes, strict=True))) == len(set(texts)) == len(set(codes))
        assert columns.numeric[:, 0].tolist() == (IDS * 0.5).tolist()


def test_known_rows_that_no_message_is_about_are_left_out(folder):
    far = {"id": np.array([10**15, *IDS[:8].tolist()]), "label": [1, *LABELS[:8].astype(int).tolist()]}
    (folder / "known.parquet").write_bytes(table_bytes(far))
    audit(folder, {"completion": Completion(known=4)}, probe=False)


# Files that are none


def place(path, kind):
    if path.exists():
        path.unlink()
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a link":
        (path.parent / ".elsewhere.tmp").write_bytes(b"PAR1")
        path.symlink_to(path.parent / ".elsewhere.tmp")
    else:
        path.symlink_to(path)


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a device", "a link", "a link to itself"])
def test_pipes_folders_devices_and_links_are_refused_and_never_waited_for(run, kind):
    (run / "samples").mkdir()
    (run / "private").mkdir()
    (run / "features").mkdir()
    names = ["manifest.json", "run.json", "labels.parquet", "known.parquet", "features/a.parquet", "samples/20000.parquet"]
    names += ["messages/a-0.safetensors", "messages/a-9.safetensors", "private/0000_00000000.safetensors"]
    for name in names:
        path = run / name
        content = path.read_bytes() if path.exists() else None
        place(path, kind)
        text = refusal(run, completion=Completion(known=4))
        assert path.name in text, (name, text)
        path.rmdir() if kind == "a folder" else path.unlink()
        if content is not None:
            path.write_bytes(content)
    audit(run, {"norm": Norm()}, probe=False)


def test_the_folder_of_messages_is_no_link(folder, tmp_path):
    (folder / "messages").rename(tmp_path / "elsewhere")
    assert "there is no folder messages in it" in refusal(folder)
    (folder / "messages").symlink_to(tmp_path / "elsewhere")
    assert "there is no folder messages in it" in refusal(folder)


class Trap:
    """Unpickling it would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_files_of_other_kinds_and_names_are_refused_and_never_run(folder, tmp_path):
    trap = tmp_path / "sprung"
    pickled = pickle.dumps(Trap(trap))
    array = io.BytesIO()
    np.save(array, np.array([Trap(trap)], dtype=object), allow_pickle=True)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickled)
    names = [
        "a-0.pt",
        "a-0.npy",
        "a-0.npz",
        "a-0.pkl",
        "a-1.safetensors.gz",
        "a.safetensors",
        "a-.safetensors",
        "a-1.parquet",
    ]
    names += [
        "a-1.safetensors\n",
        "a-٣.safetensors",
        "-1.safetensors",
        "..-1.safetensors",
        "a-1.tmp",
        ".hidden",
        "a-\x1b[2J-1.pt",
        "\udcff-1.pt",
    ]
    for content in (pickled, array.getvalue(), archive.getvalue()):
        for name in names:
            path = folder / "messages" / name
            path.write_bytes(content)
            assert "only files PARTY-NNN.safetensors belong there" in refusal(folder), name
            path.unlink()
        path = folder / "messages" / "a-7.safetensors"
        path.write_bytes(content)
        assert "a-7.safetensors can't be read" in refusal(folder)
        path.unlink()
        for name in ("labels.parquet", "known.parquet", "features.parquet"):
            other = copied(folder, tmp_path / f"with {name} {len(content)}")
            one_batch(other, as_safetensors([Told(0, 0, IDS, {"gradient/f1": np.ones((len(IDS), 2), np.float32)})]))
            if name == "features.parquet":  # it is read where there is one party
                (other / "manifest.json").write_text(json.dumps(manifest_of({"a": LAYERS})))
            (other / name).write_bytes(content)
            assert name in refusal(other)
    assert not trap.exists()
    pickle.loads(pickled).close()
    assert trap.exists()  # it would have worked


def test_types_of_extensions_are_not_built(folder, tmp_path):
    """Arrow once unpickled the Python types that a file named (CVE-2023-47248)."""
    trap = tmp_path / "sprung"
    marks = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(Trap(trap))}
    schema = pa.schema([pa.field("id", pa.int64(), metadata=marks), pa.field("label", pa.int64())])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([IDS, LABELS.astype(np.int64)], schema=schema), sink)
    (folder / "labels.parquet").write_bytes(sink.getvalue().to_pybytes())
    audit(folder, {"norm": Norm()}, probe=False)
    assert not trap.exists()


def test_an_unknown_party_has_no_messages(folder):
    (folder / "messages" / "c-0.safetensors").write_bytes((folder / "messages" / "a-0.safetensors").read_bytes())
    assert "manifest.json has no party c" in refusal(folder)


# Parties and rounds that don't fit each other


def gradients(epoch, step, ids, **more):
    rng = np.random.default_rng(step)
    return Told(epoch, step, ids, {"gradient/cut": rng.standard_normal((len(ids), 2)).astype("<f4")}, **more)


def of_parties(folder, **batches):
    for path in (folder / "messages").iterdir():
        path.unlink()
    for party, told in batches.items():
        (folder / "messages" / f"{party}-0.safetensors").write_bytes(as_safetensors(told))
    return folder


def test_parties_and_rounds_that_do_not_fit(folder):
    one, two, more = gradients(0, 0, IDS[:9]), gradients(0, 1, IDS[9:]), gradients(0, 1, IDS[8:])
    assert "party b has no messages of epoch 0, step 1, and a has" in refusal(of_parties(folder, a=[one, two], b=[one]))
    assert "party b has other ids than the other parties" in refusal(of_parties(folder, a=[one, two], b=[one, more]))
    assert "epoch 0, step 0 of party a is there twice" in refusal(of_parties(folder, a=[one, one]))
    ends = [gradients(0, 0, IDS[:9], phase="end")]
    assert "there are no messages of training" in refusal(of_parties(folder, a=ends))
    assert "there are no messages of training" in refusal(of_parties(folder))


def test_odd_recordings_are_audited(folder):
    """One batch, batches of one row or of different sizes, epochs and steps with gaps, one party of two, one class."""
    n = len(IDS)
    cases = {
        "one batch": [gradients(0, 0, IDS)],
        "rows alone": [gradients(0, i, IDS[i : i + 1]) for i in range(n)],
        "different sizes": [gradients(0, 0, IDS[:3]), gradients(0, 1, IDS[3:])],
        "gaps": [gradients(epoch, step, IDS) for epoch, step in ((3, 7), (3, 900), (70, 0))],
        "far apart": [gradients(10**6 - 1, 10**9 - 1, IDS)],
        "negative ids": [gradients(0, 0, IDS[:9]), gradients(1, 0, IDS)],
    }
    for case, told in cases.items():
        result = audit(of_parties(folder, a=told), {"norm": Norm(), "spectral": Spectral(message="gradients")})
        assert result.skipped == {}, case
        assert len(result.findings) == len({one.epoch for one in told}), case
        assert "party b has no messages here" in " ".join(result.notes), case
    (folder / "labels.parquet").write_bytes(table_bytes({"id": IDS, "label": np.zeros(n, np.int64)}))
    assert audit(of_parties(folder, a=cases["one batch"]), {"norm": Norm()}).unscored


# Sizes


def test_a_batch_that_does_not_fit_memory_is_refused(folder):
    """A sparse file of 80 GB whose header fits it."""
    path = of_parties(folder) / "messages" / "a-0.safetensors"
    n = 10**10
    path.write_bytes(
        header := framed(json.dumps({"0/ids": {"dtype": "I64", "shape": [n], "data_offsets": [0, 8 * n]}}).encode())
    )
    os.truncate(path, len(header) + 8 * n)
    assert "the batch has 80,000,000,000 bytes, and 2,147,483,648 are read at most" in refusal(folder)
