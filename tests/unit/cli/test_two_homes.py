"""One file for an Incus and a Proxmox: what each host's containers are told of the other's, and when."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Self

import pytest
import yaml

from provisioner.hosts.fake import FakeProvider
from provisioner.reconcile import addresses
from provisioner.reconcile.runner import TaskEvent
from provisioner.values import paths
from provisioner.values.errors import PreflightError
from provisioner.values.state import Status
from tests.case_files import read_cases
from tests.snapshots import case_name
from tests.unit.cli.conftest import World

CASES = read_cases("cli/two_homes")

FILE: str = CASES["file"]
BACK = FILE.replace("host: box\n    services: { litellm", "host: pve1\n    services: { litellm")
"""The same with the gateway on Proxmox: then it is Incus that has to show an engine to the LAN."""


@pytest.fixture
def pve1(world: World, monkeypatch: pytest.MonkeyPatch) -> FakeProvider:
    Path("homelab.yml").write_text(FILE, encoding="utf-8")
    monkeypatch.setenv("PROVISION_SECRET_PVE", "secret-of-root")
    return world.add_host("pve1")


def bases(world: World) -> dict[str, str]:
    """Where the gateway was told that engines are, by their names, in the last run of ``site.yml``."""

    class Loader(yaml.SafeLoader):
        """Takes what is tagged as text."""

    Loader.add_constructor("!unsafe", lambda _loader, node: str(node.value))
    last = next(one for one in reversed(world.inventories) if "service_litellm" in one)
    (host,) = yaml.load(last, Loader)["all"]["children"]["service_litellm"]["hosts"].values()  # noqa: S506
    return {one["model_name"]: one["api_base"] for one in host["litellm_routes"]["deployments"] if "order" not in one}


def planned(world: World, *arguments: str) -> dict[str, str]:
    ran = world.done("plan", "--json", *arguments)
    return {f"{one['action']} {one['target']}": one["reason"] for one in ran.of("planned_change")}


def up(world: World, *arguments: str) -> None:
    world.done("up", "--yes", *arguments)


def test_an_engine_on_proxmox_is_reached_at_its_own_address(world: World, pve1: FakeProvider) -> None:
    assert world.command("plan").after_plan == world.snapshot
    up(world)
    address = pve1.containers["llama"].instance.address
    assert bases(world) == {"far": f"http://{address}:8080/v1", "near": "http://spare.incus:8080/v1"}
    assert pve1.containers["llama"].instance.devices == tuple(
        one for one in pve1.containers["llama"].instance.devices if one.kind == "volume"
    )
    assert planned(world) == {}


def test_an_engine_on_incus_is_shown_at_the_address_of_its_host(world: World, pve1: FakeProvider) -> None:
    Path("homelab.yml").write_text(BACK.replace("{ incus: local }", "{ incus: local, address: 192.168.1.5 }"))
    assert world.command("plan").after_plan == world.snapshot
    up(world)
    assert bases(world)["near"] == "http://192.168.1.5:8080/v1"
    assert bases(world)["far"] == f"http://{pve1.containers['llama'].instance.address}:8080/v1", "names need a DNS"
    shown = [one.properties for one in world.host.containers["spare"].instance.devices if one.kind == "publish"]
    assert shown == [{"listen": "0.0.0.0:8080", "connect": "127.0.0.2:8080", "proxy_protocol": "true"}]
    assert planned(world) == {}


FAR = "https://box.lan:8443"


def elsewhere(url: str, more: str = "") -> str:
    """The file whose engine is shown by an Incus elsewhere, at ``url``."""
    return BACK.replace("{ incus: local }", f'{{ incus: "{url}", fingerprint: "{"ab" * 32}"{more} }}')


@pytest.mark.usefixtures("pve1")
def test_an_engine_on_an_incus_elsewhere_is_shown_where_its_api_is(world: World) -> None:
    Path("homelab.yml").write_text(elsewhere(FAR), encoding="utf-8")
    up(world)
    assert bases(world)["near"] == "http://box.lan:8080/v1"


@pytest.mark.usefixtures("pve1")
@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:8443", "https://localhost:8443", "https://[::1]:8443", "https://[fd00::1]:8443"],
    ids=case_name,
)
def test_an_api_s_address_that_others_cannot_use_is_refused(world: World, url: str) -> None:
    Path("homelab.yml").write_text(elsewhere(url), encoding="utf-8")
    assert world.command("plan").ended(4) == world.snapshot
    Path("homelab.yml").write_text(elsewhere(url, ", address: box.lan"), encoding="utf-8")
    up(world)
    assert bases(world)["near"] == "http://box.lan:8080/v1"


def test_an_engine_that_got_another_address_is_told_to_the_gateway(world: World, pve1: FakeProvider) -> None:
    up(world)
    box = pve1.containers["llama"]
    box.instance = dataclasses.replace(box.instance, address="192.0.2.77")
    assert planned(world) == {"configure gateway/litellm": "routes changed in the file"}
    up(world)
    assert bases(world)["far"] == "http://192.0.2.77:8080/v1"


def test_a_gateway_has_not_drifted_because_its_engine_is_stopped(world: World, pve1: FakeProvider) -> None:
    up(world)
    assert world.command("down", "llama", "--yes").code == 0
    assert pve1.containers["llama"].instance.address is None
    told = {one["name"]: one["drift"] for one in world.command("status", "--json").of("container")}
    assert told["gateway"] == []
    assert planned(world, "gateway") == {}
    assert planned(world)["configure gateway/litellm"] == "the address of llama is known once it runs"
    runs = len(world.inventories)
    up(world)
    assert len(world.inventories) == runs, "it came back at the address that it had"
    assert planned(world) == {}


def test_an_engine_that_comes_back_at_another_address_is_told_in_the_same_run(world: World, pve1: FakeProvider) -> None:
    up(world)
    assert world.command("down", "llama", "--yes").code == 0
    pve1.containers["ahead"] = dataclasses.replace(pve1.containers["llama"])  # who comes first gets the first address
    up(world)
    address = pve1.containers["llama"].instance.address
    assert address == "192.0.2.3"
    assert bases(world)["far"] == f"http://{address}:8080/v1"
    assert planned(world) == {}


def test_who_has_never_seen_it_run_says_why_the_gateway_is_not_as_it_was(world: World, pve1: FakeProvider) -> None:
    up(world)
    Path(".provision/addresses.json").write_text("{", encoding="utf-8")
    pve1.containers["llama"].instance = dataclasses.replace(
        pve1.containers["llama"].instance, status=Status.STOPPED, address=None
    )
    assert planned(world)["configure gateway/litellm"].startswith("routes changed")


def test_an_engine_made_anew_has_its_gateway_configured_in_the_same_run(world: World, pve1: FakeProvider) -> None:
    up(world)
    del pve1.containers["llama"]
    reason = planned(world)["configure gateway/litellm"]
    assert reason.startswith("routes changed")
    assert "the address of llama is known once it runs" in reason


def test_an_address_that_nobody_will_know_is_refused_before_anything_is_touched(
    world: World, pve1: FakeProvider
) -> None:
    assert world.command("up", "--yes", "gateway").ended(4) == world.snapshot
    assert not world.host.containers
    assert not pve1.containers


def test_what_was_changed_together_goes_back_together_on_both_hosts(world: World, pve1: FakeProvider) -> None:
    up(world)
    Path("homelab.yml").write_text(
        FILE.replace("model: far,", "model: far, context: 512,").replace(
            "litellm: {", "litellm: { request_timeout: 61,"
        )
    )
    world.changes = {"llama": 1, "gateway": 1}
    world.failures["site.yml"] = (
        TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : verify | Ask", "it is silent"),
    )
    assert world.command("up", "--yes").ended(3) == world.snapshot
    for name, host in (("llama", pve1), ("gateway", world.host)):
        assert any(one.endswith("-failed") for one in host.containers[name].states)


def test_the_file_alone_tells_what_is_exposed_and_for_whom(world: World, pve1: FakeProvider) -> None:
    pve1.available = world.host.available = False
    assert world.command("graph").printed == world.snapshot
    nodes = {one["name"]: one for one in world.command("graph", "--json").of("result")[0]["nodes"]}
    assert [one["needed_by"] for one in nodes["llama"]["services"]] == [["gateway/litellm"]]
    shown = yaml.safe_load(world.command("show").out)["containers"]
    assert {name: one["services"]["llama_cpp"]["expose"] for name, one in shown.items() if name != "gateway"} == {
        "llama": "lan",
        "spare": "host",
    }
    expanded = yaml.safe_load(world.command("show", "--expanded").out)["instances"]
    told = {one["name"]: [(s["expose"], s.get("needed_by")) for s in one["services"]] for one in expanded}
    assert told == {"llama": [("lan", ["gateway/litellm"])], "spare": [("host", None)], "gateway": [("host", None)]}


def test_the_example_is_valid(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PVE1_TOKEN", "ENGINE_KEY", "MASTER_KEY", "PENNY_RDP"):
        monkeypatch.setenv(f"PROVISION_SECRET_{name}", "sk-x-canary")
    Path("two-homes.yml").write_bytes((paths.playbooks().parent / "examples/two-homes.yml").read_bytes())
    assert world.command("validate", "two-homes.yml").code == 0


@pytest.mark.usefixtures("pve1")
def test_what_the_lan_sees_needs_a_key(world: World) -> None:
    Path("homelab.yml").write_text(FILE.replace("model: far, api_key: !secret engine_key", "model: far"))
    assert world.command("validate").ended(64) == world.snapshot


def test_this_machines_address_is_that_on_the_way_to_the_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {"192.168.1.10": "192.168.1.5", addresses.ANYWHERE: "10.8.0.2", "127.0.0.1": "127.0.0.1"}

    class Way:
        """A socket that only knows the way."""

        def __init__(self, *_: object) -> None:
            self.name = ""

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def connect(self, to: tuple[str, int]) -> None:
            if to[0] not in ways:
                raise OSError(101, "Network is unreachable")
            self.name = ways[to[0]]

        def getsockname(self) -> tuple[str, int]:
            return self.name, 9

    monkeypatch.setattr("socket.socket", Way)
    assert addresses.own_address("192.168.1.10", "box") == "192.168.1.5"
    assert addresses.own_address("127.0.0.1", "box") == "10.8.0.2", "nobody else reaches us at ourselves"
    ways.clear()
    with pytest.raises(PreflightError, match=r"no way to 192\.168\.1\.10") as caught:
        addresses.own_address("192.168.1.10", "box")
    assert "address: 192.168.1.5" in caught.value.resolution


TURNS: str = CASES["turns"]


def test_those_who_take_turns_on_proxmox_learn_each_others_address(world: World, pve1: FakeProvider) -> None:
    Path("homelab.yml").write_text(TURNS, encoding="utf-8")
    up(world)
    chat, code = (pve1.containers[name].instance.address for name in ("chat", "code"))
    assert chat != code
    told = world.inventories[-1]
    assert f"http://{chat}:8080" in told
    assert f"http://{code}:8080" in told
    assert planned(world) == {}
    pve1.containers["code"].instance = dataclasses.replace(pve1.containers["code"].instance, address="10.0.0.99")
    assert planned(world) == {"configure chat/llama_cpp": "share changed in the file"}
