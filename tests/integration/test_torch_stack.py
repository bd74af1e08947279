"""Role ``torch_stack`` with a real torch in a real container: what does not load leaves the one before in use."""

from __future__ import annotations

import secrets
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values.state import Instance
from tests.integration.role_box import RoleBox
from tests.integration.running_containers import kept_running
from tests.torch_extensions import TORCH, extensions, torch_site
from tests.torch_wheels import download_torch, wheels_in
from tests.wheel_files import write_wheel

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

IMAGE = "debian/12"
PYTHON = (3, 11)
MODULES = ("good", "gone", "crash")
COMPUTES = "import torch, good; print(torch.__version__, (torch.ones(4, 4) @ torch.ones(4, 4)).sum().item())"


class Stacks(RoleBox):
    """A container with wheels in /srv/wheels."""

    wheels: list[dict[str, str]]

    def make(self, module: str, part: str = "main") -> str:
        """What the role says that is to use torch with this extension."""
        left_out = {f"with-{one}" for one in MODULES if one != module}
        packages = [one for one in self.wheels if one["name"] not in left_out]
        variables = {
            "torch_stack_name": "real",
            "torch_stack_mirror": "/srv/wheels",
            "torch_stack_packages": packages,
            "torch_stack_modules": {f"with-{module}": [module]},
        }
        include: dict[str, Any] = {"ansible.builtin.include_role": {"name": "torch_stack", "tasks_from": part}}
        return self.play({"roles": ["base"], "tasks": [include]}, variables)

    def computes(self) -> str:
        """What an account without rights gets from the venv that is used."""
        program = f"/opt/torch_stack/current/bin/python -c '{COMPUTES}'"
        return self.run(f"setpriv --reuid=nobody --clear-groups {program}").strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Torch with all that it asks for, the role's installer, and a wheel of each extension."""
    if sys.version_info[:2] != PYTHON:
        pytest.skip(f"the wheels are downloaded for this Python, and {IMAGE} has {'.'.join(map(str, PYTHON))}")
    place = tmp_path_factory.mktemp("wheels")
    download_torch(place)
    built = extensions(torch_site())
    for name in MODULES:
        file = f"with_{name}-1.0-cp311-cp311-linux_x86_64.whl"
        write_wheel(place, file, "torch", files={f"{name}.so": built[name]})
    return place


@pytest.fixture(scope="module")
def box(provider: IncusProvider, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    """A running container with the wheels."""
    lab = f"t{secrets.token_hex(4)}"
    with kept_running(provider, Instance(f"{lab}-torch", "box", lab, IMAGE, memory=4 * 2**30, disk=12 * 2**30)) as one:
        made = Stacks(provider, one.name, tmp_path_factory.mktemp("ansible"))
        made.wheels = wheels_in(folder)
        packed = folder.with_suffix(".tar")
        with tarfile.open(packed, "w") as archive:
            archive.add(folder, "wheels")
        provider.push(one.name, packed, "/srv/wheels.tar")
        made.run("cd /srv && tar xf wheels.tar && rm wheels.tar")
        yield made


def test_a_real_torch_and_what_is_compiled_against_it(box: Stacks) -> None:
    said = box.make("good")
    assert said.endswith("rc=0"), said
    assert box.computes().startswith(TORCH)
    assert box.computes().endswith(" 64.0")
    again = box.make("good")
    assert "changed=0" in again, again


@pytest.mark.parametrize(("module", "words"), [("gone", "removed_in_this_torch"), ("crash", "SIGSEGV")])
def test_what_does_not_load_leaves_the_one_before(box: Stacks, module: str, words: str) -> None:
    before = box.run("readlink /opt/torch_stack/current")
    said = box.make(module)
    assert not said.endswith("rc=0")
    assert f"Unable to use the stack real: with-{module}" in said
    assert words in said
    assert box.run("readlink /opt/torch_stack/current") == before
    assert box.computes().endswith(" 64.0")
