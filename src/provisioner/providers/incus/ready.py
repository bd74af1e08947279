"""Wait until a container has an address and its system has started; tell a slow one from a broken one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus

from provisioner.inside import system_start
from provisioner.inside.system_start import Start
from provisioner.providers.incus import execute, wire
from provisioner.providers.incus.client import Client
from provisioner.providers.incus.endpoint import Endpoint
from provisioner.providers.incus.translate import address_in
from provisioner.values.errors import ReadyTimeoutError

POLL_S = 0.1
CONSOLE_LINES = 40
_NOT_YET = Start("not asked yet")


def wait(client: Client, name: str, timeout_s: float, say: Callable[[str], None]) -> None:
    """Return when ``name`` has an IPv4 address and systemd has started everything; ``ReadyTimeoutError``, else.

    ``say`` is told what a start waits for that takes long.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        state = client.get("instances", name, "state")
        if state["status"] != "Running":
            raise _not_ready(client, name, f"It stopped while starting: its state is {state['status']}.", "")
        address = address_in(state)
        # Asked only once it has an address: `is-system-running` takes 30 ms of CPU, the question above 2 ms.
        system = _system(client.endpoint, name, deadline) if address else _NOT_YET
        if system.is_over and address:
            return
        if time.monotonic() >= deadline:
            raise _timeout(client, name, timeout_s, address, system.text)
        if system.jobs:
            say(f"its system is still {system.text}")
        time.sleep(POLL_S)


def _system(endpoint: Endpoint, name: str, deadline: float) -> Start:
    """What systemd says of itself, once it has started or was watched for a while; a system without it has started."""
    command = system_start.command(deadline - time.monotonic())
    try:
        done = execute.run(endpoint, name, command, timeout_s=system_start.COMMAND_S)
    except execute.ExecutionTimeoutError:
        return Start("not answering")
    return system_start.start_of(done) or Start("running")


def _timeout(client: Client, name: str, timeout_s: float, address: str | None, system: str) -> ReadyTimeoutError:
    if address is None:
        what = f"After {timeout_s:.0f} s it is running but has no IPv4 address on eth0."
        resolution = "Does its bridge give addresses by DHCP? See: incus network list; incus network show <bridge>"
        return _not_ready(client, name, what, resolution)
    what = f"After {timeout_s:.0f} s it has the address {address}, and its system is still: {system}"
    return _not_ready(client, name, what, f"See: incus exec {name} -- systemctl list-jobs")


def _not_ready(client: Client, name: str, what: str, resolution: str) -> ReadyTimeoutError:
    details = f"{what}\nThe end of its console:\n{_console(client, name)}"
    return ReadyTimeoutError(f"Unable to start container {name}", details=details, resolution=resolution)


def _console(client: Client, name: str) -> str:
    with closing(wire.connection_to(client.endpoint)) as connection:
        connection.request("GET", wire.path_of("instances", name, "console"))
        response = connection.getresponse()
        text = wire.whole(response).decode(errors="replace")
    if response.status != HTTPStatus.OK:
        return f"(none: {text.strip()})"
    return "\n".join(text.splitlines()[-CONSOLE_LINES:]) or "(empty)"
