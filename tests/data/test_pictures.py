"""Pictures as they are published and folders of them: what was written is read, cut into rectangles, or refused."""

import gzip
import io
import re

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from support.cifar_files import NAMES, cifar10_files, cifar100_files, pickled, pictures, write_archive, write_folder
from support.picture_files import write_idx, write_mnist
from support.raw_files import error_of, in_file_order, load, refusal_of

from vflbench.data.pictures import Cifar10, Cifar100, Digits, FashionMnist, ImageFolder, Mnist
from vflbench.numerics.pixels import Area, area_of


def areas(dataset):
    return {party: area_of(block.columns.numeric) for party, block in load(dataset).train.features.items()}


def test_numbers_of_parties_cut_halves_quarters_strips():
    assert areas(Digits(parties=2)) == {"a": Area(0, 0, 4, 8), "b": Area(4, 0, 4, 8)}
    assert [(a.top, a.left, a.height, a.width) for a in areas(Digits(parties=4)).values()] == [
        *((0, 0, 4, 4), (0, 4, 4, 4), (4, 0, 4, 4), (4, 4, 4, 4))
    ]
    assert [(a.top, a.height) for a in areas(Digits(parties=3, cut="rows")).values()] == [(0, 3), (3, 2), (5, 3)]
    assert areas(Digits(parties=2, cut="columns")) == {"a": Area(0, 0, 8, 4), "b": Area(0, 4, 8, 4)}
    assert next(iter(areas(Digits(parties=6)).values())) == Area(0, 0, 3, 4)  # 3 x 2
    assert "8 x 8 pixels can't be cut into so many parts (cut=rows)" in error_of(Digits(parties=9, cut="rows"))
    assert "dataset.parties=0" in error_of(Digits(parties=0))


def test_pixels_and_classes_are_those_of_scikit_learn():
    bunch, split = load_digits(), load(Digits())
    numeric, _, labels = in_file_order(split)
    np.testing.assert_array_equal(numeric, bunch.data / 16)  # by the same number, also pixels that are hardly ever bright
    assert labels.tolist() == bunch.target.tolist()
    assert split.train.classes == load(Digits(rows=6)).train.classes == 10  # even among a few rows


def test_every_version_of_cifar_10_gives_the_same_pictures(tmp_path, monkeypatch):
    """Binary and Python, as folders and as archives, in a folder above, and where data usually are."""
    paths = [None, str(tmp_path)]
    for kind in ("bin", "py"):
        name, files = f"cifar-10-batches-{kind}", cifar10_files(python=kind == "py")
        paths += [write_folder(tmp_path / name, files), write_archive(tmp_path / f"{kind}.tar.gz", name, files)]
    monkeypatch.setenv("VFLBENCH_DATA", str(tmp_path))
    splits = [load(Cifar10(path=path)) for path in paths]
    pixels, labels = pictures(30)
    numeric, _, classes = in_file_order(splits[0])
    np.testing.assert_allclose(numeric, pixels.transpose(0, 2, 3, 1).reshape(30, -1) / 255, atol=1e-7)
    assert classes.tolist() == labels.tolist()
    assert area_of(splits[0].train.features["a"].columns.numeric) == Area(0, 0, 32, 32, 3)
    for split in splits:
        assert split.fingerprint == splits[0].fingerprint
        assert split.facts["class_names"] == list(NAMES) == list(split.facts["class_rows"])


@pytest.mark.parametrize(("labels", "classes", "second"), [("fine", 100, "fine_1"), ("coarse", 20, "group_1")])
def test_both_versions_of_cifar_100_give_the_same_pictures_and_either_kind_of_label(tmp_path, labels, classes, second):
    binary = write_archive(tmp_path / "b.tar.gz", "cifar-100-binary", cifar100_files())
    python = write_folder(tmp_path / "cifar-100-python", cifar100_files(python=True))
    splits = [load(Cifar100(path=path, labels=labels)) for path in (binary, python, str(tmp_path))]
    assert len({split.fingerprint for split in splits}) == 1
    pixels, numbers = pictures(200, 100)
    numeric, _, read = in_file_order(splits[0])
    assert read.tolist() == (numbers % classes).tolist()
    assert (numeric * 255).round().byte().numpy().tobytes() == pixels.transpose(0, 2, 3, 1).tobytes()
    names = splits[1].facts["class_names"]
    assert (splits[1].train.classes, len(names), names[1]) == (classes, classes, second)


def test_a_part_of_the_data_set_says_so(tmp_path):
    some = {name: content for name, content in cifar10_files().items() if name in ("data_batch_2.bin", "test_batch.bin")}
    split = load(Cifar10(path=write_folder(tmp_path / "x", some)))
    assert len(split.train) + len(split.test) == 10
    assert split.notes[0].endswith("is not there: " + ", ".join(f"data_batch_{k}.bin" for k in (1, 3, 4, 5)))
    assert list(split.facts["class_rows"]) == [str(k) for k in range(10)]


