"""Rounds on disk: what is written reads back bit for bit, and what was not written by a recorder is refused."""

import io
import json
import pickle
import zipfile
from dataclasses import MISSING, fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from vflbench.messages.recorded import RECORDABLE
from vflbench.messages.recording import Recording
from vflbench.messages.recording_head import RecordingHead

from vflbench.errors import UserError
from vflbench.messages.facts import (
    Embeddings,
    Gradients,
    OwnColumns,
    OwnModel,
    Predictions,
    Rules,
    Schema,
    SummedGradients,
    Updates,
)
from vflbench.messages.round import PrivateBatch, Round
from vflbench.messages.threat import Seat

NAMES = ["a/b", "x.y", "../../up", "", " ", "größe", "層", "\x00", "\ud800"]
NAMES += ["tensor", "mapping", "rules", "text", "index", "a0"]  # words of the format
REAL = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
names = st.sampled_from(NAMES) | st.text(max_size=5)


def head(**changes):
    seats = {"non-label party": ["a"], "label party": ["label"]}
    parts = {
        "seats": seats,
        "cut_layers": {"a": ["f1"]},
        "class_shares": [0.75, 0.25],
        "batch_size": 3,
        "complete": True,
        "facts": {"non-label party": sorted(RECORDABLE)},
    }
    return RecordingHead(**{**parts, **changes})


def new(folder, *, rows=None, **changes):
    return Recording.create(folder, head(**changes), rows or {})


def round_of(facts, rows=3, epoch=0, step=0, **parts):
    return Round(epoch, step, torch.arange(rows) * 7 - 5, facts=facts, **parts)


def simple(rows=3, **parts):
    return round_of({"a": {Gradients: Gradients({"f1": torch.ones(rows, 2)})}}, rows, **parts)


def written(recording, round_, labels=None):
    """The round as it is read back, alone in its recording."""
    recording.add(round_, torch.zeros(len(round_.ids), dtype=torch.int64) if labels is None else labels)
    ((again, labels),) = Recording(recording.folder).rounds(round_.epoch)
    return again, labels


def parts_of(value, where=""):
    """(path, leaf) of everything in a fact, in order."""
    if isinstance(value, dict):
        return [leaf for key, part in value.items() for leaf in parts_of(part, f"{where}/{key!r}")]
    if hasattr(value, "__dataclass_fields__"):
        return [leaf for part in fields(value) for leaf in parts_of(getattr(value, part.name), f"{where}.{part.name}")]
    return [(where, value)]


def assert_same(one, other):
    pairs = [parts_of(value) for value in (one, other)]
    assert [where for where, _ in pairs[0]] == [where for where, _ in pairs[1]]
    for (where, before), (_, after) in zip(*pairs, strict=True):
        if isinstance(before, Tensor):
            assert (before.dtype, before.shape) == (after.dtype, after.shape), where
            bits = [values.flatten().view(torch.uint8) if values.numel() else values for values in (before, after)]
            assert torch.equal(*bits), where
        else:
            assert before == after, where


@st.composite
def tensors(draw, rows=None, dtypes=tuple(REAL)):
    """Any bits, of NaN and infinity too. rows: (rows, d); None: of any shape."""
    shape = (rows, draw(st.integers(0, 3))) if rows is not None else tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    dtype = draw(st.sampled_from(dtypes))
    count = int(np.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    raw = torch.tensor(list(draw(st.binary(min_size=count, max_size=count))), dtype=torch.uint8)
    values = raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)
    return values.T.contiguous().T if values.ndim == 2 and draw(st.booleans()) else values


def layers(rows):
    return st.dictionaries(names, tensors(rows), max_size=3)


