"""Ansible through our connection plugin for Proxmox, against a real container behind the double's sshd."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.inside.module_server.handing import served, stop_command
from provisioner.values.state import Instance
from tests.doubles.proxmox.fixture import PveHost
from tests.integration.test_connection import Play, succeeded
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus, pytest.mark.proxmox]

LARGE_BYTES = 3_000_000
CANARY = "canary-4712"


@pytest.fixture(scope="module")
def provider(pve_host: PveHost) -> ProxmoxProvider:
    return ProxmoxProvider("box", access=pve_host.access)


@pytest.fixture(scope="module")
def container(provider: ProxmoxProvider) -> Iterator[str]:
    lab = f"t{secrets.token_hex(4)}"
    one = Instance(f"{lab}-one", "box", lab, "debian/12")
    provider.create(one)
    provider.start(one)
    provider.wait_until_ready(one)
    yield one.name
    provider.delete(one)


@pytest.fixture
def play(provider: ProxmoxProvider, container: str, tmp_path: Path) -> Play:
    return Play(provider, container, tmp_path)


def test_a_playbook_runs_and_changes_nothing_twice(play: Play) -> None:
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.setup": {"gather_subset": ["min"]}},
        {"ansible.builtin.assert": {"that": ["ansible_facts.distribution == 'Debian'"]}},
        {"ansible.builtin.service_facts": {}},
        {"ansible.builtin.assert": {"that": ["'systemd-journald.service' in ansible_facts.services"]}},
        {"ansible.builtin.command": {"cmd": "sh -c 'exit 255'"}, "register": "done", "changed_when": False}
        | {"failed_when": "done.rc != 255"},
        {"ansible.builtin.copy": {"content": "ä\n", "dest": "/srv/umlaut", "mode": "0644"}},
        {"ansible.builtin.lineinfile": {"path": "/srv/umlaut", "line": "more"}},
    ]
    succeeded(play(*tasks))
    assert "changed=0" in succeeded(play(*tasks[:-2]))


def test_modules_are_run_by_the_containers_module_server(play: Play, provider: ProxmoxProvider, container: str) -> None:
    command: dict[str, Any] = {"ansible.builtin.command": "true", "changed_when": False}
    succeeded(play(command, command, {**command, "environment": {"OWN": "1"}}))
    counted = served(play.notes)
    assert (counted.served, counted.usual) == (2, {"an environment of its own": 1})
    assert provider.execute(container, stop_command("/usr/bin/python3")).returncode == 0
    wait_until(lambda: provider.execute(container, ["pgrep", "module-server"]).returncode == 1)


def test_every_item_of_a_loop_reaches_the_container(play: Play) -> None:
    looped = {"loop": ["one", "two", "three"], "register": "said", "changed_when": False}
    succeeded(
        play(
            {"ansible.builtin.command": "echo {{ item }}", **looped},
            {"ansible.builtin.copy": {"content": "{{ item }}", "dest": "/srv/{{ item }}", "mode": "0600"}}
            | {"loop": ["one", "two"]},
            {"ansible.builtin.assert": {"that": ["said.results | map(attribute='stdout') == ['one', 'two', 'three']"]}},
        )
    )


def test_what_a_task_is_told_is_no_argument_on_the_node(play: Play, pve_host: PveHost) -> None:
    told = {"environment": {"SECRET": CANARY}}
    done = play(
        {
            "ansible.builtin.command": {"argv": ["sh", "-c", "cat; printenv SECRET"], "stdin": CANARY},
            "changed_when": False,
            **told,
        }
    )
    succeeded(done)
    assert CANARY not in str(pve_host.pct.asked) + str(pve_host.lxc.attached)


def test_it_works_without_pipelining_too(play: Play, provider: ProxmoxProvider, container: str) -> None:
    succeeded(play({"ansible.builtin.command": "true"}, ANSIBLE_PIPELINING="0"))
    provider.execute(container, ["rm", "-rf", "/root/.ansible"])
    succeeded(play({"ansible.builtin.command": "true", "changed_when": False}))
    assert provider.execute(container, ["test", "-e", "/root/.ansible"]).returncode == 1


def test_files_of_any_size_go_in_and_out(play: Play, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(secrets.token_bytes(LARGE_BYTES))
    copy = {"ansible.builtin.copy": {"src": str(source), "dest": "/srv/large", "mode": "0600"}}
    fetch = {"ansible.builtin.fetch": {"src": "/srv/large", "dest": str(target), "flat": True}}
    succeeded(play(copy, fetch))
    assert target.read_bytes() == source.read_bytes()


def test_another_user_can_be_become(play: Play) -> None:
    become = {"become": True, "become_user": "nobody", "become_method": "su", "become_flags": "-s /bin/sh"}
    done = play(
        {"ansible.builtin.command": "id -un", "register": "who", "changed_when": False, **become},
        {"ansible.builtin.assert": {"that": ["who.stdout == 'nobody'"]}},
    )
    succeeded(done)


def test_a_container_that_is_not_there_is_unreachable_and_says_why(play: Play) -> None:
    text = play.inventory.read_text(encoding="utf-8")
    for vmid, said in (("999999", "999999.conf"), ("", "provision_vmid")):
        lines = [f"      provision_vmid: '{vmid}'" if "provision_vmid" in line else line for line in text.splitlines()]
        kept = [line for line in lines if vmid or "provision_vmid" not in line]
        play.inventory.write_text("\n".join(kept), encoding="utf-8")
        done = play({"ansible.builtin.raw": "true"})
        assert "unreachable=1" in done.stdout, done.stdout + done.stderr
        assert said in done.stdout + done.stderr


def test_a_node_whose_key_is_unknown_is_unreachable_and_says_what_to_do(
    play: Play, pve_host: PveHost, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    text = pve_host.ssh.config.read_text(encoding="ascii")
    config.write_text(text.replace("known_hosts", "no_known_hosts"), encoding="ascii")
    inventory = play.inventory.read_text(encoding="utf-8").replace(str(pve_host.ssh.config), str(config))
    play.inventory.write_text(inventory, encoding="utf-8")
    done = play({"ansible.builtin.raw": "true"})
    assert "unreachable=1" in done.stdout
    assert "ssh-keyscan" in done.stdout + done.stderr
