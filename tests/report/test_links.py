from types import SimpleNamespace

from vflbench.report.detail_tables import links


def of(*routes):
    made = [dict(zip(("sender", "receiver", "message", "messages", "bytes"), route, strict=True)) for route in routes]
    return SimpleNamespace(summary={"links": made})


def section(*runs):
    return SimpleNamespace(slug="x", groups=[SimpleNamespace(name="shared", runs=runs)])


def test_links_are_shown_where_embeddings_go_to_several_parties():
    one = of(
        ("a", "label", "embedding", 2, 2_000_000), ("label", "b", "embedding", 2, 2_000_000), ("label", "b", "model", 1, 40)
    )
    other = of(("a", "label", "embedding", 2, 4_000_000), ("label", "b", "embedding", 2, 2_000_000))
    shown = links(section(one, other))
    assert shown.columns == ("setting", "from", "to", "message", "runs", "MB sent in training")
    assert shown.rows[0] == ["shared", "a", "label", "embedding", 2, 3.0]
    assert shown.rows[1] == ["shared", "label", "b", "embedding", 2, 2.0]
    assert shown.rows[2] == ["shared", "label", "b", "model", 1, 4e-5]


def test_no_links_are_shown_where_all_embeddings_go_to_one_party_nor_of_older_runs():
    split = of(("a", "label", "embedding", 2, 2_000_000), ("label", "a", "gradient", 2, 2_000_000))
    assert links(section(split, SimpleNamespace(summary={}))).rows == []
