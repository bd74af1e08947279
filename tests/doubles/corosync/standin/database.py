"""The file that a node keeps its copy of ``/etc/pve`` in: SQLite, with the tables of Proxmox VE's own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .tree import DIRECTORY, FILE, ROOT, Entry, Tree

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS tree (  inode INTEGER PRIMARY KEY NOT NULL,"
    "  parent INTEGER NOT NULL CHECK(typeof(parent)=='integer'),"
    "  version INTEGER NOT NULL CHECK(typeof(version)=='integer'),"
    "  writer INTEGER NOT NULL CHECK(typeof(writer)=='integer'),"
    "  mtime INTEGER NOT NULL CHECK(typeof(mtime)=='integer'),"
    "  type INTEGER NOT NULL CHECK(typeof(type)=='integer'),  name TEXT NOT NULL,  data BLOB);"
)


class Database:
    """One open file; until it is closed its newest changes are in the write-ahead log beside it, as on a real node."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, timeout=10, check_same_thread=False)
        file.chmod(0o600)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(SCHEMA)

    def load(self) -> Tree:
        """What it holds."""
        tree = Tree()
        for row in self._connection.execute("SELECT inode,parent,version,writer,mtime,type,name,data FROM tree"):
            entry = Entry(*row)
            entry.data = bytes(entry.data or b"")
            if entry.inode == ROOT:
                entry.type, entry.name = DIRECTORY, ""
            tree.entries[entry.inode] = entry
        return tree

    def save(self, tree: Tree) -> None:
        """Hold this and nothing else."""
        with self._connection:
            self._connection.execute("DELETE FROM tree")
            rows = map(_row, list(tree.entries.values()))
            self._connection.executemany("INSERT INTO tree VALUES(?,?,?,?,?,?,?,?)", rows)

    def close(self) -> None:
        """Everything is in the one file now."""
        self._connection.close()


def _row(entry: Entry) -> tuple[object, ...]:
    if entry.inode == ROOT:
        return (ROOT, ROOT, entry.version, entry.writer, entry.mtime, FILE, "__version__", None)
    data = entry.data if entry.type == FILE else None
    return (entry.inode, entry.parent, entry.version, entry.writer, entry.mtime, entry.type, entry.name, data)