@st.composite
def facts(draw, rows):
    """One fact of each kind that can be recorded."""
    columns = draw(tensors(rows, (torch.float32,))), torch.randint(9, (rows, draw(st.integers(0, 3)))).int()
    theta = [draw(tensors(1, (torch.float64,)))[0] for _ in range(1)] * 3
    schema = draw(st.sampled_from([None, Schema((0, 3)), Schema((0, 1, 2), True, ((1, 2),))]))
    rules = Rules(
        draw(st.integers(1, 9)),
        draw(st.floats(1e-9, 9)),
        draw(st.sampled_from(["sum", "mean"])),
        1,
        8,
        schema,
        draw(st.sampled_from([None, False])),
    )
    return {
        Embeddings: Embeddings(draw(layers(rows)), draw(st.dictionaries(names, layers(rows), max_size=2))),
        Gradients: Gradients(draw(layers(rows))),
        SummedGradients: SummedGradients(draw(st.dictionaries(names, tensors(), max_size=3))),
        OwnColumns: OwnColumns(*columns),
        Predictions: Predictions(draw(tensors(rows))),
        Updates: Updates(rules, *theta),
    }


@settings(max_examples=40)
@given(data=st.data())
def test_every_recordable_fact_reads_back_bit_for_bit(data, tmp_path_factory):
    rows, party = data.draw(st.integers(0, 4)), data.draw(names)
    known = data.draw(facts(rows))
    assert set(known) == set(RECORDABLE.values())
    recording = new(tmp_path_factory.mktemp("recording"))
    round_ = round_of({party: known, "empty": {}}, rows, phase=data.draw(names))
    again, labels = written(recording, round_, torch.arange(rows) % 2)
    assert torch.equal(labels, torch.arange(rows) % 2)
    assert_same({**vars(again), "private": None}, vars(round_))


def test_a_round_on_disk_is_that_from_memory(tmp_path):
    private = PrivateBatch("a+b", torch.rand(4, 3).double(), torch.tensor([-1.0, 1, 1, -1]), torch.arange(4))
    round_ = simple(epoch=3, step=12_345_678, private=private)
    recording = new(tmp_path)
    again, _ = written(recording, round_)
    assert_same(vars(again), vars(round_))
    assert again.training is None
    assert [path.name for path in (tmp_path / "rounds").iterdir()] == ["0003_12345678.npz"]
    assert list(recording.rounds(2)) == []


def test_functions_are_left_out_and_sparse_gradients_become_dense(tmp_path):
    slope = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    known = {OwnModel: OwnModel(dict), SummedGradients: SummedGradients({"table": slope.to_sparse()})}
    again, _ = written(new(tmp_path), round_of({"a": known}))
    assert list(again.facts["a"]) == [SummedGradients]
    assert torch.equal(again.facts["a"][SummedGradients].parameters["table"], slope)


def test_rounds_come_in_order_and_a_round_that_is_added_again_takes_the_place_of_the_first(tmp_path):
    recording = new(tmp_path)
    for step in (11, 2, 0, 2):
        recording.add(simple(rows=step + 1, step=step), torch.ones(step + 1, dtype=torch.int64))
    recording.add(simple(epoch=1), torch.zeros(3, dtype=torch.int64))
    assert [(round_.step, len(round_.ids)) for round_, _ in recording.rounds(0)] == [(0, 1), (2, 3), (11, 12)]
    (tmp_path / "rounds" / ".0000_00000001.npz.tmp").write_bytes(b"half of it")  # of a run that was killed
    assert len(list(recording.rounds(0))) == 3


def test_the_head_goes_on_with_a_resumed_run(tmp_path):
    first = new(tmp_path, cheating=["a"])
    first.note_steps([5])
    first.add(simple(), torch.zeros(3, dtype=torch.int64))
    resumed = new(tmp_path, cheating=["a"])
    resumed.note_steps([5, 5])
    again = Recording(tmp_path)
    assert again.head == head(steps=[5, 5], cheating=["a"])
    assert len(list(again.rounds(0))) == 1
    assert again.head.offers(Seat.NON_LABEL) == frozenset(RECORDABLE.values())
    assert again.head.offers(Seat.LABEL) == again.head.offers(Seat.PARTICIPANT) == frozenset()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recording.json", "rounds", "rows.npz"]


