"""Ansible through our connection plugin, against a real container."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.hosts.base import Provider
from provisioner.hosts.incus import IncusProvider
from provisioner.inside.module_server.handing import NOTES, SWITCH, served, stop_command
from provisioner.inside.module_server.handing import ROOT as ROOT_IN_CONTAINER
from tests.ansible_environment import ansible_environment
from tests.lab.far import WAYS, provider_by
from tests.processes import completed
from tests.waiting import wait_until

pytestmark = pytest.mark.incus

ROOT = Path(__file__).resolve().parents[2]
LARGE_BYTES = 3_000_000


@pytest.fixture(scope="module", params=WAYS)
def provider(request: pytest.FixtureRequest) -> IncusProvider:
    """The driver over each way."""
    return provider_by(request)


class Play:
    """Runs tasks in a container and gives what ansible-playbook said."""

    def __init__(self, provider: Provider, container: str, folder: Path, way: str = "served") -> None:
        self.notes = folder
        self.environment = {NOTES: str(folder), SWITCH: "off" if way == "usual" else "on"}
        variables = {**provider.connection_variables(container), "ansible_python_interpreter": "/usr/bin/python3"}
        self.inventory = folder / "hosts.yml"
        self.inventory.write_text(yaml.safe_dump({"all": {"hosts": {"web": variables}}}), encoding="utf-8")
        self.page = folder / "play.yml"

    def __call__(self, *tasks: dict[str, Any], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``tasks`` in the host "web" (the container's name is a variable)."""
        play = {"hosts": "web", "gather_facts": False, "tasks": list(tasks)}
        self.page.write_text(yaml.safe_dump([play], sort_keys=False), encoding="utf-8")
        return completed(
            ("ansible-playbook", "-i", str(self.inventory), str(self.page)),
            env={**os.environ, **ansible_environment(ROOT), "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"}
            | self.environment
            | environment,
            timeout_s=300,
        )


@pytest.fixture(params=["usual", "served"])
def play(provider: IncusProvider, container: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Play]:
    """Tasks of the container, run by a Python each and by the module server."""
    play = Play(provider, container, tmp_path, request.param)
    yield play
    counted = served(tmp_path)
    assert request.param == "served" or not counted.containers
    if counted.containers:
        assert provider.execute(container, stop_command("/usr/bin/python3")).returncode == 0
    wait_until(lambda: provider.execute(container, ["test", "-e", ROOT_IN_CONTAINER]).returncode == 1)
    wait_until(lambda: provider.execute(container, ["pgrep", "module-server"]).returncode == 1)


SEARCH = r"""
server=$(pgrep module-server) || exit 0
python3 - "$server" "$1" <<'EOF'
import sys
secret = sys.argv[2][::-1].encode()
with open(f"/proc/{sys.argv[1]}/mem", "rb") as memory, open(f"/proc/{sys.argv[1]}/maps") as maps:
    for line in maps:
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if "rw" in line.split()[1]:
            memory.seek(start)
            if secret in memory.read(end - start):
                print("found")
print("searched")
EOF
"""
"""Looks for a text, told backwards, in the memory of the module server."""


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_modules_run_with_facts_and_change_nothing_twice(play: Play) -> None:
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.setup": {"gather_subset": ["min"]}},
        {"ansible.builtin.assert": {"that": ["ansible_facts.distribution == 'Debian'"]}},
        {"ansible.builtin.file": {"path": "/srv/x", "state": "directory", "mode": "0755"}},
        {"ansible.builtin.copy": {"content": "ä\n", "dest": "/srv/x/umlaut", "mode": "0644"}},
        {"ansible.builtin.lineinfile": {"path": "/srv/x/umlaut", "line": "more"}},
    ]
    succeeded(play(*tasks))
    assert "changed=0" in succeeded(play(*tasks[:-2]))


def test_pipelining_leaves_no_files_behind(play: Play, provider: IncusProvider, container: str) -> None:
    provider.execute(container, ["rm", "-rf", "/root/.ansible"])
    succeeded(play({"ansible.builtin.command": "true", "changed_when": False}))
    assert provider.execute(container, ["test", "-e", "/root/.ansible"]).returncode == 1


def test_it_works_without_pipelining_too(play: Play) -> None:
    succeeded(play({"ansible.builtin.command": "true"}, ANSIBLE_PIPELINING="0"))


