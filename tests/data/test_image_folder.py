import re

import numpy as np
import pytest
from PIL import Image
from support.raw_files import in_file_order, load, refusal_of

from vflbench.data.pictures import ImageFolder


@pytest.fixture
def folder(tmp_path):
    """Two classes: three pictures of cats, two of dogs, 4 x 6, each of one colour."""
    for name, count, red in (("cat", 3, 10), ("dog", 2, 200)):
        (tmp_path / name).mkdir()
        for i in range(count):
            colour = np.full((4, 6, 3), (red + i, 50, 90), np.uint8)
            Image.fromarray(colour).save(tmp_path / name / f"{i}.png")
    (tmp_path / "cat" / ".hidden").write_text("ignored")
    return tmp_path


def test_subfolders_are_classes_and_come_in_turn(folder):
    split = load(ImageFolder(path=str(folder), grey=False))
    numeric, _, labels = in_file_order(split)
    assert labels.tolist() == [0, 1, 0, 1, 0]
    reds = (numeric.numpy().reshape(5, 4, 6, 3)[:, 0, 0] * 255).round().astype(int)
    assert reds.tolist() == [[10, 50, 90], [200, 50, 90], [11, 50, 90], [201, 50, 90], [12, 50, 90]]
    assert split.facts["class_names"] == ["cat", "dog"]
    assert in_file_order(load(ImageFolder(path=str(folder), rows=4)))[2].tolist() == [0, 1, 0, 1]


def test_grey_and_resized(folder):
    block = load(ImageFolder(path=str(folder), size=[2, 3], parties=2)).train.features["a"]
    assert block.columns.numeric == ("pixel_0_0", "pixel_0_1", "pixel_0_2")
    grey = (0.299 * 10 + 0.587 * 50 + 0.114 * 90) / 255
    numeric, _, _ = in_file_order(load(ImageFolder(path=str(folder), size=8)))
    assert numeric.shape == (5, 64)
    assert abs(numeric[0] - grey).max() < 1 / 255


def test_folders_and_files_that_do_not_fit_are_rejected(folder):
    assert "no such folder" in refusal_of(ImageFolder(path=str(folder / "absent")))
    assert "it has 0 subfolder" in refusal_of(ImageFolder(path=str(folder / "cat")))
    with pytest.raises(ValueError, match="a side length, or"):
        ImageFolder(path=str(folder), size=[1, 2, 3])
    pictures = ImageFolder(path=str(folder))
    Image.new("L", (9, 9)).save(folder / "dog" / "odd.png")
    assert re.search(r"odd\.png.*4 x 6 and 9 x 9", refusal_of(pictures))
    assert load(ImageFolder(path=str(folder), size=4)).train.classes == 2
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40)).astype(np.uint8)).save(folder / "dog" / "odd.png")
    content = (folder / "dog" / "odd.png").read_bytes()
    (folder / "dog" / "odd.png").write_bytes(content[: len(content) // 2])
    assert re.search(r"odd\.png.*can't be read", refusal_of(pictures))
    (folder / "dog" / "odd.png").write_text("text")
    assert re.search(r"odd\.png.*not a picture", refusal_of(pictures))
    (folder / "empty").mkdir()
    assert "empty is empty" in refusal_of(pictures)


def write_grey(folder, values, name="1.tif"):
    for label, picture in zip("ab", values, strict=True):
        (folder / label).mkdir(exist_ok=True)
        Image.fromarray(picture).save(folder / label / name)
    return ImageFolder(path=str(folder))


def test_grey_pixels_of_more_than_8_bits_keep_their_range(tmp_path):
    """64 values stay 64; 8 bits would be left of 16, and two of fractions."""
    steps = np.arange(64).reshape(8, 8)
    deep = write_grey(tmp_path, [(steps * 1000).astype(np.uint16), (65535 - steps).astype(np.uint16)], "1.png")
    table, _ = deep.read(None)
    assert table.numeric.tolist() == [(steps.ravel() * 1000).tolist(), (65535 - steps.ravel()).tolist()]
    assert {*table.limits[1]} == {65535}
    assert "have no colours; set dataset.grey" in refusal_of(ImageFolder(path=str(tmp_path), grey=False))
    Image.fromarray(steps.astype(np.uint8)).save(tmp_path / "b" / "2.png")
    assert "pictures must have one depth" in refusal_of(deep)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_fractions_and_32_bits_reach_from_the_least_to_the_greatest(tmp_path, dtype):
    steps = np.arange(64).reshape(8, 8)
    pictures = write_grey(tmp_path, [(steps - 32).astype(dtype), np.zeros((8, 8), dtype)])
    table, _ = pictures.read(None)
    assert table.numeric.tolist() == [steps.ravel().tolist(), [32] * 64]
    assert {*table.limits[1]} == {63}
