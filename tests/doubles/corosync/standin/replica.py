"""One tree for all members of a quorate partition: changes go through corosync and are done by everybody in one order.

As in Proxmox VE, what a node sees without corosync is its own last copy; when nodes meet, the copy with the most
changes wins, whole.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from . import corosync_conf
from .corosync_api import CorosyncError, Group, Map, Quorum
from .database import Database
from .tree import Tree

GROUP = "pve_dcdb_v1"
ATTACH_S = 0.2
"""How often it looks for a corosync that has (re)started; on a real node it takes about five seconds."""
QUORUM_S = 0.05
DISPATCH_S, RETRY_S = 0.5, 0.02
"""How long it waits for news; and where corosync had no time for what is to be told, which is so while nodes meet."""
SUBMIT_TIMEOUT_S = 10.0
RELOAD_DELAY_S = 1.0
HOST_CONF = Path("/etc/corosync/corosync.conf")


def say(words: str) -> None:
    """A line for the journal."""
    subprocess.run(["logger", "-t", "pmxcfs", "--", words], check=True, timeout=60)


class ClusterInfo:
    """What ``.members`` shows; it stays as it was when corosync goes."""

    def __init__(self) -> None:
        self.version = 1
        self.name, self.config_version = "", 0
        self.nodes: dict[str, int] = {}
        self.online: set[int] = set()
        self.addresses: dict[str, str] = {}

    def read(self) -> None:
        """Take what corosync says about its members; not when it says nothing."""
        try:
            source = Map()
        except CorosyncError:
            return
        try:
            nodes = {}
            for n in itertools.count():
                nodeid, name = source.number(f"nodelist.node.{n}.nodeid", 32), source.text(f"nodelist.node.{n}.name")
                if nodeid is None or name is None:
                    break
                nodes[name] = nodeid
            now = (source.text("totem.cluster_name") or "", source.number("totem.config_version", 64) or 0, nodes)
        finally:
            source.close()
        if nodes and now != (self.name, self.config_version, self.nodes):
            self.name, self.config_version, self.nodes = now
            self.version += 1


class Replica:
    """The tree of this node, kept equal to that of its partition; ``submit`` is how everything changes."""

    def __init__(self, tree: Tree, database: Database, me: tuple[str, str]) -> None:
        self.tree, self.database = tree, database
        self.name, self.address = me
        self.info = ClusterInfo()
        self.is_clustered = tree.find("corosync.conf") is not None
        self._lock = threading.RLock()
        self._synced, self._offers = threading.Event(), dict[tuple[int, int], dict[str, Any]]()
        self._members: list[tuple[int, int]] = []
        self._me = (0, 0)
        self._results: dict[int, int] = {}
        self._arrived = threading.Condition()
        self._numbers = itertools.count(1)
        self._group: Group | None = None
        self._is_quorate = False
        self._outbox: list[bytes] = []

    def start(self) -> None:
        """Write the member list to where corosync reads it, and follow corosync from now on."""
        if self.is_clustered:
            self._pass_on(notify=True)
            threading.Thread(target=self._follow, daemon=True).start()
            threading.Thread(target=self._follow_quorum, daemon=True).start()

    def is_quorate(self) -> bool:
        """Whether anything can be written here now."""
        return self._is_quorate or not self.is_clustered

    def _follow_quorum(self) -> None:
        """As in Proxmox VE what was heard last counts: a corosync that is forming its membership answers nobody."""
        quorum: Quorum | None = None
        while True:
            try:
                quorum = quorum or Quorum()
                self._is_quorate = quorum.is_quorate()
            except CorosyncError:
                if quorum:
                    quorum.close()
                quorum, self._is_quorate = None, False
            time.sleep(QUORUM_S)

    def submit(self, op: dict[str, Any]) -> int:
        """Have all members do a change; 0 or the error's number, EACCES without quorum."""
        op = {"mtime": int(time.time()), "writer": self._me[0], **op}
        if not self.is_quorate():
            return errno.EACCES
        if not self.is_clustered:
            return self._do(op, is_mine=True)
        deadline = time.monotonic() + SUBMIT_TIMEOUT_S
        while time.monotonic() < deadline:
            if not self._synced.wait(0.2):
                if not self.is_quorate():
                    return errno.EACCES
                continue
            code = self._ask_all(op, deadline)
            if code != errno.EAGAIN:
                return code
        return errno.EACCES

    def _ask_all(self, op: dict[str, Any], deadline: float) -> int:
        number = next(self._numbers)
        message = json.dumps({"kind": "op", "number": number, "op": op}).encode()
        group = self._group
        try:
            if group is None or not group.send(message):
                time.sleep(0.01)
                return errno.EAGAIN
        except CorosyncError:
            return errno.EACCES
        with self._arrived:
            while number not in self._results:
                # one that was sent is answered, unless corosync dies: then there is no quorum
                if not self._arrived.wait(0.2) and (time.monotonic() > deadline or not self.is_quorate()):
                    return errno.EACCES
            return self._results.pop(number)

    def _follow(self) -> None:
        while True:
            try:
                self._attach()
            except CorosyncError:
                self._synced.clear()
                time.sleep(ATTACH_S)

    def _attach(self) -> None:
        self.info.read()
        self._group = Group(GROUP, self._on_message, self._on_change)
        say("[dcdb] notice: node attached to the cluster")
        try:
            while True:
                self._group.dispatch(RETRY_S if self._outbox else DISPATCH_S)
                while self._outbox and self._group.send(self._outbox[0]):
                    self._outbox.pop(0)
                self.info.read()
        finally:
            group, self._group = self._group, None
            group.close()
            self._outbox.clear()

    def _on_change(self, members: list[tuple[int, int]]) -> None:
        self._members, self._offers = sorted(members), {}
        self._synced.clear()
        self.info.read()
        self.info.online = {nodeid for nodeid, _ in members}
        self.info.version += 1
        offer = {"version": self.tree.version, "mtime": self.tree.mtime, "name": self.name, "address": self.address}
        self._outbox.append(self._message("offer", offer=offer))

    def _message(self, kind: str, **content: Any) -> bytes:
        return json.dumps({"kind": kind, "members": self._members, **content}).encode()

    def _on_message(self, sender: tuple[int, int], data: bytes) -> None:
        message = json.loads(data)
        is_mine = sender[1] == os.getpid() and sender == self._me
        if message["kind"] == "op":
            code = self._do(message["op"], is_mine) if self._synced.is_set() else errno.EAGAIN
            if is_mine:
                with self._arrived:
                    self._results[message["number"]] = code
                    self._arrived.notify_all()
        elif message["members"] == [list(one) for one in self._members]:
            getattr(self, f"_on_{message['kind']}")(sender, message)

    def _on_offer(self, sender: tuple[int, int], message: dict[str, Any]) -> None:
        self._offers[sender] = offer = message["offer"]
        self.info.addresses[offer["name"]] = offer["address"]
        self.info.version += 1
        if offer["name"] == self.name and sender[1] == os.getpid():
            self._me = sender
        if len(self._offers) < len(self._members):
            return
        ages = {one: (offer["version"], offer["mtime"]) for one, offer in self._offers.items()}
        leader = max(sorted(ages), key=lambda one: ages[one])
        if len(set(ages.values())) == 1:
            self._be_synced()
        elif leader == self._me:
            self._outbox.append(self._message("state", rows=self.tree.dump()))

    def _on_state(self, sender: tuple[int, int], message: dict[str, Any]) -> None:
        if sender != self._me:
            with self._lock:
                self.tree.restore(message["rows"])
                self.database.save(self.tree)
            say(f"[dcdb] notice: update complete, from member {sender[0]}/{sender[1]}")
        self._be_synced()

    def _be_synced(self) -> None:
        self._pass_on(notify=False)
        self._synced.set()
        say("[dcdb] notice: all data is up to date")

    def _do(self, op: dict[str, Any], is_mine: bool) -> int:
        with self._lock:
            code = self.tree.apply(op)
            if not code:
                self.database.save(self.tree)
        if not code and "corosync.conf" in {op["path"], op.get("to")}:
            self._pass_on(notify=is_mine)
        return code

    def _pass_on(self, *, notify: bool) -> None:
        entry = self.tree.find("corosync.conf")
        text = entry.data.decode() if entry else ""
        new = corosync_conf.version(text)
        old_text = HOST_CONF.read_text(encoding="utf-8") if HOST_CONF.exists() else ""
        old = corosync_conf.version(old_text)
        if not new or text == old_text:
            return
        if new < old:
            say("[dcdb] crit: local corosync.conf is newer")
            return
        fresh = HOST_CONF.with_suffix(".conf.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.rename(HOST_CONF)
        say(f"[dcdb] notice: wrote new corosync config '{HOST_CONF}' (version = {new})")
        if notify and old:
            threading.Timer(RELOAD_DELAY_S, _reload).start()


def _reload() -> None:
    done = subprocess.run(["corosync-cfgtool", "-R"], capture_output=True, check=False, timeout=60)
    if done.returncode:
        say(f"[dcdb] crit: corosync-cfgtool -R failed with exit code {done.returncode}")
