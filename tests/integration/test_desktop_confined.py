"""Role ``desktop`` looks at its own container: one that is less confined than an unprivileged one is refused."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values.state import Instance
from tests.integration.role_box import RoleBox

pytestmark = [pytest.mark.incus]

PLAY = {"tasks": [{"ansible.builtin.include_role": {"name": "desktop", "tasks_from": "preflight"}}]}
ASKED: dict[str, Any] = {"desktop_user": "penny", "desktop_password": "x", "desktop_image": "debian/12"}
REFUSED = "Unable to run a desktop here: a browser runs what strangers write"
WAY_OUT = "Take security.privileged, raw.lxc and seccomp settings off"


@contextmanager
def boxed(provider: IncusProvider, folder: Path, settings: Mapping[str, str]) -> Iterator[RoleBox]:
    """A container that was made with these settings of Incus."""
    name = f"dsk{secrets.token_hex(4)}"
    one = Instance(name, "box", name, "debian/12")
    provider.create(one)
    try:
        for key, value in settings.items():
            subprocess.run(["incus", "config", "set", name, f"{key}={value}"], check=True, timeout=120)
        provider.start(one)
        provider.wait_until_ready(one)
        yield RoleBox(provider, name, folder)
    finally:
        provider.delete(one)


def said(box: RoleBox) -> str:
    """What the role's preflight says, without folds."""
    return " ".join(box.play(PLAY, ASKED).split())


def test_a_container_as_it_is_made_is_taken_and_one_that_is_unconfined_is_not(
    provider: IncusProvider, tmp_path: Path
) -> None:
    with boxed(provider, tmp_path, {}) as box:
        assert said(box).endswith("rc=0")
        # A kernel without AppArmor: what it would say of an unconfined process is laid over the file.
        box.run("echo unconfined > /run/current && mount --bind /run/current /proc/1/attr/current")
        refused = said(box)
        # A namespace of its own, which the host's profile is stacked on: the kernel's word for that.
        box.run("mount -t tmpfs tmpfs /sys/kernel/security && mkdir /sys/kernel/security/apparmor")
        box.run("echo yes > /sys/kernel/security/apparmor/.ns_stacked")
        assert said(box).endswith("rc=0")
        box.run("echo no > /sys/kernel/security/apparmor/.ns_stacked")
        assert REFUSED in said(box)
    assert REFUSED in refused
    assert "AppArmor unconfined)" in refused
    assert refused.endswith("rc=2")


WEAK = {
    "privileged": ({"security.privileged": "true"}, "(root is 0 on the host, seccomp 2,"),
    "no filter": ({"security.syscalls.deny_default": "false"}, "seccomp 0,"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WEAK)
def test_one_that_is_less_confined_is_refused(provider: IncusProvider, tmp_path: Path, name: str) -> None:
    settings, words = WEAK[name]
    with boxed(provider, tmp_path, settings) as box:
        refused = said(box)
    assert REFUSED in refused
    assert words in refused
    assert WAY_OUT in refused
    assert refused.endswith("rc=2")
