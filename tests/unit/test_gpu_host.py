"""What role ``gpu_host`` installs: a unit that systemd takes, before all that starts containers, and its script."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from provisioner.gpus.health import UNIT
from provisioner.values import paths
from tests.processes import completed

ROLE = paths.roles() / "gpu_host"
VARIABLES = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
STARTERS = {"pve-guests.service", "incus.service", "incus-startup.service", "lxc.service"}


@pytest.fixture(scope="module")
def unit() -> str:
    """The unit as the role writes it."""
    text = (ROLE / f"templates/{UNIT}.j2").read_text(encoding="utf-8")
    script = VARIABLES["__gpu_host_script"]
    made = Environment(undefined=StrictUndefined, autoescape=False).from_string(text)  # noqa: S701  # no HTML
    return made.render(ansible_managed="Ansible managed", __gpu_host_script=script)


def values(unit: str, name: str) -> set[str]:
    """All words of one setting."""
    return set(" ".join(re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)).split())


def test_it_runs_before_all_that_starts_containers(unit: str) -> None:
    assert values(unit, "Before") == STARTERS
    assert not values(unit, "After") & STARTERS
    assert values(unit, "WantedBy") == {"multi-user.target"}
    assert values(unit, "ExecStart") == {VARIABLES["__gpu_host_script"]}
    assert VARIABLES["__gpu_host_unit"] == UNIT


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_it(unit: str, tmp_path: Path) -> None:
    file = tmp_path / UNIT
    file.write_text(unit.replace(VARIABLES["__gpu_host_script"], "/bin/true"), encoding="utf-8")
    done = completed(["systemd-analyze", "verify", str(file)], timeout_s=120)
    about = [line for line in done.stderr.splitlines() if UNIT in line]
    assert (done.returncode, about) == (0, [])


def test_both_calls_are_made_as_with_u_only_unified_memory_is_meant() -> None:
    script = (ROLE / f"files/{Path(VARIABLES['__gpu_host_script']).name}").read_text(encoding="utf-8")
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False, timeout=120).returncode == 0
    assert 'nvidia-modprobe "$@"' in script
    assert "nvidia-modprobe -u -c 0" in script


def test_what_is_downloaded_is_pinned() -> None:
    for one in VARIABLES["__gpu_host_tools"]:
        assert re.fullmatch(rf"{one['name']}_\d+(\.\d+)+-\d+_amd64\.deb", one["file"])
        assert re.fullmatch(r"[0-9a-f]{64}", one["sha256"])
    assert len({one["file"].split("_")[1] for one in VARIABLES["__gpu_host_tools"]}) == 1


def test_each_driver_that_can_compute_is_loaded() -> None:
    from provisioner.gpus.cards import DRIVERS

    assert set(VARIABLES["__gpu_host_modules"]) == set().union(*DRIVERS.values())
