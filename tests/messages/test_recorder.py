"""Recorders: what `Recording` writes in training loops of others is what crossed the cut, and the training doesn't notice;
what `write_batch` makes of arrays are the files that docs/reference/messages.md describes.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from vflbench import Recording, UserError, write_batch

N, WIDTH = 6, 3


def batches(folder: Path, party: str = "media") -> dict[tuple[int, int], dict[str, Tensor]]:
    """(epoch, step) -> what the party's file of this batch holds."""
    made = {}
    for path in sorted((folder / "messages").glob(f"{party}-*.safetensors")):
        with safe_open(path, "pt") as file:
            ((step, place),) = file.metadata().items()
            where = json.loads(place)
            assert where["phase"] == "train"
            tensors = {name.removeprefix(f"{step}/"): file.get_tensor(name) for name in sorted(file.keys())}
            made[where["epoch"], where["step"]] = tensors
    return made


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def labels(folder: Path) -> dict[int, int]:
    table = pq.read_table(folder / "labels.parquet")
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


class Loop:
    """A split network and its training, which keeps what the recorder must have written."""

    def __init__(self, dtype: torch.dtype = torch.float32):
        torch.manual_seed(1)
        self.bottom, self.top = nn.Linear(4, WIDTH, dtype=dtype), nn.Linear(WIDTH, 1, dtype=dtype)
        self.sent: list[Tensor] = []
        self.received: list[Tensor] = []

    def batch(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        ids = torch.arange(number * N, number * N + N)
        return ids, torch.randn(N, 4).to(self.bottom.weight), (ids % 2).to(self.bottom.weight)

    def forward(self, rec: Recording, number: int) -> tuple[Tensor, Tensor]:
        """h, loss."""
        ids, x, y = self.batch(number)
        h = self.bottom(x)
        h.retain_grad()
        assert rec.watch(h, ids=ids) is h
        self.sent.append(h)
        return h, F.binary_cross_entropy_with_logits(self.top(h)[:, 0], y)

    def step(self, rec: Recording, number: int) -> None:
        h, loss = self.forward(rec, number)
        loss.backward()
        self.received.append(h.grad)

    def assert_recorded(self, folder: Path, places: list[tuple[int, int]]) -> None:
        written = batches(folder)
        assert list(written) == places
        for batch, h, gradient in zip(written.values(), self.sent, self.received, strict=True):
            assert torch.equal(batch["embedding/cut"], h.detach())
            assert torch.equal(batch["gradient/cut"], gradient)
            assert batch["embedding/cut"].dtype == batch["gradient/cut"].dtype == gradient.dtype


def steps(count: int) -> list[tuple[int, int]]:
    return [(0, step) for step in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_three_lines_record_what_crosses(tmp_path, dtype):
    loop = Loop(dtype)
    rec = Recording(tmp_path / "r", party="media")
    for number in range(5):
        loop.step(rec, number)
    rec.close()
    loop.assert_recorded(tmp_path / "r", steps(5))
    assert batches(tmp_path / "r")[0, 2]["ids"].tolist() == list(range(12, 18))
    written = manifest(tmp_path / "r")
    assert (written["format"], written["classes"], written["labels"]) == ("vflbench-messages/1", 2, "label")
    assert written["parties"] == {"media": {"layers": {"cut": WIDTH}, "cut": []}}
    assert (written["batch_size"], written["complete"]) == (N, False)
    rec.close()  # once more is no error
    assert rec.watch(h := torch.ones(2, 1), ids=[1, 1]) is h


def test_epochs_are_begun_or_given_and_a_sample_of_batches_keeps_their_steps(tmp_path):
    loop, sampled = Loop(), Loop()
    with Recording(tmp_path, party="media") as rec, Recording(tmp_path, party="some", every=4, most=3) as some:
        for epoch in some.epochs(2):
            for number in range(9):
                sampled.step(some, number)
            loop.step(rec, 0)
            rec.begin_epoch(None if epoch == 0 else 7)
        loop.step(rec, 1)
        rec.watch(loop.bottom(loop.batch(0)[1]), ids=range(N), epoch=9).sum().backward()
        assert some.epoch == 1
        with pytest.raises(UserError, match="epoch=-1"):
            rec.begin_epoch(-1)
    assert list(batches(tmp_path)) == [(0, 0), (1, 0), (7, 0), (9, 0)]
    assert list(batches(tmp_path, "some")) == [(0, 0), (0, 4), (0, 8)]
    assert torch.equal(batches(tmp_path, "some")[0, 4]["gradient/cut"], sampled.received[4])


def test_training_is_the_same_bit_for_bit(tmp_path):
    models = []
    for record in (True, False):
        loop = Loop()
        optimizer = torch.optim.SGD([*loop.bottom.parameters(), *loop.top.parameters()], lr=0.1)
        with Recording(tmp_path / str(record), party="media", every=1 if record else 10**6) as rec:
            for number in range(6):
                optimizer.zero_grad()
                loop.step(rec, number)
                optimizer.step()
        models.append(torch.cat([values.flatten() for values in loop.bottom.parameters()]))
    assert torch.equal(*models)


def test_gradients_of_several_backwards_add_up_and_one_may_only_be_asked_for(tmp_path):
    """Also where other batches come in between; by torch.autograd.grad, as in FATE and in gradient penalties."""
    loop = Loop()
    with Recording(tmp_path, party="media") as rec:
        h, loss = loop.forward(rec, 0)
        loss.backward(retain_graph=True)
        loop.step(rec, 1)
        (loss * 3).backward()
        loop.received.insert(0, h.grad)
        h, loss = loop.forward(rec, 2)
        loop.received.append(torch.autograd.grad(loss, h)[0])
    loop.assert_recorded(tmp_path, steps(3))


def test_a_change_of_h_in_place_comes_too_late(tmp_path):
    loop = Loop()
    ids, x, _ = loop.batch(0)
    ids_before = ids.clone()
    with Recording(tmp_path, party="media") as rec:
        h = rec.watch(loop.bottom(x), ids=ids)
        before = h.detach().clone()
        ids.fill_(0)
        h += 5
        h.mul_(2)
        h.sum().backward()
    batch = batches(tmp_path)[0, 0]
    assert torch.equal(batch["embedding/cut"], before)
    assert torch.equal(batch["gradient/cut"], torch.full_like(before, 2))
    assert torch.equal(batch["ids"], ids_before)


def test_a_gradient_that_is_sent_back_by_hand(tmp_path):
    """The two halves have a graph each, as between processes: at either half the same is recorded."""
    loop = Loop()
    ids, x, _ = loop.batch(0)
    with Recording(tmp_path, party="media") as rec, Recording(tmp_path, party="received") as other:
        h = rec.watch(loop.bottom(x), ids=ids)
        leaf = other.watch(h.detach().requires_grad_(), ids=ids)
        loop.top(leaf).square().sum().backward()
        sent = leaf.grad.clone()
        h.backward(leaf.grad)
        leaf.grad.zero_()
    for party in ("media", "received"):
        assert torch.equal(batches(tmp_path, party)[0, 0]["gradient/cut"], sent)
    assert list(manifest(tmp_path)["parties"]) == ["media", "received"]


def test_evaluations_are_not_recorded(tmp_path):
    """Neither under no_grad, nor where no backward follows."""
    loop = Loop()
    x = loop.batch(9)[1]
    with Recording(tmp_path, party="media") as rec:
        for number in range(3):
            loop.step(rec, number)
            with torch.no_grad():
                rec.watch(loop.bottom(x), ids=range(N))
        for _ in range(3):
            rec.watch(loop.bottom(x), ids=range(N))
        loop.step(rec, 3)
    assert list(batches(tmp_path)) == [(0, 0), (0, 1), (0, 2), (0, 6)]
    assert rec.dropped == 3


def test_layers_of_a_batch_stand_together_and_parties_of_one_process_share_a_folder(tmp_path):
    loop, bottom, second = Loop(), Loop().bottom, nn.Linear(WIDTH, 2)
    options = {"classes": 3, "cut": ["f2"]}
    with Recording(tmp_path, "media", **options) as media, Recording(tmp_path, "shop", classes=3) as shop:
        for number in range(3):
            ids, x, _ = loop.batch(number)
            first = media.watch(loop.bottom(x), ids=ids, layer="f1")
            out = media.watch(second(first.relu()), ids=ids.tolist(), layer="f2")
            media.columns(ids, numeric=x, categorical=(x > 0).int())
            media.label(ids, ids % 3)
            (out.sum() * shop.watch(bottom(x), ids=ids, layer="f")).sum().backward()
        shop.note(test_auc=0.75)
        media.note(train_auc=0.9)
    kinds = ["columns/categorical", "columns/numeric", "embedding/f1", "embedding/f2", "gradient/f1", "gradient/f2", "ids"]
    assert [sorted(batch) for batch in batches(tmp_path).values()] == [kinds] * 3
    assert list(batches(tmp_path)) == list(batches(tmp_path, "shop")) == steps(3)
    written = manifest(tmp_path)
    of_media = {"layers": {"f1": WIDTH, "f2": 2}, "cut": ["f2"]}
    assert written["parties"] == {"media": of_media, "shop": {"layers": {"f": WIDTH}, "cut": []}}
    assert written["model"] == {"test_auc": 0.75, "train_auc": 0.9}
    assert labels(tmp_path) == {row: row % 3 for row in range(3 * N)}


def test_complete_is_said_if_it_was_promised_and_nothing_is_missing(tmp_path):
    loop = Loop()
    for party, lost in (("a", ()), ("b", ()), ("c", (1,))):
        with Recording(tmp_path, party, complete=True) as rec:
            for number in range(3):
                if number not in lost:
                    loop.step(rec, number)
        assert manifest(tmp_path)["complete"] == (not lost)
    with pytest.raises(UserError, match="complete"):
        Recording(tmp_path / "other", "a", complete=True, every=2)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_models(tmp_path, reentrant):
    loop = Loop()
    with Recording(tmp_path, party="media") as rec:
        for number in range(3):
            ids, x, y = loop.batch(number)
            h = checkpoint(loop.bottom, x.requires_grad_(), use_reentrant=reentrant)
            h.retain_grad()
            logits = checkpoint(lambda h: loop.top(h)[:, 0], rec.watch(h, ids=ids), use_reentrant=reentrant)
            F.binary_cross_entropy_with_logits(logits, y).backward()
            loop.sent.append(h)
            loop.received.append(h.grad)
    loop.assert_recorded(tmp_path, steps(3))


def test_a_scaled_loss_is_recorded_scaled_and_its_overflow_left_out(tmp_path):
    loop = Loop()
    message = r"isn't recorded: gradient/cut: .* not finite \(NaN or infinite\) \(epoch 0, step 1, party media\)"
    with pytest.warns(UserWarning, match=message), Recording(tmp_path, party="media", complete=True) as rec:  # noqa: PT031
        for number, scale in enumerate([2.0, float("inf"), 8.0, 1.0]):
            h, loss = loop.forward(rec, number)
            (loss * scale).backward()
            loop.received.append(h.grad)
    del loop.sent[1], loop.received[1]
    loop.assert_recorded(tmp_path, [(0, 0), (0, 2), (0, 3)])
    assert manifest(tmp_path)["complete"] is False


def test_an_exception_leaves_what_was_complete(tmp_path):
    loop = Loop()
    with pytest.raises(ZeroDivisionError), Recording(tmp_path, party="media", complete=True) as rec:  # noqa: PT012
        for number in range(3):
            loop.step(rec, number)
            rec.label(range(number * N, number * N + N), [1] * N)
        loop.forward(rec, 3)
        raise ZeroDivisionError
    loop.sent.pop()
    loop.assert_recorded(tmp_path, steps(3))
    assert labels(tmp_path) == dict.fromkeys(range(3 * N), 1)
    assert manifest(tmp_path)["complete"] is False


KILLED = """
import os, sys, torch
from vflbench import Recording
rec = Recording(sys.argv[1], "media")
bottom = torch.nn.Linear(4, 3)
for step in range(20):
    rec.watch(bottom(torch.ones(5, 4)), ids=range(5)).sum().backward()
    rec.label(range(5), [0] * 5)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_whole_files_and_is_gone_on_with(tmp_path):
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)]).returncode == -9
    count = len(batches(tmp_path))
    assert list(batches(tmp_path)) == steps(count)
    assert count >= 15
    stray = tmp_path / "messages" / ".media-00000099.safetensors.0123456789abcdef.tmp"
    stray.write_bytes(b"half a file")
    with pytest.raises(UserError, match=f"there are {count} files of party media already; go_on=True adds"):
        Recording(tmp_path, "media")
    with Recording(tmp_path, "media", go_on=True) as rec:
        rec.watch(torch.ones(5, 3, requires_grad=True), ids=range(5)).sum().backward()
    assert not stray.exists()
    assert list(batches(tmp_path)) == steps(count + 1)


def test_overwrite_deletes_this_party_and_its_labels_only(tmp_path):
    loop = Loop()

    def record(party, count, row, **options):
        with Recording(tmp_path, party, **options) as rec:
            for number in range(count):
                loop.step(rec, number)
            rec.label([row], [1])

    record("a", 3, 0)
    record("b", 3, 1)
    assert labels(tmp_path) == {0: 1, 1: 1}
    record("a", 2, 2, overwrite=True)
    assert labels(tmp_path) == {2: 1}
    with pytest.raises(UserError, match="classes=3: manifest.json in this folder says 2"):
        record("b", 1, 0, classes=3, go_on=True)
    record("b", 1, 1, go_on=True)
    assert (len(batches(tmp_path, "a")), len(batches(tmp_path, "b"))) == (2, 4)
    with pytest.raises(UserError, match="give one"):
        Recording(tmp_path, "a", overwrite=True, go_on=True)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UserError, match="vflbench train recorded a run here"):
        Recording(tmp_path, "c", overwrite=True)


def test_nothing_recorded_is_said(tmp_path):
    rec = Recording(tmp_path / "r", party="media")
    with torch.no_grad():
        rec.watch(torch.ones(2, 3), ids=[0, 1])
    with pytest.warns(UserWarning, match="nothing was recorded in .*: no batch that `watch` saw got a gradient"):
        rec.close()
    assert not (tmp_path / "r" / "manifest.json").exists()


INTEGERS = (range(3), [5, 7, -9], (2**62, 1, 0), torch.tensor([3, 1, 2], dtype=torch.uint8), np.array([[1], [2], [3]], "u8"))


@pytest.mark.parametrize("ids", INTEGERS, ids=lambda ids: type(ids).__name__)
def test_ids_of_any_integer_type(tmp_path, ids):
    with Recording(tmp_path, party="media") as rec:
        rec.watch(torch.ones(3, requires_grad=True), ids=ids).sum().backward()
        rec.label(ids, torch.tensor([[0.0], [1.0], [1.0]]))
    batch = batches(tmp_path)[0, 0]
    expected = [int(row) for row in np.asarray(ids).ravel()]
    assert batch["ids"].tolist() == expected
    assert batch["ids"].dtype is torch.int64
    assert batch["embedding/cut"].shape == batch["gradient/cut"].shape == (3, 1)
    assert labels(tmp_path) == dict(zip(expected, [0, 1, 1], strict=True))


def test_more_dimensions_are_flattened(tmp_path):
    with Recording(tmp_path, party="media") as rec:
        h = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
        assert rec.watch(h, ids=[0, 1]) is h
        (h * h).sum().backward()
        with pytest.raises(UserError, match=r"embeddings=\(2, 8\): .* its width is 8, and that of the layer is 12"):
            rec.watch(torch.ones(2, 2, 4, requires_grad=True), ids=[0, 1])
        h = torch.zeros(2, 12, requires_grad=True)
        rec.watch(h, ids=[4, 5]).sum().backward()
    batch = batches(tmp_path)[0, 0]
    assert torch.equal(batch["embedding/cut"], torch.arange(24.0).reshape(2, 12))
    assert torch.equal(batch["gradient/cut"], 2 * torch.arange(24.0).reshape(2, 12))
    assert len(batches(tmp_path)) == 2


def test_what_does_not_fit_is_said_at_once_and_recording_goes_on(tmp_path):
    for options, message in (
        ({"party": "../media"}, "'../media' is no name of letters, digits"),
        ({"party": "media", "every": 0}, "every=0"),
        ({"party": "media", "classes": 1}, "classes: .*greater than or equal to 2"),
        ({"party": "media", "class_shares": [0.5, 0.6]}, "class_shares: they must add up to 1"),
    ):
        with pytest.raises(UserError, match=message):
            Recording(tmp_path / "r", **options)
    assert not (tmp_path / "r").exists()
    rec = Recording(tmp_path, party="media")
    for h, ids, message in (
        (torch.ones(2, 2), ["a", "b"], "give text or larger ones a number each"),
        (torch.ones(0, 2), [], "at least one row"),
        ((torch.ones(2, 2),), [1, 2], "watch each tensor of a dict or tuple"),
    ):
        with pytest.raises(UserError, match=message):
            rec.watch(h, ids=ids)
    rec.watch(torch.ones(2, 3, requires_grad=True), ids=[1, 2]).sum().backward()
    rec.label([1, 2], np.array([True, False]))
    rec.label([2], [0])
    for ids, y, message in (
        ([3], [2], "labels=2: labels of 2 `classes` are whole numbers from 0 to 1"),
        ([3], [0.5], "labels=0.5"),
        ([3], [float("nan")], "labels=nan: .* none is missing"),
        ([3, 4], [[0, 1], [1, 0]], "one label a row"),
        ([5, 2], [0, 1], "id=2: it has the labels 0 and 1; a row has one label"),
        ([7, 7], [0, 1], "id=7: it has the labels 0 and 1"),
    ):
        with pytest.raises(UserError, match=message):
            rec.label(ids, y)
    rec.label([9], [1])
    rec.close()
    assert len(batches(tmp_path)) == 1
    assert labels(tmp_path) == {1: 1, 2: 0, 9: 1}


@pytest.mark.slow
def test_of_distributed_processes_one_writes(tmp_path):
    script = """
import sys, torch
import torch.distributed as dist
from vflbench import Recording
rank = int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meet", rank=rank, world_size=2)
torch.manual_seed(0)
bottom = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
with Recording(sys.argv[1] + "/r", party="media") as rec:
    for step in range(5):
        ids = torch.arange(4) + 4 * (2 * step + rank)
        rec.watch(bottom(torch.randn(4, 4)), ids=ids).square().sum().backward()
        rec.label(ids, ids % 2)
with Recording(sys.argv[1] + "/all", party=f"party{rank}", rank=None) as rec:
    for step in range(5):
        rec.watch(bottom(torch.randn(4, 4)), ids=range(4)).square().sum().backward()
dist.destroy_process_group()
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(rank)]) for rank in range(2)]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    assert [batch["ids"].tolist()[0] for batch in batches(tmp_path / "r").values()] == [0, 8, 16, 24, 32]
    assert set(labels(tmp_path / "r")) == {8 * step + row for step in range(5) for row in range(4)}
    for party in ("party0", "party1"):
        assert list(batches(tmp_path / "all", party)) == steps(5)
    assert set(manifest(tmp_path / "all")["parties"]) == {"party0", "party1"}


