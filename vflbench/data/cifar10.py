"""CIFAR-10."""

from vflbench.data.cifar import Cifar
from vflbench.data.cifar_files import Version
from vflbench.options import options

_BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
_BINARY = Version(tuple(f"{name}.bin" for name in _BATCHES), "batches.meta.txt", label_bytes=1)
_PICKLED = Version(_BATCHES, "batches.meta", key="labels", names_key="label_names")
_PUBLISHED = ["cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"]


@options
class Cifar10(Cifar):
    """60,000 photographs, 32 x 32 colour pixels, 10 classes, of the binary or the Python archive.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
    """

    def layout(self) -> tuple[list[Version], int, list[str]]:
        return [_BINARY, _PICKLED], 10, _PUBLISHED
