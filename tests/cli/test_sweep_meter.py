"""How far a sweep has come: runs that were finished before took no time, and say nothing of the others."""

from vflbench.cli.sweep_meter import SweepMeter


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_time_left_is_that_of_the_mean_run_that_was_computed():
    meter = SweepMeter(clock := Clock())
    meter.expect(12)
    assert meter.line() == "sweep: 0 of 12 runs, 0 s so far"
    meter.ended(skipped=True)
    clock.now = 5
    assert meter.line() == "sweep: 1 of 12 runs, 5 s so far"
    clock.now = 40
    meter.ended(skipped=False)
    meter.ended(skipped=False)
    assert meter.line() == "sweep: 3 of 12 runs, 40 s so far, about 3 min left"


def test_a_line_is_printed_only_where_nothing_was_for_ten_seconds(capsys):
    meter = SweepMeter(clock := Clock())
    meter.expect(2)
    meter.show()
    clock.now = 11
    meter.show()
    meter.show()
    clock.now = 15
    meter.ended(skipped=False)
    clock.now = 22
    meter.show()
    clock.now = 26
    meter.show()
    clock.now = 60
    meter.ended(skipped=False)
    clock.now = 90
    meter.show()
    assert capsys.readouterr().err.splitlines() == [
        "sweep: 0 of 2 runs, 11 s so far",
        "sweep: 1 of 2 runs, 26 s so far, about 26 s left",
    ]
