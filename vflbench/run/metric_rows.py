"""Results of an epoch as rows of metrics.csv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflbench.messages.message import Kind
from vflbench.messages.wire import Traffic
from vflbench.metrics.leak import Leak
from vflbench.numerics.interval import Interval
from vflbench.results.rows import Row

if TYPE_CHECKING:
    from vflbench.metrics.dependence import Dependence
    from vflbench.metrics.reconstruction import Reconstruction
    from vflbench.run.findings import Findings
    from vflbench.run.summary import EpochResult, TrafficByRoute


def epoch_rows(result: EpochResult) -> list[Row]:
    """Everything measured in an epoch, in long form."""
    epoch = result.epoch
    rows = [Row(epoch, "train", metric="loss", value=result.loss)]
    if result.penalty:
        rows.append(Row(epoch, "train", metric="penalty", value=result.penalty))
    for split, metrics in result.utility.items():
        rows += [Row(epoch, split, metric=metric, value=value) for metric, value in metrics.items()]
    rows += leak_rows(epoch, result.leaks)
    for phase, traffic in result.traffic.items():
        rows += traffic_rows(epoch, phase, traffic)
    rows += [*dependence_rows(epoch, result.dependence), *reconstruction_rows(epoch, result.reconstructions)]
    for figures in result.figures:
        place = (epoch, "train", figures.party, figures.layer, figures.message, "")
        rows += [Row(*place, figure, value) for figure, value in figures.values.items()]
    rows += [Row(epoch, phase, metric="seconds", value=round(s, 3)) for phase, s in result.seconds.items()]
    return rows


def traffic_rows(epoch: int, phase: str, traffic: TrafficByRoute) -> list[Row]:
    """What crossed, by party and kind of message: up from it, and of gradients and models down to it. Then by link."""
    totals: dict[tuple[str, Kind], Traffic] = {}
    for (sender, receiver, kind), count in traffic.items():
        total = totals.setdefault((receiver if kind in (Kind.GRADIENT, Kind.MODEL) else sender, kind), Traffic())
        total.messages += count.messages
        total.bytes += count.bytes
    rows = []
    for (party, kind), total in totals.items():
        rows.append(Row(epoch, phase, party, message=str(kind), metric="messages_sent", value=total.messages))
        rows.append(Row(epoch, phase, party, message=str(kind), metric="bytes_sent", value=total.bytes))
    for (sender, receiver, kind), count in traffic.items():
        rows.append(Row(epoch, phase, sender, message=str(kind), metric=f"bytes_sent:{receiver}", value=count.bytes))
    return rows


def finding_rows(epoch: int, findings: Findings) -> list[Row]:
    """What attacks and measurements of an epoch came to."""
    return [
        *leak_rows(epoch, findings.leaks),
        *dependence_rows(epoch, findings.dependence),
        *reconstruction_rows(epoch, findings.reconstructions),
    ]


def leak_rows(epoch: int, leaks: Sequence[Leak]) -> list[Row]:
    rows = []
    for leak in leaks:
        place = (epoch, "train", leak.party, leak.layer, leak.message, leak.attack)
        values = {"leak_auc": leak.raw, "leak_auc_two_sided": leak.two_sided, "leak_auc_oriented": leak.oriented}
        values |= {"leak_auc_coin": Interval(leak.coin, leak.coin, leak.coin), "leak_auc_net": leak.net}
        values = {} if leak.of_classes else values
        values |= {f"leak_{figure}": interval for figure, interval in leak.classes.items()}
        rows += [Row(*place, metric, v.mean, v.low, v.high, leak.visible) for metric, v in values.items()]
    return rows


def dependence_rows(epoch: int, dependence: Sequence[Dependence]) -> list[Row]:
    return [
        Row(
            *(epoch, "train", one.party, one.layer, str(Kind.EMBEDDING), ""),
            "distance_correlation",
            *(one.dcor.mean, one.dcor.low, one.dcor.high, one.visible),
        )
        for one in dependence
    ]


def reconstruction_rows(epoch: int, reconstructions: Sequence[Reconstruction]) -> list[Row]:
    return [
        Row(epoch, "train", one.party, one.layer, one.message, one.attack, figure, v.mean, v.low, v.high, one.visible)
        for one in reconstructions
        for figure, v in one.figures.items()
    ]
