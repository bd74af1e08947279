"""Corosync's own libraries, the few calls of them that a cluster file system needs: closed groups, quorum, the map."""

from __future__ import annotations

import ctypes
import select
from collections.abc import Callable
from ctypes import POINTER, byref, c_char, c_int, c_size_t, c_uint32, c_uint64, c_void_p

OK, TRY_AGAIN = 1, 6
DISPATCH_ALL = 2
AGREED = 2


class CorosyncError(Exception):
    """Corosync is not there, or no longer."""


class _Name(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("value", c_char * 128))


class _Address(ctypes.Structure):
    _fields_ = (("nodeid", c_uint32), ("pid", c_uint32), ("reason", c_uint32))


class _Buffer(ctypes.Structure):
    _fields_ = (("base", c_void_p), ("length", c_size_t))


_DELIVER = ctypes.CFUNCTYPE(None, c_uint64, POINTER(_Name), c_uint32, c_uint32, c_void_p, c_size_t)
_LIST = POINTER(_Address)
_CHANGE = ctypes.CFUNCTYPE(None, c_uint64, POINTER(_Name), _LIST, c_size_t, _LIST, c_size_t, _LIST, c_size_t)


class _Callbacks(ctypes.Structure):
    _fields_ = (("deliver", _DELIVER), ("change", _CHANGE))


def _check(code: int) -> None:
    if code != OK:
        raise CorosyncError(code)


class Group:
    """A closed process group: messages reach all members in one order, changes of membership are part of it."""

    def __init__(
        self,
        name: str,
        on_message: Callable[[tuple[int, int], bytes], None],
        on_change: Callable[[list[tuple[int, int]]], None],
    ) -> None:
        self._library = ctypes.CDLL("libcpg.so.4")
        self._handle = c_uint64()
        # kept: the library calls them for as long as the handle lives
        self._callbacks = _Callbacks(
            _DELIVER(lambda _h, _g, nodeid, pid, data, size: on_message((nodeid, pid), ctypes.string_at(data, size))),
            _CHANGE(lambda _h, _g, now, n, *_: on_change([(now[i].nodeid, now[i].pid) for i in range(n)])),
        )
        _check(self._library.cpg_initialize(byref(self._handle), byref(self._callbacks)))
        group = _Name(len(name), name.encode())
        try:
            _check(self._library.cpg_join(self._handle, byref(group)))
        except CorosyncError:
            self.close()
            raise

    def send(self, message: bytes) -> bool:
        """Give it to all members; False where corosync has no time for it yet."""
        buffer = ctypes.create_string_buffer(message, len(message))
        part = _Buffer(ctypes.addressof(buffer), len(message))
        code = self._library.cpg_mcast_joined(self._handle, AGREED, byref(part), 1)
        if code == TRY_AGAIN:
            return False
        _check(code)
        return True

    def dispatch(self, timeout_s: float) -> None:
        """Wait for news, at most so long, and hand it to the callbacks."""
        descriptor = c_int()
        _check(self._library.cpg_fd_get(self._handle, byref(descriptor)))
        if select.select([descriptor.value], [], [], timeout_s)[0]:
            _check(self._library.cpg_dispatch(self._handle, DISPATCH_ALL))

    def close(self) -> None:
        """Leave."""
        self._library.cpg_finalize(self._handle)


class Quorum:
    """Whether this node is in the quorate partition."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libquorum.so.5")
        self._handle = c_uint64()
        kind = c_uint32()
        _check(self._library.quorum_initialize(byref(self._handle), None, byref(kind)))

    def is_quorate(self) -> bool:
        """Corosync's answer now; ``CorosyncError`` when there is none."""
        answer = c_int()
        _check(self._library.quorum_getquorate(self._handle, byref(answer)))
        return bool(answer.value)

    def close(self) -> None:
        """Ask no more."""
        self._library.quorum_finalize(self._handle)


class Map:
    """Corosync's map of keys (cmap)."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcmap.so.4")
        self._handle = c_uint64()
        _check(self._library.cmap_initialize(byref(self._handle)))

    def number(self, key: str, bits: int) -> int | None:
        """The unsigned number of that key, or None."""
        value = c_uint64() if bits == 64 else c_uint32()
        code = getattr(self._library, f"cmap_get_uint{bits}")(self._handle, key.encode(), byref(value))
        return int(value.value) if code == OK else None

    def text(self, key: str) -> str | None:
        """The text of that key, or None."""
        value = ctypes.c_char_p()
        code = self._library.cmap_get_string(self._handle, key.encode(), byref(value))
        return (value.value or b"").decode() if code == OK else None

    def close(self) -> None:
        """Ask no more."""
        self._library.cmap_finalize(self._handle)
