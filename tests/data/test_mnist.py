import gzip
import re

import numpy as np
from support.picture_files import write_idx, write_mnist
from support.raw_files import error_of, in_file_order, load

from vflbench.data.pictures import FashionMnist, Mnist


def test_what_was_written_is_read(tmp_path):
    for compress in (False, True):
        folder = tmp_path / f"compress-{compress}"
        pixels, labels = write_mnist(folder, compress=compress)
        split = load(Mnist(path=str(folder)))
        numeric, categorical, classes = in_file_order(split)
        np.testing.assert_allclose(numeric, pixels.reshape(60, -1) / 255, atol=1e-7, err_msg=folder.name)
        assert classes.tolist() == labels.tolist(), folder.name
        assert categorical.shape == (60, 0)
        assert split.train.classes == 10


def test_both_parts_are_joined_and_files_can_be_named(tmp_path, monkeypatch):
    first, _ = write_mnist(tmp_path / "mnist", part="train", rows=30, seed=1)
    second, labels = write_mnist(tmp_path / "mnist", rows=20)
    numeric, _, joined = in_file_order(load(Mnist(path=str(tmp_path / "mnist"))))
    np.testing.assert_allclose(numeric, np.concatenate([first, second]).reshape(50, -1) / 255, atol=1e-7)
    assert joined[30:].tolist() == labels.tolist()
    monkeypatch.setenv("VFLBENCH_DATA", str(tmp_path))
    assert load(Mnist()).fingerprint == load(Mnist(path=str(tmp_path / "mnist"))).fingerprint
    images, classes = (str(tmp_path / "mnist" / f"t10k-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    assert len(in_file_order(load(Mnist(images=images, labels=classes)))[2]) == 20


def test_an_error_names_the_file_that_has_another_format(tmp_path):
    pixels, labels = np.zeros((6, 3, 3)), np.arange(6) % 2
    good_images, good_labels = write_idx(tmp_path / "i", pixels), write_idx(tmp_path / "l", labels)

    def rejected(match, images=good_images, classes=good_labels):
        problem = error_of(Mnist(images=str(images), labels=str(classes)))
        assert re.search(match, problem)
        assert str(tmp_path) in problem

    (tmp_path / "text").write_text("label,pixel\n")
    rejected("not an idx file", images=tmp_path / "text")
    rejected("header of 3 dimension", images=good_labels)
    rejected("5 labels for the 6 pictures", classes=write_idx(tmp_path / "l5", labels[:5]))
    rejected("of unsigned bytes", images=write_idx(tmp_path / "floats", pixels, kind=13))
    rejected("holds no pictures", write_idx(tmp_path / "i0", pixels[:0]), write_idx(tmp_path / "l0", labels[:0]))
    for change in (lambda content: content[:-1], lambda content: content + b"\0", lambda content: content[:9]):
        (tmp_path / "cut").write_bytes(change((tmp_path / "i").read_bytes()))
        rejected("header", images=tmp_path / "cut")
    whole = gzip.compress((tmp_path / "i").read_bytes())
    for damaged in (whole[:-12], whole[:20] + b"\xff\xff" + whole[22:], whole[:10]):
        (tmp_path / "broken.gz").write_bytes(damaged)
        rejected("it can't be read: |its header states", images=tmp_path / "broken.gz")


def test_a_folder_without_the_files_is_rejected(tmp_path):
    digits = Mnist(path=str(tmp_path))
    assert "no MNIST files" in error_of(digits)
    assert "dataset.labels" in error_of(Mnist(images="x"))
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    assert re.search("has t10k-images-idx... but no t10k-labels", error_of(digits))
    write_mnist(tmp_path)
    write_mnist(tmp_path, part="train", side=12)
    assert "10 x 10 and 12 x 12" in error_of(digits)


def test_the_files_are_those_of_mnist_in_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("VFLBENCH_DATA", str(tmp_path))
    assert f"{tmp_path / 'fashion_mnist'}: there is no such folder" in error_of(FashionMnist())
    (tmp_path / "FashionMNIST").mkdir()
    write_mnist(tmp_path / "FashionMNIST" / "raw", compress=True)
    found = load(FashionMnist())
    assert found.fingerprint == load(Mnist(path=str(tmp_path / "FashionMNIST" / "raw"))).fingerprint
    write_mnist(tmp_path / "fashion_mnist", seed=1)
    assert load(FashionMnist()).fingerprint != found.fingerprint
