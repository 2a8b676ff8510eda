"""Tables that a section has because of what was run, from runs written by hand."""

from outputs_tree import interval, leak, write_run

from vflbench.report.extras import extra_tables
from vflbench.report.sections import Wishes, sections
from vflbench.results.table_formats import text_of
from vflbench.results.tree import read_tree

THREATS = {
    "direct": {"level": "messages only", "text": "", "knows": ["gradients"]},
    "spectral": {"level": "messages only", "text": "", "knows": ["embeddings"]},
    "completion": {"level": "known labels", "text": "", "knows": ["embeddings"], "known_rows": 20},
}
ATTACKS = {name: {"_target_": f"vflbench.attacks.{name}.{name.title()}"} for name in THREATS}
COMPLETION = "vflbench.attacks.completion.Completion"


def one_section(folder):
    (section,) = sections(read_tree([folder]).runs, Wishes())
    return section


def table_of(folder, ending):
    """The only table of this name, as text."""
    section = one_section(folder)
    (table,) = [table for table in extra_tables(section) if table.slug == f"{section.slug}_{ending}"]
    return table


def texts(table, columns=None):
    places = [table.columns.index(name) for name in columns] if columns else range(len(table.columns))
    return [[text_of(row[place]).split(" (")[0] for place in places] for row in table.rows]


def test_the_strongest_attack_is_named_for_each_message_and_level(tmp_path):
    threats = {**THREATS, "gradient_completion": THREATS["completion"]}
    leaks = [
        leak("direct", "f1", 0.9),
        leak("norm", "f1", 0.6),
        leak("spectral", "f2", 0.3, message="embedding"),
        leak("completion", "f2", 0.8, message="embedding"),
        leak("completion", "h1", 1.0, message="embedding", visible=False),
        leak("gradient_completion", "f2", 0.95),
        leak("probe", "gradients", 0.99, message="none"),
    ]
    for seed in range(3):
        write_run(tmp_path / str(seed), seed=seed, leaks=leaks, facts={"threats": threats})
    (row,) = texts(table_of(tmp_path, "strongest"))
    assert row[4:] == [
        *("0.900", "direct", "0.700", "spectral", "0.950", "gradient_completion", "0.800", "completion"),
        *("0.990", "-", "-"),
    ]


def known(folder, seed, leaks, **options):
    attacks = {
        "few": {"_target_": COMPLETION, "known": 20},
        "many": {"_target_": COMPLETION},  # 100, the default
        "joined": {"_target_": COMPLETION, "known": 100, "message": "both"},
        "norm": {"_target_": "vflbench.attacks.norm.Norm"},
    }
    found = [leak(name, "f2", value, message="embedding") for name, value in leaks.items()]
    return write_run(folder, seed=seed, leaks=found, config={"attack": attacks}, **options)


def test_a_column_for_each_number_of_known_rows(tmp_path):
    for seed in (0, 1):
        leaks = {"few": 0.6 + 0.02 * seed, "many": 0.7, "joined": 0.9, "norm": 0.99}
        known(tmp_path / f"none{seed}", seed, leaks, test_auc=0.8)
        known(tmp_path / f"dcor{seed}", seed, {"few": 0.4, "many": 0.6}, test_auc=0.75, defense={"dcor": {"alpha_d": 0.02}})
    table = table_of(tmp_path, "known_labels")
    assert table.columns == ("setting", "message", "runs", "train AUC", "20 known", "100 known")
    assert texts(table) == [
        ["none", "embeddings", "2", "0.800", "0.610", "0.700"],
        ["none", "both", "2", "0.800", "-", "0.900"],
        ["dcor", "embeddings", "2", "0.750", "0.600", "0.600"],
    ]


def test_the_gain_is_over_the_best_guess_that_needs_no_truth(tmp_path):
    def rebuilt(attack, layer, mse, message="embedding"):
        place = {"attack": attack, "message": message, "party": "a", "layer": layer, "visible": True}
        return place | {"figures": {"mse": interval(mse)}, "batches": 1, "notes": {}}

    guesses = {"mean": 0.10, "class_mean": 0.08, "random_row": 0.16, "nearest_row": 0.01, "true": 0.0}
    for name, mse, defense in (("none", 0.02, {}), ("exact", 0.0, {"a": {}}), ("worse", 0.16, {"b": {}})):
        for seed in range(3):
            entries = [rebuilt("inversion", "f3", mse)]
            entries += [rebuilt("inversion", guess, value, "none") for guess, value in guesses.items()]
            config = {"attack": {"inversion": {"_target_": "vflbench.attacks.model_inversion.ModelInversion"}}}
            write_run(tmp_path / f"{name}{seed}", seed=seed, config=config, defense=defense, reconstructions=entries)
    rows = {row[0]: row[-1] for row in texts(table_of(tmp_path, "gains"))}
    assert rows == {"none": "0.750", "a": "1.000", "b": "-1.000"}


def test_ordinary_runs_have_none_of_them(tmp_path):
    write_run(tmp_path / "run")
    assert extra_tables(one_section(tmp_path)) == []
