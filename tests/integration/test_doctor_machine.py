"""What ``doctor`` says of a machine: each fault is made for real, in a namespace, a container or a bridge of ours."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from provisioner.doctor.hosts import SCRIPT, WAY, diagnoses, way_diagnoses
from provisioner.hosts.incus import IncusProvider, machine
from provisioner.values.host_facts import MachineState
from tests.lab.incus import Lab

NOBODY = 65534
RELEASES = {
    "debian 12": ('ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"', "in its backports alone"),
    "debian 13": ('ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"', "is not installed here."),
    "ubuntu": (
        'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"',
        "This is Ubuntu 24.04 LTS; only on Debian",
    ),
}
WITHOUT = "for folder in /usr/libexec/incus /opt/incus; do [ ! -d $folder ] || mount -t tmpfs none $folder; done"
"""Hides the daemon of this machine, in a namespace of mounts."""


@pytest.fixture
def as_root() -> None:
    """Only root makes namespaces."""
    if os.geteuid():
        pytest.skip("needs root: it makes namespaces of mounts")


def in_namespace(folder: Path, script: str, *program: str, **environment: str) -> dict[str, tuple[bool, str]]:
    """The answers of ``doctor`` by their checks, with what to do, after ``script`` in a namespace of mounts."""
    doctor = [*program, sys.executable, "-m", "provisioner", "doctor", "--json"]
    done = subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-ec", f'{script}; exec "$@"', "sh", *doctor],
        cwd=folder,
        env=os.environ | {"INCUS_DIR": str(folder / "incus"), "XDG_CACHE_HOME": str(folder / "cache")} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr
    said = {one["message"].partition(": ")[2]: one for one in lines if one["type"] == "diagnostic"}
    found = dict[str, tuple[bool, str]]()
    for one in lines:
        if one["type"] == "check":
            more = said.get(f"{one['name']}: {one['message']}", {})
            text = "\n".join([one["message"], more.get("details", ""), more.get("resolution", "")])
            found[one["name"]] = (one["ok"], text)
    return found


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("release", sorted(RELEASES))
def test_a_machine_without_incus_is_told_how_it_gets_one(tmp_path: Path, release: str) -> None:
    text, words = RELEASES[release]
    (tmp_path / "os-release").write_text(text + "\n")
    found = in_namespace(tmp_path, f"{WITHOUT}; mount --bind os-release /etc/os-release")
    is_well, said = found["answers"]
    assert not is_well
    assert words in said
    assert "sudo provision host prepare" in said
    assert (machine.OWN_PAGES in said) == (release == "ubuntu")
    assert set(found) == {"answers", "ids", "disk"}


@pytest.mark.usefixtures("as_root")
def test_a_daemon_that_does_not_run_is_another_thing(tmp_path: Path) -> None:
    script = "mkdir -p /usr/libexec/incus; mount -t tmpfs none /usr/libexec/incus; touch /usr/libexec/incus/incusd"
    (is_well, said) = in_namespace(tmp_path, script if Path("/usr/libexec/incus").is_dir() else "true")["answers"]
    if not Path("/usr/libexec/incus").is_dir():
        pytest.skip("there is no place here to put a daemon")
    assert not is_well
    assert "its daemon does not run" in said


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("is_member", [False, True])
def test_who_may_not_use_the_socket_is_told_which_of_two_steps_is_missing(tmp_path: Path, *, is_member: bool) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o011)
    (tmp_path / "incus").mkdir()
    (tmp_path / "group").write_text(f"root:x:0:\nincus-admin:x:4711:{'nobody' if is_member else ''}\n")
    path = tmp_path / "incus/unix.socket"
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(path))
        listening.listen()
        os.chown(path, 0, 4711)
        path.chmod(0o660)
        reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]  # the checkout may be root's alone
        person = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *reads]
        _, said = in_namespace(tmp_path, "mount --bind group /etc/group", *person)["answers"]
    assert ("User nobody is in group incus-admin, and this session began before that." in said) == is_member
    assert ("newgrp incus-admin" in said) == is_member
    assert ("sudo usermod -aG incus-admin $USER" in said) != is_member


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("line", ["penny:100000:65536", "root:100000:1000"])
def test_a_root_without_subordinate_ids_is_told_the_line_that_is_missing(tmp_path: Path, line: str) -> None:
    """Incus 6.0.4 says of this: "System doesn't have a functional idmap setup"."""
    (tmp_path / "subuid").write_text(line + "\n")
    script = "touch /etc/subuid /etc/subgid; mount --bind subuid /etc/subuid; echo root:1000000:65536 > gid"
    is_well, said = in_namespace(tmp_path, f"{script}; mount --bind gid /etc/subgid")["ids"]
    assert not is_well
    assert "root has no 65536 subordinate IDs in /etc/subuid: no container can start" in said
    cure = re.search(r"Run: echo (\S+) \| sudo tee -a (\S+) &&", said)
    assert cure
    (tmp_path / "subuid").write_text(f"{line}\n{cure[1]}\n")
    assert in_namespace(tmp_path, f"{script}; mount --bind gid /etc/subgid")["ids"][0]


@pytest.mark.usefixtures("as_root")
def test_a_disk_that_is_full_is_told(tmp_path: Path) -> None:
    (tmp_path / "incus").mkdir()
    full = "mount -t tmpfs -o size=1m none incus; dd if=/dev/zero of=incus/filler 2> /dev/null || true"
    is_well, said = in_namespace(tmp_path, full)["disk"]
    assert not is_well
    assert said.startswith(f"0.0 of 0.0 GiB free on the disk of {tmp_path}/incus")


# With an Incus: a bridge and a pool of the test's own.


@pytest.fixture(scope="module")
def bridge(incus_lab: Lab) -> Iterator[str]:
    """A bridge of a profile of the same name, with a small pool."""
    assert incus_lab
    name = f"d{secrets.token_hex(4)}"
    incus("network", "create", name, "ipv4.address=10.89.123.1/24", "ipv6.address=none")
    incus("storage", "create", name, "btrfs", "size=300MiB")
    incus("profile", "create", name)
    incus("profile", "device", "add", name, "eth0", "nic", f"network={name}")
    incus("profile", "device", "add", name, "root", "disk", "path=/", f"pool={name}")
    yield name
    incus("profile", "delete", name)
    for kind in ("storage", "network"):
        incus(kind, "delete", name)


def incus(*arguments: str) -> str:
    done = subprocess.run(["incus", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def looked(profile: str) -> dict[str, tuple[bool | None, str, str]]:
    """What is found out about the host with this profile: well or not, the words, and what to do."""
    found = {}
    for one in diagnoses(IncusProvider("box", profile=profile).examine((), "")):
        said = one.finding or one.warning
        found[one.check.name] = (one.check.ok, one.check.message, said.resolution if said else "")
    return found


@pytest.mark.incus
def test_a_bridge_whose_dns_died_is_told_and_comes_back(bridge: str, incus_lab: Lab) -> None:
    assert looked(bridge)["names"] == (True, f"the DNS of {bridge} answers at 10.89.123.1", "")
    page = (incus_lab.state / f"networks/{bridge}/dnsmasq.pid").read_text()
    number = re.search(r"pid: (\d+)|^(\d+)", page)
    assert number
    subprocess.run(["kill", number[1] or number[2]], check=True, timeout=30)
    is_well, said, cure = looked(bridge)["names"]
    assert not is_well
    assert "does not answer: containers can look up no names" in said
    assert "sudo systemctl restart incus" in cure
    incus("network", "set", bridge, "dns.domain=again")  # starts it anew, as a start of Incus does
    assert looked(bridge)["names"][0]


@pytest.mark.incus
def test_a_pool_that_is_full_is_told_with_how_it_grows(bridge: str, incus_lab: Lab) -> None:
    incus("storage", "volume", "create", bridge, "filler")
    folder = incus_lab.state / f"storage-pools/{bridge}/custom/default_filler"
    filled = ["dd", "if=/dev/urandom", f"of={folder}/zeros", "bs=1M", "conv=fsync"]
    done = subprocess.run(filled, capture_output=True, text=True, check=False, timeout=120)
    assert "No space left on device" in done.stderr
    try:
        is_well, said, cure = looked(bridge)["storage"]
        assert not is_well
        assert said.startswith(f"{bridge} for disks: 0.")
        assert f"incus storage set {bridge} size=<more>GiB" in cure
    finally:
        (folder / "zeros").unlink()
        incus("storage", "volume", "delete", bridge, "filler")


@pytest.mark.incus
def test_a_proxy_on_one_side_alone_is_told_and_never_its_address(bridge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*machine.PROXIES, *map(str.upper, machine.PROXIES)):
        monkeypatch.delenv(name, raising=False)
    assert looked(bridge)["proxy"][1:] == ("neither this machine nor its containers are told of one", "")
    monkeypatch.setenv("HTTPS_PROXY", "http://penny:canary-5c1@192.0.2.7:3128")
    is_well, said, cure = looked(bridge)["proxy"]
    assert is_well, "it may be well without"
    assert "containers are told of none" in said
    command = re.search(r"Run: (incus profile set \S+ \S+) \"\$https_proxy\"", cure)
    assert command
    incus(*command[1].split()[1:], os.environ["HTTPS_PROXY"])
    assert looked(bridge)["proxy"][1:] == ("this machine and its containers are told of the same", "")
    monkeypatch.delenv("HTTPS_PROXY")
    is_well, said, cure = looked(bridge)["proxy"]
    assert "canary" not in said + cure
    incus(*cure.partition("run: incus ")[2].split())
    assert looked(bridge)["proxy"][2] == ""


@pytest.mark.incus
def test_a_container_says_how_far_it_gets(provider: IncusProvider, container: str) -> None:
    def said(sources: str) -> list[tuple[bool | None, str]]:
        line = f"rm -rf /etc/apt/sources.list.d; echo 'deb {sources} bookworm main' > /etc/apt/sources.list"
        assert provider.execute(container, ["sh", "-c", line]).returncode == 0
        done = provider.execute(container, ["sh", "-c", SCRIPT], environment={WAY: "1"})
        answer = done.stdout.decode()
        return [(one.check.ok, one.check.message) for one in way_diagnoses("web", answer)]

    [(_, gateway, _)] = [looked("default")["names"]]
    here = gateway.rpartition(" ")[2]
    listening = socket.create_server((here, 0))
    with closing(listening):
        port = listening.getsockname()[1]
        assert said(f"http://{here}:{port}/debian") == [(True, f"it reaches {here}")]
    cut = f"knows {here}, from where its packages come, and gets no connection to it"
    assert said(f"http://{here}:{port}/debian") == [(False, cut)]
    unknown = "cannot look up nowhere.invalid, from where its packages come"
    assert said("http://nowhere.invalid/debian") == [(False, unknown)]
    assert said("file:/srv") == []


# Docker's rules, by the real iptables in a container.

DOCKERS = """
iptables -N DOCKER; iptables -N DOCKER-USER; iptables -N DOCKER-ISOLATION-STAGE-1
iptables -P FORWARD DROP
iptables -A FORWARD -j DOCKER-USER
iptables -A FORWARD -j DOCKER-ISOLATION-STAGE-1
iptables -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -A FORWARD -o docker0 -j DOCKER
iptables -A FORWARD -i docker0 ! -o docker0 -j ACCEPT
iptables -A FORWARD -i docker0 -o docker0 -j ACCEPT
iptables -A DOCKER-ISOLATION-STAGE-1 -j RETURN
iptables -A DOCKER-USER -j RETURN
iptables -A INPUT -p tcp --dport 22 -j ACCEPT
"""
"""What Docker's daemon sets (docs.docker.com, "Packet filtering and firewalls"), and a rule of the owner's for ssh."""


@pytest.mark.incus
@pytest.mark.network
def test_rules_of_docker_are_told_with_a_cure_that_works(incus_lab: Lab, provider: IncusProvider) -> None:
    assert incus_lab
    name = f"d{secrets.token_hex(4)}"
    incus("launch", "debian/12", name)
    try:
        run(provider, name, "until ip route | grep -q default; do sleep 0.2; done; apt-get -qq update")
        run(provider, name, "apt-get -qq install --no-install-recommends iptables nftables > /dev/null 2>&1")
        rules = "nft --json list ruleset"
        assert said(run(provider, name, rules))[0]
        run(provider, name, DOCKERS)
        is_well, words, cure = said(run(provider, name, rules))
        assert not is_well
        assert words.startswith("Docker's rules drop what containers send through incusbr0")
        command = re.search(r"Run: (.*); have it run", cure)
        assert command
        run(provider, name, command[1].replace("sudo ", ""))
        assert said(run(provider, name, rules))[0]
        run(provider, name, "iptables -F DOCKER-USER; iptables -A FORWARD -p icmp -j ACCEPT")
        assert not said(run(provider, name, rules))[0]
    finally:
        incus("delete", "--force", name)


def run(provider: IncusProvider, container: str, script: str) -> str:
    done = provider.execute(container, ["sh", "-ec", script], timeout_s=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def said(rules: str) -> tuple[bool, str, str]:
    """Whether these rules let containers through, the words, and what to do."""
    state = machine.forwarding("box", "incusbr0", rules)
    return not state.problem, state.problem, state.hint


def test_who_may_not_read_the_rules_is_told_that_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "DOCKER_DEVICE", tmp_path)
    state: MachineState = machine.forwarding("box", "incusbr0", None)
    assert state.problem == ""
    assert "Docker is here" in state.seen
    assert "sudo provision doctor" in state.seen


@pytest.mark.usefixtures("as_root")
@pytest.mark.skipif(shutil.which("nft", path=machine.PATHS) is None, reason="there is no nft here")
def test_the_rules_of_this_machine_are_read_with_the_real_program() -> None:
    script = "from provisioner.hosts.incus import machine; print(machine.ruleset())"
    chain = "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }"
    done = subprocess.run(
        [
            "unshare",
            "--net",
            "sh",
            "-ec",
            'PATH=$PATH:/usr/sbin nft "$0"; exec "$@"',
            chain,
            sys.executable,
            "-c",
            script,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    is_well, words, _ = said(done.stdout)
    assert not is_well
    assert words.startswith("the rules of this machine drop what containers send through incusbr0")
