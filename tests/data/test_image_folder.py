import numpy as np
import pytest
from PIL import Image
from raw_files import in_file_order, load

from vflbench.data.image_folder import ImageFolder
from vflbench.errors import UserError


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
    with pytest.raises(UserError, match="no such folder"):
        ImageFolder(path=str(folder / "absent")).load(None)
    with pytest.raises(UserError, match="it has 0 subfolder"):
        ImageFolder(path=str(folder / "cat")).load(None)
    with pytest.raises(ValueError, match="a side length, or"):
        ImageFolder(path=str(folder), size=[1, 2, 3])
    Image.new("L", (9, 9)).save(folder / "dog" / "odd.png")
    with pytest.raises(UserError, match=r"odd\.png.*4 x 6 and 9 x 9"):
        ImageFolder(path=str(folder)).load(None)
    assert load(ImageFolder(path=str(folder), size=4)).train.classes == 2
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40)).astype(np.uint8)).save(folder / "dog" / "odd.png")
    content = (folder / "dog" / "odd.png").read_bytes()
    (folder / "dog" / "odd.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"odd\.png.*damaged"):
        ImageFolder(path=str(folder)).load(None)
    (folder / "dog" / "odd.png").write_text("text")
    with pytest.raises(UserError, match=r"odd\.png.*not a picture"):
        ImageFolder(path=str(folder)).load(None)
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match="empty is empty"):
        ImageFolder(path=str(folder)).load(None)
