"""``pvecm add``: this node becomes a member, step by step as the real one does it, and as recklessly."""

from __future__ import annotations

import gzip
import ipaddress
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from . import files, node, trust

TIMEOUT_S = 300
API_VERSION = 1
BACKUPS = 10
QUORUM_POLL_S = 1


def join(host: str, options: dict[str, str]) -> None:
    """All of it; ``DieError`` where it stops, with what was done until then left as it is."""
    mine = node.address()
    _assert_joinable(mine, options)
    trust.set_up_sshd()
    trust.set_up_client()
    trust.share_keys()
    trust.keep_known_hosts_local()
    copied = subprocess.run(
        ["ssh-copy-id", "-i", str(trust.KEY), f"root@{host}"], capture_output=True, check=False, timeout=TIMEOUT_S
    )
    if copied.returncode:
        raise node.DieError(f"unable to copy ssh ID: exit code {copied.returncode}")
    asked = subprocess.run(
        ["ssh", host, "-o", "BatchMode=yes", "pvecm", "apiver"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    version = int(asked.stdout.strip() or 0)
    call = ["ssh", host, "-o", "BatchMode=yes", "pvecm", "addnode", node.name(), "--force", "1"]
    for option in ("nodeid", "votes", "link0"):
        call += [f"--{option}", options[option]] if option in options else []
    if "link0" not in options:
        call += ["--new_node_ip" if version else "--link0", mine]
        node.say(f"No cluster network links passed explicitly, fallback to local node IP '{mine}'")
    sys.stdout.flush()
    if subprocess.run(call, check=False, timeout=TIMEOUT_S).returncode:
        raise node.DieError(f"unable to add node: command failed ({' '.join(call)})")
    _finish(*_fetch(host))


def _assert_joinable(mine: str, options: dict[str, str]) -> None:
    errors = list(_obstacles(mine, options.get("link0", "").removeprefix("address=")))
    if not errors:
        return
    sys.stderr.write("detected the following error(s):\n" + "".join(f"* {line}\n" for line in errors))
    if "force" not in options:
        raise node.DieError("Check if node may join a cluster failed!")
    sys.stderr.write("\nWARNING : detected error but forced to continue!\n\n")


def _obstacles(mine: str, link: str) -> Iterator[str]:
    if node.AUTHKEY.is_file():
        yield f"authentication key '{node.AUTHKEY}' already exists"
    if node.CONF.is_file():
        yield f"cluster config '{node.CONF}' already exists"
    if json.loads((node.PVE / ".vmlist").read_bytes()).get("ids"):
        yield "this host already contains virtual guests"
    if (
        subprocess.run(["corosync-quorumtool", "-l"], capture_output=True, check=False, timeout=TIMEOUT_S).returncode
        == 0
    ):
        yield "corosync is already running, is this node already in a cluster?!"
    shown = subprocess.run(["ip", "-json", "address"], capture_output=True, check=True, timeout=TIMEOUT_S).stdout
    local = {address["local"] for link in json.loads(shown) for address in link["addr_info"]}
    for what, address in (("local node address", mine), ("link0", link)):
        if address and str(ipaddress.ip_address(address)) not in local:
            yield f"{what}: cannot use IP '{address}', not found on local node!\n"


def _fetch(host: str) -> tuple[bytes, bytes]:
    folder = node.LIBRARY / ".pvecm_add.tmp"
    folder.mkdir(exist_ok=True)
    try:
        node.say("copy corosync auth key")
        paths = [f"[{host}]:{node.AUTHKEY}", f"[{host}]:{node.CONF}"]
        call = ["rsync", "--rsh=ssh -l root -o BatchMode=yes", "-lpgoq", *paths, str(folder)]
        try:
            code = subprocess.run(call, check=False, timeout=TIMEOUT_S).returncode
        except FileNotFoundError:
            code = 1
        if code:
            raise node.DieError(f"can't rsync data from host '{host}'")
        return (folder / "corosync.conf").read_bytes(), (folder / "authkey").read_bytes()
    finally:
        shutil.rmtree(folder)


def _finish(conf: bytes, key: bytes) -> None:
    node.AUTHKEY.parent.mkdir(exist_ok=True)
    node.AUTHKEY.write_bytes(key)
    node.LOCAL_CONF.write_bytes(conf)
    node.say("stopping pve-cluster service")
    node.run(["systemctl", "stop", "pve-cluster"], "can't stop pve-cluster service")
    _back_up_database()
    (node.LIBRARY / "config.db").unlink(missing_ok=True)
    # not restarted: a corosync that still runs goes on with its old list, and then there is no end to the waiting
    node.run(["systemctl", "start", "corosync", "pve-cluster"], "starting pve-cluster failed")
    _wait_for_quorum()
    trust.set_up_client()
    files.update(is_forced=True)
    node.say("generated new node certificate, restart pveproxy and pvedaemon services")
    node.run(["systemctl", "reload-or-restart", "pvedaemon", "pveproxy"])
    node.say(f"successfully added node '{node.name()}' to cluster.")


def _wait_for_quorum() -> None:
    is_told = False
    while not node.is_quorate():
        if not is_told:
            sys.stdout.write("waiting for quorum...")
            sys.stdout.flush()
            is_told = True
        time.sleep(QUORUM_POLL_S)
    if is_told:
        node.say("OK")


def _back_up_database() -> None:
    folder = node.LIBRARY / "backup"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    file = folder / f"config-{int(time.time())}.sql.gz"
    node.say(f"backup old database to '{file}'")
    dump = subprocess.run(
        ["sqlite3", str(node.LIBRARY / "config.db"), ".dump"], stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S
    )
    file.write_bytes(gzip.compress(dump.stdout))
    _purge(folder)


def _purge(folder: Path) -> None:
    for old in sorted(folder.glob("config-*.sql.gz"), reverse=True)[BACKUPS:]:
        node.say(f"delete old backup '{old}'")
        old.unlink()