def arrays(dtype: str = "f4") -> tuple[np.ndarray, np.ndarray]:
    h = np.random.default_rng(3).normal(size=(5, 3)).astype(dtype)
    return h, (h * 0.5).astype(dtype)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_a_batch_of_arrays_is_written_as_it_is(tmp_path, dtype):
    (h, g), ids = arrays(dtype), np.arange(5, dtype=np.int32) * 7
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
    assert path.name == "media-100000012.safetensors"
    batch = batches(tmp_path)[1, 12]
    for name, expected in {"embedding/cut": h, "gradient/cut": g, "columns/numeric": h[:, :2]}.items():
        assert np.array_equal(batch[name].numpy(), expected)
        assert batch[name].numpy().dtype == np.dtype(dtype).newbyteorder("=")
    assert batch["ids"].tolist() == batch["columns/categorical"].flatten().tolist() == ids.tolist()
    assert batch["summed_gradient/weight"].shape == (3, 4)
    written = manifest(tmp_path)
    assert written["parties"] == {"media": {"layers": {"cut": 3}, "cut": []}}
    assert (written["batch_size"], written["claims"]["label_dp"]["eps"], written["model"]) == (5, 2.0, {"test_auc": 0.7})
    assert labels(tmp_path) == dict(zip(ids.tolist(), [1, 0, 1, 0, 1], strict=True))


