"""What a host says of its drivers, and what makes the nodes of its cards at every start."""

from __future__ import annotations

import re
import subprocess

import pytest

from provisioner.gpus.cards import Link
from provisioner.gpus.health import PERSISTENCE, SCRIPT, UNIT, HostDriver, driver_in, version_in

MODULE = "-\tmodule\tNVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025"
OPEN = "-\tmodule\tNVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
MISMATCH = "-\tcomplaint\tFailed to initialize NVML: Driver/library version mismatch NVML library version: 580.105.08"
NARROW = "16.0 GT/s PCIe,4,16.0 GT/s PCIe,16"
WIDE = "16.0 GT/s PCIe,16,16.0 GT/s PCIe,16"
RULE = "-\trule\t/usr/lib/udev/rules.d/60-nvidia.rules"


def test_the_script_runs_where_there_is_nothing() -> None:
    done = subprocess.run(["sh", "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert driver_in(done.stdout).complaint == ""
    assert {UNIT, PERSISTENCE} <= set(re.findall(r"[\w-]+\.service", SCRIPT))


def test_nothing_is_known_of_a_host_without_drivers() -> None:
    assert driver_in("-\tunit\tprovision-gpu.service not-found\n-\tnext\t\n") == HostDriver()


@pytest.mark.parametrize("line", [MODULE, OPEN])
def test_the_module_that_runs_and_the_one_that_starts_next(line: str) -> None:
    found = driver_in(f"{line}\n-\tnext\t580.105.08\n-\ttool\tnvidia-modprobe")
    assert (found.module, found.next_module, found.has_modprobe) == ("580.95.05", "580.105.08", True)
    assert not found.is_mismatched


def test_a_driver_that_was_upgraded_while_it_ran() -> None:
    assert driver_in(f"{MODULE}\n{MISMATCH}").is_mismatched


@pytest.mark.parametrize(
    ("said", "makers"),
    [
        ("-\tunit\tprovision-gpu.service enabled", (UNIT,)),
        ("-\tunit\tprovision-gpu.service disabled", ()),
        ("-\tunit\tnvidia-persistenced.service enabled", ()),  # makes the others alone
        (RULE, ("/usr/lib/udev/rules.d/60-nvidia.rules",)),
        (f"-\tunit\tprovision-gpu.service enabled\n{RULE}", (UNIT, "/usr/lib/udev/rules.d/60-nvidia.rules")),
    ],
)
def test_what_makes_the_nodes_at_every_start(said: str, makers: tuple[str, ...]) -> None:
    assert driver_in(said).makers == makers


RULES = {
    'ACTION=="add", DEVPATH=="/module/nvidia_uvm", RUN+="/usr/bin/nvidia-modprobe -c0 -u"': True,
    'ACTION=="add|bind", DRIVER=="nvidia", RUN+="/usr/bin/nvidia-create-device-nodes"': True,
    '# RUN+="/usr/bin/nvidia-modprobe -u -c 0"': False,
    'RUN+="/usr/bin/nvidia-modprobe -c 0"': False,
    'ACTION=="add", DRIVER=="nvidia", RUN+="/sbin/modprobe nvidia-uvm"': False,
}


@pytest.mark.parametrize(("rule", "makes"), RULES.items(), ids=range(len(RULES)))
def test_rules_of_udev_that_make_them_are_told_from_others(rule: str, makes: bool) -> None:
    found = re.search(r"grep -lsE '([^']+)'", SCRIPT)
    assert found
    done = subprocess.run(["grep", "-qE", found[1]], input=rule, text=True, check=False, timeout=60)
    assert (done.returncode == 0) is makes


def test_a_card_behind_its_own_switch_is_as_wide_as_the_way_to_it() -> None:
    said = "\n".join(f"0000:03:00.0\tpath\t{link}" for link in (WIDE, WIDE, NARROW))
    assert driver_in(said).slot("0000:03:00.0") == Link(16.0, 4, 16.0, 16)
    assert driver_in(said).slot("0000:04:00.0") is None


@pytest.mark.parametrize("said", ["Unknown,0,Unknown,255", "16.0 GT/s PCIe,8", ""])
def test_a_way_that_nobody_knows_is_none(said: str) -> None:
    assert driver_in(f"0000:03:00.0\tpath\t{said}").slot("0000:03:00.0") is None


def test_no_version() -> None:
    assert version_in("nothing of x86_64") == ""
