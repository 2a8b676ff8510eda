"""The process of one non-label party in FLARE's simulator: `python -m vflbench.engines.nvflare.simulated_client FILE`.

FLARE's own starter hands each process its settings as a pickle, through a port of this machine that anybody may connect to,
and polls with pauses of seconds. Here they are a JSON file; all else is FLARE's.
"""

import json
import os
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any, NoReturn

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.workspace import Workspace
from nvflare.fuel.hci.server.authz import AuthorizationService
from nvflare.fuel.sec.audit import AuditService
from nvflare.fuel.utils.log_utils import dynamic_log_config
from nvflare.private.fed.app.simulator.simulator_worker import ClientTaskWorker
from nvflare.private.fed.app.utils import init_security_content_service
from nvflare.private.fed.simulator.simulator_audit import SimulatorAuditor
from nvflare.private.fed.simulator.simulator_const import SimulatorConstants
from nvflare.private.fed.utils.fed_utils import fobs_initialize
from nvflare.security.security import EmptyAuthorizer

from vflbench.engines.nvflare.processes import end_with

_SOON, _LATER = 0.05, 0.5
_SETUP_TASKS = 2


def take_part(file: Path) -> NoReturn:
    """Set up, take part until the server is done, and end this process."""
    try:
        _take_part(file)
    finally:
        os._exit(0)  # FLARE leaves threads behind that would wait


def _take_part(file: Path) -> None:
    spec: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    end_with(spec["parents"])
    args = Namespace(**spec["args"])
    os.chdir(args.workspace)
    for name in ("startup", "local"):
        os.makedirs(name, exist_ok=True)
    workspace = Workspace(root_dir=args.workspace, site_name=args.client)
    dynamic_log_config(spec["log"], args.workspace, workspace.get_log_config_file_path())
    fobs_initialize(workspace, job_id=SimulatorConstants.JOB_NAME)
    AuthorizationService.initialize(EmptyAuthorizer())
    AuditService.the_auditor = SimulatorAuditor()
    init_security_content_service(args.workspace)
    worker = ClientTaskWorker()
    deploy_args = Namespace(**spec["deploy_args"])
    client = worker._create_client(args, spec["build"], deploy_args)
    worker.create_client_engine(client, deploy_args)
    worker.create_client_runner(client)
    with client.run_manager.new_context() as fl_ctx:
        runner = fl_ctx.get_prop(FLContextKey.RUNNER)
        done = 0
        while not runner.run_abort_signal.triggered:
            done += runner.fetch_and_run_one_task(fl_ctx)[1]
            time.sleep(_SOON if done < _SETUP_TASKS else _LATER)
        runner.end_run_events_sequence()


if __name__ == "__main__":
    take_part(Path(sys.argv[1]))
