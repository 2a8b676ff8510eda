import os
from multiprocessing import get_context
from pathlib import Path

from vflbench.results.notices import is_new, printed_once


def test_a_notice_is_new_once_in_a_sweep_and_always_outside():
    assert [is_new("coins"), is_new("coins")] == [True, True]
    with printed_once():
        assert [is_new("coins"), is_new("coins"), is_new("other")] == [True, False, True]
        folder = Path(os.environ["VFLBENCH_NOTICES"])
    assert not folder.exists()
    assert is_new("coins")
    with printed_once():
        assert is_new("coins")


def test_processes_of_a_sweep_share_what_was_printed():
    with printed_once():
        queue = get_context("fork").SimpleQueue()
        for _ in range(2):
            process = get_context("fork").Process(target=lambda: queue.put(is_new("coins")))
            process.start()
            process.join()
        assert [queue.get(), queue.get(), is_new("coins")] == [True, False, False]


def test_where_the_folder_is_not_there_a_notice_is_printed(monkeypatch, tmp_path):
    monkeypatch.setenv("VFLBENCH_NOTICES", str(tmp_path / "elsewhere"))
    assert [is_new("coins"), is_new("coins")] == [True, True]
