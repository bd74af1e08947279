"""``host prepare`` on real machines: this one (the lab is its work), and bare Debian systems in containers."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.values import paths
from tests.http_servers import files_served
from tests.lab import remains
from tests.lab.incus import RUN, Lab, bring_up, kept_mark, lab_beside, prepare, take_down, turn
from tests.waiting import wait_until

pytestmark = pytest.mark.incus

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
WAIT_UNTIL_UP = "until systemctl is-system-running | grep -qE 'running|degraded'; do sleep 0.2; done"
WAIT_FOR_NETWORK = "until ip -4 route show default | grep -q .; do sleep 0.2; done"


def incus(*arguments: str, lab: Lab | None = None, timeout: float = 300) -> str:
    """What the client prints when it asks ``lab``, else the one of all tests; its complaint is shown when it fails."""
    environment = os.environ | (lab.environment if lab else {})
    command = ["incus", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"incus {' '.join(arguments)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def changed(output: str) -> int:
    """How many tasks of the play changed something."""
    found = re.search(r"changed=(\d+)", output)
    assert found, output
    return int(found.group(1))


@pytest.fixture
def container(incus_lab: Lab) -> Iterator[str]:
    """A name for a container, gone afterwards."""
    assert incus_lab
    name = f"t{secrets.token_hex(4)}"
    yield name
    subprocess.run(["incus", "delete", "--force", name], capture_output=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def own_lab(incus_lab: Lab) -> Iterator[Lab]:
    """One more Incus beside the one of all tests, for what would disturb others; one test run has it at a time."""
    assert incus_lab
    lab = lab_beside("own", "debian/12-bare")
    with turn(lab):
        take_down(lab)
        prepare(lab)
        yield lab
        take_down(lab)


def test_the_second_run_changes_nothing(own_lab: Lab) -> None:
    assert changed(prepare(own_lab)) == 0


def test_check_mode_changes_nothing_on_a_prepared_machine(own_lab: Lab) -> None:
    assert changed(prepare(own_lab, arguments=["--check"])) == 0


def test_a_daemon_that_was_stopped_is_started_again_with_all_it_had(own_lab: Lab) -> None:
    images = incus("image", "list", "--format=csv", lab=own_lab)
    first = remains.running(remains.pidfile(own_lab.state, RUN), remains.INCUSD)
    remains.stop_daemon(own_lab.state, RUN)
    assert changed(prepare(own_lab)) == 1
    second = remains.running(remains.pidfile(own_lab.state, RUN), remains.INCUSD)
    assert second not in {None, first}
    assert incus("image", "list", "--format=csv", lab=own_lab) == images


def test_a_kept_lab_whose_daemon_was_killed_is_made_anew(own_lab: Lab) -> None:
    kept_mark(own_lab).touch()
    try:
        incus("image", "alias", "create", "left-behind", _fingerprint(own_lab), lab=own_lab)
        bring_up(own_lab)
        assert "left-behind" in incus("image", "alias", "list", "--format=csv", lab=own_lab)
        pid = remains.running(remains.pidfile(own_lab.state, RUN), remains.INCUSD)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}/exe").exists())
        bring_up(own_lab)
        assert "left-behind" not in incus("image", "alias", "list", "--format=csv", lab=own_lab)
    finally:
        kept_mark(own_lab).unlink()


def _fingerprint(lab: Lab) -> str:
    [image] = json.loads(incus("image", "list", "--format=json", lab=lab))
    return str(image["fingerprint"])


def test_what_its_owner_chose_stays(own_lab: Lab) -> None:
    incus("config", "set", "images.auto_update_interval=5", lab=own_lab)
    incus("profile", "device", "set", "default", "root", "size=3GiB", lab=own_lab)
    chosen = incus("profile", "show", "default", lab=own_lab)
    assert changed(prepare(own_lab)) == 0
    assert incus("profile", "show", "default", lab=own_lab) == chosen
    assert incus("config", "get", "images.auto_update_interval", lab=own_lab).strip() == "5"


@pytest.mark.parametrize(("image", "has_python"), [("debian/12", True), ("debian/13", True), ("debian/12-bare", False)])
def test_a_container_of_each_image_boots_whole_and_reaches_its_mirror(
    container: str, image: str, has_python: bool
) -> None:
    incus("launch", image, container)
    incus("exec", container, "--", "sh", "-c", f"{WAIT_UNTIL_UP}; {WAIT_FOR_NETWORK}", timeout=120)
    assert incus("exec", container, "--", "systemctl", "is-system-running").strip() == "running"
    incus("exec", container, "--", "apt-get", "--error-on=any", "--quiet", "update")
    seen = incus("exec", container, "--", "sh", "-c", "command -v python3 || echo none").strip()
    assert seen == ("/usr/bin/python3" if has_python else "none")


def test_no_api_listens_on_the_network(incus_lab: Lab) -> None:
    assert incus_lab
    assert incus("config", "get", "core.https_address").strip() == ""


def test_a_subnet_that_the_machine_reaches_elsewhere_is_refused_before_anything_is_touched(
    incus_lab: Lab, tmp_path: Path
) -> None:
    state = tmp_path / "other"
    with pytest.raises(RuntimeError, match=r"overlaps[\s\S]*Give incus_host_subnet another value"):
        prepare(Lab(state=state, bridge="prvlab1", subnet=incus_lab.subnet))
    assert not state.exists()


def test_an_account_that_does_not_exist_is_refused(incus_lab: Lab) -> None:
    with pytest.raises(RuntimeError, match="Unable to let nobody-of-that-name use Incus"):
        prepare(incus_lab, incus_host_users=["nobody-of-that-name"])


def test_an_image_that_nobody_has_is_refused_with_those_that_can_be_built(own_lab: Lab) -> None:
    with pytest.raises(RuntimeError, match=r"Unable to get debian/99[\s\S]*debian/12, debian/12-bare, debian/13"):
        prepare(own_lab, incus_host_images=["debian/99"], incus_host_image_server="http://127.0.0.1:1")


def test_an_image_is_fetched_from_the_image_server_when_it_answers(own_lab: Lab, tmp_path: Path) -> None:
    incus("image", "delete", "debian/12-bare", lab=own_lab)
    with image_server(tmp_path, cached_image("debian-12-bare")) as address:
        assert changed(prepare(own_lab, incus_host_image_server=address)) == 1
    [image] = json.loads(incus("image", "list", "--format=json", lab=own_lab))
    assert [alias["name"] for alias in image["aliases"]] == ["debian/12-bare"]
    assert image["update_source"]["server"] == address


def test_a_server_that_lacks_the_image_is_named_with_what_it_said(own_lab: Lab, tmp_path: Path) -> None:
    complaint = r"Unable to fetch the image debian/99 from http://127\.0\.0\.1:\d+: .*couldn't be found"
    with (
        image_server(tmp_path, cached_image("debian-12-bare")) as address,
        pytest.raises(RuntimeError, match=complaint),
    ):
        prepare(own_lab, incus_host_images=["debian/99"], incus_host_image_server=address)


def test_nothing_is_left_of_a_lab_whose_daemon_was_killed(own_lab: Lab, incus_lab: Lab) -> None:
    incus("launch", "debian/12-bare", "left", lab=own_lab)
    daemon = remains.running(remains.pidfile(own_lab.state, RUN), remains.INCUSD)
    assert daemon
    os.kill(daemon, signal.SIGKILL)
    assert any("lxc monitor" in thing for thing in remains.left(own_lab.state, own_lab.bridge))
    take_down(own_lab)
    assert remains.left(own_lab.state, own_lab.bridge) == []
    assert remains.running(remains.pidfile(incus_lab.state, RUN), remains.INCUSD)
    incus("query", "/1.0/networks/" + incus_lab.bridge + "/state")


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("release", ["12", "13"])
def test_a_bare_machine_with_systemd_becomes_a_host_of_containers(container: str, release: str, tmp_path: Path) -> None:
    """From no Incus to a running container, beside an apt source that is gone; the second run changes nothing."""
    incus("launch", f"debian/{release}", container, "--config", "security.nesting=true")
    incus("exec", container, "--", "sh", "-c", f"{WAIT_UNTIL_UP}; {WAIT_FOR_NETWORK}", timeout=120)
    become_a_machine(container, tmp_path)
    assert changed(prepare_inside(container, "--check")) > 0
    assert changed(prepare_inside(container)) > 0
    assert changed(prepare_inside(container)) == 0
    second = {"incus_host_dir": "/var/lib/second", "incus_host_bridge": "second0", "incus_host_subnet": "10.99.2.1/24"}
    assert changed(prepare_inside(container, "--extra-vars", json.dumps(second))) > 0
    assert changed(prepare_inside(container, "--extra-vars", json.dumps(second))) == 0
    for unit in ("incus.socket", "incus-startup.service"):
        assert incus("exec", container, "--", "systemctl", "is-enabled", unit).strip() == "enabled"
    incus("exec", container, "--", "incus", "launch", "debian/12", "inner")
    inside = ("exec", container, "--", "incus", "exec", "inner", "--", "sh", "-c")
    incus(*inside, f"{WAIT_UNTIL_UP}; {WAIT_FOR_NETWORK}", timeout=120)
    assert incus(*inside, "systemctl is-system-running").strip() == "running"


def cached_image(name: str) -> Path:
    """The built image of that name, without its endings."""
    [found] = (paths.cache() / "images").glob(f"{name}-????????????????.squashfs")
    return found.with_suffix("")


class image_server:  # noqa: N801  # a context manager, named like a function
    """A public image server as Incus knows them, with one image under the name ``debian/12``."""

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        parts = {"incus.tar.xz": f"{image}.meta.tar.xz", "root.squashfs": f"{image}.squashfs"}
        content = {name: Path(file).read_bytes() for name, file in parts.items()}
        for name, data in content.items():
            (folder / name).write_bytes(data)
        items = {
            name: {"ftype": ftype, "path": name, "size": len(content[name]), "sha256": _sha256(content[name])}
            for name, ftype in (("incus.tar.xz", "incus.tar.xz"), ("root.squashfs", "squashfs"))
        }
        items["incus.tar.xz"]["combined_squashfs_sha256"] = _sha256(content["incus.tar.xz"] + content["root.squashfs"])
        self._write_streams(items)

    def _write_streams(self, items: dict[str, Any]) -> None:
        arch = ARCHITECTURES[os.uname().machine]
        product = {"aliases": "debian/12", "arch": arch, "os": "Debian", "release": "bookworm", "variant": "default"}
        products = {f"debian:bookworm:{arch}:default": product | {"versions": {"20260101_00:00": {"items": items}}}}
        images = {"content_id": "images", "datatype": "image-downloads", "format": "products:1.0", "products": products}
        entry = {"datatype": "image-downloads", "path": "streams/v1/images.json", "format": "products:1.0"}
        index = {"format": "index:1.0", "index": {"images": entry | {"products": list(products)}}}
        streams = self.folder / "streams/v1"
        streams.mkdir(parents=True)
        (streams / "images.json").write_text(json.dumps(images), encoding="utf-8")
        (streams / "index.json").write_text(json.dumps(index), encoding="utf-8")

    def __enter__(self) -> str:
        self.served = files_served(self.folder)
        return self.served.__enter__()

    def __exit__(self, *_: object) -> None:
        self.served.__exit__(None, None, None)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def become_a_machine(container: str, folder: Path) -> None:
    """Give the container what a user's machine has: Ansible, our files, our images, and an apt source that is gone."""
    root = paths.share()
    with tarfile.open(folder / "ours.tar", "w") as archive:
        for part in ("roles/incus_host", "playbooks/host.yml"):
            archive.add(root / part, part)
        archive.add(paths.plugins() / "modules", "modules")
        for file in (paths.cache() / "images").glob("debian-12-????????????????.*"):
            archive.add(file, f"images/{file.name}")
    incus("file", "push", str(folder / "ours.tar"), f"{container}/root/ours.tar")
    script = """
set -eu
mkdir /opt/ours && tar -C /opt/ours -xf /root/ours.tar
echo 'deb http://unreachable.invalid/apt stable main' > /etc/apt/sources.list.d/gone.list
# two controllers of a v1 host are mounted apart, systemd expects them together; LXC within needs them as they are
if [ "$(stat -fc %T /sys/fs/cgroup)" != cgroup2fs ] && ! mountpoint -q /sys/fs/cgroup/cpu; then
  mount -o remount,rw /sys/fs/cgroup
  rm -f /sys/fs/cgroup/cpu /sys/fs/cgroup/cpuacct
  for one in cpu cpuacct; do mkdir /sys/fs/cgroup/$one; mount -t cgroup -o $one cgroup /sys/fs/cgroup/$one; done
fi
apt-get -qq update || true
DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends python3-venv >/dev/null
rm -rf /var/lib/apt/lists/*
python3 -m venv /opt/venv
PIP_CERT=/etc/ssl/certs/ca-certificates.crt /opt/venv/bin/pip install --quiet 'ansible-core~=2.19.0'
"""
    incus("exec", container, "--", "sh", "-c", script)


def prepare_inside(container: str, *arguments: str) -> str:
    """Run the play in the container and give its output."""
    variables = {
        "incus_host_pool_driver": "dir",  # a container has no loop devices
        "incus_host_subnet": "10.99.1.1/24",
        "incus_host_image_server": "http://127.0.0.1:1",
        "incus_host_image_cache": "/opt/ours/images",
    }
    environment = {
        "HOME": "/root",
        "ANSIBLE_ROLES_PATH": "/opt/ours/roles",
        "ANSIBLE_LIBRARY": "/opt/ours/modules",
        "ANSIBLE_NOCOLOR": "1",
    }
    settings = [f"--env={name}={value}" for name, value in environment.items()]
    play = ["/opt/venv/bin/ansible-playbook", "/opt/ours/playbooks/host.yml", "--extra-vars", json.dumps(variables)]
    return incus("exec", container, *settings, "--", *play, *arguments, timeout=900)
