"""A copy of a firmware chip, read by flashrom from its emulated one: kept when two reads are equal, only then."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values.state import Instance
from tests.doubles.corosync.incus_cli import query
from tests.integration.running_containers import kept_running
from tests.lab.incus import Lab
from tests.processes import completed

pytestmark = [pytest.mark.incus, pytest.mark.network]

SIZE = 0x800000
CHIP = "/root/chip.bin"
PROGRAMMER = f"dummy:emulate=MX25L6436,image={CHIP}"
NAME = "MX25L6436E/MX25L6445E/MX25L6465E/MX25L6473E/MX25L6473F"
"""What flashrom calls it; it is one of several that answer alike."""
KNOWN = ("--programmer", PROGRAMMER, "--chip", NAME)
INSTALL = """\
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends openssh-server python3 flashrom
mv /usr/sbin/flashrom /usr/sbin/flashrom.real
install -d -m 0700 /root/.ssh
cat > /root/.ssh/authorized_keys
"""
HONEST = '#!/bin/sh\nexec flashrom.real "$@"\n'
DISTURBED = """\
#!/bin/sh
# The second read of this boot comes with one byte changed.
set -e
flashrom.real "$@"
for last; do :; done
if [ -f "$last" ]; then
  if [ -e /run/read-before ]; then printf X | dd of="$last" bs=1 seek=4096 conv=notrunc status=none; fi
  touch /run/read-before
fi
"""


def image() -> bytes:
    """8 MiB with an Intel flash descriptor: four regions, random bytes behind it."""
    data = bytearray(b"\xff" * 0x1000 + os.urandom(SIZE - 0x1000))
    data[0x10:0x18] = b"\x5a\xa5\xf0\x0f" + (0x00040003).to_bytes(4, "little")
    words = (0x00000000, 0x07FF0500, 0x04FF0003, 0x00020001, *[0x00007FFF] * 8)
    data[0x40:0x70] = b"".join(word.to_bytes(4, "little") for word in words)
    return bytes(data)


@dataclass
class Box:
    """A host with flashrom and an sshd, and how ``provision`` reaches it."""

    instance: str
    address: str
    ssh_config: Path
    state: Path

    def run(self, command: str, stdin: bytes = b"") -> str:
        """Run a shell command there, which succeeds."""
        done = IncusProvider("box").execute(self.instance, ["sh", "-c", command], stdin=stdin, timeout_s=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.decode()

    def put(self, path: str, data: bytes, mode: str = "0644") -> None:
        """Write a file there."""
        self.run(f"rm -f {path}; cat > {path}; chmod {mode} {path}", data)

    def backup(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the runbook on it."""
        command = (sys.executable, "-m", "provisioner", "runbook", "run", "bios-backup")
        return completed(
            [*command, "--host", f"root@{self.address}", *options],
            env=os.environ | {"PROVISION_SSH_CONFIG": str(self.ssh_config), "XDG_STATE_HOME": str(self.state)},
            timeout_s=120,
        )

    def kept(self) -> list[Path]:
        """Every file of an image's size, or of a sum, that is anywhere in our state."""
        files = [one for one in self.state.rglob("*") if one.is_file()]
        return [one for one in files if one.suffix in {".bin", ".sha256"} or one.stat().st_size >= SIZE // 2]


@pytest.fixture(scope="module")
def host(incus_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A container with Debian's flashrom, behind a program of the same name that a test may replace."""
    folder = tmp_path_factory.mktemp("bios")
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=60)
    provider = IncusProvider("box")
    with kept_running(provider, Instance(f"t{secrets.token_hex(4)}-bios", "box", "bios", "debian/12")) as one:
        box = Box(one.name, "", folder / "config", folder / "state")
        box.run(INSTALL, key.with_suffix(".pub").read_bytes())
        addresses = query(incus_lab, f"/1.0/instances/{one.name}/state")["network"]["eth0"]["addresses"]
        box.address = next(each["address"] for each in addresses if each["family"] == "inet")
        keys = box.run("cat /etc/ssh/ssh_host_*_key.pub").splitlines()
        known = "".join(f"{box.address} {' '.join(line.split()[:2])}\n" for line in keys)
        (folder / "known_hosts").write_text(known, encoding="ascii")
        box.ssh_config.write_text(
            f"Host *\n  IdentityFile {key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n",
            encoding="ascii",
        )
        yield box


@pytest.fixture
def box(host: Box, tmp_path: Path) -> Box:
    """The host with an honest flashrom, and nothing kept yet."""
    host.state = tmp_path / "state"
    host.put("/usr/sbin/flashrom", HONEST.encode(), "0755")
    host.run("rm -f /run/read-before")
    return host


def test_two_equal_reads_are_kept_with_their_regions(box: Box, tmp_path: Path) -> None:
    data = image()
    box.put(CHIP, data)
    done = box.backup(*KNOWN, "--output", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tmp_path / "kept").glob("*.bin")
    assert file.read_bytes() == data
    digest = hashlib.sha256(data).hexdigest()
    assert Path(f"{file}.sha256").read_text() == f"{digest}  {file.name}\n"
    assert {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "kept").iterdir()} == {0o600}
    assert f"sha256  {digest}" in done.stdout
    assert "region  0x00001000-0x00002fff  gbe" in done.stdout
    assert "region  0x00500000-0x007fffff  bios" in done.stdout
    assert box.kept() == []
    assert box.run("ls -d /tmp/provisioner-bios-* 2>/dev/null || true; sha256sum < " + CHIP).split()[0] == digest


