"""Tables that a class of a user's own prepared."""

import importlib
import sys

from vflbench.data.csv import Csv
from vflbench.data.file_dataset import _foreign_code

SOURCE = "from vflbench.data.csv import Csv\n\n\nclass Own(Csv):\n    pass\n"


def test_an_edited_reader_prepares_its_tables_again(tmp_path, monkeypatch):
    assert _foreign_code(Csv) == {}
    monkeypatch.syspath_prepend(tmp_path)
    digests = set()
    for number in range(2):
        (tmp_path / "own_reader.py").write_text(SOURCE + f"# {number}\n")
        sys.modules.pop("own_reader", None)
        digests.add(_foreign_code(importlib.import_module("own_reader").Own)["code"])
    assert len(digests) == 2
    monkeypatch.delitem(sys.modules, "own_reader")
