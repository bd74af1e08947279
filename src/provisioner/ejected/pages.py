"""The texts of an ejected folder that are no data: its configuration of Ansible and its README."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

CONFIGURATION = """\
[defaults]
inventory = hosts.yml
roles_path = roles
library = library
connection_plugins = connection_plugins
callback_plugins = callback_plugins
gathering = explicit
forks = 10
retry_files_enabled = False

[connection]
pipelining = True
"""

_REACHED = {
    "provision_incus": "`provision_incus` speaks to the socket of Incus on this machine; you have to be in its group "
    "(`incus-admin`). An Incus elsewhere is shown the client certificate that `hosts.yml` names; its key is not here. "
    "With the program `incus` and the collection community.general, `ansible_connection: "
    "community.general.incus` does the same.",
    "provision_proxmox": "`provision_proxmox` runs `pct exec` on the node over ssh; you need a key for it.",
}


@dataclass(frozen=True, slots=True)
class About:
    """What a README tells of; ``variables`` of the environment give secrets (True: to ``containers.yml`` only)."""

    lab: str
    variables: Mapping[str, bool]
    plugins: Sequence[str]
    playbooks: Sequence[str]


def readme(about: About) -> str:
    """The README: the three commands, then what lies where and what is needed."""
    lab = about.lab
    needed = [name for name, is_for_making in about.variables.items() if not is_for_making]
    for_making = [name for name, is_for_making in about.variables.items() if is_for_making]
    proofs = " `ansible-playbook verify.yml` only proves;" if "verify.yml" in about.playbooks else ""
    playbooks = _quoted(name for name in about.playbooks if name != "containers.yml")
    secrets = f" It needs {_quoted(for_making)}, too." if for_making else ""
    return f"""\
# {lab}

Ansible that configures the containers of the lab `{lab}` and proves that they work. It was written by
`provision eject` and needs `ansible-core` and nothing else: no collection, and not provision.

```sh
python3 -m venv .venv && .venv/bin/pip install --requirement requirements.txt
{_export(needed)}
.venv/bin/ansible-playbook site.yml
```

A second run changes nothing.{proofs} `--limit NAME` takes one container.

| here | what |
|---|---|
| `hosts.yml`, `host_vars/`, `group_vars/` | the containers, how they are reached, and every option of their services |
| {playbooks} | the plays |
| `roles/` | copies of the roles, each with its options in `README.md` |
| `library/`, `connection_plugins/`, `python/` | modules of the roles; the way into the containers |
| `callback_plugins/` | has ready what tasks load; modules as Ansible packs them are kept in `~/.cache/provisioner` |
| `containers.yml` | makes the containers themselves; see below |

## Secrets

No value is in this folder. Each is looked up in a variable of the environment; one that is not set is an error of the
task that needs it.{_listed(needed)}

## How the containers are reached

{_ways(about.plugins)}

## What stays provision's

* `containers.yml` (role `container`) makes, changes and starts the containers. It alone runs provision's own code:
  install the package into the same virtual environment first.{secrets}
* Programs and models that are mounted read-only (`/opt/…`, `/srv/models`) are built and stored by `provision up`. They
  are on the hosts as long as nobody deletes their volumes; `container_devices` names them.
* The containers bear the mark of the lab `{lab}`: `provision` goes on managing them where its file is used again.
"""


def _export(variables: Sequence[str]) -> str:
    if not variables:
        return ": # no secret is needed"
    return " ".join(["export", *(f"{name}=…" for name in variables)])


def _ways(plugins: Sequence[str]) -> str:
    """How each connection plugin reaches the containers, a line each."""
    lines = [f"* {_REACHED[name]}" for name in plugins if name in _REACHED]
    return "\n".join(lines) or "* by `ansible_connection` in `hosts.yml`."


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _listed(names: Sequence[str]) -> str:
    if not names:
        return ""
    return "\n" + "".join(f"\n* `{name}`" for name in names)
