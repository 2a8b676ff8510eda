"""Small archives of CIFAR in the upstream formats."""

import io
import struct
import tarfile
from pathlib import Path

import numpy as np

BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def pictures(rows: int, classes: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 3, 32, 32) noise in which a few rows of the class are bright, and (n,) labels."""
    draw = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    pixels = draw.integers(0, 80, (rows, 3, 32, 32)).astype(np.uint8)
    for row, label in enumerate(labels):
        pixels[row, :, 3 * (label % 10) : 3 * (label % 10) + 3] += np.uint8(150)
    return pixels, labels


def py2(value) -> bytes:
    """A value as Python 2 pickled it with protocol 2, arrays of unsigned bytes included; without the end."""
    if value is None:
        return b"N"
    if isinstance(value, dict):
        return b"}(" + b"".join(py2(part) for pair in value.items() for part in pair) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(py2, value)) + b"e"
    if isinstance(value, np.ndarray):
        shape = py2_int(value.shape[0]) + py2_int(value.shape[1]) + b"\x86"
        kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        head = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
        content = value.tobytes()
        return head + shape + kind + b"\x89T" + struct.pack("<i", len(content)) + content + b"tb"
    if isinstance(value, str):
        return b"U" + bytes([len(value)]) + value.encode()
    return py2_int(int(value))


def py2_int(value: int) -> bytes:
    return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)


def pickled(value) -> bytes:
    return b"\x80\x02" + py2(value) + b"."


def cifar10_files(rows: int = 5, *, python: bool = False) -> dict[str, bytes]:
    """File name -> content, `rows` pictures a file."""
    pixels, labels = pictures(6 * rows)
    files = {}
    for k, name in enumerate(BATCHES):
        part = slice(k * rows, (k + 1) * rows)
        flat = pixels[part].reshape(rows, -1)
        if python:
            names = [f"x_s_{i:06}.png" for i in range(rows)]
            batch = {"batch_label": f"training batch {k + 1} of 5", "labels": labels[part].tolist(), "data": flat}
            files[name] = pickled(batch | {"filenames": names})
        else:
            files[f"{name}.bin"] = np.hstack([labels[part, None].astype(np.uint8), flat]).tobytes()
    names = pickled({"num_cases_per_batch": 10_000, "label_names": list(NAMES), "num_vis": 3072})
    return files | ({"batches.meta": names} if python else {"batches.meta.txt": ("\n".join(NAMES) + "\n\n").encode()})


def cifar100_files(rows: int = 100, *, python: bool = False) -> dict[str, bytes]:
    """`rows` training pictures and as many for testing; the group of class k is k % 20."""
    pixels, labels = pictures(2 * rows, 100)
    fine, coarse = ([f"{kind}_{k}" for k in range(count)] for kind, count in (("fine", 100), ("group", 20)))
    both, files = np.stack([labels % 20, labels], 1).astype(np.uint8), {}
    for name, part in (("train", slice(0, rows)), ("test", slice(rows, 2 * rows))):
        flat, (of_coarse, of_fine) = pixels[part].reshape(rows, -1), both[part].T.tolist()
        if python:
            files[name] = pickled({"fine_labels": of_fine, "coarse_labels": of_coarse, "data": flat, "filenames": []})
        else:
            files[f"{name}.bin"] = np.hstack([both[part], flat]).tobytes()
    if python:
        return files | {"meta": pickled({"fine_label_names": fine, "coarse_label_names": coarse})}
    return files | {f"{kind}_label_names.txt": "\n".join(n).encode() for kind, n in (("fine", fine), ("coarse", coarse))}


def write_folder(folder: Path, files: dict[str, bytes]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return str(folder)


def write_archive(path: Path, folder: str, files: dict[str, bytes]) -> str:
    """A .tar.gz with the files in one folder, in an order that is not theirs."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in sorted(files.items(), reverse=True):
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return str(path)
