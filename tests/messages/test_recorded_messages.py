"""Recorded messages: what is written reads back bit for bit, and files of other writers read as what they say."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from support.recordings_by_hand import Told, as_safetensors, manifest_of, safetensors_bytes, write
from torch import Tensor

from vflbench import Embeddings, Gradients, LocalModel, PartyFeatures, Predictions, SummedGradients, Updates
from vflbench.messages import recording_format as files
from vflbench.messages.facts import Rules, Schema
from vflbench.messages.recordings import RecordedMessages, write_private
from vflbench.messages.threat import PrivateBatch, Role

NAMES = ["a/b", "../../up", " ", "層", "ids", "0/ids", "'", "x" * 200]
RULES = Rules(2, 0.1, "mean", 1, 8, Schema((0, 1, 2), True, ((1, 2),)), False)


def bits(values: Tensor) -> tuple[object, ...]:
    raw = values.contiguous().view(-1).view(torch.uint8) if values.numel() else values
    return values.dtype, tuple(values.shape), bytes(raw.numpy()) if values.numel() else b""


def parts_of(value, where=""):
    """(path, leaf) of everything in a fact, in order; of tensors their bits."""
    if isinstance(value, dict):
        return [leaf for key, part in value.items() for leaf in parts_of(part, f"{where}/{key!r}")]
    if hasattr(value, "__dataclass_fields__"):
        return [leaf for part in fields(value) for leaf in parts_of(getattr(value, part.name), f"{where}.{part.name}")]
    return [(where, bits(value) if isinstance(value, Tensor) else value)]


def reals(rng, *shape, dtype=torch.float32):
    """Any finite bits, zeros below 0 and subnormal numbers too; values of float64 are those of float32."""
    made = torch.randint(-(2**31), 2**31, shape, generator=rng).int().view(torch.float32)
    made.view(-1)[:2] = torch.tensor([-0.0, 1e-40])[: made.numel()]
    made = made.to(dtype)
    made[~made.isfinite()] = -1.5  # also what is too large for a half
    return made.T.contiguous().T if made.ndim == 2 else made


TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def written(folder, parties, facts, ids, rules=None, **place):
    """The facts of each party as they are read back, alone in their recording."""
    files.write_manifest(folder, files.RecordingManifest(classes=2, parties=parties, rules=rules))
    for party, of_party in facts.items():
        tensors = {name: values for fact in of_party for name, values in files.packed(fact).items()}
        files.write_batch_file(folder, party, ids, tensors, **{"epoch": 0, "step": 0, **place})
    recording = RecordedMessages(folder)
    (again,) = recording.rounds(place.get("epoch", 0))
    return again


@pytest.mark.parametrize("seed", range(8))
def test_every_recordable_fact_reads_back_bit_for_bit(seed, tmp_path):
    rng = torch.Generator().manual_seed(seed)
    rows, shape = 1 + seed % 4, ((), (0,), (3,), (2, 3), (1, 2, 3))[seed % 5]
    widths = {NAMES[seed]: 1 + seed % 3, NAMES[(3 * seed + 1) % 8]: 2}
    draw = {kind: {x: reals(rng, rows, d) for x, d in widths.items()} for kind in ("h", "g")}
    theta = [reals(rng, 3, dtype=torch.float64) for _ in range(4)]
    known = [
        Embeddings(draw["h"], {"b": {"cut": reals(rng, rows, 2)}} if seed % 2 else {}),
        Gradients(draw["g"]),
        SummedGradients({NAMES[seed]: reals(rng, *shape, dtype=TYPES[seed % 4])}),
        PartyFeatures(reals(rng, rows, 2), torch.randint(2**31 - 1, (rows, seed % 3), generator=rng).int()),
        Predictions(reals(rng, rows, 1)),
        Updates(RULES, *theta[:3], {"b": theta[3]}),
    ]
    assert {type(fact) for fact in known} == set(files.FACTS.values())
    ids = torch.tensor([-(2**63), 2**63 - 1, 0, -1])[:rows]
    folder = tmp_path / "new"
    again = written(folder, {"a": files.PartyLayers(widths)}, {"a": known}, ids, RULES, epoch=3, step=12_345_678)
    assert (again.epoch, again.step, again.training, again.private) == (3, 12_345_678, None, None)
    assert torch.equal(again.ids, ids)
    for fact in known:
        assert parts_of(again.facts["a"][type(fact)]) == parts_of(fact)
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "messages"]


@pytest.mark.parametrize("dtype", TYPES)
def test_half_and_double_precision_keep_their_values_and_are_named(dtype, tmp_path):
    """Attacks compute in float32, which has each value of the halves; of float64 what float32 makes of it."""
    exact = torch.tensor([[1.0, -0.0], [0.1, 6e-5], [1 / 3, -65504.0]], dtype=torch.float64).to(dtype)
    facts = {"a": [Embeddings({"f": exact}), Gradients({"f": -exact})]}
    again = written(tmp_path / "r", {"a": files.PartyLayers({"f": 2})}, facts, torch.arange(3))
    assert bits(again.facts["a"][Embeddings].layers["f"]) == bits(exact.float())
    assert bits(again.facts["a"][Gradients].layers["f"]) == bits(-exact.float())
    assert RecordedMessages(tmp_path / "r").coverage["a"].types == {str(dtype).removeprefix("torch.")}


def test_functions_are_left_out_and_sparse_gradients_become_dense(tmp_path):
    slope = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    known = [LocalModel(dict), SummedGradients({"table": slope.to_sparse()}), Gradients({"f": torch.ones(3, 1)})]
    again = written(tmp_path / "r", {"a": files.PartyLayers({"f": 1})}, {"a": known}, torch.arange(3))
    assert set(again.facts["a"]) == {SummedGradients, Gradients}
    assert torch.equal(again.facts["a"][SummedGradients].parameters["table"], slope)


def test_a_private_batch_reads_back(tmp_path):
    private = PrivateBatch("a+b", torch.rand(4, 3).double(), torch.tensor([-1.0, 1, 1, -1]), torch.arange(4))
    facts = {"a": [Gradients({"f": torch.ones(3, 1)})]}
    written(tmp_path / "r", {"a": files.PartyLayers({"f": 1})}, facts, torch.arange(3), epoch=1, step=2)
    write_private(tmp_path / "r", 1, 2, private)
    (again,) = RecordedMessages(tmp_path / "r").rounds(1)
    assert parts_of(again.private) == parts_of(private)


# Against a writer that shares nothing with the reader


LAYERS = {"層": 2, "f10": 1, "f2": 3, "../x": 1}


def random_batches(rng, dtype):
    """Party -> batches at random: epochs and steps with gaps, batches of different sizes, any ids."""
    made = {"a": [], "b": []}
    for epoch in sorted(rng.choice(20, 2, replace=False).tolist()):
        for step in sorted(rng.choice(120, 4, replace=False).tolist()):
            ids = rng.choice(rng.integers(-(2**62), 2**62, 40), rng.integers(1, 9), replace=False)
            for of_party in made.values():
                values = {
                    f"{kind}/{layer}": (100 * rng.standard_normal((len(ids), width))).astype(dtype)
                    for kind in ("embedding", "gradient")
                    for layer, width in LAYERS.items()
                }
                of_party.append(Told(epoch, step, rng.permutation(ids), values))  # an order of its own
    return made


def check(folder, batches):
    """The recording holds these batches, in the order of epoch and step, and nothing else."""
    recording = RecordedMessages(folder)
    expected = {}
    for party, of_party in batches.items():
        for one in of_party:
            expected.setdefault((one.epoch, one.step), {})[party] = one
    read = [round_ for epoch in sorted(recording.epochs) for round_ in recording.rounds(epoch)]
    assert [(round_.epoch, round_.step) for round_ in read] == sorted(expected)
    ids = [ids for epoch in sorted(recording.epochs) for ids in recording.ids(epoch)]
    for round_, listed in zip(read, ids, strict=True):
        assert round_.ids.sort().values.tolist() == sorted(listed.tolist())
        for party, one in expected[round_.epoch, round_.step].items():
            place = [round_.ids.tolist().index(i) for i in one.ids.tolist()]
            assert len(round_.ids) == len(place)
            for kind, fact in (("embedding", Embeddings), ("gradient", Gradients)):
                layers = round_.facts[party][fact].layers
                assert list(layers) == list(LAYERS)
                for layer, h in layers.items():
                    values = torch.from_numpy(one.values[f"{kind}/{layer}"]).float()
                    assert bits(h[place]) == bits(values), (party, round_.epoch, round_.step, kind, layer)


MANIFEST = manifest_of({"a": LAYERS, "b": LAYERS})


def test_shards_in_any_number_read_as_they_were_written(tmp_path):
    for seed, dtype in enumerate(("<f4", "<f2", "<f8")):
        rng = np.random.default_rng(seed)
        batches = random_batches(rng, dtype)
        shards = {}
        for party, of_party in batches.items():
            cuts = np.sort(rng.choice(len(of_party), rng.integers(0, 4), replace=False))
            for number, some in enumerate(np.split(np.arange(len(of_party)), cuts)):
                chosen = [of_party[i] for i in some]
                rng.shuffle(chosen)
                if chosen:
                    shards[f"{party}-{number:03}.safetensors"] = as_safetensors(chosen)
        check(write(tmp_path / f"{seed}", MANIFEST, shards, {}), batches)


def test_without_metadata_steps_are_as_they_stand_in_the_names_and_ten_comes_after_two(tmp_path):
    by_name = {}
    for step in (0, 2, 10, 100):
        by_name |= {f"{step}/ids": np.arange(2), f"{step}/gradient/f2": np.full((2, 3), step, "<f4")}
    shards = {"a-0.safetensors": safetensors_bytes(by_name)}
    recording = RecordedMessages(write(tmp_path / "r", MANIFEST, shards, {}))
    assert recording.epochs == {0: [0, 2, 10, 100]}
    for round_ in recording.rounds(0):
        assert round_.facts["a"][Gradients].layers["f2"].unique().tolist() == [round_.step]


def test_a_kind_that_one_party_or_batch_lacks_was_withheld(tmp_path):
    h = np.ones((2, 3), "<f4")
    a = [Told(0, 0, np.arange(2), {"embedding/f2": h, "gradient/f2": h}), Told(0, 1, np.arange(2), {"embedding/f2": h})]
    b = [Told(0, step, np.arange(2), {"embedding/f2": h}) for step in (0, 1)]
    shards = {"a-0.safetensors": as_safetensors(a), "b-0.safetensors": as_safetensors(b)}
    recording = RecordedMessages(write(tmp_path / "r", MANIFEST, shards, {}))
    assert recording.offers(Role.NON_LABEL) == {Embeddings, Gradients}
    first, second = recording.rounds(0)
    assert list(first.facts["a"][Gradients].layers) == ["f2"]
    assert [dict(f[Gradients].layers) for f in (second.facts["a"], first.facts["b"], second.facts["b"])] == [{}, {}, {}]
