"""Role `gpu_userspace` in real containers: nodes without a card behind them, and NVIDIA's own installer, played.

The nodes are ``unix-char`` devices as a card's would be: Incus makes them for a driver that this machine has not.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values.state import Instance
from tests.doubles.proxmox.certificate import issue
from tests.integration.role_box import RoleBox
from tests.integration.running_containers import kept_running
from tests.lab.incus import Lab as Incus
from tests.processes import completed

pytestmark = [pytest.mark.incus, pytest.mark.network]

RENDER = "/dev/dri/renderD128"
NULL = (1, 3)
"""The numbers of /dev/null: a node with something behind it."""
CARD = (226, 128)
PLAYED = "999.10"
RUN = f"NVIDIA-Linux-x86_64-{PLAYED}.run"
PAYLOAD = "/srv/payload"
MAKE_PAYLOAD = f"""
set -e
mkdir -p {PAYLOAD} && cd {PAYLOAD}
for one in libcuda libnvidia-ml; do cp -L /usr/lib/x86_64-linux-gnu/$one.so.1 $one.so.{PLAYED}; done
cp -L /usr/bin/nvidia-smi nvidia-smi
"""
INSTALLER = f"""#!/bin/sh
set -e
if [ "$1" = --advanced-options ]; then
  printf '  --no-kernel-modules\\n      Install everything but the kernel modules.\\n'
  printf '  --no-nvidia-modprobe\\n      Skip it.\\n  --no-systemd\\n  --no-x-check\\n'
  exit 0
fi
echo "$@" > /srv/asked
cp {PAYLOAD}/lib* /usr/lib/x86_64-linux-gnu && cp {PAYLOAD}/nvidia-smi /usr/bin && ldconfig
cat > /usr/bin/nvidia-uninstall << 'END'
#!/bin/sh
rm /usr/bin/nvidia-uninstall /usr/bin/nvidia-smi /usr/lib/x86_64-linux-gnu/lib*.so.{PLAYED} && ldconfig
END
chmod 0755 /usr/bin/nvidia-uninstall
"""
"""Takes the words and does the work of the real one, as far as the role sees it; the libraries are apt's."""
SERVE = """
import http.server, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/srv/server.pem")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), http.server.SimpleHTTPRequestHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
OPEN = "import os, sys; os.open(sys.argv[1], os.O_RDWR)"
AS_MEMBER = "setpriv --reuid 65534 --regid 65534 --groups render"
AS_STRANGER = "setpriv --reuid 65534 --regid 65534 --clear-groups"
NO_CARD = "Unable to prove that the card can compute: nvidia-smi does not reach the host's driver"


class Box(RoleBox):
    """A container in which the role is run."""

    def role(self, part: str = "main", **options: Any) -> str:
        """What the run of the role, or of a part of it, says."""
        variables = {f"gpu_userspace_{name}": value for name, value in options.items()}
        include = {"ansible.builtin.include_role": {"name": "gpu_userspace", "tasks_from": part}}
        return self.play({"roles": ["base"], "tasks": [include]}, variables)

    def give(self, numbers: tuple[int, int], group: int, path: str = RENDER) -> None:
        """Give the container a node; one that is there at this path goes."""
        words = [f"path={path}", f"major={numbers[0]}", f"minor={numbers[1]}", f"gid={group}", "mode=0660"]
        incus("config", "device", "remove", self.name, "card", check=False)
        incus("config", "device", "add", self.name, "card", "unix-char", *words)

    def open(self, who: str) -> str:
        """What opening the node says."""
        return self.run(f"{who} python3 -c '{OPEN}' {RENDER} 2>&1 | tail -n 1")


def incus(*arguments: str, check: bool = True) -> None:
    """Ask the lab's Incus."""
    done = completed(["incus", *arguments], env=os.environ, timeout_s=300)
    assert not check or done.returncode == 0, done.stderr


@contextmanager
def running(image: str, folder: Path) -> Iterator[Box]:
    """A running container of the image."""
    provider = IncusProvider("box")
    with kept_running(provider, Instance(f"t{secrets.token_hex(4)}-card", "box", "card", image)) as one:
        yield Box(provider, one.name, folder)


