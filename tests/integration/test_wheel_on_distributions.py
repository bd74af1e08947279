"""The wheel on each distribution's own Python: installed from the package index, it brings a lab up and removes it.

The controller is a container that no lab owns. It reaches the Incus of this machine by a socket that Incus itself
passes on, as somebody has it who runs ``provision`` in a container. The tests build on each other, in their order.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from provisioner import __version__
from provisioner.hosts.incus import IncusProvider
from provisioner.values import paths
from provisioner.values.state import Instance
from tests.lab.incus import Lab

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
SHORT_S, INSTALL_S = 300, 1200
UP_S = 3600
"""So long llama.cpp takes at most to be compiled where the tests run, where no copy of it is in the cache."""
SOCKET = "/run/incus.socket"
OF_SID = """
. /etc/os-release
sed -i -e "/ $VERSION_CODENAME-/d" -e "s/ $VERSION_CODENAME / sid /" /etc/apt/sources.list.d/*.list
"""
"""The same mirror's sid. Its index is valid for a week, and a mirror may stand still for longer; it is signed."""
INSTALL = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -o Acquire::Check-Valid-Until=false update
apt-get -qq -y --no-install-recommends install openssh-client python3-venv >/dev/null
python3 -m venv /root/venv
/root/venv/bin/pip --quiet install /root/*.whl
mkdir /root/lab
"""
FILE = """
name: NAME
models:
  NAME: { source: "builtin:tiny", context: 512 }
containers:
  NAME-llama: { image: debian/12, services: { llama_cpp: { model: NAME } } }
"""


@dataclass(frozen=True)
class Distribution:
    """What a fresh machine is made of, and what its own Python and the installer have to come to."""

    image: str
    python: str
    ansible_core: str
    script: str = ""


DISTRIBUTIONS = {
    "debian-12": Distribution("debian/12-bare", r"3\.11", r"2\.19"),  # the last line for that Python
    "debian-13": Distribution("debian/13", r"3\.13", r"2\.[2-9]\d"),
    # Sid's Python and C library alone: the rest of it would be a whole upgrade, of which the wheel uses nothing.
    "debian-sid": Distribution("debian/13", r"3\.1[3-9]", r"2\.[2-9]\d", OF_SID),
}


class Machine:
    """A fresh machine on which a user installed the wheel, and that user's lab."""

    def __init__(self, provider: IncusProvider, name: str, kind: Distribution) -> None:
        self.provider, self.name, self.kind = provider, name, kind
        self.lab = f"{name}-lab"

    def sh(self, script: str, within_s: float = SHORT_S, *, code: int = 0) -> str:
        """What the shell prints; its exit code has to be ``code``."""
        environment = f"INCUS_SOCKET={SOCKET} PATH=/root/venv/bin:$PATH PYTHONWARNINGS=default::DeprecationWarning"
        words = f"export {environment}; {script}"
        done = self.provider.execute(self.name, ["bash", "-c", words], timeout_s=within_s)
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert done.returncode == code, said[-6000:]
        return said

    def provision(self, words: str, within_s: float = SHORT_S) -> list[dict[str, Any]]:
        """The JSON lines of a verb that ends well, in the folder of the lab's file."""
        said = self.sh(
            f"cd /root/lab && provision {words} --json 2>/root/stderr || (cat /root/stderr; false)", within_s
        )
        lines = [json.loads(line) for line in said.splitlines()]
        assert lines[-1]["type"] == "summary"
        assert lines[-1]["exit_code"] == 0
        return lines

    def volumes(self) -> list[str]:
        """The volumes on the host that only this lab uses."""
        listed = json.loads(_incus("storage", "volume", "list", "default", "--format", "json"))
        return [one["name"] for one in listed if one["type"] == "custom" and self.lab in one["name"]]


def _incus(*arguments: str) -> str:
    return subprocess.run(["incus", *arguments], check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that ``make dist`` makes."""
    folder = tmp_path_factory.mktemp("dist")
    make: list[str | Path] = [sys.executable, ROOT / ".ci/dist.py", folder]
    subprocess.run(make, check=True, capture_output=True, timeout=INSTALL_S)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module", params=[pytest.param(kind, id=name) for name, kind in DISTRIBUTIONS.items()])
def machine(request: pytest.FixtureRequest, incus_lab: Lab, wheel: Path) -> Iterator[Machine]:
    """The machine with the wheel installed; whatever its lab left on the host is removed with it."""
    kind: Distribution = request.param
    made = Machine(IncusProvider("local"), f"t{secrets.token_hex(4)}", kind)
    controller = Instance(made.name, "local", "none", kind.image)
    try:
        made.provider.create(controller)
        made.provider.start(controller)
        made.provider.wait_until_ready(controller)
        _pass_on(incus_lab, made.name)
        made.provider.push(made.name, wheel, f"/root/{wheel.name}")
        made.sh(kind.script + INSTALL, INSTALL_S)
        made.provider.push(made.name, FILE.replace("NAME", made.lab).encode(), "/root/lab/homelab.yml")
        yield made
    finally:
        for left in made.provider.observe(made.lab).instances:
            made.provider.delete(left)
        for volume in made.volumes():
            made.provider.volumes.delete(volume)
        made.provider.delete(controller)


def _pass_on(incus_lab: Lab, name: str) -> None:
    """Give the container this machine's Incus, and the cache of what is built, so that it is built once for all."""
    socket = (f"listen=unix:{SOCKET}", f"connect=unix:{incus_lab.socket}", "bind=instance", "mode=0600", "uid=0")
    _incus("config", "device", "add", name, "incus", "proxy", *socket)
    built = paths.cache() / "artifacts"
    built.mkdir(mode=0o700, parents=True, exist_ok=True)
    inside = "path=/root/.cache/provisioner/artifacts"
    _incus("config", "device", "add", name, "built", "disk", f"source={built}", inside, "shift=true")


def test_pip_chose_what_that_python_can_run(machine: Machine) -> None:
    said = dict(line.rsplit(maxsplit=1) for line in machine.sh("provision --version").splitlines())
    assert said["provision"] == __version__
    assert re.match(machine.kind.python + r"\.", said["Python"]), said
    assert re.match(machine.kind.ansible_core + r"\.", said["ansible-core"]), said
    assert "No broken requirements found" in machine.sh("pip check")


def test_no_file_of_the_wheel_says_what_that_python_will_refuse(machine: Machine) -> None:
    """A warning of the compiler is an error here: it becomes one in a later Python."""
    package = machine.sh("python -c 'from provisioner.values import paths; print(paths.PACKAGE)'").strip()
    assert package.startswith("/root/venv/lib/")
    machine.sh(f"python -W error -m compileall -q -f {package}")


def test_the_lab_s_file_is_valid(machine: Machine) -> None:
    assert "is valid: lab" in machine.sh("cd /root/lab && provision validate")


def test_up_makes_the_lab_and_proves_it(machine: Machine) -> None:
    lines = machine.provision("up --yes", UP_S)
    checks = {line["target"]: line["ok"] for line in lines if line["type"] == "check"}
    assert checks == {f"{machine.lab}-llama/llama_cpp": True}
    assert machine.volumes() != []


def test_a_second_up_changes_nothing(machine: Machine) -> None:
    lines = machine.provision("up --yes")
    assert [line for line in lines if line["type"] in {"planned_change", "apply_start"}] == []
    machine.provision("plan --detailed-exitcode")


def test_verify_proves_it_again(machine: Machine) -> None:
    lines = machine.provision("verify", INSTALL_S)
    assert {line["ok"] for line in lines if line["type"] == "check"} == {True}


def test_nothing_of_ours_is_what_a_later_ansible_core_or_python_takes_away(machine: Machine) -> None:
    logs = machine.sh("cat /root/lab/.provision/logs/*")
    assert "PLAY RECAP" in logs
    assert "[DEPRECATION WARNING]" not in logs
    assert "invalid escape sequence" not in logs  # ansible-core's and ansible-runner's own are theirs to mend


def test_destroy_leaves_nothing(machine: Machine) -> None:
    machine.provision(f"destroy --prune --yes --lab {machine.lab}")
    assert machine.provider.observe(machine.lab).instances == ()
    assert machine.volumes() == []