def test_steps_follow_one_another_and_parties_share_a_folder(tmp_path):
    h, g = arrays()
    layers = {"a": h, "b": g[:, 0]}
    for party in ("shop", "media"):
        for epoch in (0, 0, 0, 2):
            write_batch(tmp_path, party=party, ids=range(5), embeddings=layers, gradients=layers, cut="b", epoch=epoch)
    for party in ("media", "shop"):
        assert list(batches(tmp_path, party)) == [(0, 0), (0, 1), (0, 2), (2, 0)]
        assert manifest(tmp_path)["parties"][party] == {"layers": {"a": 3, "b": 1}, "cut": ["b"]}


def test_a_batch_is_not_replaced_unasked_and_has_one_width(tmp_path):
    (h, g), place = arrays(), {"party": "media", "ids": range(5), "step": 4}
    write_batch(tmp_path, **place, embeddings={"cut": h})
    replaces = r"step=4 of epoch 0: this batch is there already.* write_batch\(overwrite=True\) replaces it"
    for values, message in ((g, replaces), (h[:, :1], r"layer=cut: it has 1 columns here, and 3 in manifest.json")):
        with pytest.raises(UserError, match=message):
            write_batch(tmp_path, **place, embeddings={"cut": values})
    assert np.array_equal(batches(tmp_path)[0, 4]["embedding/cut"].numpy(), h)
    write_batch(tmp_path, **place, embeddings={"cut": g}, overwrite=True)
    assert np.array_equal(batches(tmp_path)[0, 4]["embedding/cut"].numpy(), g)


H = np.ones((3, 2), np.float32)
REFUSED = [
    ({"embeddings": None}, "a batch has embeddings, gradients or summed_gradients"),
    ({"embeddings": {"cut": H[:2]}}, r"embeddings=\(2, 2\): .* it must be \(3, width\), as there are 3 ids"),
    ({"embeddings": {"cut": H * np.nan}}, "embeddings: embedding/cut: .* not finite .*; leave the batch out, step 0"),
    ({"ids": [1, 1, 2]}, "id 1 is there more than once"),
    ({"epoch": -1}, "epoch=-1: it is counted from 0"),
    ({"y": [0, 1, 2]}, "labels=2: labels of 2 `classes` are whole numbers from 0 to 1"),
]


def test_what_the_format_does_not_take_is_refused_before_anything_is_written(tmp_path):
    for changed, message in REFUSED:
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
    shift, rows = (1, 30) if how == "deleted" else (0, 540)
    assert labels(tmp_path / "r") == {row: (row + shift) % 2 for row in range(rows)}
