"""What was rebuilt stands beside the truth, everything is named, and figures are of the right runs."""

import base64
import io

import numpy as np
import pytest
from PIL import Image
from report.drawn import by_name, levels_of, points_of, section_of, texts_of
from support.outputs_tree import rebuilt, write_run

from vflbench.report.pictures import data_url, figures, mosaic, rebuilt_figures
from vflbench.report.tables import rebuilt_by_table
from vflbench.results.schema import HEADER

ATTACK = {"attack": {"inversion": {"_target_": "vflbench.attacks.model_inversion.ModelInversion"}}}


def save(folder, *reconstructions, seed=0, pictures=None, **options):
    """A run of 100 training rows in batches of 32 that sent 96 rows of 16 bits each to the label party."""
    facts = {"data": {"train_rows": 100}, "batch_size": 32}
    how = {"seed": seed, "config": ATTACK | options.pop("config", {}), "leaks": [], "facts": facts, **options}
    run = write_run(folder, reconstructions=list(reconstructions), **how)
    rows = [f"{epoch},train,a,,embedding,,bytes_sent:label,{96 * 2 + epoch - 1},,," for epoch in (0, 1)]
    rows += ["1,train,a,,gradient,,bytes_sent:label,9,,,", "1,test_prediction,a,,embedding,,bytes_sent:label,9,,,"]
    (run / "metrics.csv").write_text(HEADER + "\n".join(rows) + "\n")
    if pictures is not None:
        save_arrays(run, inversion=(pictures, pictures / 2))
    return run


def save_arrays(folder, **pairs):
    parts = [(name, zip(("truth", "answer"), pair, strict=True)) for name, pair in pairs.items()]
    np.savez(folder / "reconstructions.npz", **{f"{n}/all/f2/{part}": array for n, pair in parts for part, array in pair})


def pixels(url):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))


def drawn_of(folder, **pairs):
    save_arrays(write_run(folder), **pairs)
    made = rebuilt_figures(section_of(folder), [])
    return made[0] if made else None


def test_wrong_and_unknown_entries_of_a_table_are_crossed_out(tmp_path):
    truth = np.eye(4)
    answer = truth.copy()
    answer[0, 0], answer[1, 2] = 0, np.nan
    figure = drawn_of(tmp_path / "run", batch=(truth, answer))
    (both,) = figure.spec["datasets"]["pictures"]
    assert "true, and beside it rebuilt: 2 of 16 wrong" in " ".join(texts_of(figure))
    left, right = (part.reshape(4, 24, 4, 81, 3) for part in np.split(pixels(both["url"]), [324, 356], axis=1)[::2])
    crossed = (right.min(axis=4) != right.max(axis=4)).any(axis=(1, 3))
    assert np.argwhere(crossed).tolist() == [[0, 0], [1, 2]]
    assert np.array_equal(left[:, 0, :, 0, 0], 255 * (1 - truth)), "1 is black"


def test_pictures_stand_in_lines_of_ten_the_true_ones_above_the_rebuilt_ones(tmp_path):
    pictures = np.random.default_rng(0).random((12, 8, 8))
    figure = drawn_of(tmp_path / "run", inversion=(pictures, 1 - pictures))
    (drawn,) = figure.spec["datasets"]["pictures"]
    of = (pictures[:10], 1 - pictures[:10], pictures[10:], 1 - pictures[10:])
    for row, part in enumerate(of):
        shown = pixels(drawn["url"])[58 * row : 58 * row + 52, : 58 * len(part) - 6]
        assert np.array_equal(shown, pixels(data_url(mosaic([part]))))
    assert " ".join(texts_of(figure)).startswith("inversion: party all, f2; the rebuilt ones are below the true ones")
    assert figure.title == "Rebuilt data: none"


