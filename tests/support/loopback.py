"""A party that lives elsewhere, in this process: calls pass through bytes, as between processes."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from vflbench.data.rows import TrainTest
from vflbench.data.table import LABEL_PARTY, Features
from vflbench.engines.base import Local
from vflbench.errors import UserError
from vflbench.hosts.party import PartyProcess
from vflbench.messages.serialize import Channel, Content, PartyError, decode, encode
from vflbench.options import options
from vflbench.run.setup import Experiment


class Table:
    """One party's columns of a data set that is in memory."""

    def __init__(self, data: TrainTest, party: str):
        self._rows, self._party, self.columns = data.aligned(), party, data.train.columns[party]
        self._count = len(data.train.role)

    def __len__(self) -> int:
        return self._count

    def lookup(self, ids: Tensor) -> Features:
        return self._rows.parties[self._party](ids)


class Loopback:
    """A channel to a `PartyProcess` in this process, which runs in a thread of its own. calls: methods, in order."""

    def __init__(self, process: PartyProcess):
        self.party, self.process, self.calls, self.bytes = process.party, process, [], 0

    def call(self, method: str, content: Content) -> Content:
        self.calls.append(method)
        data, answer = encode(content), []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                answer.append(encode(self.process.handle(method, decode(data))))
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if failed and isinstance(failed[0], UserError):
            raise PartyError(self.party, str(failed[0]))
        if failed:
            raise failed[0]
        self.bytes += len(data) + len(answer[0])
        return decode(answer[0])


@options
class Elsewhere(Local):
    """Parties at the ends of these channels."""

    links: dict

    def channels(self) -> Mapping[str, Channel]:
        return self.links


def apart(experiment: Experiment, data: TrainTest, folder: Path) -> Experiment:
    """The same experiment with each non-label party at the end of a channel. data: as the experiment loads them."""
    links = {}
    for party in data.train.columns:
        if party != LABEL_PARTY:
            table = Table(data, party)
            links[party] = Loopback(PartyProcess(party, experiment, lambda table=table: table, folder / party))
    return replace(experiment, engine=Elsewhere(links=links))