def test_a_missing_round_is_noticed(tmp_path):
    for complete, recorded in ((True, ()), (False, [[0, 2], [0, 2]])):
        recording = new(tmp_path / str(complete), complete=complete)
        recording.note_steps([3, 3], recorded)
        for step in (0, 1, 2) if complete else (0, 2):
            recording.add(simple(step=step), torch.zeros(3, dtype=torch.int64))
        recording = Recording(recording.folder)
        recording.require_rounds(0)
        with pytest.raises(UserError, match="rounds of epoch 1 are missing, the first at step 0"):
            recording.require_rounds(1)
        (recording.folder / "rounds" / "0000_00000002.npz").unlink()
        with pytest.raises(UserError, match="rounds of epoch 0 are missing, the first at step 2"):
            recording.require_rounds(0)
    recording.note_steps([3, 3, 3], [[0, 2], [0, 2]])
    recording.require_rounds(2)  # nothing is listed
    huge = new(tmp_path / "huge")
    huge.note_steps([10**7 - 1])
    with pytest.raises(UserError, match="rounds of epoch 0 are missing, the first at step 0"):
        huge.require_rounds(0)


def test_training_rows_are_listed_or_gathered_from_the_rounds(tmp_path):
    listed = {"ids": torch.arange(9), "labels": torch.arange(9) % 2, "canary": torch.arange(9) > 6}
    recording = new(tmp_path / "listed", rows=listed)
    assert recording.has_all_rows
    assert_same(recording.rows(), listed)
    gathered = new(tmp_path / "gathered")
    gathered.note_steps([2])
    with pytest.raises(UserError, match="this recording has no rounds"):
        gathered.rows()
    gathered.add(simple(rows=2), torch.tensor([0, 1]), torch.tensor([False, True]))
    gathered.add(simple(rows=3, step=1), torch.tensor([0, 1, 1]), torch.tensor([False, True, False]))
    assert not gathered.has_all_rows
    rows = gathered.rows()
    assert rows["ids"].tolist() == [-5, 2, 9]
    assert rows["labels"].tolist() == [0, 1, 1]
    assert rows["canary"].tolist() == [False, True, False]
    plain = new(tmp_path / "plain")
    plain.note_steps([1])
    plain.add(simple(), torch.zeros(3, dtype=torch.int64))
    assert not plain.rows()["canary"].any()


# What others may put in the place of a recording's files


