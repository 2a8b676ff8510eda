"""Fashion-MNIST."""

import os
from pathlib import Path

from vflbench.data.mnist import Mnist
from vflbench.options import options

_FOLDERS = ("fashion_mnist", "fashion-mnist", "FashionMNIST/raw")


@options
class FashionMnist(Mnist):
    """Pictures of clothes, 28 x 28 grey pixels, 10 classes, in the files of MNIST.

    path: as of `mnist`. null: the folder `fashion_mnist`, `fashion-mnist` or `FashionMNIST/raw` (where torchvision puts it)
    in $VFLBENCH_DATA, or in `data`.

    Source: Xiao, Rasul and Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
    arXiv:1708.07747, 2017.
    """

    def default_folder(self) -> str:
        data = Path(os.environ.get("VFLBENCH_DATA", "data"))
        return str(next((data / name for name in _FOLDERS if (data / name).is_dir()), data / _FOLDERS[0]))
