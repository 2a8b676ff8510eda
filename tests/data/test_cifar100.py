import pytest
from support.cifar_files import cifar100_files, pictures, write_archive, write_folder
from support.raw_files import error_of, in_file_order, load

from vflbench.data.pictures import Cifar100


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
