"""``pvecm``: as much of it as repairs use."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from . import corosync_conf, files, joining, members, node

UPDATE_TIMEOUT_S = 80
NO_CLUSTER = "Error: Corosync config '/etc/pve/corosync.conf' does not exist - is this node part of a cluster?"
REFUSED = "400 Parameter verification failed."
SWITCHES = {"use_ssh", "force", "silent"}
OPTIONS = {
    "add": {"use_ssh", "force", "link0", "nodeid", "votes", "fingerprint"},
    "addnode": {"force", "link0", "nodeid", "votes", "new_node_ip", "apiversion"},
    "updatecerts": {"force", "silent"},
}
WORDS = {"add": ["hostname"], "addnode": ["node"], "delnode": ["node"], "expected": ["expected"]}


def main() -> None:
    """Do what the arguments say."""
    os.environ["HOME"] = "/root"
    command, *arguments = sys.argv[1:] or [""]
    actions: dict[str, Callable[[list[str], dict[str, str]], None]] = {
        "add": _add,
        "addnode": lambda words, options: members.add(words[0], options),
        "apiver": lambda *_: node.say(str(joining.API_VERSION)),
        "delnode": lambda words, _: members.delete(words[0]),
        "expected": _expected,
        "nodes": lambda *_: _tool("-l"),
        "status": _status,
        "updatecerts": _update,
    }
    if command not in actions:
        node.die(f"ERROR: unknown command 'pvecm {command}'")
    node.assert_pmxcfs()
    words, options = _parsed(command, arguments)
    try:
        actions[command](words, options)
    except node.DieError as error:
        node.die(str(error))


def _parsed(command: str, arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    words: list[str] = []
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        one = rest.pop(0)
        if not one.startswith("-"):
            words.append(one)
            continue
        option, _, value = one.lstrip("-").partition("=")
        if option not in OPTIONS.get(command, set()):
            node.die(f"Unknown option: {option}\n{REFUSED}")
        if not value and (option not in SWITCHES or (rest and rest[0] in {"0", "1"})):
            value = rest.pop(0) if rest else ""
        if option not in SWITCHES or value != "0":
            options[option] = value or "1"
    if len(words) < len(WORDS.get(command, [])):
        node.die(f"{REFUSED}\n{WORDS[command][len(words)]}: property is missing and it is not optional")
    if len(words) > len(WORDS.get(command, [])):
        node.die("400 too many arguments")
    return words, options


def _add(words: list[str], options: dict[str, str]) -> None:
    if Path.cwd().is_relative_to(node.PVE):
        raise node.DieError(f"Navigate out of {node.PVE} before running 'pvecm add', for example by running 'cd'.")
    if "use_ssh" not in options:
        node.die("Please enter superuser (root) password: this stand-in joins with --use_ssh only")
    # From here on a worker does it: its two outputs are one, and nobody looks at how it ends.
    sys.stdout.flush()
    os.dup2(1, 2)
    try:
        joining.join(words[0], options)
    except (node.DieError, OSError) as error:
        sys.stdout.flush()
        sys.stderr.write(f"{error}\n")


def _status(*_: object) -> None:
    _assert_clustered()
    totem = corosync_conf.parse(node.CONF.read_text(encoding="utf-8"))["totem"]
    rows = {
        "Name": totem["cluster_name"],
        "Config Version": totem["config_version"],
        "Transport": totem.get("transport", "knet"),
        "Secure auth": totem.get("secauth", "off"),
    }
    node.say("Cluster information\n-------------------")
    node.say("".join(f"{label + ':':<17} {value}\n" for label, value in rows.items()))
    _tool("-siH")


def _expected(words: list[str], _: object) -> None:
    if not words[0].isdigit():
        node.die(f"{REFUSED}\nexpected: type check ('integer') failed - got '{words[0]}'")
    if int(words[0]) < 1:
        node.die(f"{REFUSED}\nexpected: value must have a minimum value of 1")
    _tool("-e", words[0])


def _update(_: list[str], options: dict[str, str]) -> None:
    deadline, is_silent = time.monotonic() + UPDATE_TIMEOUT_S, "silent" in options
    turn = 0
    while not node.is_quorate():
        if time.monotonic() > deadline:
            words = (
                "got timeout when trying to ensure cluster certificates and base file"
                " hierarchy is set up - no quorum (yet) or hung pmxcfs?"
            )
            node.die(words, 0 if is_silent else 255)
        if not is_silent and turn % 50 == 0:
            node.say("waiting for pmxcfs mount to appear and get quorate...")
        turn += 1
        time.sleep(0.1)
    files.update(is_silent=is_silent, is_forced="force" in options)


def _assert_clustered() -> None:
    if not node.CONF.is_file():
        raise node.DieError(NO_CLUSTER)


def _tool(*arguments: str) -> NoReturn:
    _assert_clustered()
    sys.stdout.flush()
    os.execvp("corosync-quorumtool", ["corosync-quorumtool", *arguments])  # noqa: S606 - as Proxmox VE does


if __name__ == "__main__":
    main()
