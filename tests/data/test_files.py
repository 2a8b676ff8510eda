import io
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from support.raw_files import write
from support.small_tables import GOOD, GOOD_NUMBERS, problem_of, request, table_of

from vflbench.data.file_dataset import prepare_table
from vflbench.data.files import Part, find_parts
from vflbench.errors import UserError


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "x", GOOD)
    assert find_parts("~/x") == [Part(tmp_path / "x")]


def test_a_pattern_takes_its_files_in_natural_order(tmp_path):
    for number in (10, 9, 1):
        write(tmp_path / f"day_{number}", [f"0\t{number}\tx"], compress=number == 9)
    (tmp_path / "day_folder").mkdir()
    assert table_of(str(tmp_path / "day_*"))["n"] == [1, 9, 10]
    assert table_of([str(tmp_path / "day_10"), str(tmp_path / "day_1")])["n"] == [10, 1]
    with pytest.raises(UserError, match="no file matches"):
        find_parts(str(tmp_path / "night_*"))
    with pytest.raises(UserError, match="names no file"):
        find_parts([])
    with pytest.raises(UserError, match="named twice"):
        find_parts([str(tmp_path / "day_1")] * 2)


def archive(path, kind, members):
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, lines in members.items():
                file.writestr(name, "\n".join(lines))
    else:
        with tarfile.open(path, f"w:{kind}") as file:
            for name, lines in members.items():
                info = tarfile.TarInfo(name)
                data = "\n".join(lines).encode()
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    return str(path)


@pytest.mark.parametrize("kind", ["zip", "", "gz", "xz"])
def test_members_of_an_archive(tmp_path, kind):
    two = archive(tmp_path / "two", kind, {"readme.txt": ["hello"], "d/day_1": GOOD[:2], "d/day_2": GOOD[2:]})
    assert [str(p) for p in find_parts(two, ["d/*"])] == [f"{two}::d/day_1", f"{two}::d/day_2"]
    with pytest.raises(UserError, match=r"holds 3 files; .*dataset.members: readme.txt, d/day_1, d/day_2"):
        find_parts(two)
    with pytest.raises(UserError, match="no file in .* matches"):
        find_parts(two, ["nothing"])
    one = archive(tmp_path / "one", kind, {"train.txt": GOOD})
    assert table_of(one)["n"] == GOOD_NUMBERS
    bad = archive(tmp_path / "bad", kind, {"train.txt": [*GOOD, "x"]})
    assert problem_of(bad).startswith("row 5: Expected 3 columns, got 1")
    with pytest.raises(UserError, match="not a .zip or .tar"):
        find_parts(write(tmp_path / "plain", GOOD), ["x"])


def test_the_rows_of_all_parts_follow_one_another(tmp_path):
    both = archive(tmp_path / "both.tar.gz", "gz", {"a": GOOD[:1], "b": GOOD[1:]})
    assert [part.member for part in find_parts(both, ["*"])] == ["a", "b"]
    table = prepare_table(replace(request(str(write(tmp_path / "x", GOOD))), parts=find_parts(both, ["b", "a"]))).table
    assert table.numeric[:, 0].tolist() == pytest.approx([-7, np.nan, 12, 3], nan_ok=True)
