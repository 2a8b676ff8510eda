import math

from vflbench.metrics.leakage import Leak
from vflbench.numerics.interval import Interval
from vflbench.run.summary import _tree


def leak(party, value, *, visible=True):
    interval = Interval(value, math.nan, math.nan)
    batches = 0 if math.isnan(value) else 5
    return Leak("norm", "gradient", party, "f2", visible, interval, interval, interval, batches, 0)


def test_a_layer_of_several_parties_stands_for_the_attacker_that_learns_most():
    orders = [
        [leak("a", 0.6), leak("b", 0.8), leak("label", 0.99, visible=False)],
        [leak("label", 0.99, visible=False), leak("b", 0.8), leak("a", 0.6)],
        [leak("a", math.nan), leak("b", 0.8)],
        [leak("b", 0.8), leak("a", math.nan)],
    ]
    for leaks in orders:
        assert _tree(leaks, "two_sided") == {"norm": {"gradient": {"f2": 0.8}}}, [one.party for one in leaks]
