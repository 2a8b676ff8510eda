"""dataset=credit, bank, adult and drive: values for the options of csv, with lines as the files have them."""

import pytest
from omegaconf import OmegaConf
from support.raw_files import error_of, in_file_order, load, write

from vflbench.data.csv import Csv
from vflbench.files import config_folder

CREDIT = [
    ",X1,X2,X3,X4,X5,X6,X7,X8,X9,X10,X11,X12,X13,X14,X15,X16,X17,X18,X19,X20,X21,X22,X23,Y",
    "ID,LIMIT_BAL,SEX,EDUCATION,MARRIAGE,AGE,PAY_0,PAY_2,PAY_3,PAY_4,PAY_5,PAY_6,BILL_AMT1,BILL_AMT2,BILL_AMT3,BILL_AMT4,"
    "BILL_AMT5,BILL_AMT6,PAY_AMT1,PAY_AMT2,PAY_AMT3,PAY_AMT4,PAY_AMT5,PAY_AMT6,default payment next month",
    *(
        f"{i},{10000 * i},{1 + i % 2},{i % 4},{1 + i % 3},{i},2,2,-1,-1,-2,-2,3,2,6,0,0,-5,0,6,0,0,0,5,{int(i % 4 == 0)}"
        for i in range(1, 41)
    ),
]
BANK = [
    '"age";"job";"marital";"education";"default";"housing";"loan";"contact";"month";"day_of_week";"duration";"campaign";'
    '"pdays";"previous";"poutcome";"emp.var.rate";"cons.price.idx";"cons.conf.idx";"euribor3m";"nr.employed";"y"',
    *(
        f'{30 + i};"{("admin.", "blue-collar", "unknown")[i % 3]}";"married";"basic.4y";"no";"no";"no";"telephone";"may";'
        f'"mon";{261 + i};1;999;0;"nonexistent";1.1;93.994;-36.4;4.857;5191;"{"yes" if i % 5 == 0 else "no"}"'
        for i in range(40)
    ),
]


def adult_lines(end: str) -> list[str]:
    return [
        f"{30 + i}, {'?' if i % 7 == 0 else 'State-gov'}, {77516 + i}, Bachelors, 13, Never-married, Adm-clerical, "
        f"Not-in-family, White, {'Male' if i % 2 else 'Female'}, {2174 * (i % 2)}, 0, 40, United-States, "
        f"{'<=50K' if i % 4 else '>50K'}{end}"
        for i in range(40)
    ]


DRIVE = [" ".join([*(f"{-3.0146e-07 * (i + j):.4e}" for j in range(48)), str(1 + i % 11)]) for i in range(66)]


def dataset(name: str, path: str | list[str], **options) -> Csv:
    preset = OmegaConf.to_container(OmegaConf.load(config_folder() / "dataset" / f"{name}.yaml"))
    assert preset.pop("_target_") == "vflbench.data.csv.Csv"
    return Csv(**{**preset, "path": path, **options})


FILES = {
    "credit": (CREDIT, 23, 3, [0, 0, 0, 1] * 10),
    "bank": (BANK, 20, 10, [1, 0, 0, 0, 0] * 8),
    "adult": (adult_lines(""), 14, 8, [1, 0, 0, 0] * 10),
    "drive": (DRIVE, 48, 0, [*range(11)] * 6),
}


@pytest.mark.parametrize("name", FILES)
def test_the_published_file_is_read_with_its_types_and_half_of_the_columns_stay_with_the_label_party(name, tmp_path):
    """Positive rows are those of the published positive class."""
    lines, columns, categorical, labels = FILES[name]
    split = load(dataset(name, write(tmp_path / "x", lines)))
    held = split.train.columns
    kept = round(columns / 2)
    assert {party: len(block) for party, block in held.items()} == {"a": columns - kept, "label": kept}
    assert sum(len(block.categorical) for block in held.values()) == categorical
    assert (in_file_order(split)[2].tolist(), split.train.classes) == (labels, max(labels) + 1)
    assert any("divided at random" in note for note in split.notes)


def test_both_files_of_adult_have_the_same_two_classes(tmp_path):
    """Of a missing word the column workclass has a value, and the two spellings of a class are one."""
    test = ["|1x3 Cross validator", *adult_lines("."), ""]
    paths = [write(tmp_path / "adult.data", adult_lines("")), write(tmp_path / "adult.test", test)]
    split = load(dataset("adult", paths, parties=1))
    assert split.facts["class_rows"] == {"not >50K": 60, ">50K": 20}
    _, categorical, labels = in_file_order(split)
    assert labels[:40].tolist() == labels[40:].tolist()
    assert (categorical[:40] == categorical[40:]).all()
    columns = split.train.columns["a"]
    assert columns.cardinalities[columns.categorical.index("workclass")] == 2


def test_kaggles_copy_of_credit(tmp_path):
    lines = [CREDIT[1].replace("default payment next month", '"default.payment.next.month"'), *CREDIT[2:]]
    path, words = write(tmp_path / "x", lines), {"skip_lines": 0, "label": "default.payment.next.month"}
    assert len(load(dataset("credit", path, **words)).train) == 36
    assert "row 2: the header names 1 twice" in error_of(dataset("credit", path))
