"""A lab on Proxmox from nothing to an answering model: changed, drifted, mended, broken, rolled back, destroyed.

The API is the double's; the containers, their systemd, Ansible's work in them and ssh to the node are real.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.values.state import Instance
from tests.doubles.proxmox.fixture import PveHost
from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus]

NAME, ENGINE, COPY = "pveup", "pveup-engine", "pveup-copy"
FILE = lab_text("proxmox")


@pytest.fixture(scope="module")
def provider(pve_host: PveHost) -> ProxmoxProvider:
    """The node's driver."""
    return ProxmoxProvider("pve1", access=pve_host.access)


@pytest.fixture(scope="module")
def text(pve_host: PveHost) -> str:
    """The file."""
    return FILE.format(page=pve_host.page)


@pytest.fixture(scope="module")
def lab(pve_host: PveHost, text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up."""
    environment = {
        "PROVISION_SECRET_PVE_TOKEN": _token(pve_host),
        "PROVISION_SSH_CONFIG": str(pve_host.access.ssh_config),
    }
    lab = Lab(tmp_path_factory.mktemp(NAME), environment, "debian/12", "debian/12", name=NAME)
    lab.write(text)
    lab.succeeded("up", "--yes")
    yield lab
    lab.succeeded("destroy", "--prune", "--yes", "--lab", NAME)


def _token(pve_host: PveHost) -> str:
    assert pve_host.access.token_secret is not None
    return pve_host.access.token_secret.reveal()


def _engine(provider: ProxmoxProvider, name: str = ENGINE) -> Instance:
    found = provider.observe(NAME).instance(name)
    assert found is not None
    return found


def _address(provider: ProxmoxProvider, name: str) -> str:
    return str(_engine(provider, name).address)


def _said(provider: ProxmoxProvider, name: str, script: str) -> str:
    done = provider.execute(name, ["sh", "-ec", script])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def _started(provider: ProxmoxProvider, name: str) -> str:
    """When its server was started, and as which process."""
    return _said(provider, name, "systemctl show -p ActiveEnterTimestampMonotonic,MainPID llama-server")


def _command(provider: ProxmoxProvider, name: str) -> str:
    return _said(provider, name, "cat /proc/$(systemctl show -p MainPID --value llama-server)/cmdline")


def _answers(provider: ProxmoxProvider, name: str = ENGINE) -> bool:
    """Whether the model answers at the address that the container has in the LAN."""
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ENGINE_KEY}"}
    url = f"http://{_engine(provider, name).address}:8080/v1/chat/completions"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(urllib.request.Request(url, body, headers), timeout=60) as answer:
        return bool(json.load(answer)["choices"][0]["message"]["content"])


def _planned(lab: Lab) -> list[tuple[str, str, str]]:
    ran = lab.succeeded("plan", "--json")
    return [(one["target"], one["action"], one["reason"]) for one in ran.lines if one["type"] == "planned_change"]


def test_it_answers_and_is_what_the_file_says(lab: Lab, provider: ProxmoxProvider, pve_host: PveHost) -> None:
    assert _answers(provider)
    vmid = provider.vmid(ENGINE, ENGINE)
    config = pve_host.double.world.guests[vmid].config
    assert {"cores": "1", "memory": "1024", "startup": "order=2", "onboot": "1", "unprivileged": "1"}.items() <= (
        config.items()
    )
    assert "ai" in config["tags"].split(";")
    assert config["description"].startswith("An engine\n")
    assert all("backup=0" in value for option, value in config.items() if option.startswith("mp"))
    assert lab.provision("verify").code == 0


def test_then_there_is_nothing_to_do_and_one_command_tells(lab: Lab, pve_host: PveHost) -> None:
    before, commands = set((lab.folder / ".provision/logs").iterdir()), pve_host.ssh.commands
    attached, by_pct = len(pve_host.lxc.attached), len(pve_host.pct.asked)
    ran = lab.provision("up", "--json")
    assert pve_host.ssh.commands == commands + 1
    entered = [words[1] for words in pve_host.lxc.attached[attached:]]
    assert entered == list(dict.fromkeys(entered)) != [], "each container is entered once"
    assert len(pve_host.pct.asked) == by_pct
    assert ran.code == 0, ran.err
    assert {line["type"] for line in ran.lines} - {"endpoint"} == {"version", "check", "summary"}
    assert set((lab.folder / ".provision/logs").iterdir()) == before, "Ansible was not run"


def test_more_memory_needs_no_other_container(lab: Lab, text: str, provider: ProxmoxProvider) -> None:
    vmid = provider.vmid(ENGINE, ENGINE)
    lab.write(text.replace("memory: 1GiB", "memory: 1536MiB"))
    assert [one[:2] for one in _planned(lab)] == [(ENGINE, "update")]
    lab.succeeded("up", "--yes")
    assert provider.vmid(ENGINE, ENGINE) == vmid
    assert _engine(provider).memory == 1536 * 2**20
    lab.write(text)
    assert lab.provision("up", "--yes").code == 0


def test_what_is_changed_by_hand_is_named_and_mended(lab: Lab, provider: ProxmoxProvider) -> None:
    provider.execute(ENGINE, ["sh", "-c", "echo '# by hand' >> /etc/systemd/system/llama-server.service"])
    ((target, action, reason),) = _planned(lab)
    assert (target, action) == (f"{ENGINE}/llama_cpp", "configure")
    assert "/etc/systemd/system/llama-server.service" in reason
    lab.succeeded("up", "--yes")
    assert _planned(lab) == []
    assert _answers(provider)


def test_what_does_not_prove_itself_is_rolled_back(lab: Lab, text: str, provider: ProxmoxProvider) -> None:
    lab.write(
        text.replace("model: tiny,", "model: tiny, beside: false, extra_arguments: [--chat-template-file, /none],")
    )
    ran = lab.provision("up", "--yes")
    assert ran.code == 3, ran.out + ran.err
    assert f"{ENGINE}: rolled back to its last verified state" in ran.err
    assert "works again" in ran.err
    assert _answers(provider)
    assert any(one.name.endswith("-failed") for one in _engine(provider).snapshots)
    lab.write(text)
    assert _planned(lab) == []


def test_another_option_is_tried_in_a_copy_which_is_gone_again_afterwards(
    lab: Lab, text: str, provider: ProxmoxProvider, pve_host: PveHost
) -> None:
    guests, vmid = pve_host.double.world.guests, provider.vmid(ENGINE, ENGINE)
    config, started = dict(guests[vmid].config), _started(provider, ENGINE)
    made = lab.succeeded("clone", ENGINE, COPY, "--set", "services.llama_cpp.ubatch=128", "--yes")
    assert f"{COPY} is a copy of {ENGINE} with services.llama_cpp.ubatch=128, and has proved itself" in made.out
    written = (lab.folder / "homelab.yml").read_text(encoding="utf-8")
    assert f"  {COPY}:\n    copy_of: {ENGINE}\n" in written
    assert [name for name in (ENGINE, COPY) if "--ubatch-size\x00128" in _command(provider, name)] == [COPY]
    assert (guests[vmid].config, _started(provider, ENGINE)) == (config, started), "the original was touched"
    copied = provider.vmid(COPY, COPY)
    assert copied != vmid
    assert _address(provider, COPY) != _address(provider, ENGINE)
    assert guests[copied].config["net0"] != config["net0"], "they share a MAC address"
    assert _answers(provider)
    assert _answers(provider, COPY)
    assert _planned(lab) == []
    assert lab.provision("verify").code == 0
    lab.succeeded("destroy", COPY, "--yes", "--lab", NAME)
    assert copied not in guests
    assert (lab.folder / "homelab.yml").read_text(encoding="utf-8") == text
    assert _planned(lab) == []
    assert _answers(provider)


def test_the_tokens_secret_is_written_nowhere(lab: Lab, pve_host: PveHost) -> None:
    token = _token(pve_host)
    assert not [ran for ran in lab.runs if token in ran.out + ran.err]
    assert not [one for one in lab.folder.rglob("*") if one.is_file() and token.encode() in one.read_bytes()]
    written = [one for one in Path(pve_host.ssh.folder).rglob("*") if one.is_file()]
    assert not [one for one in written if token.encode() in one.read_bytes()]
