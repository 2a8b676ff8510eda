"""What may cross between sites of FLARE: a method's name and bytes; everything else is refused before it is built. A job is
text that names classes of ours, and no code.
"""

import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Client
from types import SimpleNamespace

import pytest

from vflbench.engines.nvflare import CONTROLLER, EXECUTOR, MORE, RELAY, NvFlare, connected, listening, write_job
from vflbench.errors import UserError
from vflbench.messages.serialize import PartyError, decode, encode

if find_spec("nvflare") is None:  # imported where it is needed: half a second
    pytest.skip("no nvflare here", allow_module_level=True)

HOSTILE = """
import dataclasses, enum, pickle, msgpack, numpy, torch
from nvflare.private.fed.utils.fed_utils import fobs_initialize
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs import fobs as inner
from vflbench.engines.components import take_plain_messages_alone

fobs_initialize()
fobs.register(TensorDecomposer)  # as FLARE does for every Collab job

@dataclasses.dataclass
class Own:
    x: int = 1
class Colour(enum.Enum):
    RED = 1
values = {"array": numpy.zeros(3), "dataclass": Own(), "enum": Colour.RED}
sent = {name: fobs.dumps({"payload": value}) for name, value in values.items()}
def refused(data):
    try:
        fobs.loads(data)
    except Exception as error:
        return type(error).__name__
    return ""

def crafted(type_name, decomposer, data=None):
    body = msgpack.packb({"payload": {"__fobs_type__": type_name, "__fobs_data__": data or {}, "__fobs_dc__": decomposer}})
    return b"\\x64\\x00" + len(body).to_bytes(8, "big") + body  # as FLARE frames the main part of a message

generic = "nvflare.fuel.utils.fobs.decomposer.DataClassDecomposer"
crafts = {
    name: crafted(name, decomposer)
    for name, decomposer in {
        "argparse.Namespace": generic,
        "subprocess.Popen": generic,
        "nvflare.apis.workspace.Workspace": "nvflare.apis.utils.decomposers.flare_decomposers.WorkspaceDecomposer",
        "torch.Tensor": "nvflare.app_opt.pt.decomposers.TensorDecomposer",
        "nvflare.apis.dxo.DataKind": "nvflare.fuel.utils.fobs.decomposer.EnumTypeDecomposer",
        "nvflare.fuel.utils.fobs.decomposers.via_downloader.LazyDownloadRef": generic,
    }.items()
}
assert not refused(crafts["argparse.Namespace"])  # the test has teeth
take_plain_messages_alone()
for name, data in {**sent, **crafts}.items():
    assert refused(data), name
for value in (*values.values(), torch.zeros(3), object()):
    try:
        fobs.dumps({"payload": value})
    except Exception:
        continue
    raise AssertionError(f"{type(value)} can be sent")
plain = {"method": "step", "kwargs": {"payload": b"x" * 20_000_000, "n": 3, "t": (1, "a")}}
assert fobs.loads(fobs.dumps(plain)) == plain
assert not any("pickle" in (getattr(type(one), "__module__", "") or "") for one in inner._decomposers.values())
"""


@pytest.mark.slow
def test_fobs_builds_nothing_but_plain_values_once_a_site_is_set_up():
    """The adversaries: what FLARE sends as it comes, and messages by hand that name classes and decomposers."""
    result = subprocess.run([sys.executable, "-c", HOSTILE], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


class Proxy:
    """FLARE's stand-in for a site. answers: what comes back of a call, or is raised."""

    def __init__(self, answer):
        self.answer, self.name, self.asked = answer, "site", []

    def __call__(self, timeout):
        return SimpleNamespace(call=self.call)

    def call(self, method, payload, patience_ms):
        assert 0 < patience_ms < 7000
        self.asked.append((method, payload))
        if isinstance(self.answer, list):
            return self.answer.pop(0)
        return self.answer() if callable(self.answer) else self.answer


def failing(name, *said):
    """An answer that is FLARE's exception of that name."""

    def answer():
        raise getattr(import_module("nvflare.collab.api.exceptions"), name)(*said)

    return answer


@contextmanager
def channel(answer, lost=lambda _: ""):
    """The label party's end of a relay to such a site, and what the site was asked."""
    relay = import_module("vflbench.engines.components").relay
    engine, proxy = NvFlare(timeout=7.0, max_message_mib=1), Proxy(answer)
    with listening() as (listener, address), Client(address, "AF_UNIX") as server:
        server.send_bytes(b"server")
        threading.Thread(target=relay, args=(proxy, address, 7.0)).start()
        with connected(listener, {"site": "media"}, engine, str, lost) as channels:
            yield channels["media"], proxy.asked


def test_a_call_carries_text_and_bytes_alone():
    with channel(encode({"content": {"n": 3}})) as (link, asked):
        assert link.call("hello", {"a": [1, 2.5, "x", None]}) == {"n": 3}
    ((method, payload),) = asked
    assert (type(method), type(payload)) == (str, bytes)
    assert decode(payload) == {"a": [1, 2.5, "x", None]}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (failing("CollabCallError", "site", "call", TimeoutError("timed out after 7 seconds")), "engine.timeout"),
        (failing("CollabCallError", "site", "call", "cell is gone\nand more"), "cell is gone and more"),
        (failing("RunAborted", "aborted"), "FLARE ended the job"),
        ({"content": {}}, "dict and not with bytes"),
        (b"VFLB junk", "no message"),
        (encode({"refused": "no such column"}), "no such column"),
    ],
)
def test_what_goes_wrong_names_the_party_and_what_to_do(answer, words):
    with channel(answer) as (link, _), pytest.raises(PartyError, match="party media: ") as caught:
        link.call("step", {})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_party_that_is_at_work_is_asked_for_more_until_it_is_done():
    with channel([encode({"pending": True}), encode({"pending": True}), encode({"content": {"n": 1}})]) as (link, asked):
        assert link.call("ask", {}) == {"n": 1}
    assert [method for method, _ in asked] == ["ask", MORE, MORE]