WRONG = {
    "too short": ({"data_batch_1.bin": b"\0" * 3000}, "3,000 bytes; pictures take 3,073"),
    "label": ({"data_batch_1.bin": b"\x0a" + b"\0" * 3072}, "the label of picture 1 is 10"),
    "names": ({**cifar10_files(1), "batches.meta.txt": b"a\nb\n"}, "does not hold 10 different names"),
    "nothing": ({"train.bin": b""}, "holds no file with pictures"),
    "call": ({"data_batch_1": b"cbuiltins\neval\n(S'1'\ntR."}, "builtins eval"),
    "few labels": ({"data_batch_1": pickled({"data": np.zeros((2, 3072), np.uint8), "labels": [1]})}, "list of 2 classes"),
    "breaks off": ({"data_batch_1": pickled({"data": np.zeros((1, 3072), np.uint8)})[:-9]}, "no file of the Python version"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_file_of_cifar_is_refused(case, tmp_path):
    files, message = WRONG[case]
    error = error_of(Cifar10(path=write_folder(tmp_path / "x", files)))
    assert message in error
    assert error.startswith("dataset.path=")


def test_other_archives_and_folders_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"no archive")
    assert "it is no archive such as cifar-10-binary.tar.gz" in error_of(Cifar10(path=str(tmp_path / "a")))
    assert "there is no such folder" in error_of(Cifar10(path=str(tmp_path / "nowhere")))
    whole = write_archive(tmp_path / "w", "x", cifar10_files(2))
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes()[:3000])
    assert "dataset.path=" in error_of(Cifar10(path=whole))


