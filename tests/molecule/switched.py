"""What tests of services behind a switch do to it, and how they see what it does: for scenarios of engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testinfra.host import Host

STEPS = ("OnSuccess=", "OnFailure=", "ExecStartPre=-+", "ExecStop=-+")
"""How the lines of a service's unit begin that speak of its switch."""


def wait_for_status(host: Host, name: str, status: str) -> None:
    """Until the switch before ``name`` says this of its engine: ``UP``, ``DOWN``, ``DRAIN`` …; a pattern of grep."""
    _wait_until_it_says(host, name, f'"a": [{{]"status": "{status}')


def wait_until_answering(host: Host, name: str) -> None:
    """Until the engine behind the switch before ``name`` has one request, and the switch knows."""
    _wait_until_it_says(host, name, '"running": 1\\b')


def _wait_until_it_says(host: Host, name: str, pattern: str) -> None:
    control = f"python3 -IS /usr/local/lib/switch/control.py --socket /run/switch-{name}/control.sock"
    host.check_output("timeout 60 sh -c %s", f"until {control} state | grep -Eq '{pattern}'; do sleep 0.1; done")


def wait_until_listening(host: Host, port: int) -> None:
    """Until somebody does."""
    host.check_output(f"timeout 60 sh -c 'until ss -Hltn | grep -q :{port}; do sleep 0.1; done'")


def listeners(host: Host, *ports: int) -> dict[str, str]:
    """Which program listens at which address of these ports, but for the address at which a host's proxy is heard."""
    lines = host.check_output("ss -Hltnp | awk '{print $4, $6}'").splitlines()
    there = {line.split()[0]: line.split('"')[1] for line in lines if '"' in line}
    told = [program for place, program in there.items() if place.startswith("127.0.0.2:")]
    assert set(told) <= {"haproxy"}
    there = {place: program for place, program in there.items() if not place.startswith("127.0.0.2:")}
    return {place: program for place, program in there.items() if int(place.rpartition(":")[2]) in ports}


@contextmanager
def changed_by_hand(host: Host, name: str, edit: str) -> Iterator[None]:
    """The switch before ``name`` runs with what ``sed`` makes of its configuration, whose own file stays as it was."""
    unit, config = f"switch-{name}.service", f"switch-{name}.cfg"
    folder = f"/run/systemd/system/{unit}.d"
    other = f"[Service]\\nExecStart=\\nExecStart=/usr/sbin/haproxy -Ws -f /run/{config}\\n"
    host.check_output(f"sed '{edit}' /etc/{config} > /run/{config}")
    host.check_output(f"mkdir -p {folder} && printf '{other}' > {folder}/other.conf && systemctl daemon-reload")
    try:
        host.check_output(f"systemctl restart {unit}")
        wait_for_status(host, name, "UP")
        yield
    finally:
        host.check_output(f"rm -r {folder} && systemctl daemon-reload && systemctl restart {unit}")
        wait_for_status(host, name, "UP")


def put_back_before_the_switch(host: Host, name: str, behind: int, port: int, *files: str) -> None:
    """As versions without a switch left it: the service itself listens at ``port``; ``files`` name the port besides."""
    unit = f"/etc/systemd/system/{name}.service"
    files_of_switch = f"/etc/switch-{name}.cfg /etc/systemd/system/switch-{name}*.service"
    host.check_output(f"systemctl stop {name} && systemctl disable --now switch-{name} && rm {files_of_switch}")
    lines = " ".join(f"-e '/^{step}/d'" for step in STEPS)
    host.check_output(f"sed -i {lines} -e 's/127.0.0.1/0.0.0.0/; s/{behind}/{port}/' {' '.join([unit, *files])}")
    host.check_output(f"systemctl daemon-reload && systemctl start {name}")
    wait_until_listening(host, port)
