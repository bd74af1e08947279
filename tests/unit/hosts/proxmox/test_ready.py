"""Waiting for a container: an address that others can use, a system that has started, and why not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, execute
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.guest import address_in
from provisioner.values.errors import ProviderError, ReadyTimeoutError
from provisioner.values.state import Execution, InstanceKind, Status
from tests.doubles.proxmox import Double
from tests.unit.hosts.proxmox.box import driver, guest, memory, wanted


@pytest.fixture
def provider(access: Access) -> ProxmoxProvider:
    made = driver(access)
    made.create(wanted())
    made.start(wanted())
    return made


def test_an_address_that_comes_late_is_waited_for(pve: Double, provider: ProxmoxProvider) -> None:
    """Facts: DHCP containers may answer only with the IPv6 link-local address at first."""
    memory(pve).dhcp_s = 0.6
    ready = provider.wait_until_ready(wanted())
    assert ready.status is Status.RUNNING
    assert ready.address == f"10.0.0.{guest(pve).vmid % 250 + 2}"


def test_one_that_gets_no_address_is_told_with_what_was_seen(pve: Double, provider: ProxmoxProvider) -> None:
    memory(pve).dhcp_s = 1e9
    with pytest.raises(ReadyTimeoutError, match="Unable to start container one") as caught:
        provider.wait_until_ready(wanted(), timeout_s=0.3)
    assert "no usable address on eth0" in caught.value.details
    assert "fe80::" in caught.value.details
    assert "TASK OK" in caught.value.details, "the log of its start"
    assert "DHCP server answer on vmbr0" in caught.value.resolution


def test_of_a_builder_the_page_is_named_that_gives_it_an_address(pve: Double, access: Access) -> None:
    provider, builder = driver(access), wanted(kind=InstanceKind.BUILDER)
    provider.create(builder)
    provider.start(builder)
    memory(pve).dhcp_s = 1e9
    with pytest.raises(ReadyTimeoutError) as caught:
        provider.wait_until_ready(builder, timeout_s=0.3)
    assert "write on the host's page: build: { network: { ip: ADDRESS/PREFIX" in caught.value.resolution


def test_one_that_has_stopped_is_not_waited_for(provider: ProxmoxProvider) -> None:
    provider.stop(wanted())
    with pytest.raises(ReadyTimeoutError) as caught:
        provider.wait_until_ready(wanted(), timeout_s=60)
    assert "It stopped while starting" in caught.value.details


@pytest.mark.parametrize(
    ("ip", "address"), [("192.168.1.50/24", "192.168.1.50"), ("none", None)], ids=["static", "none"]
)
def test_a_card_that_asks_for_nothing_waits_for_nothing(access: Access, ip: str, address: str | None) -> None:
    provider = driver(access)
    one = wanted(settings={"network": {"bridge": "vmbr0", "ip": ip, "firewall": False}})
    provider.create(one)
    provider.start(one)
    assert provider.wait_until_ready(one, timeout_s=5).address == address


def test_a_card_with_ipv6_alone_waits_for_that(access: Access) -> None:
    provider = driver(access)
    one = wanted(settings={"network": {"bridge": "vmbr0", "ip": "none", "ip6": "dhcp", "firewall": False}})
    provider.create(one)
    provider.start(one)
    with pytest.raises(ReadyTimeoutError):
        provider.wait_until_ready(one, timeout_s=0.3)
    assert address_in([{"name": "eth0", "inet6": "fd00::5/64"}], version=6) == "fd00::5"


@pytest.mark.parametrize(
    ("interface", "address"),
    [
        ({"ip-addresses": [{"ip-address": "fe80::1"}, {"ip-address": "10.0.0.5"}]}, "10.0.0.5"),
        ({"ip-addresses": [{"ip-address": "169.254.7.7"}]}, None),
        ({"inet": "10.0.0.6/24", "inet6": "fe80::1/64"}, "10.0.0.6"),
        ({"inet6": "fd00::1/64"}, None),
        ({"inet": "127.0.0.1/8"}, None),
        ({"inet": "nonsense"}, None),
        ({}, None),
    ],
)
def test_only_an_address_that_others_can_use_counts(interface: dict[str, object], address: str | None) -> None:
    """PVE 8 shows the last address of each family only."""
    other = {"name": "docker0", "inet": "172.17.0.1/16"}
    assert address_in([other, {"name": "eth0", **interface}]) == address
    assert address_in(None) is None


class System:
    """What systemd in the container answers, one after the other; the last one again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Execution | ProviderError) -> None:
        self.answers = list(answers)
        self.asked = 0
        monkeypatch.setattr(execute, "execute", self.execute)

    def execute(self, _shell: object, _vmid: int, command: Sequence[str], **_: object) -> Execution:
        """The next answer."""
        assert list(command)[:2] == ["sh", "-c"]
        assert "systemctl is-system-running" in command[2]
        self.asked += 1
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, ProviderError):
            raise found
        return found


@pytest.mark.usefixtures("provider")
def test_with_ssh_its_system_is_asked_until_it_has_started(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    early = Execution(1, b"", b"Failed to connect to bus: No such file or directory")
    system = System(monkeypatch, ProviderError("not yet"), early, Execution(1, b"degraded\n", b""))
    driver(access, ssh="root@pve1").wait_until_ready(wanted())
    assert system.asked == 3


@pytest.mark.usefixtures("provider")
def test_a_system_that_does_not_start_is_told_with_what_it_waits_for(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    System(monkeypatch, Execution(0, b"starting\n12 slow.service start running\n13 late.target start waiting\n", b""))
    chosen = driver(access, ssh="root@pve1")
    said: list[str] = []
    chosen.on_progress = lambda _name, message: said.append(message)
    with pytest.raises(ReadyTimeoutError) as caught:
        chosen.wait_until_ready(wanted(), timeout_s=0.6)
    assert "its system is still: starting (slow.service)" in caught.value.details
    assert "its system is still starting (slow.service)" in said
    assert "systemctl list-jobs" in caught.value.resolution


@pytest.mark.usefixtures("provider")
def test_a_system_without_systemd_has_started(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    System(monkeypatch, Execution(127, b"", b"systemctl: not found"))
    assert driver(access, ssh="root@pve1").wait_until_ready(wanted(), timeout_s=5).address
