"""Runs as data frames: what is averaged, what is compared, what stands on one front, how parts are named."""

import pytest
from report.drawn import section_of
from support.outputs_tree import leak, marvell, sweep, write_run

from vflbench.errors import UserError
from vflbench.report.group import data_parts, sections
from vflbench.results.runs import read_tree


@pytest.mark.slow
def test_a_leak_is_the_strongest_reading_at_any_layer_that_an_attacker_sees_or_where_it_is_asked_for(tmp_path):
    write_run(tmp_path / "a", leaks=[leak("norm", "f1", 0.9), leak("norm", "f2", 0.3), leak("norm", "h1", 1, visible=False)])
    expected = {None: 0.9, "all": 0.9, "cut": 0.7, "h1": 1.0}
    for layer, value in expected.items():
        assert section_of(tmp_path, layer=layer).values("leak_auc")[0] == pytest.approx(value)
    assert section_of(tmp_path).values("leak_auc:norm on gradients")[0] == pytest.approx(0.9)
    with pytest.raises(UserError, match="f1, f2, h1, cut, all"):
        section_of(tmp_path, layer="f9")
    with pytest.raises(UserError, match="they have leak_auc"):
        section_of(tmp_path, x="no_such_thing")


def test_only_settings_that_the_same_attacks_read_on_the_same_rows_stand_on_one_front(tmp_path):
    attacks = {"attack": {"norm": {"_target_": "vflbench.attacks.norm.Norm"}, "spectral": {}}}
    both = [leak("norm", "f2", 0.9), leak("spectral", "f2", 0.95)]
    write_run(tmp_path / "a", leaks=both, config=attacks)
    write_run(tmp_path / "b", leaks=both, config=attacks, **marvell(0.16, 0.68))
    write_run(tmp_path / "weakly_attacked", norm=0.51, **marvell(0.04, 0.54))
    write_run(tmp_path / "longer", leaks=both, config=attacks | {"epochs": 9}, epochs=9)
    write_run(tmp_path / "coin", leaks=both, config=attacks, test_auc=0.45, **marvell(0.01, 0.52))
    write_run(tmp_path / "few", leaks=both, config=attacks, test_positives=12, test_auc_low=0.6, **marvell(0.02, 0.52))
    write_run(tmp_path / "rows", leaks=both, config=attacks, facts={"data": {"path": "x/train.txt"}}, **marvell(0.32))
    front = section_of(tmp_path).front
    assert len(front.settings) == 2
    reasons = sorted(front.left_out.values())
    assert reasons[:3] == ["it has other rows", "it was trained for 9 epochs", "it wasn't attacked by spectral"]
    assert reasons[3:] == ["its model learned nothing"] * 2


def test_a_table_of_ones_own_is_named_by_its_file(tmp_path):
    named = (("a", "csv", "x/my.csv"), ("b", "csv", "x/shop.csv"), ("c", "criteo", "x/day_0.gz"))
    for seed, (name, dataset, path) in enumerate(named):
        write_run(tmp_path / name, seed=seed, dataset=dataset, facts={"data": {"path": path, "file_sha256": name * 64}})
    assert [data for _, data, _ in data_parts(read_tree([tmp_path]).runs)] == ["criteo", "my.csv", "shop.csv"]
    write_run(tmp_path / "d", seed=3, dataset="criteo", facts={"data": {"path": "x/day_1.gz", "file_sha256": "d" * 64}})
    names = [data for _, data, _ in data_parts(read_tree([tmp_path]).runs)]
    assert names == ["criteo, day_0.gz", "criteo, day_1.gz", "my.csv", "shop.csv"]
    titles = [section.slug for section in sections(read_tree([tmp_path]).runs)]
    assert titles == ["runs_criteo_day_0_gz", "runs_criteo_day_1_gz", "runs_my_csv", "runs_shop_csv"]


def test_a_defense_has_one_colour_in_all_sections_and_its_settings_a_shape_each(tmp_path):
    sweep(tmp_path, seeds=1)
    write_run(tmp_path / "other", seed=1, dataset="avazu", **marvell(0.04))
    first, second = sections(read_tree([tmp_path]).runs)
    assert first.styles == second.styles
    looks = {name: first.styles[name] for name in ("none", "marvell, sumkl 0.04", "marvell, sumkl 0.16")}
    assert len(set(looks.values())) == 3
    assert looks["marvell, sumkl 0.04"].colour == looks["marvell, sumkl 0.16"].colour == first.styles["marvell"].colour
    for name in ("max_norm", "alibi", "dcor"):
        write_run(tmp_path / name, defense={name: {}})
    (_, section) = sections(read_tree([tmp_path]).runs)
    assert len({section.styles[name].shape for name in section.settings.index}) == 6, "in print without colours"
    assert first.styles["norm on gradients"].colour not in {style.colour for style in looks.values()}