def test_both_parts_of_mnist_are_joined_and_files_can_be_named(tmp_path, monkeypatch):
    first, _ = write_mnist(tmp_path / "mnist", part="train", rows=35, seed=1, compress=True)
    second, labels = write_mnist(tmp_path / "mnist", rows=20)
    whole = load(Mnist(path=str(tmp_path / "mnist")))
    numeric, _, joined = in_file_order(whole)
    np.testing.assert_allclose(numeric, np.concatenate([first, second]).reshape(55, -1) / 255, atol=1e-7)
    assert (joined[35:].tolist(), whole.train.classes) == (labels.tolist(), 10)
    monkeypatch.setenv("VFLBENCH_DATA", str(tmp_path))
    assert load(Mnist()).fingerprint == whole.fingerprint
    images, classes = (str(tmp_path / "mnist" / f"t10k-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    assert len(in_file_order(load(Mnist(images=images, labels=classes)))[2]) == 20


def test_an_error_names_the_file_that_has_another_format(tmp_path):
    pixels, labels = np.zeros((6, 3, 3)), np.arange(6) % 2
    good_images, good_labels = write_idx(tmp_path / "i", pixels), write_idx(tmp_path / "l", labels)

    def rejected(match, images=good_images, classes=good_labels):
        problem = error_of(Mnist(images=str(images), labels=str(classes)))
        assert re.search(match, problem)
        assert str(tmp_path) in problem

    rejected("header of 3 dimension", images=good_labels)
    rejected("5 labels for the 6 pictures", classes=write_idx(tmp_path / "l5", labels[:5]))
    rejected("of unsigned bytes", images=write_idx(tmp_path / "floats", pixels, kind=13))
    rejected("holds no pictures", write_idx(tmp_path / "i0", pixels[:0]), write_idx(tmp_path / "l0", labels[:0]))
    content = (tmp_path / "i").read_bytes()
    whole = gzip.compress(content)
    for damaged in (content[:-1], content + b"\0", content[:9], whole[:-12], whole[:20] + b"\xff\xff" + whole[22:]):
        (tmp_path / "damaged").write_bytes(damaged)
        rejected("header|it can't be read: ", images=tmp_path / "damaged")


def test_a_folder_without_the_files_is_rejected(tmp_path):
    digits = Mnist(path=str(tmp_path))
    assert "no MNIST files" in error_of(digits)
    assert "dataset.labels" in error_of(Mnist(images="x"))
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    assert "has t10k-images-idx... but no t10k-labels" in error_of(digits)
    write_mnist(tmp_path)
    write_mnist(tmp_path, part="train", side=12)
    assert "10 x 10 and 12 x 12" in error_of(digits)


def test_the_files_of_fashion_mnist_are_those_of_mnist_in_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("VFLBENCH_DATA", str(tmp_path))
    assert f"{tmp_path / 'fashion_mnist'}: there is no such folder" in error_of(FashionMnist())
    (tmp_path / "FashionMNIST").mkdir()
    write_mnist(tmp_path / "FashionMNIST" / "raw")
    first = load(FashionMnist()).fingerprint
    assert first == load(Mnist(path=str(tmp_path / "FashionMNIST" / "raw"))).fingerprint
    write_mnist(tmp_path / "fashion_mnist", seed=1)
    assert load(FashionMnist()).fingerprint != first


def write_pictures(folder, **classes):
    """class -> pictures, each (height, width) or (height, width, 3)."""
    for name, several in classes.items():
        (folder / name).mkdir()
        for number, pixels in enumerate(several):
            Image.fromarray(pixels).save(folder / name / f"{number}.{'tif' if pixels.dtype.itemsize == 4 else 'png'}")
    return ImageFolder(path=str(folder))


@pytest.fixture
def folder(tmp_path):
    """Two classes: three pictures of cats, two of dogs, 4 x 6, each of one colour."""
    colours = {"cat": (10, 11, 12), "dog": (200, 201)}
    write_pictures(tmp_path, **{k: [np.full((4, 6, 3), (red, 50, 90), np.uint8) for red in of] for k, of in colours.items()})
    (tmp_path / "cat" / ".hidden").write_text("ignored")
    return tmp_path


def test_subfolders_are_classes_and_come_in_turn(folder):
    split = load(ImageFolder(path=str(folder), grey=False))
    numeric, _, labels = in_file_order(split)
    assert labels.tolist() == [0, 1, 0, 1, 0]
    first_pixels = (numeric.numpy()[:, :3] * 255).round().astype(int)
    assert first_pixels.tolist() == [[red, 50, 90] for red in (10, 200, 11, 201, 12)]
    assert split.facts["class_names"] == ["cat", "dog"]
    assert in_file_order(load(ImageFolder(path=str(folder), rows=4)))[2].tolist() == [0, 1, 0, 1]


def test_grey_and_resized(folder):
    block = load(ImageFolder(path=str(folder), size=[2, 3], parties=2)).train.features["a"]
    assert block.columns.numeric == ("pixel_0_0", "pixel_0_1", "pixel_0_2")
    numeric, _, _ = in_file_order(load(ImageFolder(path=str(folder), size=8)))
    assert numeric.shape == (5, 64)
    assert abs(numeric[0] - (0.299 * 10 + 0.587 * 50 + 0.114 * 90) / 255).max() < 1 / 255


def test_folders_and_files_that_do_not_fit_are_rejected(folder):
    assert "no such folder" in refusal_of(ImageFolder(path=str(folder / "absent")))
    assert "it has 0 subfolder" in refusal_of(ImageFolder(path=str(folder / "cat")))
    with pytest.raises(ValueError, match="a side length, or"):
        ImageFolder(path=str(folder), size=[1, 2, 3])
    dataset, odd, program = ImageFolder(path=str(folder)), folder / "dog" / "odd.png", io.BytesIO()
    Image.new("L", (9, 9)).save(odd)
    assert re.search(r"odd\.png.*4 x 6 and 9 x 9", refusal_of(dataset))
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40)).astype(np.uint8)).save(odd)
    odd.write_bytes(odd.read_bytes()[:800])
    assert re.search(r"odd\.png.*can't be read", refusal_of(dataset))
    Image.new("L", (4, 6)).save(program, "EPS")  # of which Pillow would start a program
    for content in (b"text", program.getvalue()):
        odd.write_bytes(content)
        assert re.search(r"odd\.png.*not a picture", refusal_of(dataset))
    odd.unlink()
    odd.mkdir()
    assert "a folder within a class" in refusal_of(dataset)
    (folder / "empty").mkdir()
    assert "empty is empty" in refusal_of(dataset)


STEPS = np.arange(64).reshape(8, 8)


def test_grey_pixels_of_more_than_8_bits_keep_their_range(tmp_path):
    """64 values stay 64; 8 bits would be left of 16, and two of fractions."""
    deep = write_pictures(tmp_path, a=[(STEPS * 1000).astype(np.uint16)], b=[(65535 - STEPS).astype(np.uint16)])
    table, _ = deep.read(None)
    assert table.numeric.tolist() == [(STEPS.ravel() * 1000).tolist(), (65535 - STEPS.ravel()).tolist()]
    assert {*table.limits[1]} == {65535}
    assert "have no colours; set dataset.grey" in refusal_of(ImageFolder(path=str(tmp_path), grey=False))
    Image.fromarray(STEPS.astype(np.uint8)).save(tmp_path / "b" / "2.png")
    assert "pictures must have one depth" in refusal_of(deep)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_fractions_and_32_bits_reach_from_the_least_to_the_greatest(tmp_path, dtype):
    table, _ = write_pictures(tmp_path, a=[(STEPS - 32).astype(dtype)], b=[np.zeros((8, 8), dtype)]).read(None)
    assert table.numeric.tolist() == [STEPS.ravel().tolist(), [32] * 64]
    assert {*table.limits[1]} == {63}
