import math
import subprocess
import sys

import pytest
from benches.lines import BENCH, Cost
from benches.scale import FULL_ROWS, Fit, Point, estimate
from scipy import stats


def test_the_interval_is_that_of_least_squares():
    """Against scipy's line and Student's t, written out for a prediction at x."""
    xs, ys, x = [1.0, 2.0, 3.0, 4.0, 5.0], [1.1, 1.9, 3.2, 3.9, 5.3], 20.0
    line = stats.linregress(xs, ys)
    residual = sum((y - line.intercept - line.slope * a) ** 2 for a, y in zip(xs, ys, strict=True)) / 3
    expected = stats.t.ppf(0.975, 3) * math.sqrt(residual * (1 + 1 / 5 + (x - 3) ** 2 / 10))
    value, error = Fit(xs, ys)(x)
    assert value == pytest.approx(line.intercept + line.slope * x)
    assert error == pytest.approx(expected, rel=1e-3)


def test_a_straight_line_goes_on_and_a_bend_shows():
    def points(seconds):
        return [
            Point(n, n, Cost(seconds(n), 2 * seconds(n), 100 + n / 1e6))
            for n in (1_000_000, 2_000_000, 3_000_000, 4_000_000)
        ]

    straight = estimate("x", points(lambda n: 1 + n / 1e6))
    assert straight.ours.wall == pytest.approx(1 + FULL_ROWS / 1e6)
    assert "+- 0 CPU s" in straight.note
    assert "+0.0% off" in straight.note
    bent = estimate("x", points(lambda n: (n / 1e6) ** 2))
    assert "+- 0 CPU s" not in bent.note
    assert "up to 3,000,000 rows is -20.8% off at 4,000,000" in bent.note


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["prepare", "scale"])
def test_a_topic_runs_small(topic):
    done = subprocess.run([sys.executable, BENCH, topic, "--quick"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\nwhat " in done.stdout
