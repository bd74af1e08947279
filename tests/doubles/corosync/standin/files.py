"""The files that a member has in ``/etc/pve``: made when they lack, never removed."""

from __future__ import annotations

import sys

from . import node, trust


def make_folders(name: str) -> None:
    """The folders of one node."""
    for folder in (
        "priv",
        "nodes",
        *(f"nodes/{name}{below}" for below in ("", "/lxc", "/qemu-server", "/openvz", "/priv")),
    ):
        (node.PVE / folder).mkdir(exist_ok=True)


def update(*, is_silent: bool = False, is_forced: bool = False) -> None:
    """All that ``pvecm updatecerts`` writes."""
    if not node.is_quorate():
        if is_silent:
            return
        raise node.DieError("no quorum - unable to update files")
    trust.share_keys()
    words = ["(re)generate node files", *(["generate new node certificate"] if is_forced else [])]
    sys.stdout.write("" if is_silent else "".join(f"{line}\n" for line in words))
    make_folders(node.name())
    mine = node.PVE / f"nodes/{node.name()}"
    for file, what in ((mine / "pve-ssl.key", "key"), (mine / "pve-ssl.pem", "certificate")):
        if is_forced or not file.exists():
            file.write_text(f"a {what} of {node.name()}, for tests\n", encoding="ascii")
    sys.stdout.write("" if is_silent else "merge authorized SSH keys\n")
    sys.stdout.flush()
    trust.merge_keys()
    trust.publish_host_key()
