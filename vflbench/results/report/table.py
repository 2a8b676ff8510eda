"""One run as a table on the terminal."""

import math
from pathlib import Path
from typing import Any

from vflbench.results.read import read_manifest, read_summary

_NOTES = 3
_PLACE = ("attack", "message", "party", "layer")
_HEADER = (*_PLACE, "leak AUC", "95 % interval", "two-sided", "oriented", "")
_CLASS_HEADER = (*_PLACE, "accuracy", "95 % interval", "AMI", "95 % interval", "macro AUC", "")


def final_table(folder: Path) -> str:
    """Test and train AUC, then every leak of the last epoch with its interval; `hidden` marks what no attacker sees."""
    summary = read_summary(folder)
    lines = [
        f"after epoch {summary['epochs'] - 1}: test AUC {number(summary['test_auc'])}, "
        f"train AUC {number(summary['train_auc'])}, test log loss {number(summary['test_log_loss'])}"
        + (f", test accuracy {number(summary['test_accuracy'])}" if "test_accuracy" in summary else "")
    ]
    areas = [leak for leak in summary["leaks"] if not _of_classes(leak)]
    if areas:
        lines += ["", *_columns([_HEADER, *map(_cells, areas)]), ""]
        lines.append(
            f"leak AUC: mean over {_batches(areas)} audited batches; 0.5 is a coin, two-sided is "
            "max(a, 1 - a) of the mean, oriented the mean of max(a, 1 - a) (a coin: above 0.5); hidden: a layer of the "
            "label party, which no attacker sees"
        )
    classes = [leak for leak in summary["leaks"] if leak["classes"]]
    if classes:
        majority = max(read_manifest(folder)["data"]["train_class_ratios"])
        lines += ["", *_columns([_CLASS_HEADER, *map(_class_cells, classes)]), ""]
        lines.append(
            f"accuracy: mean over {_batches(classes)} audited batches; who always answers the most frequent class reaches "
            f"{majority:.4f}. AMI: adjusted mutual information of answer and classes, 0 is a coin, 1 the classes under any "
            "names. macro AUC: mean of one class against the rest, 0.5 is a coin"
        )
    for rows in _rebuilt(summary.get("reconstructions", [])):
        lines += ["", *_columns(rows), ""]
    for found in summary.get("reconstructions", []):
        notes = list(found.get("notes", {}).items())
        lines += [f"{found['attack']}, {count} of {found['batches']} batches: {note}" for note, count in notes[:_NOTES]]
        lines += [f"... and {len(notes) - _NOTES} more notes in summary.json"] if len(notes) > _NOTES else []
    if summary["distance_correlation"]:
        told = ", ".join(f"{d['party']} {d['layer']} {number(d['dcor']['mean'])}" for d in summary["distance_correlation"])
        lines.append(f"squared distance correlation of embeddings and labels: {told}")
    lines += [f"skipped {attack}: {reason}" for attack, reason in summary["skipped"].items()]
    noises = summary.get("embedding_privacy", [])  # runs of before have none
    of_embeddings = {noise["defense"] for noise in noises}
    promises = {name: p for name, p in summary["guarantees"].items() if p is not None or name not in of_embeddings}
    lines += [_promise(defense, promise) for defense, promise in promises.items()]
    lines += [_embedding_promise(noise) for noise in noises]
    if summary.get("privacy"):  # runs of before label DP have none
        lines += _privacy(summary["privacy"])
    lines += [_count(figure) for figure in summary["figures"] if figure["value"] and isinstance(figure["value"], int)]
    if summary.get("failed"):
        lines.append(f"FAILED: {summary['failed']}")
    return "\n".join([*lines, f"results: {folder}"])


def _rebuilt(found: list[dict[str, Any]]) -> list[list[tuple[str, ...]]]:
    """A table for each attack that rebuilt data: a line for each figure, with its interval where batches differ."""
    tables = []
    for attack in dict.fromkeys(one["attack"] for one in found):
        own = [one for one in found if one["attack"] == attack]
        figures = list(dict.fromkeys(name for one in own for name in one["figures"] if ":" not in name))
        header = (attack, *(f"{one['message']} {one['party']} {one['layer']}" for one in own))
        rows = [(name.replace("_", " "), *(_figure(one["figures"].get(name)) for one in own)) for name in figures]
        tables.append([header, *rows, ("batches", *(str(one["batches"]) for one in own))])
    return tables


def _figure(value: dict[str, float | None] | None) -> str:
    if value is None or value["mean"] is None:
        return "-"
    same = value["low"] is None or value["low"] == value["high"]
    return f"{value['mean']:.4g}" + ("" if same else f" ({value['low']:.4g} .. {value['high']:.4g})")


