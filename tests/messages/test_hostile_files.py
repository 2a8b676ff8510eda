"""Each thing that a malicious partner may put into a recording is refused in a paragraph that says what is wrong."""

import json
import pickle
import struct

import numpy as np
import pytest
from hostile_folders import copied, one_batch, refusal
from mutated_recordings import recordings
from recordings_by_hand import Told, as_safetensors, framed, safetensors_bytes

from vflbench.attacks.norm import Norm
from vflbench.run.offline import audit

N = 4
IDS, H = np.arange(N), np.ones((N, 2), np.float32)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return recordings(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sources, tmp_path):
    """A recording of party a and b as safetensors, which a test may damage."""
    return copied(sources[0], tmp_path / "recording")


def tensors(**changes):
    made = {"0/ids": IDS, "0/embedding/f1": H, "0/gradient/f1": H}
    for name, values in changes.items():
        made["0/" + name.replace("__", "/")] = values
    return safetensors_bytes(made)


def header(described, content=bytes(8 * N), **more):
    """A file whose header says this of 0/ids."""
    return framed(json.dumps({"0/ids": described, **more}).encode(), content)


GOOD = {"dtype": "I64", "shape": [N], "data_offsets": [0, 8 * N]}
DEEP = b"[" * 10**5
SAFETENSORS = {
    "nothing": (b"", "can't be read"),
    "seven bytes": (b"\x01" * 7, "can't be read"),
    "a header without end": (struct.pack("<Q", 2**63) + b"{}", "can't be read"),
    "a header cut off": (tensors()[:60], "can't be read"),
    "values cut off": (tensors()[:-1], "can't be read"),
    "values cut in the middle": (tensors()[:-30], "can't be read"),
    "more than its values": (tensors() + b"\0", "can't be read"),
    "a pickle": (pickle.dumps({"a": 1}), "can't be read"),
    "no JSON": (framed(b"{"), "can't be read"),
    "a list": (framed(b"[]"), "can't be read"),
    "lists without end": (framed(DEEP), "can't be read"),
    "objects without end": (framed(b'{"a":' * 10**5), "can't be read"),
    "bytes that are no text": (framed(b'{"\xff": 1}'), "can't be read"),
    "UTF-16": (framed('{"a": 1}'.encode("utf-16")), "can't be read"),
    "a name twice": (framed(b'{"a": 1, "a": 1}'), "can't be read"),
    "a number of 10,000 digits": (framed(b'{"a": ' + b"9" * 10_000 + b"}"), "can't be read"),
    "metadata of numbers": (header(GOOD, __metadata__={"0": 1}), "can't be read"),
    "nested metadata": (header(GOOD, __metadata__={"0": {"epoch": 0}}), "can't be read"),
    "metadata that is text": (header(GOOD, __metadata__="{}"), "can't be read"),
    "metadata that is no JSON": (header(GOOD, __metadata__={"0": "{"}), "metadata of 0"),
    "metadata without end": (header(GOOD, __metadata__={"0": DEEP.decode()}), "metadata of 0"),
    "metadata of another name": (header(GOOD, __metadata__={"0": '{"when": 1}'}), "metadata of 0: when"),
    "an epoch below 0": (header(GOOD, __metadata__={"0": '{"epoch": -1}'}), "metadata of 0: epoch"),
    "an epoch that is no number": (header(GOOD, __metadata__={"0": '{"epoch": NaN}'}), "metadata of 0: expected value"),
    "a step of 10^30": (header(GOOD, __metadata__={"0": '{"step": 1' + "0" * 30 + "}"}), "metadata of 0: step"),
    "another phase": (header(GOOD, __metadata__={"0": '{"phase": "test"}'}), "metadata of 0: phase"),
    "10^18 ids": (
        header({"dtype": "I64", "shape": [10**18], "data_offsets": [0, 8 * 10**18]}),
        "can't be read",
    ),
    "10^17 ids": (header({"dtype": "I64", "shape": [10**17], "data_offsets": [0, 8 * 10**17]}), "can't be read"),
    "10^18 ids in few bytes": (header({**GOOD, "shape": [10**18]}), "can't be read"),
    "10^30 ids": (header({**GOOD, "shape": [10**30]}), "can't be read"),
    "a shape that overflows": (header({**GOOD, "shape": [2**61, 2**61, 2**61]}), "can't be read"),
    "a shape below 0": (header({**GOOD, "shape": [-N]}), "can't be read"),
    "a shape of reals": (header({**GOOD, "shape": [4.0]}), "can't be read"),
    "a shape of truth values": (header({**GOOD, "shape": [True]}), "can't be read"),
    "a shape that is text": (header({**GOOD, "shape": "4"}), "can't be read"),
    "offsets that go back": (header({**GOOD, "data_offsets": [32, 0]}), "can't be read"),
    "offsets below 0": (header({**GOOD, "data_offsets": [-32, 0]}), "can't be read"),
    "three offsets": (header({**GOOD, "data_offsets": [0, 32, 32]}), "can't be read"),
    "tensors that overlap": (header(GOOD, **{"0/columns/numeric": GOOD}), "can't be read"),
    "a gap": (header({**GOOD, "data_offsets": [8, 8 + 8 * N]}, bytes(8 + 8 * N)), "can't be read"),
    "a description that is a list": (header([1]), "can't be read"),
    "a description with more": (header({**GOOD, "code": "x"}), "can't be read"),
    "a type of eight bits": (header({**GOOD, "dtype": "F8_E4M3"}), "can't be read"),
    "truth values": (header({**GOOD, "dtype": "BOOL"}), "can't be read"),
    "a type that is a list": (header({**GOOD, "dtype": ["I64"]}), "can't be read"),
    "no ids": (safetensors_bytes({"0/embedding/f1": H}), "0/ids: there must be"),
    "ids that are reals": (tensors(ids=IDS * 1.0), "0/ids: there must be"),
    "ids in columns": (tensors(ids=IDS[:, None]), "0/ids: there must be"),
    "int32 ids": (tensors(ids=IDS.astype(np.int32)), "0/ids: there must be"),
    "no rows": (safetensors_bytes({"0/ids": IDS[:0], "0/embedding/f1": H[:0]}), "of its rows, one at least"),
    "an id twice": (tensors(ids=np.array([0, 1, 2, 1])), "id 1 occurs twice in a batch"),
    "fewer rows": (tensors(gradient__f1=H[:3]), "its shape is (3, 2), and it must be (4, width)"),
    "one dimension": (tensors(gradient__f1=H[:, 0].copy()), "its shape is (4,), and it must be (4, width)"),
    "three dimensions": (tensors(gradient__f1=H[:, :, None]), "its shape is (4, 2, 1), and"),
    "another width": (tensors(gradient__f1=np.ones((N, 3), np.float32)), "its width is 3, and that of the layer is 2"),
    "no width": (tensors(gradient__f1=H[:, :0]), "its width is 0, and that of the layer is 2"),
    "NaN": (tensors(gradient__f1=H * np.nan), "not finite"),
    "infinity": (tensors(embedding__f1=np.where(np.eye(N, 2) > 0, np.inf, H).astype(np.float32)), "not finite"),
    "infinities that cancel": (tensors(embedding__f1=np.array([[np.inf, -np.inf]] * N, np.float32)), "not finite"),
    "beyond float32": (tensors(embedding__f1=np.full((N, 2), 1e300)), "too large for float32"),
    "whole numbers": (tensors(embedding__f1=np.ones((N, 2), np.int64)), "floating-point numbers, not int64"),
    "an unknown layer": (tensors(embedding__f9=H), "manifest.json has no such layer of this party"),
    "a path for a layer": (tensors(**{"embedding__../../up": H}), "manifest.json has no such layer of this party"),
    "an unknown kind": (tensors(labels__f1=H), "is no `KIND/NAME`"),
    "no layer": (tensors(embedding=H), "is no `KIND/NAME`"),
    "a layer without a name": (tensors(embedding__=H), "is no `KIND/NAME`"),
    "control characters": (tensors(**{"embedding__\x1b[2J": H}), "is no `KIND/NAME`"),
    "logits of five classes": (tensors(prediction__logits=np.ones((N, 5), np.float32)), "logits of 2 classes"),
    "negative categories": (tensors(columns__categorical=np.full((N, 1), -1)), "ids of categories"),
    "huge categories": (tensors(columns__categorical=np.full((N, 1), 2**62)), "ids of categories"),
    "categories that are reals": (tensors(columns__categorical=H), "it must hold int32 or int64"),
    "columns of another name": (tensors(columns__text=H), "columns are `columns/numeric`"),
    "models in float32": (tensors(update__before=H[0]), "vectors in float64"),
    "half of an update": (tensors(update__before=np.ones(3)), "before, sent and after must be there"),
}
SAFETENSORS |= {
    f"the step {step!r}": (safetensors_bytes({f"{step}/ids": IDS}), "is no `STEP/KIND/NAME`")
    for step in ("007", "-1", "+1", "1e3", "٣", "", " 1", "1_0", "0x1", "9" * 13, "a")
}


def test_safetensors_files_that_are_refused(folder):
    audit(one_batch(folder, tensors()), {"norm": Norm()}, probe=False)  # the frame of the others is sound
    for case, (content, expected) in SAFETENSORS.items():
        text = refusal(one_batch(folder, content))
        assert "messages/a-0.safetensors can't be read: " in text, (case, text)
        assert expected in text, (case, text)


def test_every_way_to_cut_a_shard_off(folder):
    content = as_safetensors([Told(0, 0, IDS, {"gradient/f1": H})])
    for length in range(len(content)):
        assert "a-0.safetensors can't be read: " in refusal(one_batch(folder, content[:length])), length
