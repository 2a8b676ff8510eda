from script_runs import run


def test_it_prints_a_line_for_each_width():
    done = run("bench_packing", "--rows", 10, "--width", 8, "--rounds", 1)
    assert [line.split()[:2] for line in done.stdout.splitlines()[3:]] == [
        [str(bits), str(80 * bits // 8)] for bits in (1, 2, 3, 4, 8, 10, 14)
    ]
