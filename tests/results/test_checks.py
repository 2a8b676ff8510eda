"""Values held against types without pydantic: what is accepted, pydantic accepts; what isn't, it describes."""

import copy
import random
from typing import Any

import pytest
from vflbench.results.checks import accepts, refusal

from vflbench.results.schema import MOST_NAMES, _Config, _Manifest, _Summary, check_summary

SUMMARY = {
    "epochs": 2,
    "seconds": 1.5,
    "test_auc": None,
    "leaks": [{"attack": "norm", "layer": "f3", "raw": {"mean": 1, "low": 0.5, "high": None}, "visible": True, "more": [1]}],
    "verdict": {
        "worst": {"attack": "a", "message": "m", "party": "p", "layer": "l", "figure": "AUC", "value": 0.9}
        | {"low": 0.8, "high": None, "readings": 3}
    },
    "skipped": {"cosine": "no hints", "hints": None},
    "reconstructions": [
        {"attack": "a", "message": "m", "party": "p", "layer": "l", "figures": {"x": 1.0, "y": {"mean": 2}}}
    ],
    "privacy": {"epsilon": 1, "tried": {"x": object}},
    "unheard": object,
}
MANIFEST = {"versions": {"torch": "2.6"}, "seed": 3, "layers": {"a": ["f1", "f2"]}, "threats": {"norm": {"knows": ["x"]}}}
ODD: list[Any] = [None, True, 0, -1, 2**53, 2**53 + 1, 10**400, 1.0, float("nan"), "", "text", "\ud800", [], ["x"], [1]]
ODD += [
    {},
    {"a": 1},
    {1: 2},
    {"\ud800": 1},
    (),
    b"x",
    {"mean": "x"},
    [{"attack": 3}],
    {str(i): None for i in range(MOST_NAMES + 1)},
]


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def changed(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = copy.copy(node)
    made[path[0]] = changed(node[path[0]], path[1:], value)
    return made


@pytest.mark.parametrize(
    ("kind", "content"), [(_Summary, SUMMARY), (_Manifest, MANIFEST), (_Config, {"attack": {"norm": {}}})]
)
def test_what_is_accepted_is_accepted_by_pydantic(kind, content):
    assert accepts(kind)(content)
    for place in places(content):
        for value in ODD:
            made = changed(content, place, value)
            if accepts(kind)(made):
                assert refusal(kind, made) is None, (place, value)


def test_most_of_what_pydantic_accepts_is_accepted():
    rng = random.Random(0)
    for place in places(SUMMARY):
        made = changed(SUMMARY, place, rng.choice([None, 1, 0.5, "text"]))
        assert accepts(_Summary)(made) == (refusal(_Summary, made) is None), place


def test_a_missing_name_and_one_of_another_type_are_named():
    with pytest.raises(ValueError, match=r"verdict\.worst\.message is .*: field required"):
        check_summary({"verdict": {"worst": {"attack": "a"}}})
    with pytest.raises(ValueError, match="seconds is True: input should be a valid number"):
        check_summary({"seconds": True})
    with pytest.raises(ValueError, match="dictionary should have at most 500 items"):
        check_summary({"guarantees": {str(i): None for i in range(MOST_NAMES + 1)}})
    check_summary({"epochs": 2**70})  # which pydantic is asked about
