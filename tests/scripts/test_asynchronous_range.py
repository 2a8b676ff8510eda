from script_runs import run


def test_it_prints_every_line_of_its_table():
    done = run("asynchronous_range", "--shapes", "4x5,5x6", "--batches", "2,3", "--draws", 2, "--lowest", "1e-3")
    head, *lines = done.stdout.splitlines()
    assert head.split()[:3] == ["m", "d", "n"]
    assert [tuple(map(int, line.split()[:3])) for line in lines] == [(4, 5, 2), (4, 5, 3), (5, 6, 2), (5, 6, 3)]
    assert all("(0.0%)" in line for line in lines)
