"""One file a party: rows are aligned by identifiers, in one process and apart, with the same result bit for bit. A party's
table as files: what is read back is, bit for bit, what the joint table holds of that party. And several files of one owner,
joined on an identifier: against a join by hand.
"""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from support.pretend_device import CARD, PretendCard
from support.raw_files import error_of, in_file_order, load, write
from support.reachable import arrays

from vflbench.data import party_files, rows
from vflbench.data.csv import Csv
from vflbench.data.party_files import read_label_table, read_party_table, write_party_tables
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.errors import UserError

COLUMNS = {"a": ("x", "k"), "b": ("x", "word", "gone"), "label": ("y", "own")}


def values(n=240) -> list[dict[str, str]]:
    """Rows with an identifier, in the order of the label party's file."""
    draw, rows = random.Random(5), []
    for i in range(n):
        a, b = draw.random(), draw.random()
        row = {"id": f"{i:03d}", "a.x": repr(a), "a.k": draw.choice("pqr") if i else "rare", "b.gone": str(i)}
        row |= {"b.x": repr(b) if i % 7 else "", "b.word": f"w{draw.randrange(40)}", "label.own": str(draw.randrange(100))}
        rows.append(row | {"label.y": "no" if a + b + draw.random() < 1.4 else "yes"})
    return rows


def lines_of(party: str, rows) -> list[str]:
    """A file with the identifier in another place for each party."""
    head = [*COLUMNS[party]]
    head.insert({"a": 1, "b": 2, "label": 0}[party], "id")
    return [",".join(head), *(",".join(row["id" if name == "id" else f"{party}.{name}"] for name in head) for row in rows)]


def files(folder, *, lacking=True) -> dict[str, str]:
    """The parties' files: a and b in other orders than the label party's; each lacks some rows."""
    made = {}
    for number, party in enumerate(("label", "a", "b")):
        held = [row for i, row in enumerate(values()) if not lacking or i % 11 != number]
        if party != "label":
            random.Random(1 + number).shuffle(held)
        made[party] = write(folder / f"{party}.csv", lines_of(party, held))
    return made


def csv(party_files, **options) -> Csv:
    given = {"id": "id", "label": "y", "types": {"gone": "ignore"}, "missing_as": "zero", **options}
    return Csv(party_files=party_files, **given)


def generator():
    return torch.Generator().manual_seed(9)


def assert_same_features(ours, theirs) -> None:
    assert ours.columns == theirs.columns
    for one, other in ((ours.numeric, theirs.numeric), (ours.categorical, theirs.categorical)):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def assert_same_rows(ours, theirs, parties) -> None:
    """With the columns of these parties alone."""
    assert torch.equal(ours.ids, theirs.ids)
    assert torch.equal(ours.labels, theirs.labels)
    assert set(ours.features) == set(theirs.features) & {*parties}
    for party, features in ours.features.items():
        assert_same_features(features, theirs.features[party])


def test_rows_that_all_parties_share_are_used_in_the_order_of_the_label_party_s_file(tmp_path):
    data = csv(files(tmp_path)).load(generator())
    kept = [row for i, row in enumerate(values()) if i % 11 not in (0, 1, 2)]
    assert len(data.train.role) == len(kept) == 174
    everything = data.train.at(torch.arange(len(kept)))
    assert list(everything.features) == ["a", "b", "label"]
    assert everything.features["a"].columns.numeric == everything.features["b"].columns.numeric == ("x",)
    assert everything.features["b"].columns.categorical == ("word",)  # neither the identifier nor what is ignored
    low, high = (f(float(row["a.x"]) for row in kept) for f in (min, max))
    assert np.allclose(everything.features["a"].numeric[:, 0], [(float(row["a.x"]) - low) / (high - low) for row in kept])
    words = [row["b.word"] for row in kept]
    codes = everything.features["b"].categorical[:, 0].tolist()
    assert codes == [sorted(set(words)).index(word) for word in words]
    assert everything.labels.tolist() == [int(row["label.y"] == "yes") for row in kept]
    assert data.facts["party_rows"] == {party: {"rows": 218, "shared": 174} for party in ("label", "a", "b")}
    assert {party: len(of["file_sha256"]) for party, of in data.facts["party_files"].items()} == {
        "label": 64,
        "a": 64,
        "b": 64,
    }
    assert data.facts["columns_are"] == [
        "party a: columns: 1 number (x), 1 category (k)",
        "party b: columns: 1 number (x), 1 category (word)",
        "party label: columns: 1 number (own)",
        "label y: positive is yes (104 of 174 rows), negative is no",
    ]
    assert data.notes == (
        "the parties share 174 rows; rows that another party does not have are left out: 44 of label, 44 of a, 44 of b",
    )


