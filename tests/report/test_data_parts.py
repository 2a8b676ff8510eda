"""Runs on different data share no plane, no name and no sentence."""

import pytest
from outputs_tree import write_run

from vflbench.report.data_parts import data_parts
from vflbench.report.sections import Wishes, sections
from vflbench.results.tree import read_tree

ONE = {"path": "/x/all.csv", "file_sha256": "1" * 64}
PARTIES = {"party_files": {"label": {"path": "/x/shop.csv", "file_sha256": "3"}, "a": {"path": "/x/bank.csv"}}}


def parts(root, *facts):
    for number, data in enumerate(facts):
        write_run(root / f"run{number}", dataset="csv", seed=number, facts={"data": data})
    return [(title, [run.seed for run in runs]) for _, title, runs in data_parts(read_tree([root]).runs)]


def test_one_file_and_files_of_parties_are_two_parts_with_names(tmp_path):
    assert parts(tmp_path, ONE, PARTIES, ONE) == [("csv, all.csv", [0, 2]), ("csv, bank.csv+shop.csv", [1])]
    made = sections(read_tree([tmp_path]).runs, Wishes())
    assert [(s.title, s.slug) for s in made] == [
        ("Runs on csv, all.csv", "runs_csv_all_csv"),
        ("Runs on csv, bank.csv+shop.csv", "runs_csv_bank_csv_shop_csv"),
    ]
    assert [g.name for s in made for g in s.groups] == ["none", "none"]


def test_files_of_one_name_and_other_content_are_two_parts(tmp_path):
    other = {"path": "/y/all.csv", "file_sha256": "2" * 64}
    assert parts(tmp_path, ONE, other) == [("csv, all.csv, 11111111", [0]), ("csv, all.csv, 22222222", [1])]


@pytest.mark.parametrize("more", [{"path": "all.csv"}, {**ONE, "fingerprint": "other rows of it"}])
def test_other_rows_of_one_file_and_older_runs_stay_together(tmp_path, more):
    """Sweeps along `dataset.rows` are one curve."""
    assert parts(tmp_path, ONE, more) == [("csv", [0, 1])]


def test_an_older_run_beside_two_contents_is_alone(tmp_path):
    other = {"path": "/y/all.csv", "file_sha256": "2" * 64}
    titles = [title for title, _ in parts(tmp_path, ONE, other, {"path": "all.csv"})]
    assert titles == ["csv, all.csv, content not recorded", "csv, all.csv, 11111111", "csv, all.csv, 22222222"]


def test_generated_data_of_any_size_are_one_part(tmp_path):
    assert parts(tmp_path, {"fingerprint": "1"}, {"fingerprint": "2"}) == [("csv", [0, 1])]
