import pytest

from vflbench.errors import UserError
from vflbench.report.guarded import without_bad_runs
from vflbench.results.runs import Run


class Maker:
    """Fails for runs of a name, and for the pair a, b; counts what it is asked."""

    def __init__(self, *bad):
        self.bad, self.asked = bad, 0

    def __call__(self, runs):
        self.asked += 1
        names = [run.folder.name for run in runs]
        if "user" in names:
            raise UserError("no", key="k")
        if {"a", "b"} <= set(names) or set(names) & set(self.bad):
            raise ValueError("bad")
        return names


@pytest.fixture
def runs(tmp_path):
    def made(*names):
        several = []
        for name in names:
            run = Run.__new__(Run)
            object.__setattr__(run, "folder", tmp_path / name)
            several.append(run)
        return several

    return made


def test_a_report_of_good_runs_is_made_once(runs):
    make = Maker()
    made, kept, odd = without_bad_runs(runs("a", "c"), make)
    assert (made, len(kept), odd, make.asked) == (["a", "c"], 2, [], 1)


def test_runs_that_fail_alone_or_beside_others_are_left_out(runs):
    made, kept, odd = without_bad_runs(runs("a", "x", "c", "b"), Maker("x"))
    assert made == ["a", "c"] == [run.folder.name for run in kept]
    assert [one.path.name for one in odd] == ["x", "b"]


def test_what_the_user_asked_for_wrongly_is_raised(runs):
    with pytest.raises(UserError):
        without_bad_runs(runs("user"), Maker())


def test_what_is_asked_for_wrongly_only_of_a_part_leaves_no_run_out(runs):
    def make(runs):
        if len(runs) == 1 and runs[0].folder.name == "a":
            raise UserError("of so few runs nothing can be said", key="k")
        return Maker("x")(runs)

    assert without_bad_runs(runs("a", "x", "c"), make)[0] == ["a", "c"]
