"""Runs a program that is not trusted: it may read files, compute, and write to what it was given, and nothing else.

``python -I confined_program.py PROGRAM ARGUMENT...`` becomes the program, with a filter of system calls (seccomp) that
programs cannot take off again: no file is made or written, no process started, nobody spoken to or signalled. Another
program may take its place, under the same filter. What is not on the list fails with EPERM; memory, time, and the size
of what is written have limits. Exit code 126: it could not be confined, 127: it could not be run.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterator, Mapping

NOT_CONFINED, NOT_RUN = 126, 127
LIMITS = {
    resource.RLIMIT_AS: 4 << 30,
    resource.RLIMIT_CPU: 20,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 64 << 10,
}
"""Bytes of address space, seconds of the processor, bytes of a core file, bytes of a file that it writes to."""
_X86_64 = (
    "read=0 write=1 close=3 stat=4 fstat=5 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12 rt_sigaction=13 "
    "rt_sigprocmask=14 rt_sigreturn=15 pread64=17 readv=19 writev=20 access=21 sched_yield=24 mremap=25 "
    "madvise=28 dup=32 dup2=33 getpid=39 execve=59 exit=60 uname=63 getcwd=79 readlink=89 sysinfo=99 "
    "getuid=102 getgid=104 geteuid=107 getegid=108 sigaltstack=131 arch_prctl=158 gettid=186 futex=202 "
    "sched_getaffinity=204 getdents64=217 set_tid_address=218 restart_syscall=219 fadvise64=221 "
    "clock_gettime=228 clock_nanosleep=230 exit_group=231 newfstatat=262 readlinkat=267 faccessat=269 "
    "set_robust_list=273 dup3=292 getrandom=318 statx=332 rseq=334 faccessat2=439"
)
_AARCH64 = (
    "getcwd=17 dup=23 dup3=24 faccessat=48 close=57 getdents64=61 lseek=62 read=63 write=64 readv=65 writev=66 "
    "pread64=67 readlinkat=78 newfstatat=79 fstat=80 exit=93 exit_group=94 set_tid_address=96 futex=98 "
    "set_robust_list=99 clock_gettime=113 clock_nanosleep=115 sched_getaffinity=123 sched_yield=124 "
    "restart_syscall=128 sigaltstack=132 rt_sigaction=134 rt_sigprocmask=135 rt_sigreturn=139 uname=160 "
    "getpid=172 getuid=174 geteuid=175 getgid=176 getegid=177 gettid=178 sysinfo=179 brk=214 munmap=215 "
    "mremap=216 execve=221 mmap=222 fadvise64=223 mprotect=226 madvise=233 getrandom=278 statx=291 rseq=293 "
    "faccessat2=439"
)
MACHINES = {
    "x86_64": (0xC000003E, _X86_64, 56, 257, 302, 72),
    "aarch64": (0xC00000B7, _AARCH64, 220, 56, 261, 25),
}
"""By ``uname -m``: the machine as seccomp says it, calls that are allowed, and the numbers of ``clone``, ``openat``,
``prlimit64`` and ``fcntl``, whose arguments are looked at (``asm/unistd_64.h``, ``asm-generic/unistd.h``)."""
CLONE3 = 435
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _UNKNOWN, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
_NUMBER, _MACHINE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
"""Offsets of the call's number, of its machine and of its arguments in what a filter looks at."""
_THREAD = 0x00010000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OF_LOCKS, _DUPLICATE = fcntl.F_GETLK, fcntl.F_DUPFD_CLOEXEC
"""The first of ``fcntl``'s commands, and the one that it may have of those that follow: the others lock and signal."""
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2


def main() -> None:
    """Confine this process, and become the program."""
    program = sys.argv[1]
    try:
        for kind, most in LIMITS.items():
            limit = min({most, resource.getrlimit(kind)[1]} - {resource.RLIM_INFINITY})
            resource.setrlimit(kind, (limit, limit))
        _confine(filter_for(platform.machine()))
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"unable to confine {program}: {error!r}\n")
        sys.exit(NOT_CONFINED)
    try:
        os.execv(program, sys.argv[1:])  # noqa: S606  # a shell has no part in it
    except OSError as error:
        sys.stderr.write(f"unable to run {program}: {error}\n")
        sys.exit(NOT_RUN)


def filter_for(machine: str, machines: Mapping[str, tuple[int, str, int, int, int, int]] = MACHINES) -> bytes:
    """Return the filter for a machine, as the kernel takes it; ``KeyError`` for one whose calls are not known."""
    architecture, allowed, clone, openat, prlimit, fcntl_number = machines[machine]
    numbers = [int(call.partition("=")[2]) for call in allowed.split()]
    steps = [
        *_steps((_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)),
        *(step for number in numbers for step in _when(number, (_RETURN, 0, 0, _ALLOW))),
        # Libraries fall back to `clone`, whose flags can be looked at: threads, and no processes.
        *_when(CLONE3, (_RETURN, 0, 0, _UNKNOWN)),
        *_when(
            clone, (_LOAD, 0, 0, _FIRST), (_ANY_BIT, 0, 1, _THREAD), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)
        ),
        *_when(
            openat, (_LOAD, 0, 0, _THIRD), (_ANY_BIT, 1, 0, _WRITING), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)
        ),
        # Limits are read, of this process or another one, and never set.
        *_when(
            prlimit,
            (_LOAD, 0, 0, _THIRD),
            (_EQUAL, 0, 3, 0),
            (_LOAD, 0, 0, _THIRD + 4),
            (_EQUAL, 0, 1, 0),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        ),
        *_when(
            fcntl_number,
            (_LOAD, 0, 0, _SECOND),
            (_AT_LEAST, 1, 0, _OF_LOCKS),
            (_RETURN, 0, 0, _ALLOW),
            (_EQUAL, 0, 1, _DUPLICATE),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        ),
        *_steps((_RETURN, 0, 0, _REFUSE)),
    ]
    return b"".join(steps)


def _steps(*steps: tuple[int, int, int, int]) -> Iterator[bytes]:
    """Yield instructions of a filter: what is done, steps to skip where it holds and where not, and a value."""
    for code, then, otherwise, value in steps:
        yield struct.pack("=HBBI", code, then, otherwise, value)


def _when(number: int, *steps: tuple[int, int, int, int]) -> Iterator[bytes]:
    """Yield the steps for one call."""
    return _steps((_EQUAL, 0, len(steps), number), *steps)


def _confine(steps: bytes) -> None:
    """Have the kernel filter the calls of this process from now on; ``OSError`` where it does not."""
    library = ctypes.CDLL(None, use_errno=True)
    content = ctypes.create_string_buffer(steps, len(steps))
    program = struct.pack("HxxxxxxP", len(steps) // 8, ctypes.addressof(content))
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, program, 0, 0)):
        if library.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    main()
