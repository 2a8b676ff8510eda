import script_runs
from outputs_tree import write_run

import vflbench.defenses.split_guard
import vflbench.results.report.comparison
import vflbench.results.report.raster  # noqa: F401  (what a script imports first is forgotten with it, matplotlib by halves)

LINE = "epoch 0 step {0}/99 party a: split_guard score {1:.6f} at batch {0}"


def save(folder, scores, honest, share=0.0):
    config = {"defense": {"split_guard": {"p_fake": 0.1}}, "adversary": {"hijack": {"honest_share": share}}}
    facts = {"adversary": {"hijack": {"party": "label", "text": "It cheats."}}}
    write_run(folder, test_auc=0.75, leaks=[], config=config, facts=facts)
    for place, values in ((folder, scores), (folder / "honest", honest)):
        place.mkdir(exist_ok=True)
        log = [LINE.format(10 * number, score) for number, score in enumerate(values, 1)]
        (place / "train.log").write_text("\n".join(["training", *log, log[-1], ""]))  # the last batch again


def test_when_it_noticed_and_whom_it_accused(tmp_path):
    save(tmp_path / "one", [0.9, 0.2, 0.2], [1.0, 1.0, 0.1])
    save(tmp_path / "two", [0.3, 0.4, 0.9], [1.0, 1.0, 1.0])
    save(tmp_path / "three", [1.0, 1.0, 1.0], [0.9, 0.9, 0.9], share=0.5)
    arguments = (tmp_path, "--by", "adversary.hijack.honest_share", "--policy", "fast", "average", "--window", "2")
    done = script_runs.run("split_guard_curve", *arguments, "--threshold", "0.5", "--picture", tmp_path / "p.svg")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:6] == [
        "| adversary.hijack.honest_share | policy | threshold | noticed | at batch | false alarms |",
        "|---|---|---|---|---|---|",
        "| 0.0 | fast | 0.5 | 2 of 2 | 15 (10 .. 20) | 1 of 2 |",
        "| 0.0 | average | 0.5 | 2 of 2 | 25 (20 .. 30) | 0 of 2 |",
        "| 0.5 | fast | 0.5 | 0 of 1 | never | 0 of 1 |",
        "| 0.5 | average | 0.5 | 0 of 1 | never | 0 of 1 |",
    ]
    assert "threshold" in (tmp_path / "p.svg").read_text()


def test_an_empty_folder_is_an_error_that_names_it(tmp_path):
    done = script_runs.run("split_guard_curve", tmp_path)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
