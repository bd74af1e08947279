"""The example of two homes, and the same the other way round: one lab of an engine and its gateway on the other host.

The example's desktop is left out the other way round: its packages take longer than all else. Of Proxmox the API is the
double's; its containers, their systemd, Ansible's work in them and ssh to the node are real. The tests build on each
other, in their order.
"""

from __future__ import annotations

import json
import secrets
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.hosts.base import Provider
from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.values.state import Instance
from tests.doubles.proxmox.fixture import PveHost
from tests.integration.up.quickstart_lab import MASTER_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus, pytest.mark.proxmox]

NAME, ENGINE, GATE, DESK = "twohomes", "twohomes-engine", "twohomes-gate", "twohomes-desk"
PORT, RDP = 18931, 3389
EXAMPLE = Path(__file__).resolve().parents[3] / "examples/two-homes.yml"
UNITS = {ENGINE: "/etc/systemd/system/llama-server.service", GATE: "/etc/systemd/system/litellm.service"}


WAYS = [
    pytest.param({ENGINE: "pve1", GATE: "box"}, id="gateway-on-incus"),
    pytest.param({ENGINE: "box", GATE: "pve1", DESK: "pve1"}, id="as-the-example", marks=pytest.mark.slow),
]
"""The hosts of the containers."""


@pytest.fixture(scope="module", params=WAYS)
def hosts(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where the containers are."""
    found: dict[str, str] = request.param
    return found


@pytest.fixture(scope="module")
def homes(incus_lab: Incus, pve_host: PveHost, hosts: dict[str, str]) -> dict[str, Provider]:
    """The drivers of both hosts, by the containers."""
    assert incus_lab
    drivers = {"box": IncusProvider("box"), "pve1": ProxmoxProvider("pve1", access=pve_host.access)}
    return {name: drivers[host] for name, host in hosts.items()}


@pytest.fixture(scope="module")
def text(pve_host: PveHost, hosts: dict[str, str]) -> str:
    """The example, with the double for the node, and names and a port that nobody else here has."""
    access = pve_host.access
    changes = {
        "name: two-homes": f"name: {NAME}",
        "https://192.168.1.10:8006": access.url,
        "provision@pve": access.user,
        "id: homelab": f"id: {access.token_id}",
        "root@192.168.1.10": str(access.ssh),
        "ca: pve-root-ca.pem": f"ca: {access.ca}",
        "  two-homes-engine:\n    host: box": f"  {ENGINE}:\n    cpu: 1\n    memory: 1GiB\n    host: {hosts[ENGINE]}",
        "  two-homes-gate:\n    host: pve1": f"  {GATE}:\n    host: {hosts[GATE]}",
        "expose: lan, ": "",
        "llama_cpp: { ": f"llama_cpp: {{ port: {PORT}, ",
    }
    text = EXAMPLE.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    before, desk, after = text.partition("  two-homes-desk:\n    host: pve1")
    assert desk
    return f"{before}  {DESK}:\n    host: {hosts[DESK]}{after}" if DESK in hosts else before


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, pve_host: PveHost, text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up; at the end nothing of it is left on either host."""
    assert pve_host.access.token_secret is not None
    environment = {
        **incus_lab.environment,
        "PROVISION_SECRET_PVE1_TOKEN": pve_host.access.token_secret.reveal(),
        "PROVISION_SECRET_PENNY_RDP": secrets.token_urlsafe(12),
        "PROVISION_SSH_CONFIG": str(pve_host.access.ssh_config),
    }
    lab = Lab(tmp_path_factory.mktemp(NAME), environment, "debian/12", "debian/12", name=NAME)
    lab.write(text)
    lab.provision("destroy", "--prune", "--yes", "--lab", NAME)  # what an interrupted run of this test left
    lab.succeeded("up", "--yes")
    yield lab
    lab.succeeded("destroy", "--prune", "--yes", "--lab", NAME)
    assert lab.made() == []
    left = {one.config.get("hostname") for one in pve_host.double.world.guests.values()}
    assert left.isdisjoint({ENGINE, GATE, DESK})


def seen(homes: dict[str, Provider], name: str) -> Instance:
    """One of the containers as its host says it is."""
    found = homes[name].observe(NAME).instance(name)
    assert found is not None
    return found


def planned(lab: Lab) -> dict[str, tuple[str, str]]:
    """The changes of a plan: action and reason, by their targets."""
    ran = lab.succeeded("plan", "--json")
    changes = [one for one in ran.lines if one["type"] == "planned_change"]
    return {one["target"]: (one["action"], one["reason"]) for one in changes}


def answers(homes: dict[str, Provider]) -> bool:
    """Whether the gateway has the engine on the other host answer."""
    body = json.dumps({"model": "fast", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {MASTER_KEY}"}
    url = f"http://{seen(homes, GATE).address}:4000/v1/chat/completions"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(urllib.request.Request(url, body, headers), timeout=60) as answer:
        return bool(json.load(answer)["choices"][0]["message"]["content"])


def test_the_gateway_of_one_home_asks_the_engine_of_the_other(
    lab: Lab, homes: dict[str, Provider], hosts: dict[str, str]
) -> None:
    said = lab.runs[-1].err
    assert f"{ENGINE}/llama_cpp is planned with expose: lan, because {GATE}/litellm on another host needs it" in said
    is_incus = hosts[ENGINE] == "box"
    assert f"{'that of host box' if is_incus else 'own'}, port {PORT}" in said
    shown = [one.properties["listen"] for one in seen(homes, ENGINE).devices if one.kind == "publish"]
    assert shown == ([f"0.0.0.0:{PORT}"] if is_incus else [])
    assert answers(homes)


def test_then_one_command_over_ssh_tells_that_nothing_is_to_be_done(lab: Lab, pve_host: PveHost) -> None:
    logs, commands = set((lab.folder / ".provision/logs").iterdir()), pve_host.ssh.commands
    ran = lab.succeeded("up", "--json")
    assert {line["type"] for line in ran.lines} - {"endpoint"} == {"version", "check", "summary"}
    assert pve_host.ssh.commands == commands + 1
    assert set((lab.folder / ".provision/logs").iterdir()) == logs, "Ansible was not run"


@pytest.mark.slow
def test_status_and_verify_treat_them_alike(lab: Lab, hosts: dict[str, str], homes: dict[str, Provider]) -> None:
    ran = lab.succeeded("status", "--json")
    told = {one["name"]: one for one in ran.lines if one["type"] == "container"}
    assert {name: (one["host"], one["status"], one["drift"]) for name, one in told.items()} == {
        name: (host, "running", []) for name, host in hosts.items()
    }
    assert lab.provision("verify").code == 0
    if DESK in hosts:  # that one can log in there is what its role has proved
        socket.create_connection((str(seen(homes, DESK).address), RDP), timeout=10).close()


@pytest.mark.slow
def test_both_are_changed_while_they_run(lab: Lab, text: str, homes: dict[str, Provider]) -> None:
    more = text.replace("memory: 1GiB", "memory: 1536MiB").replace(f"  {GATE}:", f"  {GATE}:\n    memory: 3GiB")
    lab.write(more)
    assert {target: action for target, (action, _) in planned(lab).items()} == {ENGINE: "update", GATE: "update"}
    lab.succeeded("up", "--yes")
    assert [seen(homes, name).memory for name in (ENGINE, GATE)] == [1536 * 2**20, 3 * 2**30]
    lab.write(text)
    assert lab.provision("up", "--yes").code == 0


@pytest.mark.slow
def test_what_is_changed_by_hand_is_named_on_both_and_mended(lab: Lab, homes: dict[str, Provider]) -> None:
    for name, unit in UNITS.items():
        assert homes[name].execute(name, ["sh", "-c", f"echo '# by hand' >>{unit}"]).returncode == 0
    drifted = planned(lab)
    assert {target: action for target, (action, _) in drifted.items()} == {
        f"{ENGINE}/llama_cpp": "configure",
        f"{GATE}/litellm": "configure",
    }
    assert all(unit in str(drifted) for unit in UNITS.values())
    lab.succeeded("up", "--yes")
    assert planned(lab) == {}


@pytest.mark.slow
def test_a_gateway_whose_engine_is_stopped_has_not_drifted(lab: Lab) -> None:
    assert lab.provision("down", ENGINE, "--yes").code == 0
    told = {one["name"]: one for one in lab.provision("status", "--json").lines if one["type"] == "container"}
    assert (told[ENGINE]["status"], told[GATE]["drift"]) == ("stopped", [])
    assert planned(lab)[ENGINE][0] == "start"
    lab.succeeded("up", "--yes")
    assert planned(lab) == {}


@pytest.mark.slow
def test_both_are_snapshotted_and_rolled_back_by_one_name(lab: Lab, homes: dict[str, Provider]) -> None:
    assert lab.provision("snapshot", "--name", "calm").code == 0
    for name in (ENGINE, GATE):
        assert "calm" in [one.name for one in seen(homes, name).snapshots]
        homes[name].execute(name, ["touch", "/root/after"])
    lab.succeeded("rollback", "--to", "calm", "--yes")
    for name in (ENGINE, GATE):
        assert homes[name].execute(name, ["test", "-e", "/root/after"]).returncode == 1
    wait_until(lambda: lab.provision("verify").code == 0)  # a gateway takes its time until it answers again


def test_what_does_not_prove_itself_takes_both_back(lab: Lab, text: str, homes: dict[str, Provider]) -> None:
    broken = text.replace("model: tiny,", "model: tiny, beside: false, extra_arguments: [--chat-template-file, /none],")
    broken = broken.replace(f"  {GATE}:\n", f"  {GATE}:\n    memory: 3GiB\n")  # it is changed before Ansible begins
    lab.write(broken.replace("litellm: { ", "litellm: { request_timeout: 61, "))
    ran = lab.provision("up", "--yes")
    lab.write(text)
    assert ran.code == 3, ran.out + ran.err
    for name in (ENGINE, GATE):
        assert f"{name}: rolled back to its last verified state" in ran.err
        assert any(one.name.endswith("-failed") for one in seen(homes, name).snapshots)
    assert answers(homes)
    assert planned(lab) == {}