OPTIONS = {
    "of the train rows": {"fit_on": "train", "validation_fraction": 0.2, "min_count": 3},
    "thinned": {"sample": 0.7, "positive_ratio": 0.4, "numeric_transform": "log"},
    "the first": {"rows": 100, "split": "chronological", "types": {"gone": "ignore", "k": "ignore"}},
    "partial overlap": {"overlap": 0.7},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_apart_each_party_gets_the_table_that_it_has_in_one_process(name, tmp_path):
    """Its own file, its positions and the roles alone are what it knows; rows that the run does not use are zeros."""
    options, paths = OPTIONS[name], files(tmp_path)
    joint = csv(paths, **options).load(generator())
    sides = {party: csv({party: paths[party]}, **options).party_source(party) for party in paths}  # no other file is named
    label = sides.pop("label")
    assert joint.facts.get("overlap", {"held": sides})["held"].keys() == sides.keys()
    messages = {party: side.ids for party, side in sides.items()}
    assert all(type(text) is str for ids in messages.values() for text in ids)
    alignment = label.align(messages, generator())
    for party, side in sides.items():
        table = side.table(alignment.positions[party], alignment.role)
        assert_same_features(table.lookup(joint.train.all().ids), joint.train.all().features[party])
        assert not table.numeric[joint.train.role == 0].any()
        assert not table.categorical[joint.train.role == 0].any()
    rows = label.rows(alignment)
    assert np.array_equal(rows.train.role, joint.train.role)
    for ours, theirs in zip((rows.train, *rows.held_out.values()), (joint.train, *joint.held_out.values()), strict=True):
        assert_same_rows(ours.all(), theirs.all(), ["label"])
    everybodys = ("party_files", "columns_are")  # the label party knows its own columns alone
    known = {key: value for key, value in joint.facts.items() if key not in everybodys}
    assert {key: value for key, value in rows.facts.items() if key not in everybodys} == known
    assert rows.facts["columns_are"] == joint.facts["columns_are"][2:]
    assert rows.notes == joint.notes
    assert list(rows.facts["party_files"]) == ["label"]


def test_files_of_the_same_rows_in_the_same_order_are_read_as_one_file_of_all_columns(tmp_path):
    """Beside the fingerprint: other files are other data."""
    rows, paths = values(), files(tmp_path, lacking=False)
    head = [f"{party}.{name}" for party in ("a", "b", "label") for name in COLUMNS[party]]
    one = write(tmp_path / "one.csv", [",".join(head), *(",".join(row[name] for name in head) for row in rows)])
    parties = {"a": ["a.*"], "b": ["b.x", "b.word"], "label": ["label.own"]}
    whole = load(Csv(path=one, label="label.y", parties=parties, missing_as="zero"))
    apart = load(csv(paths))
    assert torch.equal(apart.test.ids, whole.test.ids)
    assert apart.facts["class_rows"] == whole.facts["class_rows"]
    assert apart.facts["classes_are"] == whole.facts["classes_are"] == ["no", "yes"]
    assert not any("left out" in note for note in apart.notes)
    for party in parties:
        assert all(map(torch.equal, in_file_order(apart, party), in_file_order(whole, party)))


def test_identifiers_are_compared_as_texts(tmp_path):
    paths = files(tmp_path, lacking=False)
    text = Path(paths["a"]).read_text().replace(",007,", ",7,").replace(",008,", ", 008,").replace(",009,", ',"009",')
    write(tmp_path / "a.csv", text.splitlines())
    data = csv(paths).load(generator())
    assert data.facts["party_rows"]["a"] == {"rows": 240, "shared": 238}  # 7 is not 007, and a blank counts; quotes don't
    other = csv({"label": paths["label"]}).party_source("label")
    differ = "the parties share no row; identifiers are compared as texts.*'000' .label., '0' .a."
    with pytest.raises(UserError, match=differ):
        other.align({"a": [str(i) for i in range(10)]}, generator())


def test_what_is_wrong_with_a_file_is_said_with_the_party_the_file_and_the_line(tmp_path):
    paths = files(tmp_path)
    good = {party: Path(path).read_text().splitlines() for party, path in paths.items()}
    cell = good["b"][9].split(",")

    def put(party, line, text):
        lines = [*good[party][: line - 1], text, *good[party][line:]]
        return {**paths, party: write(tmp_path / "changed.csv", lines)}

    repeated = good["a"][3].split(",")[1]
    wrong = {
        "has no column id, which dataset.id names": ("a", 1, "x,key,k"),
        "has no column y, which dataset.label names": ("label", 1, "id,target,own"),
        f"rows 4, 16: column id has the identifier '{repeated}' more than once": ("a", 16, good["a"][3]),
        "row 10: column id has no identifier": ("b", 10, ",".join([*cell[:2], "", *cell[3:]])),
        "column x: it holds numbers, and 'inf' can't be read as one": ("a", 12, "inf,001,p"),
    }
    for problem, (party, line, changed) in wrong.items():
        text = error_of(csv(put(party, line, changed)))
        assert text.startswith(f"dataset.party_files.{party}={tmp_path / 'changed.csv'}: "), text
        assert problem in text, text
    missing = csv({**paths, "b": str(tmp_path / "none")})
    assert f"dataset.party_files.b={tmp_path / 'none'}: there is no such file" in error_of(missing)
    few = csv(put("a", 12, "0.5"), bad_rows="skip", max_bad_fraction=0.1).load(generator())
    assert few.facts["party_files"]["a"]["bad_rows"]["count"] == 1
    assert few.notes[0].startswith("bad rows of party a left out: 1 (row 12: ")


def test_options_that_do_not_fit_are_refused(tmp_path):
    paths = files(tmp_path)
    for problem, dataset in {
        "dataset.path: it must be given, as dataset.path=FILE; or one file a party": Csv(label="y"),
        "dataset.id: it must name the column": csv(paths, id=None),
        "dataset.path=x: give this, or dataset.party_files, but not both": csv(paths, path="x"),
        "it must name a file of party label": csv({"a": paths["a"], "b": paths["b"]}),
        "dataset.parties=2: the files in dataset.party_files say which party holds which column": csv(paths, parties=2),
    }.items():
        assert problem in error_of(dataset), problem
    with pytest.raises(UserError, match="it names no file of party c"):
        csv(paths).party_source("c")


def test_messages_that_can_not_be_are_refused_by_those_who_get_them(tmp_path):
    paths = files(tmp_path)
    label, side = csv(paths).party_source("label"), csv(paths).party_source("a")
    refused = "dataset.id: party b (must give a list of texts|has the identifier '1' 2 times)"
    for ids in ("abc", ["1", 2], ["1", ""], [None], ["1", "1"], [["1"]], 3):
        with pytest.raises(UserError, match=refused):
            label.align({"a": side.ids, "b": ids}, generator())
    alignment = label.align({"a": side.ids}, generator())
    positions, role = alignment.positions["a"], alignment.role
    assert len(side.table(positions, role)) == len(role)
    wrong = [(positions, of) for of in (role.long(), role + 3, torch.zeros_like(role))]
    wrong += [(of, role) for of in (positions[:-1], positions + 10**9, positions.clone().fill_(3))]
    for where, what in wrong:
        with pytest.raises(UserError, match="party a: positions and roles that came from the label party: "):
            side.table(where, what)


def small(**options):
    made = {"rows": 3000, "numeric": 4, "categorical": 4, "vocabulary": 200, **options}
    return Synthetic(**made).load(generator())


TABLES = {
    "2 parties": lambda: small(parties=2, sample=0.5, positive_ratio=0.5, validation_fraction=0.1, overlap=0.9),
    "own columns": lambda: small(parties={"a": ["I1", "C1"], "label": ["I2", "I3", "C2"]}, fit_on="train", min_count=3),
    "digits": lambda: Digits(parties=2).load(generator()),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_read_is_what_the_joint_table_holds(name, streamed, tmp_path, monkeypatch):
    """Batches, labels and each party's features; rows that the run does not use are zeros."""
    for module in (rows, party_files):
        monkeypatch.setattr(module, "BUFFER_ROWS", 1024 if streamed else 1 << 18)
    joint = TABLES[name]()
    folders = write_party_tables(joint, tmp_path / "tables")
    assert set(folders) == {*joint.train.columns, "label"}
    tables = {party: read_party_table(folder) for party, folder in folders.items() if party != "label"}
    read = read_label_table(folders["label"])
    assert (read.fingerprint, read.notes, list(read.held_out)) == (joint.fingerprint, joint.notes, list(joint.held_out))
    assert dict(read.facts) == json.loads(json.dumps(dict(joint.facts)))
    for party, table in tables.items():
        assert (table.party, len(table)) == (party, len(joint.train.role))
        assert not table.numeric[joint.train.role == 0].any()
        assert not table.categorical[joint.train.role == 0].any()
    for kind, theirs in {"train": joint.train, **joint.held_out}.items():
        ours = read.train if kind == "train" else read.held_out[kind]
        assert (len(ours), ours.classes, ours.class_ratios) == (len(theirs), theirs.classes, theirs.class_ratios)
        assert_same_rows(ours.all(), theirs.all(), ["label"])
        for ids in (theirs.all().ids.flip(0), torch.tensor([], dtype=torch.int64)):
            assert_same_rows(ours.at(ids), theirs.at(ids), ["label"])
            for party, table in tables.items():
                assert_same_features(table.lookup(ids), joint.aligned().parties[party](ids))
                with PretendCard():
                    assert table.lookup(ids.to(CARD)).numeric.device == CARD
    written = [*(tmp_path / "tables").rglob("*")]
    assert {oct(file.stat().st_mode & 0o777) for file in written} == {"0o700", "0o600"}
    assert len(written) == 4 * len(tables) + 6


def test_a_party_s_folder_holds_no_bytes_of_another_s(tmp_path):
    """Nor labels: neither in the arrays that are read, nor in the files."""
    joint = small(parties={"a": ["I1", "C1"], "b": ["I2", "C2"]})
    folders, y = write_party_tables(joint, tmp_path), joint.train.raw.labels[:60]
    content = {party: b"".join(file.read_bytes() for file in folder.iterdir()) for party, folder in folders.items()}
    for party, other in ("ab", "ba"):
        block = joint.train.at(torch.arange(3000)).features[other]
        secrets = [column.numpy()[:20].tobytes() for column in (block.numeric[:, 0], block.categorical[:, 0])]
        secrets += [y.astype(np.uint8).tobytes(), y.astype(np.int32).tobytes(), joint.fingerprint.encode()]
        secrets += [f'"{name}"'.encode() for name in (*block.columns.numeric, *block.columns.categorical)]
        assert not any(secret in content[party] for secret in secrets)
    assert y.astype(np.int32).tobytes() in content["label"]
    assert not any(f'"{name}"'.encode() in content["label"] for name in ("I1", "C1", "I2", "C2"))
    assert sum(array.size for array in arrays(read_label_table(folders["label"]).aligned().labels)) < 10 * 3000


def test_a_damaged_folder_is_refused_by_the_name_of_the_file(tmp_path):
    folders = write_party_tables(small(rows=300, parties={"a": ["I1", "C1"], "label": ["I2", "C2"]}), tmp_path)
    for party, read, other in (("a", read_party_table, read_label_table), ("label", read_label_table, read_party_table)):
        with pytest.raises(UserError, match=f"it is the table of party {party}"):
            other(folders[party])
        for file in folders[party].iterdir():
            whole = file.read_bytes()
            for damaged in (b"", whole[:-4], whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]):
                file.write_bytes(damaged)
                differs = f"/{party}: the table of a party can't be read: {file.name}.*differs from"
                with pytest.raises(UserError, match=differs):
                    read(folders[party])
            file.write_bytes(whole)
        read(folders[party])


N = 60
PEOPLE = {f"p{i}": (str(i % 7), "ab"[i % 2], "yes" if i % 3 else "no") for i in range(N)}
ORDERS = {f"p{(i * 17) % N}": (f"{i}.5", "xyz"[i % 3]) for i in range(5, N)}


def stored(folder, **changes):
    people = ["age,id,sort,y", *(f"{age},{key},{sort},{y}" for key, (age, sort, y) in PEOPLE.items())]
    orders = [changes.get("header", "id;sum;what"), *(f"{key};{total};{what}" for key, (total, what) in ORDERS.items())]
    orders += changes.get("more", [])
    return [write(folder / "people.csv", people), write(folder / "orders.csv", orders)]


def by_hand(folder):
    rows = [f"{age},{sort},{','.join(ORDERS[key])},{y}" for key, (age, sort, y) in PEOPLE.items() if key in ORDERS]
    return write(folder / "joined.csv", ["age,sort,sum,what,y", *rows])


def same(ours, theirs):
    return all(map(torch.equal, in_file_order(ours), in_file_order(theirs)))


def test_files_are_joined_on_an_identifier(tmp_path):
    ours = load(Csv(path=stored(tmp_path), id="id", label="y"))
    theirs = load(Csv(path=by_hand(tmp_path), label="y"))
    assert same(ours, theirs)
    assert "2 files joined: 55 rows whose identifier is in all of them (people.csv 60, orders.csv 55)" in ours.notes
    assert ours.facts["class_rows"] == theirs.facts["class_rows"]
    first = load(Csv(path=stored(tmp_path), id="id", label="y", rows=20))
    assert len(first.train) + len(first.test) == 20
    turned = load(Csv(path=stored(tmp_path)[::-1], id="id", label="y"))
    assert torch.equal(in_file_order(turned)[2], in_file_order(theirs)[2])
    assert turned.train.columns["a"].numeric == ("sum", "age")


def test_files_of_the_same_columns_follow_one_another(tmp_path):
    header, *rows = ["id,x,y", *(f"k{i},{i % 7},{i % 2}" for i in range(40))]
    paths = [write(tmp_path / "1.csv", [header, *rows[:20]]), write(tmp_path / "2.csv", [header, *rows[20:]])]
    whole = load(Csv(path=write(tmp_path / "whole.csv", [header, *rows]), label="y"))
    for path in (paths, str(tmp_path / "?.csv")):
        assert same(load(Csv(path=path, label="y", id="id")), whole)


def test_what_can_not_be_joined(tmp_path):
    for problem, changes, options in (
        ("to join the files side by side, name the column that they share: dataset.id=id", {}, {"id": None}),
        ("it has no column key, which dataset.id names", {}, {"id": "key"}),
        ("none of them has the column z", {}, {"label": "z"}),
        ("both people.csv and orders.csv have the column age; rename it in one of them", {"header": "id;age;what"}, {}),
        ("2 of them have the column y; of files that are joined, one holds the labels", {"header": "id;y;what"}, {}),
        ("column id has the identifier 'p1' more than once", {"more": ["p1;1.5;x"]}, {}),
        ("column id has no identifier", {"more": [";1.5;x"]}, {}),
    ):
        assert problem in error_of(Csv(**{"path": stored(tmp_path, **changes), "id": "id", "label": "y", **options}))