@pytest.fixture(scope="module")
def radeon(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A container with Mesa, whose group render has another number than Debian 12's."""
    assert incus_lab
    with running("debian/13", tmp_path_factory.mktemp("amd")) as box:
        yield box


@pytest.fixture(scope="module")
def render(radeon: Box) -> int:
    """The number of the container's own group render."""
    return int(radeon.run("getent group render").split(":")[2])


@pytest.fixture(scope="module")
def geforce(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A container that has an earlier driver's user space by apt, and a server of the played installer."""
    assert incus_lab
    folder = tmp_path_factory.mktemp("nvidia")
    files = issue(folder, "127.0.0.1")
    (folder / RUN).write_text(INSTALLER, encoding="utf-8")
    with running("debian/12", folder) as box:
        assert NO_CARD in box.role(vendor="nvidia", driver_version="535.261.03")
        box.run(f"{MAKE_PAYLOAD} apt-get -qq install ca-certificates > /dev/null")
        for file, path in (
            (files.ca, "/usr/local/share/ca-certificates/test.crt"),
            (files.server, "/srv/server.pem"),
            (folder / RUN, f"/srv/{RUN}"),
        ):
            box.provider.push(box.name, file, path)
        box.run(f"update-ca-certificates > /dev/null && cat > /srv/serve.py << 'END'\n{SERVE}\nEND")
        box.run("systemd-run --quiet --unit installers --working-directory /srv python3 /srv/serve.py")
        box.run("timeout 20 bash -c 'until (: > /dev/tcp/127.0.0.1/443) 2> /dev/null; do sleep 0.1; done'")
        yield box


def installer(**options: str) -> dict[str, str]:
    """The role's options for the played installer."""
    digest = hashlib.sha256(INSTALLER.encode()).hexdigest()
    given = {"vendor": "nvidia", "driver_version": PLAYED, "source": f"https://127.0.0.1/{RUN}", "sha256": digest}
    return given | options


def test_a_member_of_render_reaches_the_node_and_nobody_else_does(radeon: Box, render: int) -> None:
    radeon.give(CARD, render)
    assert radeon.run(f"stat --format '%t:%T %a %u %g' {RENDER}").split() == ["e2:80", "660", "0", str(render)]
    assert "No such device or address" in radeon.open(AS_MEMBER), "it was let through, and there is no driver"
    assert "Permission denied" in radeon.open(AS_STRANGER)
    said = radeon.role(vendor="amd", nodes=[RENDER])
    assert f"{RENDER} is there, and no driver is behind it. Load the host's driver: modprobe amdgpu" in said


def test_a_node_of_another_group_is_refused(radeon: Box, render: int) -> None:
    radeon.give(NULL, render + 1)
    assert "Permission denied" in radeon.open(AS_MEMBER)
    said = radeon.role("verify", vendor="amd", nodes=[RENDER])
    assert f"a user in the groups render and video may not open {RENDER}" in said


def test_a_processor_that_plays_a_card_is_refused(radeon: Box, render: int) -> None:
    radeon.give(NULL, render)
    assert radeon.open(AS_MEMBER) == ""
    said = radeon.role(vendor="amd", nodes=[RENDER])
    assert re.search(r"Vulkan finds only llvmpipe \(.*\), which is the processor that plays a card\. Give", said), said


def test_a_second_run_changes_nothing(radeon: Box) -> None:
    assert re.search(r"changed=0 .*failed=1", radeon.role(vendor="amd", nodes=[RENDER]))


def test_what_the_distribution_has_not_is_refused(radeon: Box) -> None:
    said = radeon.role(vendor="intel", compute=True)
    assert "Unable to install the compute libraries of intel: Debian-13 has none" in said


def test_an_installer_that_is_not_the_one_is_refused_and_what_worked_stays(geforce: Box) -> None:
    said = geforce.role(**installer(sha256="0" * 64))
    assert re.search(r"failed=1", said), said
    assert "0" * 64 in said
    assert "535.261.03" in geforce.run("dpkg --status libcuda1")


def test_the_installer_replaces_what_apt_installed(geforce: Box) -> None:
    assert NO_CARD in geforce.role(**installer())
    assert geforce.run("cat /srv/asked").split() == [
        *("--ui=none", "--no-questions", "--no-kernel-modules"),
        *("--no-nvidia-modprobe", "--no-x-check", "--no-systemd"),
    ], "what it does not know is left out"
    assert "nvidia" not in geforce.run("dpkg-query --show --showformat '${db:Status-Status} ${Package}\\n' | grep ^ins")
    assert geforce.run("ls -d /etc/apt/*/nvidia* /var/cache/gpu_userspace 2>&1 || true").count("cannot access") == 2
    again = geforce.role(**installer())
    assert re.search(r"changed=0 .*failed=1", again), again
    assert NO_CARD in again


def test_apt_replaces_what_the_installer_installed(geforce: Box) -> None:
    said = geforce.role(vendor="nvidia", driver_version="535.261.03")
    assert NO_CARD in said
    assert PLAYED not in geforce.run("ls /usr/lib/x86_64-linux-gnu")
