# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: looks at a systemd unit, its port and its health, and waits until it is ready."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_unit
short_description: Look at a systemd unit, its port and its health
description:
  - Says what systemd knows of the unit, which processes listen on the port and which files are newer than the process.
  - With I(health) it waits until that path answers 200 and fails at once when the unit fails, with its last log lines.
  - Changes nothing, so it does the same in check mode.
options:
  name: {type: str, required: true, description: [The unit, with its suffix.]}
  port: {type: int, description: [TCP port of the service.]}
  files: {type: list, elements: path, default: [], description: [What the process reads when it starts.]}
  health: {type: str, description: [Path on 127.0.0.1 that answers 200 when the service is ready.]}
  timeout: {type: int, default: 600, description: [Seconds to wait for I(health).]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: verify | Wait until the server is ready
  provision_unit:
    name: llama-server.service
    port: 8080
    health: /health
"""
RETURN = r"""
exists: {type: bool, returned: always, description: Whether systemd has such a unit.}
active: {type: bool, returned: always, description: Whether it runs.}
enabled: {type: bool, returned: always, description: Whether it starts with the machine.}
main_pid: {type: int, returned: always, description: "Its main process, 0 when there is none."}
listeners: {type: list, returned: always, description: "Processes that listen on the port: pid, unit, command."}
strangers: {type: list, returned: always, description: Those listeners that do not belong to the unit.}
serving: {type: bool, returned: always, description: Whether the main process is the only one that listens on the port.}
stale: {type: list, returned: always, description: The files that were written after the process had started.}
"""

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

POLL_S = 0.25
PROBE_TIMEOUT_S = 5.0
LOG_LINES = 30
LISTEN = "0A"
PROPERTIES = (
    "LoadState",
    "ActiveState",
    "UnitFileState",
    "SubState",
    "Result",
    "MainPID",
    "NRestarts",
    "ExecMainStartTimestampMonotonic",
)


def main() -> None:
    """Answer with what was found, or fail when the service does not become ready."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "port": {"type": "int"},
            "files": {"type": "list", "elements": "path", "default": []},
            "health": {"type": "str"},
            "timeout": {"type": "int", "default": 600},
        },
        required_by={"health": ["port"]},
        supports_check_mode=True,
    )
    wanted = module.params
    if wanted["health"]:
        url = f"http://127.0.0.1:{wanted['port']}{wanted['health']}"
        problem = wait_until_healthy(wanted["name"], url, wanted["timeout"])
        if problem:
            module.fail_json(msg=f"Unable to use {wanted['name']}: {problem}", log=last_log_lines(wanted["name"]))
    module.exit_json(changed=False, **look(wanted["name"], wanted["port"], wanted["files"]))


def look(unit: str, port: int | None, files: Iterable[str]) -> dict[str, Any]:
    """What the module returns about the unit, its port and its files."""
    state = unit_state(unit)
    main_pid = int(state["MainPID"])
    found = listeners(port) if port else []
    return {
        "exists": state["LoadState"] == "loaded",
        "active": state["ActiveState"] == "active",
        "enabled": state.get("UnitFileState") == "enabled",
        "main_pid": main_pid,
        "listeners": found,
        "strangers": [process for process in found if process["unit"] != unit],
        "serving": main_pid > 0 and {process["pid"] for process in found} == {main_pid},
        "stale": newer_than(files, started_at(state)) if main_pid else [],
    }


def unit_state(unit: str) -> dict[str, str]:
    """The unit's properties as ``systemctl show`` gives them; a unit that does not exist has LoadState "not-found"."""
    command = ["systemctl", "show", "--property", ",".join(PROPERTIES), "--", unit]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(line.partition("=")[::2] for line in answer.stdout.splitlines() if "=" in line)


def started_at(state: dict[str, str]) -> float:
    """When the main process started, in seconds of the wall clock as it goes now."""
    age = time.monotonic() - int(state["ExecMainStartTimestampMonotonic"]) / 1e6
    return time.time() - age


