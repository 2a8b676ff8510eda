"""A party that lives elsewhere, in this process: calls pass through bytes, as between processes."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from vflbench.data.table import LABEL_PARTY
from vflbench.engines.base import Local
from vflbench.errors import UserError
from vflbench.hosts.party import PartyProcess
from vflbench.messages.serialize import PartyError, decode, encode
from vflbench.options import options


class Table:
    """One party's columns of a data set that is in memory."""

    def __init__(self, data, party):
        self._rows, self._party, self.columns = data.aligned(), party, data.train.columns[party]
        self._count = len(data.train.role)

    def __len__(self):
        return self._count

    def lookup(self, ids):
        return self._rows.parties[self._party](ids)


class Loopback:
    """A channel to a `PartyProcess` in this process, which runs in a thread of its own. calls: methods, in order."""

    def __init__(self, process):
        self.party, self.process, self.calls, self.bytes = process.party, process, [], 0

    def call(self, method, content):
        self.calls.append(method)
        data = encode(content)
        with ThreadPoolExecutor(1) as thread:
            try:
                answer = encode(thread.submit(lambda: self.process.handle(method, decode(data))).result())
            except UserError as error:
                raise PartyError(self.party, str(error)) from None
        self.bytes += len(data) + len(answer)
        return decode(answer)


@options
class Elsewhere(Local):
    """Parties at the ends of these channels."""

    links: dict

    def channels(self):
        return self.links


def apart(experiment, data, folder):
    """The same experiment with each non-label party at the end of a channel. data: as the experiment loads them."""
    links = {}
    for party in data.train.columns:
        if party != LABEL_PARTY:
            table = Table(data, party)
            links[party] = Loopback(PartyProcess(party, experiment, lambda table=table: table, folder / party))
    return replace(experiment, engine=Elsewhere(links=links))
