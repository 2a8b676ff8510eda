import script_runs
from outputs_tree import write_run

import vflbench.results.report.raster  # noqa: F401  (what a script imports first is forgotten with it, matplotlib by halves)


def save(folder, *, seed, lr, epochs, validation, test, eps=None):
    defense = {} if eps is None else {"label_dp": {"eps": eps, "mechanism": "zero_sum", "target": "auto"}}
    promise = {"label_dp": {"leak_auc_all_messages": 0.68}} if eps else {}
    data = {"_target_": "vflbench.data.criteo.Criteo", "path": "a b.txt", "min_count": 5}
    config = {"optimizer": {"lr": lr}, "epochs": epochs, "dataset": data}
    write_run(
        folder,
        seed=seed,
        defense=defense,
        guarantees=promise,
        config=config,
        test_auc=test,
        validation_auc=validation,
        facts={"choices": {"dataset": "criteo", "defense": "price/zero_sum_680" if eps else "none"}},
    )


def test_validation_rows_of_the_first_seed_choose_the_rate_and_test_rows_are_shown(tmp_path):
    for lr, validation, test in ((0.1, 0.70, 0.79), (0.2, 0.75, 0.71), (0.3, 0.72, 0.78)):
        save(tmp_path / f"z{lr}", seed=0, lr=lr, epochs=2, validation=validation, test=test, eps=0.75)
    save(tmp_path / "other", seed=1, lr=0.2, epochs=2, validation=0.5, test=0.73, eps=0.75)
    save(tmp_path / "best_elsewhere", seed=1, lr=0.3, epochs=2, validation=0.9, test=0.99, eps=0.75)
    save(tmp_path / "none", seed=0, lr=0.1, epochs=1, validation=0.8, test=0.8)
    write_run(tmp_path / "without_validation")
    done = script_runs.run("price_of_privacy", tmp_path, "--picture", tmp_path / "p.svg")
    assert done.returncode == 0, done.stderr
    head, _, first, second = done.stdout.splitlines()[:4]
    assert head == "| data | ceiling | defense | 1 epoch | 2 epochs |"
    assert first == "| criteo | - | none | 0.800 (1 run: no interval) [0.1] | - |"
    assert second.startswith("| criteo | 0.680 | label_dp zero_sum | - | 0.720 (")
    assert second.endswith("[0.2] |")
    assert "label_dp zero_sum, 0.680" in (tmp_path / "p.svg").read_text()


def test_commands_make_the_runs_of_other_seeds_at_the_chosen_rate(tmp_path):
    save(tmp_path / "a", seed=0, lr=0.1, epochs=2, validation=0.7, test=0.7, eps=0.75)
    save(tmp_path / "b", seed=0, lr=0.1, epochs=2, validation=0.8, test=0.8)
    done = script_runs.run("price_of_privacy", tmp_path, "--commands", "--seeds", "5,6")
    start = "vflbench train experiment=price_of_privacy dataset=criteo 'dataset.path=a b.txt' dataset.min_count=5 epochs=2 "
    assert done.stdout.splitlines() == [
        f"{start}optimizer.lr=0.1 seed=5,6 defense=price/zero_sum_680,none",
        f"{start}optimizer.lr=0.1 seed=0,5,6 defense=price/zero_sum_746",
    ]


def test_without_validation_rows_it_says_what_is_missing(tmp_path):
    write_run(tmp_path / "run")
    done = script_runs.run("price_of_privacy", tmp_path)
    assert done.returncode == 2
    assert "there is no finished run with validation rows" in done.stderr