def test_without_a_descriptor_it_says_so_and_keeps_it_with_its_record(box: Box) -> None:
    data = os.urandom(SIZE)
    box.put(CHIP, data)
    done = box.backup(*KNOWN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No Intel flash descriptor is in it" in done.stdout
    (file,) = (one for one in box.kept() if one.suffix == ".bin")
    assert file.read_bytes() == data
    assert {stat.S_IMODE(one.stat().st_mode) for one in file.parent.iterdir() if one.is_file()} == {0o600}
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert (file.parent / "report.html").is_file()


def test_two_reads_that_differ_are_refused_and_nothing_is_kept(box: Box, tmp_path: Path) -> None:
    box.put(CHIP, image())
    box.put("/usr/sbin/flashrom", DISTURBED.encode(), "0755")
    done = box.backup(*KNOWN, "--output", str(tmp_path / "kept"))
    assert done.returncode == 1
    assert "The two reads differ, so neither can be trusted; nothing was kept." in done.stderr
    assert box.kept() == []
    assert not (tmp_path / "kept").exists()
    assert box.run("ls -d /tmp/provisioner-bios-* 2>/dev/null || true") == ""


def test_an_empty_chip_is_no_image(box: Box) -> None:
    box.put(CHIP, b"\xff" * SIZE)
    done = box.backup(*KNOWN)
    assert done.returncode == 1
    assert "every byte is 0xff" in done.stderr
    assert box.kept() == []


def test_a_chip_that_is_not_there_is_told_in_flashrom_s_words(box: Box) -> None:
    done = box.backup("--programmer", "dummy:emulate=MX25L6436", "--chip", "W25Q128.V")
    assert done.returncode == 1
    assert "No EEPROM/flash device found" in done.stderr
    assert box.kept() == []


def test_one_of_several_chips_is_to_be_named(box: Box) -> None:
    done = box.backup("--programmer", PROGRAMMER)
    assert done.returncode == 1
    assert "Multiple flash chip definitions match" in done.stderr
    assert box.kept() == []


def test_flashrom_is_not_installed_for_anybody(box: Box) -> None:
    box.run("mv /usr/sbin/flashrom /usr/sbin/flashrom.away")
    try:
        done = box.backup()
    finally:
        box.run("mv /usr/sbin/flashrom.away /usr/sbin/flashrom")
    assert done.returncode == 4
    assert "flashrom is not installed there" in done.stderr
    assert "apt install flashrom" in done.stderr
    assert list(box.state.rglob("record.json")) == []
