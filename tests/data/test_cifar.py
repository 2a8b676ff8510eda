import pickle

import numpy as np
import pytest
from support.cifar_files import NAMES, cifar10_files, cifar100_files, pickled, pictures, write_archive, write_folder
from support.raw_files import error_of, in_file_order, load

from vflbench.data.pictures import Cifar10, Cifar100
from vflbench.numerics.pixels import area_of

ROWS = 5


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("cifar")


@pytest.fixture(scope="module")
def paths(data):
    """Both versions, as folders and as archives."""
    found = {}
    for kind, python in (("bin", False), ("py", True)):
        name, files = f"cifar-10-batches-{kind}", cifar10_files(ROWS, python=python)
        found[kind] = write_folder(data / name, files)
        found[f"{kind}.tar.gz"] = write_archive(data / f"{kind}.tar.gz", name, files)
    return found


@pytest.mark.parametrize("kind", ["bin", "py", "bin.tar.gz", "py.tar.gz"])
def test_every_version_gives_the_same_pictures(paths, kind):
    split = load(Cifar10(path=paths[kind]))
    pixels, labels = pictures(6 * ROWS)
    numeric, categorical, classes = in_file_order(split)
    expected = pixels.transpose(0, 2, 3, 1).reshape(6 * ROWS, -1) / 255
    np.testing.assert_allclose(numeric.numpy(), expected, atol=1e-7)
    assert classes.tolist() == labels.tolist()
    assert categorical.shape == (6 * ROWS, 0)
    assert split.facts["class_names"] == list(NAMES)
    assert list(split.facts["class_rows"].values()) == [3] * 10
    area = area_of(split.train.features["a"].columns.numeric)
    assert (area.height, area.width, area.channels) == (32, 32, 3)
    assert split.fingerprint == load(Cifar10(path=paths["bin"])).fingerprint


def test_a_folder_above_and_the_default(paths, data, monkeypatch):
    assert load(Cifar10(path=str(data))).fingerprint == load(Cifar10(path=paths["py"])).fingerprint
    monkeypatch.setenv("VFLBENCH_DATA", str(data))
    assert load(Cifar10()).fingerprint == load(Cifar10(path=paths["bin"])).fingerprint


def test_a_part_of_the_data_set_says_so(tmp_path):
    files = cifar10_files(ROWS)
    some = {name: files[name] for name in ("data_batch_2.bin", "test_batch.bin")}
    split = load(Cifar10(path=write_folder(tmp_path / "x", some)))
    assert len(split.train) + len(split.test) == 2 * ROWS
    assert split.notes == (
        "a part of the data set is not there: data_batch_1.bin, data_batch_3.bin, data_batch_4.bin, data_batch_5.bin",
    )
    assert list(split.facts["class_rows"]) == [str(k) for k in range(10)]


class Evil:
    def __reduce__(self):
        return eval, ("open('/nowhere')",)


WRONG = {
    "too short": ({"data_batch_1.bin": b"\0" * 3000}, "3,000 bytes; pictures take 3,073"),
    "label": ({"data_batch_1.bin": b"\x0a" + b"\0" * 3072}, "the label of picture 1 is 10"),
    "names": ({"batches.meta.txt": b"a\nb\n"}, "does not hold 10 different names"),
    "nothing": (None, "holds no file with pictures"),
    "call": ({"data_batch_1": pickle.dumps({"data": Evil()})}, "builtins eval"),
    "few labels": ({"data_batch_1": pickled({"data": np.zeros((2, 3072), np.uint8), "labels": [1]})}, "list of 2 classes"),
    "breaks off": ({"data_batch_1": pickled({"data": np.zeros((1, 3072), np.uint8)})[:-9]}, "no file of the Python version"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(case, tmp_path):
    wrong, message = WRONG[case]
    whole = cifar10_files(1) if wrong and next(iter(wrong)).endswith((".bin", ".txt")) else {}
    error = error_of(Cifar10(path=write_folder(tmp_path / "x", whole | (wrong or {"other": b""}))))
    assert message in error
    assert error.startswith("dataset.path=")


def test_other_archives_and_files_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"no archive")
    assert "it is no archive such as cifar-10-binary.tar.gz" in error_of(Cifar10(path=str(tmp_path / "a")))
    assert "there is no such folder" in error_of(Cifar10(path=str(tmp_path / "nowhere")))
    whole = write_archive(tmp_path / "w", "x", cifar10_files(2))
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes()[:3000])
    assert "dataset.path=" in error_of(Cifar10(path=whole))


@pytest.mark.parametrize(("labels", "classes"), [("fine", 100), ("coarse", 20)])
def test_both_versions_give_the_same_pictures_and_either_kind_of_label(tmp_path, labels, classes):
    binary = write_archive(tmp_path / "b.tar.gz", "cifar-100-binary", cifar100_files())
    python = write_folder(tmp_path / "cifar-100-python", cifar100_files(python=True))
    splits = [load(Cifar100(path=path, labels=labels)) for path in (binary, python, str(tmp_path))]
    assert len({split.fingerprint for split in splits}) == 1
    pixels, numbers = pictures(200, 100)
    numeric, _, found = in_file_order(splits[0])
    assert found.tolist() == (numbers % classes).tolist()
    assert (numeric * 255).round().byte().numpy().tobytes() == pixels.transpose(0, 2, 3, 1).tobytes()
    assert splits[1].train.classes == classes
    names = splits[1].facts["class_names"]
    assert (len(names), names[1]) == (classes, "fine_1" if labels == "fine" else "group_1")


def test_files_of_cifar10_are_none(tmp_path):
    write_folder(tmp_path / "x", {"data_batch_1.bin": b""})
    assert "such as train.bin, test.bin, train, test" in error_of(Cifar100(path=str(tmp_path / "x")))
