from support.picture_files import write_mnist
from support.raw_files import error_of, load

from vflbench.data.pictures import FashionMnist, Mnist


def test_the_files_are_those_of_mnist_in_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("VFLBENCH_DATA", str(tmp_path))
    assert f"{tmp_path / 'fashion_mnist'}: there is no such folder" in error_of(FashionMnist())
    (tmp_path / "FashionMNIST").mkdir()
    write_mnist(tmp_path / "FashionMNIST" / "raw", compress=True)
    found = load(FashionMnist())
    assert found.fingerprint == load(Mnist(path=str(tmp_path / "FashionMNIST" / "raw"))).fingerprint
    write_mnist(tmp_path / "fashion_mnist", seed=1)
    assert load(FashionMnist()).fingerprint != found.fingerprint
