"""``python -m standin.quorum_events FILE``: a line for each change of this node's quorum, as corosync tells it."""

from __future__ import annotations

import ctypes
import sys
import time
from ctypes import POINTER, byref, c_int, c_uint32, c_uint64
from pathlib import Path

OK = 1
CHANGES = 2
BLOCKING = 3
RETRY_S = 0.05
_TOLD = ctypes.CFUNCTYPE(None, c_uint64, c_uint32, c_uint64, c_uint32, POINTER(c_uint32))


def main() -> None:
    """Follow it until killed; a corosync that ends is the worst loss of quorum, and followed again when it is back."""
    file = Path(sys.argv[1])

    def note(words: str) -> None:
        with file.open("a", encoding="ascii") as out:
            out.write(f"{time.time():.3f} {words}\n")

    told = _TOLD(lambda _h, quorate, *_: note("quorate" if quorate else "lost"))
    while True:
        if _follow(told):
            note("corosync-ended")
        time.sleep(RETRY_S)


def _follow(told: object) -> bool:
    library = ctypes.CDLL("libquorum.so.5")
    handle, kind = c_uint64(), c_uint32()
    callbacks = (ctypes.c_void_p * 1)(ctypes.cast(told, ctypes.c_void_p))  # type: ignore[arg-type]
    if library.quorum_initialize(byref(handle), byref(callbacks), byref(kind)) != OK:
        return False
    quorate = c_int()
    if library.quorum_getquorate(handle, byref(quorate)) == OK:
        told(handle, quorate.value, 0, 0, None)  # type: ignore[operator]
    was_there = bool(library.quorum_trackstart(handle, CHANGES) == OK)
    library.quorum_dispatch(handle, BLOCKING)
    library.quorum_finalize(handle)
    return was_there


if __name__ == "__main__":
    main()
