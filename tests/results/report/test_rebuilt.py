import numpy as np

from vflbench.results.report.rebuilt import draw_rebuilt


def save(folder, **pairs):
    arrays = {}
    for name, (truth, answer) in pairs.items():
        arrays[f"{name}/a/f2/truth"], arrays[f"{name}/a/f2/answer"] = truth, answer
    np.savez(folder / "reconstructions.npz", **arrays)


def test_wrong_and_unknown_entries_of_a_table_are_marked(tmp_path):
    truth = np.eye(4)
    answer = truth.copy()
    answer[0, 0], answer[1, 2] = 0, np.nan
    save(tmp_path, batch=(truth, answer))
    figure = draw_rebuilt(tmp_path)
    (band,) = figure.subfigs
    left, right = band.axes
    assert not left.collections
    marked = {tuple(point) for point in right.collections[0].get_offsets().tolist()}
    assert marked == {(0, 0), (2, 1)}
    assert right.get_title() == "rebuilt: 2 of 16 wrong"


def test_pictures_stand_in_two_rows(tmp_path):
    pictures = np.random.default_rng(0).random((5, 8, 8))
    save(tmp_path, inversion=(pictures, pictures / 2))
    (band,) = draw_rebuilt(tmp_path).subfigs
    true, rebuilt = (ax.images[0].get_array() for ax in band.axes)
    assert [ax.get_ylabel() for ax in band.axes] == ["true", "rebuilt"]
    assert true.shape == rebuilt.shape == (8, 5 * 9)
    assert np.array_equal(rebuilt[:, 9:17], pictures[1] / 2)
    assert (rebuilt[:, 8::9] == 1).all()


def test_a_line_that_is_not_full_is_filled_with_white(tmp_path):
    pictures = np.random.default_rng(0).random((12, 8, 8, 3))
    save(tmp_path, inversion=(pictures, pictures))
    (band,) = draw_rebuilt(tmp_path).subfigs
    last = band.axes[2].images[0].get_array()
    assert last.shape == (8, 90, 3)
    assert np.array_equal(last[:, :8], pictures[10])
    assert (last[:, 18:] == 1).all()


def test_nothing_was_rebuilt(tmp_path):
    assert draw_rebuilt(tmp_path) is None
