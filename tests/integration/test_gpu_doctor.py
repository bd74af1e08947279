"""What ``doctor`` asks a container, in a real one: device files that a host lends, and who may use them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from provisioner.gpus.inside import SCRIPT, Inside, Torch, inside_in
from provisioner.hosts.incus import IncusProvider
from provisioner.reconcile.inventory import render_this_machine
from provisioner.values import paths
from tests.ansible_environment import ansible_environment
from tests.lab.incus import ROOT
from tests.processes import completed

pytestmark = [pytest.mark.incus]

UNIT, USER = "systemd-networkd.service", "systemd-network"
VIDEO = 44


def look(provider: IncusProvider, container: str) -> Inside:
    """What the container says."""
    done = provider.execute(container, ["sh", "-c", SCRIPT, "sh", UNIT])
    assert (done.returncode, done.stderr) == (0, b"")
    return inside_in(done.stdout.decode())


@pytest.mark.parametrize(
    ("mode", "gid", "groups", "may"),
    [("0666", 0, [], True), ("0660", 0, [], False), ("0660", VIDEO, [], False), ("0660", VIDEO, ["video"], True)],
)
def test_device_files_arrive_and_who_may_use_them_is_what_the_kernel_says(
    provider: IncusProvider, container: str, *, mode: str, gid: int, groups: list[str], may: bool
) -> None:
    """A stand-in without a driver: it cannot be opened, but whether it may be is asked before."""
    name = f"gpu-{mode}-{gid}-{may}"
    path = f"/dev/nvidia{['0666', '0660'].index(mode)}{gid}{int(may)}"
    options = (f"path={path}", "major=195", "minor=0", f"mode={mode}", f"gid={gid}")
    subprocess.run(
        ["incus", "config", "device", "add", container, name, "unix-char", *options], check=True, timeout=120
    )
    provider.execute(container, ["usermod", "--groups", ",".join(groups), USER])

    found = look(provider, container)
    (node,) = [one for one in found.nodes if one.path == path]
    (user,) = found.users
    assert (node.mode, node.gid) == (int(mode, 8), gid)
    asked = provider.execute(container, ["runuser", "-u", USER, "--", "sh", "-c", f"test -r {path} && test -w {path}"])
    assert user.may_use(node) is may
    assert (asked.returncode == 0) is may


def test_a_container_without_a_card_says_so(provider: IncusProvider, container: str) -> None:
    found = look(provider, container)
    assert (found.module, found.libraries, found.toolkits) == ("", (), ())
    assert found.glibc == "2.36"


@pytest.mark.parametrize("cuda", ["'13.0'", "None"])
def test_a_torch_says_for_which_cuda_it_is(provider: IncusProvider, container: str, cuda: str) -> None:
    """By the file that torch's wheels bring; the lines are those of torch 2.13."""
    folder = "/opt/torch_stack/current/lib/python3.11/site-packages/torch"
    provider.execute(container, ["mkdir", "-p", folder])
    content = f"from typing import Optional\n\n__version__ = '2.13.0+x'\ndebug = False\ncuda: Optional[str] = {cuda}\n"
    provider.push(container, content.encode(), f"{folder}/version.py", mode=0o644)
    (found,) = look(provider, container).torches
    assert found == Torch("2.13.0+x", cuda.strip("'") if cuda != "None" else "", "/opt/torch_stack/current")


def test_the_role_of_hosts_refuses_a_machine_without_a_card(provider: IncusProvider, tmp_path: Path) -> None:
    """On this machine itself, by the playbook that ``host prepare --gpu`` runs."""
    if provider.cards.read():
        pytest.skip("this machine has a card")
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(render_this_machine({}, paths.inventory_templates()), encoding="utf-8")
    done = completed(
        ["ansible-playbook", "-i", str(inventory), str(ROOT / "playbooks/gpu_host.yml")],
        env=os.environ | ansible_environment(ROOT) | {"ANSIBLE_NOCOLOR": "1"},
        timeout_s=300,
    )
    assert done.returncode == 2, done.stdout
    assert "it has none of NVIDIA, AMD or Intel" in done.stdout
    assert "changed=0" in done.stdout