def _promise(defense: str, promise: dict[str, Any] | None) -> str:
    if promise is None:
        return f"{defense} promises nothing"
    return (
        f"{defense} promises: {promise['claim']}. Leak AUC at most {promise['leak_auc_one_message']:.3f}, error at least "
        f"{promise['error_one_message']:.1%} from one message about a row; at most {promise['leak_auc_all_messages']:.3f}, "
        f"at least {promise['error_all_messages']:.1%} from all {promise['messages']} of this run"
    )


def _embedding_promise(noise: dict[str, Any]) -> str:
    """What a noise on embeddings claims about them, from one message about a row and from all of them."""
    who = f"{noise['defense']} on {noise['party']} {noise['layer']} ({noise['mechanism']}, {noise['width']} numbers a row)"
    one, every = f"delta = {noise['delta']:g}", f"delta = {noise['delta_all']:g}"
    if noise["epsilon"] is None:
        told = f"{who} claims no differential privacy of embeddings: {noise['reason']}"
    else:
        told = (
            f"{who} promises differential privacy of a row's embedding, the network being given, and nothing of what the "
            f"weights tell: {_epsilon(noise['epsilon'])} at {one} for one message, {_epsilon(noise['epsilon_all'])} at "
            f"{every} for all {noise['messages']} about a row (two an epoch: training, train AUC)"
            + (f"; {noise['reason']}" if noise["reason"] else "")
        )
    if noise["exact"]:
        told += (
            f"; exact accounting of this noise: {_epsilon(noise['epsilon_exact'])} at {one} for one message, "
            f"{_epsilon(noise['epsilon_exact_all'])} at {every} for all {noise['messages']}"
        )
    return told


def _epsilon(value: float | None) -> str:
    return "no eps" if value is None else f"eps = {value:.4g}"


def _privacy(privacy: dict[str, Any]) -> list[str]:
    """The ledger, and what the canaries prove beside it."""
    lines = []
    if privacy["epsilon"] is not None:
        spent = " + ".join(
            f"{release['times']} x {release['epsilon']:g} ({release['defense']}, {release['mechanism']})"
            for release in privacy["releases"]
        )
        lines.append(
            f"label DP of the run: eps = {spent} = {privacy['epsilon']:.4g}; eps = {privacy['epsilon_at_delta']:.4g} at "
            f"delta = {privacy['delta']:g}"
        )
    if privacy["epsilon_low"] is not None:
        proven = f"eps at least {privacy['epsilon_low']:.4g}, by {privacy['epsilon_low_by']}"
        lines.append(
            f"measured on {privacy['canaries']} canaries: {proven if privacy['epsilon_low'] else 'no eps is proven'} "
            f"({privacy['confidence']:.1%} sure, {len(privacy['tried'])} readers tried)"
        )
    return lines


def _count(figure: dict[str, Any]) -> str:
    place = " ".join(part for part in (figure["party"], figure["layer"]) if part)
    return f"{figure['figure'].replace('_', ' ')} ({place}): {figure['value']}"


def _cells(leak: dict[str, Any]) -> tuple[str, ...]:
    return (
        *(leak[name] for name in _PLACE),
        number(leak["raw"]["mean"]),
        _interval(leak["raw"]),
        number(leak["two_sided"]["mean"]),
        number(leak["oriented"]["mean"]),
        "" if leak["visible"] else "hidden",
    )


def _class_cells(leak: dict[str, Any]) -> tuple[str, ...]:
    accuracy, ami = leak["classes"]["accuracy"], leak["classes"]["ami"]
    return (
        *(leak[name] for name in _PLACE),
        number(accuracy["mean"]),
        _interval(accuracy),
        number(ami["mean"]),
        _interval(ami),
        number(leak["classes"]["macro_auc"]["mean"]),
        "" if leak["visible"] else "hidden",
    )


def _of_classes(leak: dict[str, Any]) -> bool:
    """Whether it is about more than two classes, and has no leak AUC."""
    return bool(leak["classes"]) and leak["raw"]["mean"] is None


def _interval(value: dict[str, float | None]) -> str:
    return "-" if value["low"] is None else f"{value['low']:.3f} .. {value['high']:.3f}"


def _batches(leaks: list[dict[str, Any]]) -> str:
    return " or ".join(map(str, sorted({leak["batches"] for leak in leaks})))


def number(value: float | None) -> str:
    return "undefined" if value is None or math.isnan(value) else f"{value:.4f}"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
