"""A job of NVIDIA FLARE for one run, as a folder of JSON files: no code travels, each site has vflbench installed.

    FOLDER/meta.json
    FOLDER/app_server/config/{config_fed_server.json, run.json}        the label party
    FOLDER/app_PARTY/config/{config_fed_client.json, run.json}         each other party

run.json is what a site is asked to do, in plain text for whoever wants to read it before it takes part. The folder can be
simulated, or submitted to a server that runs. This module needs no nvflare.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vflbench.plain_files import written_whole

SERVER = "server"
RUN_FILE = "run.json"
MORE = "more"
"""The method that asks for the answer to the last call, which takes its time."""
SETUP_TASK_SECONDS = 0.1  # between two looks of a client for a task, of which there are two, before the calls begin

CONTROLLER = "vflbench.engines.nvflare.components.LabelPartyController"
EXECUTOR = "vflbench.engines.nvflare.components.PartyExecutor"
LABEL_PARTY_SITE = "vflbench.hosts.sites.LabelPartySite"
PARTY_SITE = "vflbench.hosts.sites.PartySite"

SERVER_CLASSES = (CONTROLLER, LABEL_PARTY_SITE)
CLIENT_CLASSES = (EXECUTOR, PARTY_SITE)
"""All that a job of ours names: what `class_allow_list` in a site's local/resources.json has to allow, and nothing else."""


@dataclass(frozen=True)
class Job:
    """What a run asks of its sites. All of it is JSON.

    run: the same for every site: the resolved config and whatever the label party needs of the command line.
    parties: site -> settings of that site alone, such as {"party": name}. server: settings of the label party's site.
    start_timeout: seconds that all sites may take to be ready. timeout: seconds that a call may take.
    """

    name: str
    run: Mapping[str, Any]
    parties: Mapping[str, Mapping[str, Any]]
    server: Mapping[str, Any] = field(default_factory=dict)
    start_timeout: float = 120.0
    timeout: float = 60.0
    label_party_site: str = LABEL_PARTY_SITE
    party_site: str = PARTY_SITE


def write_job(job: Job, folder: Path) -> Path:
    """Write the job into this folder, which must not exist. Returns it."""
    sites = list(job.parties)
    meta = {
        "name": job.name,
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": sites,
        "deploy_map": {"app_server": [SERVER]} | {f"app_{site}": [site] for site in sites},
    }
    folder.mkdir(parents=True, mode=0o700)
    _write(folder / "meta.json", meta)
    _write_app(folder / "app_server", "config_fed_server.json", _server_config(job), job.run, job.server)
    for site, settings in job.parties.items():
        _write_app(folder / f"app_{site}", "config_fed_client.json", _client_config(job), job.run, settings)
    return folder


def _server_config(job: Job) -> dict[str, Any]:
    arguments = {"server_obj_id": "label_party", "sync_task_timeout": job.start_timeout, "call_timeout": job.timeout}
    return {
        "format_version": 2,
        "server": {"task_request_interval": SETUP_TASK_SECONDS},
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [{"id": "label_party", "path": job.label_party_site, "args": {}}],
        "workflows": [{"id": "controller", "path": CONTROLLER, "args": arguments}],
    }


def _client_config(job: Job) -> dict[str, Any]:
    executor = {"path": EXECUTOR, "args": {"client_obj_id": "party"}}
    return {
        "format_version": 2,
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [{"id": "party", "path": job.party_site, "args": {}}],
        "executors": [{"tasks": ["*"], "executor": executor}],
    }


def _write_app(app: Path, name: str, config: Any, run: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    (app / "config").mkdir(parents=True, mode=0o700)
    _write(app / "config" / name, config)
    _write(app / "config" / RUN_FILE, {"run": run, "site": settings})


def _write(path: Path, content: Any) -> None:
    """Raises TypeError for what JSON doesn't know, and ValueError for numbers that are none."""
    text = json.dumps(content, indent=1, allow_nan=False)
    with written_whole(path, "w", private=True, encoding="utf-8") as file:
        file.write(f"{text}\n")
