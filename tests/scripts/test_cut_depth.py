import script_runs
from outputs_tree import leak, write_run

import vflbench.results.report.raster  # noqa: F401  (what a script imports first is forgotten with it, matplotlib by halves)


def save(folder, depth, test_auc, leaks):
    found = [
        leak("completion", f"f{depth}", leaks[0], message="embedding"),
        leak("no_message", "features", leaks[1], message="none"),
    ]
    config = {"model": {"bottom_layers": depth, "top_layers": 8 - depth}}
    write_run(folder, test_auc=test_auc, leaks=found, config=config, facts={"cut_layers": {"a": [f"f{depth}"]}})


def test_a_line_for_each_depth_with_what_the_columns_tell_beside_the_leak(tmp_path):
    save(tmp_path / "deep", 7, 0.75, (0.3, 0.55))
    save(tmp_path / "shallow", 1, 0.76, (0.6, 0.55))
    done = script_runs.run("cut_depth", tmp_path, "--picture", tmp_path / "p.svg")
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace(" (1 run: no interval)", "").splitlines()[:4] == [
        "| defense | model.bottom_layers | runs | test AUC | train AUC | completion | no_message |",
        "|---|---|---|---|---|---|---|",
        "| none | 1 | 1 | 0.760 | 0.760 | 0.600 | 0.550 |",
        "| none | 7 | 1 | 0.750 | 0.750 | 0.700 | 0.550 |",
    ]
    assert "no_message" in (tmp_path / "p.svg").read_text()
    assert script_runs.run("cut_depth", tmp_path, "--picture", tmp_path / "p.png").returncode == 0
    assert (tmp_path / "p.png").stat().st_size > 10_000


def test_an_empty_folder_is_an_error_that_names_it(tmp_path):
    done = script_runs.run("cut_depth", tmp_path)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