class Trap:
    """Unpickling it would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def archive(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def index(**changes):
    """A round file with arrays that fit, and this in its index."""
    known = {"a": {"Gradients": {"layers": {"mapping": {"f1": {"tensor": "a2"}}}}}}
    content = {"ids": "a0", "labels": "a1", "phase": "train", "facts": known, **changes}
    raw = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    ids = np.arange(3)
    arrays = {"a0": ids, "a1": ids % 2, "a2": np.ones((3, 2), np.float32), "a3": np.ones(3), "a4": ids}
    return npz(index=raw, **arrays, a5=-ids[:, None] - 1, a6=np.ones((2, 2)), a7=ids[:2] % 2)


def gradient(node):
    return index(facts={"a": {"Gradients": {"layers": node}}})


def updates(**changes):
    rules = {"parties": 2, "rate": 0.1, "reduction": "sum", "batches": 1, "batch_size": 4, **changes}
    vectors = {name: {"tensor": "a3"} for name in ("before", "sent", "after")}
    return index(facts={"b": {"Updates": {"rules": {"rules": rules}, **vectors}}})


HUGE_SHAPE = (
    b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (9000000000000000,), }".ljust(117)
    + b"\n"
)
DEEP = {"mapping": {}}
for _ in range(400):
    DEEP = {"mapping": {"a": DEEP}}
MATCHING = {"layers": {"mapping": {"f1": {"tensor": "a2"}}}}
HOSTILE_ROUNDS = {
    "nothing": b"",
    "text": b"hello",
    "a pickle": pickle.dumps({"a": 1}),
    "a single array": npy(np.ones(3)),
    "a truncated archive": index()[:-40],
    "an archive cut in the middle": index()[:300],
    "no index": npz(a0=np.arange(3)),
    "a member that is no array": archive(index="hello"),
    "an array of a huge shape": archive(**{"index.npy": HUGE_SHAPE}),
    "text for numbers": npz(index=np.array(["a", "b"])),
    "JSON of a list": npz(index=np.frombuffer(b"[1, 2]", dtype=np.uint8)),
    "no JSON": npz(index=np.frombuffer(b"{", dtype=np.uint8)),
    "JSON without end": npz(index=np.frombuffer(b"[" * 10**5, dtype=np.uint8)),
    "no labels": index(labels="a9"),
    "ids of another shape": index(ids="a2"),
    "ids that are real numbers": index(ids="a3"),
    "labels of another length": index(labels="a7"),
    "labels that are no classes": index(labels="a4"),
    "a row that occurs twice": index(ids="a1"),
    "canaries that are numbers": index(canary="a1"),
    "a name that is a list": index(ids=["a0"]),
    "facts in a list": index(facts=[1]),
    "a fact in a list": index(facts={"a": []}),
    "an unknown fact": index(facts={"a": {"Labels": MATCHING}}),
    "a fact of the run": index(facts={"a": {"PeerModels": {"models": {"mapping": {}}}}}),
    "a fact without its parts": index(facts={"a": {"Gradients": {}}}),
    "a fact of other parts": index(facts={"a": {"Gradients": {**MATCHING, "code": {"text": "x"}}}}),
    "a fact that is no mapping": index(facts={"a": {"Gradients": 3}}),
    "layers that are an array": gradient({"tensor": "a2"}),
    "layers that are text": gradient({"text": "f1"}),
    "a layer that is text": gradient({"mapping": {"f1": {"text": "f1"}}}),
    "a layer in layers": gradient({"mapping": {"f1": {"mapping": {}}}}),
    "a missing array": gradient({"mapping": {"f1": {"tensor": "a9"}}}),
    "a layer of one dimension": gradient({"mapping": {"f1": {"tensor": "a3"}}}),
    "a layer of other rows": gradient({"mapping": {"f1": {"tensor": "a6"}}}),
    "a layer of whole numbers": gradient({"mapping": {"f1": {"tensor": "a5"}}}),
    "an unknown type": gradient({"mapping": {"f1": {"tensor": "a2", "dtype": "object"}}}),
    "mappings without end": gradient(DEEP),
    "columns of negative ids": index(
        facts={"a": {"OwnColumns": {"numeric": {"tensor": "a2"}, "categorical": {"tensor": "a5"}}}}
    ),
    "columns of real ids": index(
        facts={"a": {"OwnColumns": {"numeric": {"tensor": "a2"}, "categorical": {"tensor": "a2"}}}}
    ),
    "negative participants": updates(parties=-2),
    "a rate that is text": updates(rate="fast"),
    "a rate that is no number": updates(rate=float("nan")),
    "rules of another kind": updates(reduction="median"),
    "a private batch of other shapes": index(
        private={"owner": {"text": "a"}, "x": {"tensor": "a2"}, "y": {"tensor": "a2"}, "steps": {"tensor": "a4"}}
    ),
}


def refusal(call):
    """The paragraph with which a call ends."""
    with pytest.raises(UserError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text, text
    assert text.startswith("recording="), text
    return text


def test_a_round_that_no_recorder_has_written_is_refused_in_a_paragraph(tmp_path):
    recording = new(tmp_path)
    path = tmp_path / "rounds" / "0000_00000000.npz"
    path.write_bytes(index())
    assert len(list(recording.rounds(0))) == 1  # the frame of the others is sound
    path.write_bytes(updates())
    assert list(next(recording.rounds(0))[0].facts["b"]) == [Updates]
    for case, content in HOSTILE_ROUNDS.items():
        path.write_bytes(content)
        text = refusal(lambda: list(recording.rounds(0)))
        assert "rounds/0000_00000000.npz can't be read: " in text, case


def test_pickled_arrays_never_run(tmp_path):
    recording, trap = new(tmp_path), tmp_path / "sprung"
    pickled = npy(np.array([Trap(trap)], dtype=object), allow_pickle=True)
    for case, content in (
        ("an array of objects", archive(**{"index.npy": pickled})),
        ("an array beside the others", archive(**{"a7.npy": pickled})),
        ("a pickle in place of the archive", pickle.dumps(Trap(trap))),
        ("an array in place of the archive", pickled),
    ):
        for path in (tmp_path / "rounds" / "0000_00000000.npz", tmp_path / "rows.npz"):
            path.write_bytes(content)
        refusal(lambda: list(recording.rounds(0)))
        refusal(recording.rows)
        assert not trap.exists(), case
    pickle.loads(pickle.dumps(Trap(trap))).close()
    assert trap.exists()  # it would have worked


def test_files_of_other_names_are_refused(tmp_path):
    recording = new(tmp_path)
    for name in ("0000_x.npz", "0000_-0000001.npz", "0000_1.npz", "0000_00000001_2.npz", "0000_000000001.npz"):
        path = tmp_path / "rounds" / name
        path.write_bytes(index())
        assert "EPOCH_STEP.npz" in refusal(lambda: list(recording.rounds(0))), name
        path.unlink()


def test_rows_of_another_shape_are_refused(tmp_path):
    recording, ids = new(tmp_path), np.arange(3)
    sound = {"ids": ids, "labels": ids % 2, "canary": ids > 1}
    for case, content in {
        "no labels": npz(ids=ids, canary=ids > 1),
        "labels of another length": npz(**{**sound, "labels": ids[:2] % 2}),
        "labels that are no classes": npz(**{**sound, "labels": ids}),
        "negative labels": npz(**{**sound, "labels": -ids}),
        "ids in columns": npz(**{**sound, "ids": ids[:, None], "labels": ids[:, None] % 2}),
        "real ids": npz(**{**sound, "ids": ids * 1.0}),
        "canaries that are numbers": npz(**{**sound, "canary": ids}),
        "text": npz(**{**sound, "ids": np.array(["a"])}),
        "other bytes": npz(**{**sound, "ids": ids.astype(">i8")}),
        "damaged": npz(**sound)[:-30],
    }.items():
        (tmp_path / "rows.npz").write_bytes(content)
        assert "rows.npz can't be read: " in refusal(recording.rows), case
        refusal(lambda: recording.has_all_rows)
    (tmp_path / "rows.npz").unlink()
    refusal(recording.rows)


def test_heads_of_another_form_are_refused(tmp_path):
    new(tmp_path)
    file = tmp_path / "recording.json"
    sound = json.loads(file.read_text())
    Recording(tmp_path)
    changed = {
        "format": [None, 2, "1"],
        "seats": [None, [], {"non-label party": "ab"}, {"attic": ["a"]}, {"label party": [1]}],
        "cut_layers": [{"a": []}, {"a": "f1"}, 3],
        "class_shares": [[], [1.0], [0.5, 0.6], [1.5, -0.5], ["a", "b"], [float("nan"), 1.0]],
        "batch_size": [0, -1, 1.5, "many", None],
        "complete": ["perhaps", None],
        "facts": [{"non-label party": ["Labels"]}, {"attic": []}, {"non-label party": [["Gradients"]]}],
        "steps": [[-1], [10**7], [10**30], ["a"], 3, [0] * 10_001, [float("inf")]],
        "recorded": [[3], [[-1]], [[10**7]], 3],
        "seed": [-1, "a", None],
        "batches": [0, -3, "some"],
        "cheating": ["a", [1]],
    }
    for name, values in changed.items():
        for value in values:
            file.write_text(json.dumps({**sound, name: value}))
            assert "recording.json can't be read: " in refusal(lambda: Recording(tmp_path)), (name, value)
    needed = ["format", *(part.name for part in fields(RecordingHead) if part.default is part.default_factory is MISSING)]
    incomplete = [json.dumps({key: value for key, value in sound.items() if key != name}) for name in needed]
    for text in (*incomplete, "", "[]", "3", "{", "[" * 10**5, '"' + "\\ud800" * 3):
        file.write_text(text)
        refusal(lambda: Recording(tmp_path))
    file.write_bytes(b"\xff\xfe{}")
    refusal(lambda: Recording(tmp_path))
    file.unlink()
    refusal(lambda: Recording(tmp_path))
    refusal(lambda: Recording(tmp_path / "rows.npz"))
