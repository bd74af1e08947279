"""Ansible straight to a container's own sshd: what it is told, whose keys are known, and what keeps us out."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, execute
from provisioner.hosts.proxmox.access import Access, Direct
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.state import Execution
from tests.doubles.proxmox import Double
from tests.unit.hosts.proxmox.box import driver, guest, wanted
from tests.unit.hosts.proxmox.nearby import Nearby, nearby

__all__ = ["nearby"]  # fixture

KEYS = "ssh-ed25519 AAAAed root@one\n# noise\necdsa-sha2-nistp256 AAAAec root@one\n"
CHANGED = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n"


class Inside:
    """What is run in the container, and what it answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[list[str]] = []
        self.answer = Execution(0, KEYS.encode(), b"")
        monkeypatch.setattr(execute, "execute", self._execute)

    def _execute(self, _shell: object, _vmid: int, command: list[str], **_options: Any) -> Execution:
        self.commands.append(command)
        return self.answer


@pytest.fixture
def within(monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a name that ssh would take apart."""
    return tmp_path / "a lab %h"


@pytest.fixture
def provider(pve: Double, access: Access, nearby: Nearby, within: Inside, folder: Path) -> ProxmoxProvider:
    """Of a container that runs and whose own sshd is used."""
    assert nearby
    assert within
    made = driver(access, ssh="root@pve1", direct=Direct(folder, {"one": "ssh", "two": "jump"}))
    for name in ("one", "two", "three"):
        made.create(wanted(name))
        pve.world.containers.dhcp_s = 0  # type: ignore[attr-defined]
        made.client.post(*made.path(guest(pve, name).vmid, "status", "start"))
    made.settle(guest(pve).vmid, "one")
    return made


def with_direct(provider: ProxmoxProvider, **changes: Any) -> None:
    assert provider.access.direct is not None
    provider.access = dataclasses.replace(
        provider.access, direct=dataclasses.replace(provider.access.direct, **changes)
    )


def test_ansible_is_led_straight_to_it_and_only_what_shows_its_key_is_believed(
    pve: Double, provider: ProxmoxProvider, folder: Path
) -> None:
    found = provider.connection_variables("one")
    assert found["ansible_connection"] == "ssh"
    assert found["ansible_host"] == f"10.0.0.{guest(pve).vmid % 250 + 2}"
    assert (found["ansible_user"], found["provision_instance"]) == ("root", "one")
    options = shlex.split(found["ansible_ssh_args"])
    assert {"-F/dev/null", "-oStrictHostKeyChecking=yes", "-oHostKeyAlias=one", "-oBatchMode=yes"} <= set(options)
    told = subprocess.run(
        ["/usr/bin/ssh", "-G", *options, "10.0.0.1"], capture_output=True, text=True, check=True, timeout=60
    )
    assert f"userknownhostsfile {folder / 'one.known_hosts'}\n" in told.stdout
    assert "stricthostkeychecking true\n" in told.stdout
    text = (folder / "one.known_hosts").read_text(encoding="ascii")
    assert text == "one ssh-ed25519 AAAAed\none ecdsa-sha2-nistp256 AAAAec\n"


def test_the_labs_own_key_is_made_once_and_let_in(provider: ProxmoxProvider, within: Inside, folder: Path) -> None:
    provider.connection_variables("one")
    key = (folder / "id_ed25519").read_bytes()
    provider.connection_variables("one")
    assert (folder / "id_ed25519").read_bytes() == key
    assert (folder / "id_ed25519").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    (*_, blob, public), again = within.commands
    assert public == f"{blob} provision"
    assert again[-1] == public
    assert key.decode() not in str(within.commands)


def test_each_run_shares_a_connection_of_its_own(provider: ProxmoxProvider) -> None:
    paths = {provider.connection_variables("one")["ansible_control_path"] for _ in range(2)}
    assert len(paths) == 2
    assert all(one.startswith("%(directory)s/") for one in paths)


def test_a_key_that_the_file_names_is_used(provider: ProxmoxProvider, within: Inside, tmp_path: Path) -> None:
    key = tmp_path / "mine"
    key.write_text("private", encoding="ascii")
    key.with_name("mine.pub").write_text("ssh-ed25519 AAAAmine me@home\n", encoding="ascii")
    with_direct(provider, key=key)
    assert f'IdentityFile="{key}"' in provider.connection_variables("one")["ansible_ssh_args"]
    assert within.commands[-1][-2:] == ["ssh-ed25519 AAAAmine", "ssh-ed25519 AAAAmine me@home"]


def test_a_key_that_is_none_is_refused(provider: ProxmoxProvider, tmp_path: Path) -> None:
    key = tmp_path / "mine"
    key.write_text("no key", encoding="ascii")
    key.chmod(0o600)
    with_direct(provider, key=key)
    with pytest.raises(PreflightError, match="Unable to use the key in") as caught:
        provider.connection_variables("one")
    assert "ssh_key:" in caught.value.resolution


def test_it_jumps_through_the_node_only_where_that_is_said(provider: ProxmoxProvider) -> None:
    assert "ProxyCommand" not in provider.connection_variables("one")["ansible_ssh_args"]
    options = shlex.split(provider.connection_variables("two")["ansible_ssh_args"])
    (proxy,) = (one.partition("=")[2] for one in options if one.startswith("-oProxyCommand="))
    words = shlex.split(proxy)
    assert words[0] == "ssh"
    assert words[-4:] == ["-W", "[%h]:%p", "--", "root@pve1"]
    assert "-oStrictHostKeyChecking=yes" in words


def test_others_of_the_host_go_by_their_node(provider: ProxmoxProvider, within: Inside) -> None:
    assert provider.connection_variables("three")["ansible_connection"] == "provision_proxmox"
    assert within.commands == []


@pytest.mark.parametrize(
    ("answer", "said", "todo"),
    [
        (Execution(3, b"", b""), "There is no sshd in it.", "apt-get install openssh-server"),
        (Execution(1, b"", b"cat: /etc/ssh/ssh_host_*_key.pub: No such file"), "No such file", "ssh-keygen -A"),
        (Execution(0, b"nonsense\n", b""), "nonsense", ""),
    ],
)
def test_a_container_that_is_not_ready_for_ssh_is_refused(
    provider: ProxmoxProvider, within: Inside, answer: Execution, said: str, todo: str
) -> None:
    within.answer = answer
    with pytest.raises(ProviderError, match="Unable to") as caught:
        provider.connection_variables("one")
    assert said in caught.value.details
    assert todo in caught.value.resolution


@pytest.mark.parametrize(
    ("said", "todo"),
    [
        (CHANGED, "shows none of the keys in /etc/ssh/ssh_host_*_key.pub"),
        ("No ED25519 host key is known for one\n", "shows none of the keys"),
        ("root@10.0.0.1: Permission denied (publickey).\n", "PermitRootLogin prohibit-password"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection refused\n", "systemctl enable --now ssh"),
        ("ssh: connect to host 10.0.0.1 port 22: No route to host\n", "transport: jump"),
        ("Bad things\n", "transport: pct"),
    ],
)
def test_what_keeps_us_out_is_told_with_what_to_do(
    provider: ProxmoxProvider, nearby: Nearby, said: str, todo: str
) -> None:
    provider.ssh.open()
    nearby.says(said)
    nearby.fails(255)
    with pytest.raises(ProviderError, match=r"Unable to reach container one at 10\.0\.0\.\d+ by ssh") as caught:
        provider.connection_variables("one")
    assert said.strip() in caught.value.details
    assert todo in caught.value.resolution


def test_without_an_address_or_stopped_it_is_refused(pve: Double, provider: ProxmoxProvider) -> None:
    pve.world.containers.dhcp_s = 3600  # type: ignore[attr-defined]
    with pytest.raises(ProviderError, match="by its own sshd") as caught:
        provider.connection_variables("one")
    assert "no address" in caught.value.details
    provider.stop(wanted("one"))
    with pytest.raises(ProviderError, match="by its own sshd") as caught:
        provider.connection_variables("one")
    assert caught.value.details == "It does not run."
