"""The texts in a project of `vflbench parties write`: what each folder is, and party.yaml."""

from collections.abc import Sequence

from vflbench.engines.nvflare.kit import LABEL_PARTY, SUBMITTER

_INSPECT = """## What to look at before

- `party.yaml`: what this party brings, and which experiment it agreed to. Nobody else reads it.
- `local/resources.json.default`: `class_allow_list`, the only classes that a job may use here. They are vflbench's own; code
  that a job brings is refused (`byoc: none` in `local/authorization.json.default`), and so are commands to this host.
- `startup/`: this party's certificate and key, the project's certificate authority, and the address of the label party.
- after a run: `audit.log`, and in the folder named like the job what was asked (`app_{name}/config/run.json`).
"""


def project_readme(names: Sequence[str], host: str, port: int, days: int) -> str:
    """Of the whole project."""
    rows = "\n".join(f"| `{name}/` | party {name}, and nobody else |" for name in names)
    return f"""# A project of vflbench

| folder | who gets it |
|---|---|
| `{LABEL_PARTY}/` | the label party: the server, reached by the others as {host}, port {port} |
| `{SUBMITTER}/` | the label party: the key that submits experiments |
{rows}

Each folder holds a private key. Hand it over so that nobody else can read it, and delete your copy of it here: whoever wrote
this project has had all keys until then. The key of the certificate authority was not kept, so nobody can join this project
later; the certificates are valid for {days} days. With other parties, or after that, write a new project.

Each party runs `vflbench parties start FOLDER` on its host, the label party first. Then the label party runs

    vflbench parties run PROJECT KEY=VALUE ...

in a PROJECT that still holds `{LABEL_PARTY}/` and `{SUBMITTER}/`.
"""


def kit_readme(name: str, host: str, port: int) -> str:
    """Of one party's folder. It names no other party than the label party."""
    if name == LABEL_PARTY:
        role = (
            f"The label party: it holds the labels. The others must reach it as {host}, port {port}; no other port is open."
        )
    else:
        role = f"Party {name}, without labels. It connects to {host}, port {port}; no port of its own has to be open."
    return f"""# {name}

{role}
Everything in here stays with this party; `startup/` and `private/` hold its keys.

    pip install 'vflbench[nvflare]'      # the same version at every party
    vflbench parties check .             # the table can be read, the label party can be reached
    vflbench parties start .             # stays connected; Ctrl-C ends it

{_INSPECT.format(name="server" if name == LABEL_PARTY else name)}"""


def party_file(name: str, others: Sequence[str] = ()) -> str:
    """party.yaml as it is written at first. others: in that of the label party."""
    named = f"\nothers: [{', '.join(others)}] # who takes part where each party has a file of its own\n" if others else ""
    own = "the labels and its own columns" if name == LABEL_PARTY else "its own columns"
    return f"""# What party {name} brings, and what it agreed to. Only this party reads it. Paths begin in this folder.
party: {name}

data: {{}} # {own}: options of dataset= of this party alone, as {{path: table.csv}}; {{}}: as the experiment says

experiment: null # the FILE of `vflbench parties compose` that this party agreed to: any other is refused | any | null: none

output: runs # where results and checkpoints of this party are written
{named}"""
