"""What a section's runs recorded about themselves, in words: data, machine, layers, who attacks."""

from collections.abc import Iterable, Mapping
from typing import Any

from vflbench.report.sections import Section
from vflbench.results.provenance import plugin_files
from vflbench.results.runs import Run
from vflbench.results.untrusted import shown

_MOST = 2_000  # characters of a fact
NOT_RECORDED = "not recorded: an older version made these runs"


def facts(section: Section) -> list[tuple[str, str]]:
    """(name, text) of what was run; facts that no run has are left out."""
    runs = section.runs
    data = [run.manifest.get("data") or {} for run in runs]
    versions = [{"vflbench": run.manifest.get("vflbench"), **(run.manifest.get("versions") or {})} for run in runs]
    packages = dict.fromkeys(name for v in versions for name in v)
    software = [f"{name} {_several(v.get(name) for v in versions)}" for name in packages]
    seeds = _several(seed for g in section.groups for seed in g.seeds)
    named = {
        "runs": f"{len(runs)} in {len(section.groups)} settings; seeds {seeds}",
        "data": _several(str(d.get("path", "")).rsplit("/", 1)[-1] or None for d in data),
        "training rows": _several(_thousands(d.get("train_rows")) for d in data),
        "test rows": _several(_thousands(d.get("test_rows")) for d in data),
        "share of positives": _several(
            f"{r:.3f}" if isinstance(r := d.get("train_positive_ratio"), float) else None for d in data
        ),
        "data fingerprint": _several(str(d.get("fingerprint", ""))[:12] or None for d in data),
        "sha256 of the file": _several(str(d.get("file_sha256", ""))[:16] or None for d in data),
        "cut layers": _several((_cut_layers(run) for run in runs), "; or "),
        "epochs": _several(run.summary.get("epochs") for run in runs),
        "batches of": _several(run.manifest.get("batch_size") for run in runs),
        "device": _several(run.manifest.get("device") for run in runs),
        "threads": _several(run.manifest.get("threads") for run in runs),
        "software": ", ".join(software) if any(run.manifest for run in runs) else "",
        "python, system": _several(_system(run.manifest) for run in runs),
        "commit": _several(str(run.manifest.get("git_commit") or "")[:10] for run in runs),
        "plug-ins": _several(
            f"{name} {digest[:12]}" for run in runs for name, digest in sorted(plugin_files(run.manifest.identity))
        ),
    }
    return [(name, shown(text, _MOST)) for name, text in named.items() if text]


def threats(section: Section) -> list[tuple[str, str]]:
    """(attack or adversary, who it is and what it does), as the runs recorded it; each different text once.

    Of attacks that ran: what was skipped is in a table of its own.
    """
    texts: dict[str, dict[str, None]] = {}
    for run in section.runs:
        for name in {**(run.config.get("attack") or {}), **run.threats}:
            if name in run.skipped:
                continue
            texts.setdefault(name, {})
            if name in run.threats:
                threat = run.threats[name]
                parts = dict.fromkeys(str(threat[part]) for part in ("text", "does") if threat.get(part))
                texts[name][" ".join(parts)] = None
    lines = [(name, text) for name, different in texts.items() for text in different or (f"{NOT_RECORDED.capitalize()}.",)]
    return [(shown(name), shown(text, _MOST)) for name, text in [*lines, *_adversaries(section.runs)]]


def _adversaries(runs: list[Run]) -> list[tuple[str, str]]:
    lines = {
        (name, f"Party {adversary.get('party', '?')} deviates from the protocol. {adversary.get('text', '')}".strip())
        for run in runs
        for name, adversary in run.adversaries.items()
    }
    made = []
    for name, text in sorted(lines):
        those = [run for run in runs if name in run.adversaries]
        beside = sum(run.honest is not None for run in those)
        count = f"Runs with this adversary: {len(those)} of {len(runs)}; {beside} with an honest run beside it."
        made.append((f"{name}, adversary", f"{text} {count}"))
    return made


def _cut_layers(run: Run) -> str:
    """`f5 (a, b)`: the layers that cross, and at which parties."""
    parties: dict[tuple[str, ...], list[str]] = {}
    for party, layers in run.layers.cut.items():
        parties.setdefault(layers, []).append(party)
    text = ", ".join(f"{' and '.join(layers)} ({', '.join(names)})" for layers, names in parties.items() if layers)
    return text if run.layers.recorded or not text else f"{text}, not recorded: the last layer that an attacker sees"


def _several(values: Iterable[Any], separator: str = ", ", most: int = 8) -> str:
    """Every different value once."""
    texts = [shown(v) for v in dict.fromkeys(values) if v is not None and v != ""]
    return separator.join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _thousands(value: Any) -> str | None:
    return f"{value:,}" if isinstance(value, int) else None


def _system(manifest: Mapping[str, Any]) -> str | None:
    return ", ".join(str(manifest[name]) for name in ("python", "platform") if manifest.get(name)) or None