def test_nothing_was_rebuilt_or_nothing_that_can_be_shown(tmp_path):
    write_run(tmp_path / "none")
    assert rebuilt_figures(section_of(tmp_path / "none"), []) == []
    shapes = {"scalar": (), "none": (0, 4), "wide": (2, 5000), "large": (1, 900, 900), "deep": (1, 2, 2, 2, 2)}
    pairs = {name: (np.zeros(shape), np.zeros(shape)) for name, shape in shapes.items()}
    assert drawn_of(tmp_path / "shapes", unlike=(np.zeros((2, 3)), np.zeros((3, 2))), **pairs) is None


def test_the_first_run_of_each_setting_is_shown_and_what_cannot_be_read_is_named(tmp_path):
    for number in range(10):
        for seed in range(2):
            run = write_run(tmp_path / f"{number}_{seed}", seed=seed, defense={"quantize": {"levels": number}})
            save_arrays(run, inversion=(np.zeros((1, 4, 4)), np.zeros((1, 4, 4))))
    (tmp_path / "0_0" / "reconstructions.npz").write_bytes(b"no archive")
    odd = []
    made = rebuilt_figures(section_of(tmp_path), odd)
    assert [figure.slug for figure in made] == [f"runs_criteo_rebuilt_{number}" for number in range(1, 9)]
    assert made[0].title == "Rebuilt data: quantize, levels 0"
    assert [one.path.name for one in odd] == ["reconstructions.npz"]


@pytest.mark.slow
def test_what_was_rebuilt_stands_side_by_side_and_never_over_two_data_sets(tmp_path):
    guess = rebuilt("mean", party="all", message="none", mse=0.1, ssim=0.4)
    for seed in range(2):
        pictures = np.random.default_rng(seed).random((4, 6, 6))
        for levels, mse in ((2, 0.02), (16, 0.1)):
            entries = rebuilt(party="all", mse=mse, ssim=1 - mse), guess
            how = {"defense": {"quantize": {"levels": levels}}, "seed": seed, "pictures": pictures}
            save(tmp_path / f"{levels}_{seed}", *entries, **how)
    made = by_name(figures(section_of(tmp_path), []))
    two, sixteen = "quantize, levels 2", "quantize, levels 16"
    error = made["recovery_mse"]
    assert {point["y"]: point["x"] for point in points_of(error)} == {two: 0.02, sixteen: 0.1}
    assert levels_of(error) == {"no message: mean": 0.1}
    along = rebuilt_by_table(section_of(tmp_path, by=("defense.quantize.levels",)))
    assert along.frame["bits a row"].tolist() == [16, 16]
    grid = made["inversion_inversion_pictures"]
    words = [word for word in texts_of(grid) if word.strip() and word != grid.title]
    assert words == ["true", f"{two}: MSE 0.020", f"{sixteen}: MSE 0.100"]
    assert len(grid.spec["datasets"]["pictures"]) == 3
    assert not [name for name in made if name.startswith("rebuilt_")], "no picture stands twice on a page"
    for levels in (2, 16):
        config = {"dataset": {"_target_": "vflbench.data.clicklogs.Criteo", "path": "train.txt", "rows": 5}}
        entries = rebuilt(party="all", mse=0.02), rebuilt("mean", party="all", message="none", mse=0.4)
        save(tmp_path / f"fewer{levels}", *entries, defense={"quantize": {"levels": levels}}, config=config)
    again = by_name(figures(section_of(tmp_path), []))
    assert {"recovery_mse_1", "recovery_mse_2"} <= set(again), "guesses differ between data sets"
    assert levels_of(again["recovery_mse_2"]) == {"no message: mean": 0.4}


def test_an_exact_answer_has_a_place_on_a_logarithmic_axis(tmp_path):
    for number, mse in enumerate((0.0, 0.7)):
        save(tmp_path / str(number), rebuilt(party="all", mse=mse), defense={"quantize": {"levels": number}})
    points = points_of(by_name(figures(section_of(tmp_path), []))["recovery_mse"])
    assert [point["x"] for point in points] == [1e-6, 0.7]
