"""NVIDIA's user space is of one version, the host's; every other state is refused, in words that say what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

SCENARIO = Path(__file__).resolve().parents[1]
VERSION, NOWHERE = "535.261.03", "560.35.03"
"""Of Debian 12, and of none of its archives."""
NEWER = "NEWER"
"""Stands in the cases for the version of Debian 12's security updates, which is another one every few months."""
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
CURRENT = f"{LIBRARIES}/nvidia/current"
PROGRAM = "/usr/local/bin/nvidia-smi"
"""Before the real one on PATH."""
LISTED = "GPU 0: NVIDIA GeForce RTX 3060 (UUID: GPU-00000000-1111-2222-3333-444444444444)"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\\nNVML library version: 535.261"
RUN = f"NVIDIA-Linux-x86_64-{VERSION}.run"
UNCHANGED = r"changed=0 .*failed=0"

pytestmark = pytest.mark.usefixtures("host")


def run_playbook(name: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run one of the scenario's playbooks on its container, with other options than the scenario's."""
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(SCENARIO / name)]
    part = {"part": options.pop("part")} if "part" in options else {}
    named = {f"gpu_userspace_{option}": value for option, value in options.items()} | part
    command += ["--extra-vars", json.dumps(named), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def assert_refused(answer: subprocess.CompletedProcess[str], words: str) -> None:
    """The run failed, for the reason that ``words`` name, and had changed nothing."""
    shown = answer.stdout + answer.stderr
    assert answer.returncode != 0, shown
    assert re.search(words, shown), shown
    assert re.search(r"changed=0 .*failed=1", shown), shown


def assert_passed(answer: subprocess.CompletedProcess[str], words: str = "failed=0") -> None:
    """The run passed and said ``words``."""
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert re.search(words, answer.stdout), answer.stdout


def versions(host: Host) -> set[str]:
    """The upstream versions of all that is installed of the driver."""
    query = "dpkg-query --show --showformat '${db:Status-Status} ${source:Package} ${source:Upstream-Version}\\n'"
    lines = [line.split() for line in host.check_output(query).splitlines()]
    return {line[2] for line in lines if line[0] == "installed" and line[1] == "nvidia-graphics-drivers"}


@pytest.fixture(scope="module")
def newer(host: Host) -> str:
    """The version of the security updates."""
    listed = host.check_output("apt-cache madison libcuda1")
    found = re.findall(r"\| *([\d.]+)-\S+ *\| \S*security", listed)
    assert found, f"apt has no security update of NVIDIA's driver: {listed}"
    assert found[0] != VERSION
    return str(found[0])


@pytest.fixture
def module_of_the_host(host: Host) -> Iterator[None]:
    """A /proc in which the host's kernel module is of another version, as after an update of its driver."""
    line = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {NOWHERE}  Fri Aug 16 21:39:15 UTC 2024"
    host.check_output("mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia")
    host.check_output(f"echo '{line}' > /proc/driver/nvidia/version")
    yield
    host.check_output("umount /proc/driver")


@pytest.fixture
def program(host: Host) -> Iterator[str]:
    """A place for another nvidia-smi."""
    yield PROGRAM
    host.check_output(f"rm -f {PROGRAM}")


def test_it_is_the_user_space_alone_and_all_of_one_version(host: Host) -> None:
    assert versions(host) == {VERSION}
    for library in ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"):
        assert host.check_output(f"readlink -f {LIBRARIES}/{library}").endswith(f".so.{VERSION}")
    names = host.check_output("dpkg-query --show --showformat '${Package}\\n'").splitlines()
    assert [name for name in names if re.search(r"dkms|kernel-(source|support)|linux-(image|headers)", name)] == []


def test_an_upgrade_of_packages_leaves_it_alone(host: Host, newer: str) -> None:
    assert f"Candidate: {newer}" not in host.check_output("apt-cache policy libcuda1")
    assert "libcuda1" not in host.check_output("apt-get --simulate --quiet upgrade")


def test_the_proof_of_the_version_passes_and_changes_nothing() -> None:
    assert_passed(run_playbook("part.yml", part="verify_version"), UNCHANGED)


def test_check_mode_passes_and_changes_nothing() -> None:
    assert_passed(run_playbook("converge.yml", "--check"), UNCHANGED)


@pytest.mark.parametrize(
    "options",
    [
        {"vendor": "amd"},
        {"driver_version": NEWER, "vulkan": True},
        {
            "driver_version": NOWHERE,
            "source": f"https://example.com/{RUN.replace(VERSION, NOWHERE)}",
            "sha256": "0" * 64,
        },
    ],
)
def test_check_mode_passes_before_anything_else_is_installed(host: Host, newer: str, options: dict[str, Any]) -> None:
    options = {name: newer if value == NEWER else value for name, value in options.items()}
    host.check_output("mv /usr/lib/python3/dist-packages/apt /srv/apt")
    answer = run_playbook("converge.yml", "--check", **options)
    host.check_output("mv /srv/apt /usr/lib/python3/dist-packages/apt")
    assert_passed(answer)
    assert versions(host) == {VERSION}


def test_without_a_card_the_proof_says_so() -> None:
    assert_refused(run_playbook("part.yml", part="verify"), "nvidia-smi does not reach the host's driver")


def test_a_node_that_is_not_there_is_named() -> None:
    answer = run_playbook("part.yml", part="verify", nodes=["/dev/nvidia-uvm"])
    assert_refused(answer, r"/dev/nvidia-uvm is not there\. Run .*nvidia-modprobe -u -c 0.* on\s+the\s+host")


def test_management_that_answers_is_no_proof_of_cuda(host: Host, program: str) -> None:
    host.check_output(f"printf '#!/bin/sh\\necho \"{LISTED}\"\\n' > {program} && chmod 0755 {program}")
    answer = run_playbook("part.yml", part="verify")
    assert_refused(answer, "nvidia-smi lists NVIDIA GeForce RTX 3060, and CUDA cannot use it: cuInit answers 100")
    assert_refused(answer, "nvidia-modprobe -u -c 0")


def test_a_mismatch_that_the_management_library_finds_is_translated(host: Host, program: str) -> None:
    host.check_output(f"printf '#!/bin/sh\\nprintf \"{MISMATCH}\"\\n' > {program} && chmod 0755 {program}")
    words = "the user space in the container is of another version than the host's kernel module. Reboot the host"
    assert_refused(run_playbook("part.yml", part="verify"), words)


@pytest.mark.usefixtures("module_of_the_host")
def test_a_host_whose_module_is_another_one_is_refused_by_both() -> None:
    assert_refused(run_playbook("part.yml", part="verify"), f"the host's kernel module is {NOWHERE},")
    assert_refused(run_playbook("part.yml"), f"the host's kernel module is {NOWHERE} by now")


def test_another_version_than_the_host_s_fails_the_proof(newer: str) -> None:
    answer = run_playbook("part.yml", part="verify", driver_version=newer)
    assert_refused(answer, rf"should be {newer}, and what programs load is\s+libcuda.so.1 {VERSION} \({CURRENT}/")


def test_a_library_of_another_version_beside_it_fails_the_proof(host: Host) -> None:
    left = f"{LIBRARIES}/libcuda.so.{NOWHERE}"
    host.check_output(f"cp {CURRENT}/libcuda.so.{VERSION} {left}")
    answer = run_playbook("part.yml", part="verify")
    host.check_output(f"rm {left}")
    assert_refused(answer, f"has\\s+{left} besides")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"driver_version": NOWHERE},
            rf"Unable to install the user space of NVIDIA's driver {NOWHERE}, .*apt has {NEWER}, {VERSION}\.",
        ),
        ({"driver_version": "latest"}, "it takes the version of the host's kernel module"),
        ({"source": f"http://example.com/{RUN}", "sha256": "0" * 64}, "an https address that ends in .run"),
        ({"source": f"https://example.com/{RUN}"}, "the latter with its `sha256`"),
        (
            {"source": f"https://example.com/NVIDIA-Linux-x86_64-{NOWHERE}.run", "sha256": "0" * 64},
            f"the host's kernel module is {VERSION}, and",
        ),
        ({"vendor": "matrox"}, "value of gpu_userspace_vendor must be one of"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_installed(
    options: dict[str, Any], words: str, newer: str
) -> None:
    assert_refused(run_playbook("part.yml", **options), words.replace(NEWER, newer))


def test_when_the_host_s_driver_changes_the_older_user_space_goes(host: Host, newer: str) -> None:
    for version in (newer, VERSION):
        assert_passed(run_playbook("converge.yml", driver_version=version))
        assert versions(host) == {version}
        assert host.check_output(f"ls {CURRENT} | grep -oE '[0-9]+[.][0-9.]+$' | sort -u") == version
    assert_passed(run_playbook("converge.yml"), UNCHANGED)


def test_what_was_removed_is_put_back(host: Host) -> None:
    host.check_output("dpkg --remove --force-depends libcuda1")
    assert_refused(run_playbook("part.yml", part="verify"), r"libcuda.so.1 of no\s+version")
    assert_passed(run_playbook("converge.yml"))
    assert versions(host) == {VERSION}
