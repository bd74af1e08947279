"""The module on a double of Proxmox VE: the same observe, plan and apply as for Incus, in the file's words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from provisioner.ansible.modules.provision_container import (
    HOST,
    HOST_OPTIONS,
    OPTIONS,
    provider_of,
    run,
    wanted_instance,
)
from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.incus.api import Endpoint
from provisioner.labfile.hosts import IncusHost, ProxmoxHost
from provisioner.values.errors import InputError, PreflightError
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.fixture import pve

__all__ = ["pve"]

DEFAULTS = {name: option.get("default") for name, option in OPTIONS.items()}
NO_PAGE: dict[str, Any] = dict.fromkeys(HOST_OPTIONS)
SECRET = "canary-token-1b2c"


@pytest.fixture
def page(pve: Double) -> dict[str, Any]:
    """The host as the module is told of it: every option is there, None for those that were left out."""
    secret = pve.world.access.add_token("root@pam", "ci", privsep=False)
    token = {"id": "ci", "secret": secret}
    return {**NO_PAGE, "proxmox": pve.url, "user": "root@pam", "token": token, "ca": str(pve.ca)}


def options(page: dict[str, Any], **given: Any) -> dict[str, Any]:
    return {**DEFAULTS, "name": "web", "lab": "lab", "image": "debian/12", "host": page, **given}


class Task:
    """The module's run, and what it warned of."""

    def __init__(self, page: dict[str, Any]) -> None:
        self.page = page
        self.warnings: list[str] = []

    def __call__(self, *, check: bool = False, **given: Any) -> dict[str, Any]:
        params = options(self.page, **given)
        module = SimpleNamespace(params=params, check_mode=check, warn=self.warnings.append)
        answer: dict[str, Any] = run(module, provider_of(params))
        return answer


@pytest.fixture
def task(page: dict[str, Any]) -> Task:
    return Task(page)


def test_a_container_is_made_changed_and_deleted(pve: Double, task: Task) -> None:
    block = {"vmid": 150, "network": {"ip": "192.168.1.50/24", "gateway": "192.168.1.1"}, "tags": ["web"]}
    planned = task(check=True, cpu=2, memory="1GiB", proxmox=block)
    assert planned["changed"] is True
    assert pve.world.guests == {}, "check mode changes nothing"
    made = task(cpu=2, memory="1GiB", proxmox=block)
    assert made["diff"] == planned["diff"]
    assert made["instance"]["status"] == "running"
    config = pve.world.guests[150].config
    assert (config["hostname"], config["cores"], config["memory"]) == ("web", "2", "1024")
    assert "ip=192.168.1.50/24" in config["net0"]
    assert task(cpu=2, memory="1GiB", proxmox=block)["changed"] is False
    changed = task(cpu=2, memory="2GiB", proxmox={**block, "onboot": False})
    assert "onboot: True" in changed["diff"][0]["before"]
    assert pve.world.guests[150].config["memory"] == "2048"
    assert task(state="absent")["changed"] is True
    assert pve.world.guests == {}


def test_one_that_a_lab_holds_to_what_it_reaches_stays_held(pve: Double, task: Task, page: dict[str, Any]) -> None:
    pve.world.firewall.options["enable"] = 1
    behind = {"vmid": 150, "network": {"firewall": True}}
    task(proxmox=behind)
    provider = provider_of(options(page))
    held = replace(wanted_instance(options(page, proxmox=behind)), reaches=("192.168.1.20:443",))
    provider.network.confine(held)
    assert task(proxmox={"vmid": 150})["changed"] is False
    provider.network.confine(replace(held, reaches=None))
    assert task(proxmox={"vmid": 150})["changed"] is True, "nobody holds it any more"
    assert "firewall" not in pve.world.guests[150].config["net0"]


def test_one_that_is_nobody_s_is_adopted_only_when_that_was_said(pve: Double, task: Task) -> None:
    pve.world.add_guest(105, "pve1", hostname="web")
    with pytest.raises(PreflightError, match="the name is taken"):
        task(state="present")
    assert task(state="present", adopt=True, check=True)["changed"] is True
    assert "provisioner" not in pve.world.guests[105].config.get("tags", "")
    answer = task(state="present", adopt=True)
    assert "adopt" in answer["diff"][0]["after_header"]
    assert "provisioner" in pve.world.guests[105].config["tags"]
    assert task(state="present", adopt=True)["changed"] is False


def test_what_only_root_may_do_is_refused_before_anything_is_made(pve: Double, task: Task) -> None:
    with pytest.raises(PreflightError, match="root@pam"):
        task(proxmox={"features": ["keyctl"]})
    assert pve.world.guests == {}


def test_ports_are_not_published_on_proxmox(task: Task) -> None:
    device = {**dict.fromkeys(("name", "volume", "path", "protocol")), "readonly": True, "kind": "publish"}
    with pytest.raises(PreflightError, match="Unable to publish publish-443"):
        task(devices=[{**device, "listen": "0.0.0.0:443", "connect": "127.0.0.1:80"}])


def test_what_a_file_would_refuse_is_refused_in_its_words_and_no_secret_is_said(page: dict[str, Any]) -> None:
    page = {**page, "token": {"id": "ci", "secret": SECRET}, "proxmox": "http://x"}
    with pytest.raises(InputError) as caught:
        wanted_instance(options(page, proxmox={"network": {"vlan": 5000}, "swop": "1GiB"}))
    said = str(caught.value)
    for words in ("hosts.localhost.proxmox: http:// would send", "network.vlan", 'Did you mean "swap"?'):
        assert words in said or words.lower() in said.lower(), said
    assert SECRET not in said


def test_the_options_of_a_host_are_those_of_the_file() -> None:
    not_for_making = {
        "transport",
        "ssh_key",
        "share",
        "share_key",
        "build",
    }  # the module neither goes into containers nor uses cards, and builds nothing
    written = set(ProxmoxHost.model_fields) | set(IncusHost.model_fields)
    assert set(HOST_OPTIONS) == written - not_for_making
    assert HOST_OPTIONS["password"]["no_log"] is True
    assert HOST_OPTIONS["token"]["options"]["secret"]["no_log"] is True
    assert HOST == "localhost"


def test_an_incus_elsewhere_is_reached_as_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    page = {**NO_PAGE, "incus": "https://far:8443/", "fingerprint": "AB" * 32}
    provider = cast("IncusProvider", provider_of(options(page)))
    own = tmp_path / "provisioner"
    assert provider.endpoint == Endpoint(
        "https://far:8443", str(own / "client.crt"), str(own / "client.key"), "ab" * 32
    )
    named = cast("IncusProvider", provider_of(options({**page, "cert": "/srv/c.crt", "key": "/srv/c.key"})))
    assert (named.endpoint.cert, named.endpoint.key) == ("/srv/c.crt", "/srv/c.key")
    assert wanted_instance(options(page)).settings == {}
    with pytest.raises(InputError, match="its host is no Proxmox"):
        wanted_instance(options(page, proxmox={"vmid": 150}))
