from vflbench.report.words import knowledge
from vflbench.results.schema import ThreatRecord, base_name, level_of

THREATS = {
    "norm": ThreatRecord(knows=["gradients"], level="messages only"),
    "hints": ThreatRecord(knows=["gradients", "known positives of each batch"], hints=3, level="known labels"),
    "direct": ThreatRecord(knows=["gradients", "one known row of each class in each batch"], level="known labels"),
    "completion": ThreatRecord(knows=["embeddings", "known labels"], known_rows=100, level="known labels"),
    "steered": ThreatRecord(knows=["gradients"], active=True, level="active"),
    "strange": ThreatRecord(level="reference"),
}


def test_the_recorded_level_counts():
    levels = {name: level_of(name, THREATS) for name in (*THREATS, "no_message", "probe", "of a plug-in")}
    recorded = {name: threat.level for name, threat in THREATS.items()}
    assert levels == {**recorded, "no_message": "reference", "probe": "reference", "of a plug-in": "messages only"}


def test_an_attack_is_the_same_at_the_end_of_an_epoch_and_its_twin_is_a_reference():
    assert level_of("completion (epoch)", THREATS) == "known labels"
    for twin in ("completion (own columns)", "completion (own columns) (epoch)", "completion (epoch) (own columns)"):
        assert level_of(twin, THREATS) == "reference"
        assert base_name(twin) == "completion"


def test_what_is_known_is_said_in_words():
    assert [knowledge(name, THREATS) for name in ("norm", "hints", "direct", "completion", "steered")] == [
        "without labels",
        "with 3 known positives a batch",
        "with known labels",
        "with 100 known labels",
        "actively",
    ]
