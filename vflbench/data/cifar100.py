"""CIFAR-100."""

from typing import Literal

from vflbench.data.cifar import Cifar
from vflbench.data.cifar_files import Version
from vflbench.options import options

_PUBLISHED = ["cifar-100-binary", "cifar-100-python", "cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"]


@options
class Cifar100(Cifar):
    """60,000 photographs, 32 x 32 colour pixels, 100 classes in 20 groups, of the binary or the Python archive.

    labels: `fine`, the 100 classes, or `coarse`, their 20 groups.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
    """

    labels: Literal["fine", "coarse"] = "fine"

    def layout(self) -> tuple[list[Version], int, list[str]]:
        kind, fine = self.labels, self.labels == "fine"
        binary = Version(("train.bin", "test.bin"), f"{kind}_label_names.txt", label_bytes=2, label=int(fine))
        pickled = Version(("train", "test"), "meta", key=f"{kind}_labels", names_key=f"{kind}_label_names")
        return [binary, pickled], 100 if fine else 20, _PUBLISHED
