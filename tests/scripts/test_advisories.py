"""The check of versions finds what it is there to find."""

import json

import pytest
from packaging.version import Version
from script_runs import load


@pytest.fixture
def script():
    return load("advisories")


def test_no_version_that_we_pin_or_allow_has_an_advisory_of_the_list(script):
    assert not [*script.too_old(script.pinned(), ""), *script.too_old(script.oldest(), "")]
    assert script.pinned().keys() >= script.FIXED_IN.keys()
    assert script.oldest().keys() >= script.FIXED_IN.keys()


def test_an_older_version_is_named_with_its_advisory(script):
    (line,) = script.too_old({"torch": Version("2.5.1"), "tqdm": Version("4.66.3")}, "pyproject.toml")
    assert line.startswith("pyproject.toml: torch 2.5.1 is older than 2.6 (CVE-2025-32434")


def test_an_advisory_counts_unless_it_is_explained_and_what_was_not_looked_up_does_not(script, monkeypatch):
    flaw = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2"], "description": ""}
    report = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": [flaw]},
            {"name": "b", "version": "1", "vulns": []},
            {"name": "c", "skip_reason": "not found"},
        ]
    }
    assert script.audited(json.dumps(report)) == (2, ["a 1: PYSEC-1, fixed in ['2']"])
    monkeypatch.setitem(script.ALLOWED, "CVE-1", "never reached")
    assert script.audited(json.dumps(report)) == (2, [])
