"""What a run says of its promise: not violated is never verified."""

import pytest

from vflbench.report.privacy_lines import check_lines, checked
from vflbench.run.account import power_of


def privacy(canaries=200, *, violated=False, mu=None, eps=1.0):
    powers = power_of(eps if mu is None else mu, canaries, 0.0001, gaussian=mu is not None)
    return {"epsilon": None if mu else eps, "mu": mu, "canaries": canaries, "violated": violated, "power": powers}


@pytest.mark.slow
def test_not_violated_comes_with_what_would_have_been_caught():
    (line,) = check_lines(privacy())
    assert line == (
        "the promise of eps = 1 is not violated, which does not verify it (200 canaries would catch a promise 1.5 times too "
        "weak with probability 0.023, one 2 times too weak with probability 0.48, at best; it takes about 880 and 280 "
        "canaries to catch these with probability 0.8)"
    )
    (line,) = check_lines(privacy(mu=1.0))
    assert line.startswith("the promise of mu = 1 is not violated, which does not verify it (200 canaries")
    (line,) = check_lines(privacy(eps=1e-4))
    assert "with probability below 0.001" in line
    assert "about over a million and over a million" in line


def test_without_canaries_nothing_was_checked_and_a_broken_promise_needs_no_power():
    assert check_lines(privacy(0)) == ["the promise of eps = 1 was not checked: no canaries (audit.canaries)"]
    assert check_lines(privacy(violated=True)) == ["the promise of eps = 1 is violated"]
    assert check_lines({"epsilon": 1.0, "canaries": 200, "violated": False}) == []  # an older version
    assert power_of(float("inf"), 200, 0.001) == power_of(0.0, 200, 0.001) == []


def test_a_setting_has_the_least_power_of_its_runs():
    assert checked([privacy(200), privacy(1000)]) == "not violated; caught: 1.5 times too weak 0.023, 2 times too weak 0.48"
    assert checked([privacy(200), privacy(violated=True)]) == "violated"
    assert checked([privacy(0)]) == "not checked"
    assert checked([{"epsilon": 1.0, "canaries": 3}]) is None
    assert privacy()["power"][0]["probability"] == pytest.approx(0.0228, abs=1e-4)
