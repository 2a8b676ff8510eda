from script_runs import run


def test_it_prints_every_line_of_its_tables():
    done = run("bench_marvell", "--problems", 50, "--slsqp", 5, "--digits", 0, "--rounds", 1)
    for line in ("solve_target, one by one", "solve_power, batched, 20,000", "SLSQP, one by one", "Marvell.gradient"):
        assert line in done.stdout
