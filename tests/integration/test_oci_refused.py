"""A container in which no image can run is refused by the role itself, with the reason and before anything is made."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values.state import Instance
from tests.integration.role_box import RoleBox
from tests.integration.running_containers import kept_running

pytestmark = [pytest.mark.incus]

OPTIONS = {"oci_image": f"registry.example/web@sha256:{'a' * 64}", "oci_image_port": 80, "oci_pages": ["/"]}


@contextmanager
def running(image: str, folder: Path) -> Iterator[RoleBox]:
    """A container of that image."""
    provider = IncusProvider("box")
    with kept_running(provider, Instance(f"oci-{secrets.token_hex(4)}", "box", "oci", image, nesting=True)) as one:
        yield RoleBox(provider, one.name, folder)


def refused(box: RoleBox) -> str:
    """What the role says, in one line."""
    task = {"name": "Refuse it", "ansible.builtin.include_role": {"name": "oci", "tasks_from": "preflight"}}
    said = box.play({"roles": ["base"], "tasks": [task]}, OPTIONS)
    assert said.endswith("rc=2"), said
    assert box.run("command -v podman || echo none").strip() == "none"
    return " ".join(said.split())


def test_a_podman_from_before_quadlets_is_refused(incus_lab: object, tmp_path: Path) -> None:
    assert incus_lab
    with running("debian/12", tmp_path) as box:
        words = "Unable to run an OCI image on Debian 12: its Podman is from before quadlets (4.3)"
        assert words in refused(box)


def test_a_container_that_may_have_none_of_its_own_is_refused(incus_lab: object, tmp_path: Path) -> None:
    """Without AppArmor a container without nesting may: a stand-in says what the kernel says where there is one."""
    assert incus_lab
    with running("debian/13", tmp_path) as box:
        said = "unshare: mount /proc failed: Operation not permitted"
        box.run(
            f"printf '#!/bin/sh\\necho {said} >&2; exit 1\\n' > /usr/local/bin/unshare; chmod +x /usr/local/bin/unshare"
        )
        assert f"it may have no containers of its own ({said})" in refused(box)
