import gzip

import bench
import pytest
from script_runs import run


def lines(*options: object) -> list[list[str]]:
    with_no_programme = ["reconstruction", "--programmes", "", *options]
    done = run(bench, *with_no_programme)
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("\nwhat ") + 1 :]
    return [line.replace(",", "").replace(";", "").split() for line in table.splitlines()[1:]]


@pytest.mark.slow
def test_every_batch_of_few_rows_and_many_columns_is_proved_and_alone():
    table = lines("--cells", "3x12", "--seeds", 4, "--methods", "columns,auto")
    assert [line[:2] for line in table] == [["3x12", "columns"], ["3x12", "auto"]]
    for line in table:
        assert line[line.index("ambiguous") + 1] == "0.0%"
        assert line[line.index("proved") + 1] == "4/4"


@pytest.mark.slow
def test_it_reads_the_binary_columns_of_libsvm_and_csv(tmp_path):
    # Both rows are drawn, and three columns: two rows that are complements of each other are alone with their alpha.
    with gzip.open(tmp_path / "rows.txt.gz", "wt") as file:
        file.write("1 1:1 3:1\n-1 2:1\n")
    (tmp_path / "rows.csv").write_text("name,a,b,c\nx,1,0,1\ny,0,1,0\n")
    for name in ("rows.txt.gz", "rows.csv"):
        (line,) = lines("--cells", "2x3", "--seeds", 3, "--methods", "auto", "--file", tmp_path / name)
        assert line[line.index("proved") + 1] == "3/3"