def test_a_long_answer_is_given_once_it_is_there(answering):
    goes_on = threading.Event()
    site = answering(lambda *_: {"done": goes_on.wait(60)})
    assert decode(site.call("ask", encode({}), 1)) == {"pending": True}
    goes_on.set()
    assert decode(site.call(MORE, b"", 60_000)) == {"content": {"done": True}}


def test_a_message_that_is_too_large_is_not_sent():
    with channel(b"") as (link, asked), pytest.raises(PartyError, match="a smaller batch_size"):
        link.call("step", {"text": "x" * (1 << 20)})
    assert asked == []


def test_a_call_ends_when_the_process_of_the_party_has_ended_or_the_server_has():
    goes_on = threading.Event()
    with channel(lambda: goes_on.wait(60) and b"", lost=lambda site: f"{site} has ended") as (link, _):
        with pytest.raises(PartyError, match="party media: site has ended"):
            link.call("step", {})
        goes_on.set()
    with pytest.raises(PartyError, match="party media: site has ended"):
        link.call("step", {})


def test_a_server_that_does_not_connect_is_not_waited_for():
    with listening() as (listener, _), pytest.raises(UserError, match="the job was refused"):
        connected(listener, {"site": "media"}, NvFlare(), lambda: "the job was refused", str).__enter__()


@pytest.fixture
def answering(monkeypatch):
    """A party that answers by a function, asked by a site."""
    from vflbench.hosts.sites import PartySite  # late: it imports FLARE, a second in each process that collects tests

    def made(handle, caller="server"):
        site = PartySite()
        site._process = SimpleNamespace(handle=handle, experiment=SimpleNamespace(engine=NvFlare()))
        monkeypatch.setattr("vflbench.hosts.sites.collab", SimpleNamespace(caller=caller))
        return site

    return made


def test_a_fault_at_a_party_says_its_kind_and_no_value(answering):
    def handle(_method, _content):
        raise ValueError("row 17 has salary 81234")

    answer = decode(answering(handle).call("step", encode({})))
    assert answer["refused"].startswith("it failed with ValueError")
    assert "81234" not in str(answer)


@pytest.mark.parametrize("payload", [b"", b"\x80\x04\x95."], ids=repr)
def test_a_party_takes_no_bytes_but_its_own_format(answering, payload):
    handled = []
    answer = decode(answering(lambda *given: handled.append(given) or {}).call("step", payload))
    assert "refused" in answer
    assert not handled


def test_a_party_answers_the_label_party_alone(answering):
    answer = decode(answering(lambda *_: {"secret": 1}, caller="other_party").call("hello", encode({})))
    assert "only the label party" in answer["refused"]
    assert "secret" not in str(answer)


SITE = "vflbench.hosts.sites.PartySite"


def test_a_job_is_json_for_each_site_with_its_own_settings_for_its_owner_alone_and_ships_no_code(tmp_path):
    parties = {"a": {"party": "a"}, "b": {"party": "b"}}
    folder = write_job(tmp_path / "job", {"resolved": {"seed": 1}}, parties, {"socket": "x"}, SITE)
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    content = {name: json.loads(path.read_text()) for name, path in files.items()}
    configs = {f"app_{site}/config/config_fed_client.json": {EXECUTOR, SITE} for site in "ab"}
    configs["app_server/config/config_fed_server.json"] = {CONTROLLER, RELAY}
    assert set(files) == {"meta.json", *configs, *(f"app_{site}/config/run.json" for site in ("server", "a", "b"))}
    assert all(path.stat().st_mode & 0o077 == 0 for path in files.values())
    assert {site: content[f"app_{site}/config/run.json"]["site"] for site in parties} == parties
    assert content["meta.json"]["deploy_map"] == {"app_server": ["server"], "app_a": ["a"], "app_b": ["b"]}
    assert content["meta.json"]["mandatory_clients"] == ["a", "b"]
    for name, classes in configs.items():  # every class path that FLARE would build
        assert set(re.findall(r'"path": "(.*?)"', files[name].read_text())) == classes


def test_a_job_holds_nothing_but_json(tmp_path):
    with pytest.raises((TypeError, ValueError)):
        write_job(tmp_path / "job", {"odd": object()}, {"a": {}}, {}, SITE)