def test_files_of_any_size_go_in_and_out(play: Play, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(secrets.token_bytes(LARGE_BYTES))
    copy = {"ansible.builtin.copy": {"src": str(source), "dest": "/srv/large", "mode": "0600"}}
    fetch = {"ansible.builtin.fetch": {"src": "/srv/large", "dest": str(target), "flat": True}}
    succeeded(play(copy, fetch))
    assert target.read_bytes() == source.read_bytes()


def test_another_user_can_be_become(play: Play) -> None:
    # nobody has no login shell, and a minimal image no sudo
    become = {"become": True, "become_user": "nobody", "become_method": "su", "become_flags": "-s /bin/sh"}
    done = play(
        {"ansible.builtin.command": "id -un", "register": "who", "changed_when": False, **become},
        {"ansible.builtin.assert": {"that": ["who.stdout == 'nobody'"]}},
        {"ansible.builtin.copy": {"content": "x", "dest": "/run/lock/theirs", "mode": "0600"}, **become},
        {"ansible.builtin.stat": {"path": "/run/lock/theirs"}, "register": "found"},
        {"ansible.builtin.assert": {"that": ["found.stat.pw_name == 'nobody'"]}},
    )
    succeeded(done)


def test_what_was_served_is_counted_and_what_was_not_is_told_with_its_reason(play: Play) -> None:
    command: dict[str, Any] = {"ansible.builtin.command": "true", "changed_when": False}
    tasks = [command, command, {**command, "environment": {"OWN": "1"}}, {**command, "async": 30, "poll": 1}]
    succeeded(play(*tasks))
    counted = served(play.notes)
    if play.environment[SWITCH] == "off":
        assert (counted.served, counted.usual) == (0, {})
        return
    assert counted.served >= 2
    assert counted.usual["an environment of its own"] == 1
    assert counted.usual["not pipelined"] >= 1


def test_a_container_that_hands_out_secrets_by_tasks_keeps_none_in_its_server(
    play: Play, provider: IncusProvider, container: str
) -> None:
    secret = secrets.token_hex(16)
    command = {"ansible.builtin.command": "true", "changed_when": False}
    copy = {"ansible.builtin.copy": {"content": secret, "dest": "/srv/secret", "mode": "0600"}, "no_log": True}
    succeeded(play(command, copy))
    found = provider.execute(container, ["sh", "-c", SEARCH, "sh", secret[::-1]])
    if play.environment[SWITCH] == "off":
        assert found.stdout.split() == []
    else:
        assert found.stdout.split() == [b"searched"], found


def test_a_missing_container_is_unreachable_and_named(provider: IncusProvider, tmp_path: Path) -> None:
    done = Play(provider, "no-such-container", tmp_path)({"ansible.builtin.raw": "true"})
    assert "unreachable=1" in done.stdout
    assert "no-such-container" in done.stdout + done.stderr


def test_where_no_incus_is_it_is_unreachable_and_says_what_to_do(provider: IncusProvider, tmp_path: Path) -> None:
    nowhere = "https://127.0.0.1:1" if provider.endpoint.is_remote else str(tmp_path / "no.socket")
    elsewhere = IncusProvider("box", endpoint=replace(provider.endpoint, address=nowhere))
    done = Play(elsewhere, "one", tmp_path)({"ansible.builtin.raw": "true"})
    assert "unreachable=1" in done.stdout
    advice = "core.https_address :1" if provider.endpoint.is_remote else "provision host prepare"
    assert advice in done.stdout + done.stderr


COPIES = """
import json, sys
from ansible.errors import AnsibleError
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader, init_plugin_loader
init_plugin_loader([])
connection = connection_loader.get("provision_incus", PlayContext(), "/dev/null")
connection.set_options(var_options={"provision_instance": sys.argv[1], **json.loads(sys.argv[2])})
said = []
for copy in (connection.put_file, connection.fetch_file):
    try:
        copy(sys.argv[3], sys.argv[4])
        said.append("copied")
    except AnsibleError as error:
        said.append(str(error))
connection.exec_command("true")
said.append("pylxd" in sys.modules)
print(json.dumps(said))
"""


def copies(provider: IncusProvider, container: str, source: str, target: str) -> list[Any]:
    """What ``put_file`` and ``fetch_file`` say, and whether a connection costs the import of pylxd."""
    done = subprocess.run(
        (sys.executable, "-c", COPIES, container, json.dumps(provider.endpoint.variables), source, target),
        env=os.environ | ansible_environment(ROOT),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    said: list[Any] = json.loads(done.stdout)
    return said


def test_a_failed_copy_is_an_error(provider: IncusProvider, container: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    put, fetched, _ = copies(provider, container, str(source), "/no/such/folder/file")
    assert "Unable to copy a file to /no/such/folder/file" in put
    assert f"Unable to copy {source}" in fetched


def test_a_connection_does_not_import_pylxd(provider: IncusProvider, container: str, tmp_path: Path) -> None:
    assert copies(provider, container, str(tmp_path / "missing"), "/srv/file")[-1] is False