def newer_than(files: Iterable[str], moment: float) -> list[str]:
    """Those of ``files`` that were written after ``moment``; a missing one was not."""
    return [file for file in files if Path(file).exists() and Path(file).stat().st_mtime > moment]


def listeners(port: int, proc: Path = Path("/proc")) -> list[dict[str, Any]]:
    """The processes that listen on the TCP port, of IPv4 and IPv6, each with its systemd unit and its command.

    A socket whose process cannot be seen has process 0, so that it is not taken for a free port.
    """
    sockets = listening_sockets(port, proc)
    if not sockets:
        return []
    hidden = set(sockets)
    found = []
    for number in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()):
        process = proc / str(number)
        held = held_sockets(process) & sockets
        if held:
            hidden -= held
            found.append({"pid": number, "unit": unit_of(process), "command": command_of(process)})
    return found + [{"pid": 0, "unit": "", "command": "a process that cannot be seen"} for _ in hidden]


def listening_sockets(port: int, proc: Path) -> set[str]:
    """The sockets that listen on the port, as the links of open files name them."""
    sockets: set[str] = set()
    for table in (proc / "net/tcp", proc / "net/tcp6"):
        if table.exists():
            sockets.update(f"socket:[{inode}]" for inode in listening_inodes(table.read_text(), port))
    return sockets


def listening_inodes(table: str, port: int) -> set[str]:
    """The inodes of the listening sockets on ``port`` in the text of ``/proc/net/tcp`` or ``/proc/net/tcp6``."""
    inodes = set()
    for line in table.splitlines()[1:]:
        row = line.split()
        local_port = row[1].rpartition(":")[2]
        if row[3] == LISTEN and int(local_port, 16) == port:
            inodes.add(row[9])
    return inodes


def held_sockets(process: Path) -> set[str]:
    """The sockets that the process has open; none when it ended meanwhile or belongs to somebody else."""
    held = set()
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for descriptor in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # it was closed meanwhile
                held.add(str(descriptor.readlink()))
    return held


def unit_of(process: Path) -> str:
    """The systemd unit that the process belongs to, or an empty string."""
    try:
        groups = (process / "cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    unit = ""
    for line in groups.splitlines():
        for part in line.partition(":")[2].split("/"):
            if part.endswith((".service", ".scope")):
                unit = part
    return unit


def command_of(process: Path) -> str:
    """The name of the program that the process runs (never its arguments: they may hold what is not for a log)."""
    try:
        return (process / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until_healthy(unit: str, url: str, timeout_s: float) -> str:
    """Block until ``url`` answers 200 and say nothing, or say why it will not."""
    deadline = time.monotonic() + timeout_s
    first = unit_state(unit)
    while True:
        state = unit_state(unit)
        if state["ActiveState"] not in ("active", "activating", "reloading"):
            return f"it is {state['ActiveState']} (result: {state['Result']})"
        if state["SubState"] == "auto-restart" or state["NRestarts"] != first["NRestarts"]:
            return "it ended before it was ready and is being restarted"
        seen = probe(url)
        if seen == "200":
            return ""
        if time.monotonic() > deadline:
            return f"{url} did not answer 200 within {timeout_s:g} seconds (last: {seen})"
        time.sleep(POLL_S)


class Stay(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer: whom a service sends elsewhere is root."""

    def redirect_request(self, *_arguments: object) -> None:
        """Follow none."""


def probe(url: str) -> str:
    """The status that ``url`` answers with, or what kept it from answering; no proxy is asked."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay())
    try:
        with opener.open(url, timeout=PROBE_TIMEOUT_S) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        return str(error)


def last_log_lines(unit: str) -> list[str]:
    """The unit's last lines in the journal."""
    command = ["journalctl", "--no-pager", "--output", "cat", "--lines", str(LOG_LINES), "--unit", unit]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    main()
