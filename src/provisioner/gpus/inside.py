"""What a running container with a card is asked: the nodes and libraries that arrived, and who its services are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from provisioner.gpus.health import version_in

_Fact = TypeVar("_Fact")

SCRIPT = r"""
say() { printf '%s\t%s\n' "$1" "$2"; }
# nodes that a host lends are mounts, and find takes those for what they cover
for node in /dev/nvidia* /dev/nvidia-caps/* /dev/dri/* /dev/kfd; do
  [ -c "$node" ] && say node "$(stat -c '%n %a %u %g' "$node")"
done
[ -r /proc/driver/nvidia/version ] && say module "$(head -n 1 /proc/driver/nvidia/version)"
for folder in /usr/lib/*-linux-gnu /usr/lib/*-linux-gnu/nvidia/current /usr/lib64 /usr/lib /usr/local/nvidia/lib64; do
  for file in "$folder"/libcuda.so.* "$folder"/libnvidia-ml.so.*; do
    [ -e "$file" ] && say library "$(readlink -f "$file")"
  done
done
say glibc "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
command -v gcc > /dev/null && say gcc "$(gcc -dumpfullversion 2>/dev/null)"
for header in /usr/local/cuda*/include /opt/cuda*/include /usr/include; do
  [ -e "$header/cuda_runtime_api.h" ] || continue
  release=$(sed -n 's/^#define *CUDART_VERSION *\([0-9]*\).*/\1/p' "$header/cuda_runtime_api.h")
  limit=$(sed -n 's/^#if *__GNUC__ *> *\([0-9]*\).*/\1/p' "$header/crt/host_config.h" 2>/dev/null | head -n 1)
  say toolkit "$release $limit $(readlink -f "$header")"
done
for site in /opt/*/current/lib/python3* /opt/*/venv/lib/python3* /opt/*/.venv/lib/python3* \
    /opt/*/*/current/lib/python3* /opt/*/*/venv/lib/python3*; do
  file=$site/site-packages/torch/version.py
  [ -r "$file" ] && say torch "$(sed -n "s/^__version__ = '\(.*\)'.*/\1/p" "$file") $(sed -n \
    "s/^cuda[^=]*= '\(.*\)'.*/\1/p" "$file") ${site%/lib/*}"
done
for unit in "$@"; do
  user=$(systemctl show --property User --value "$unit")
  groups=$(systemctl show --property Group,SupplementaryGroups --value "$unit")
  gids=$(id -G "${user:-root}" 2>/dev/null; for group in $groups; do getent group "$group" | cut -d: -f3; done)
  say user "$unit $(id -u "${user:-root}" 2>/dev/null || echo -1) $(echo $gids | tr '\n' ' ')"
done
true
"""
"""A line for each fact, its name and its value with a tab between; the units of its services are arguments."""

UNMAPPED = 65534
"""The owner that a container sees on what its host did not give it."""
_ROOT = 0
_RW = 6
_OWNER_SHIFT, _GROUP_SHIFT, _OTHERS_SHIFT = 6, 3, 0
_NODE_FIELDS = 4
_TOOLKIT_FIELDS = 3
_TORCH_FIELDS = 2
"""Of a torch without CUDA; with CUDA there is one more."""
_LIBRARY = re.compile(r"/(lib(?:cuda|nvidia-ml))\.so\.(\d+(?:\.\d+)+)$")
_STUB = re.compile(r"/(lib(?:cuda|nvidia-ml))\.so(?:\.1)?$")


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use a node: its mode and owners, as the container sees them."""

    path: str
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class User:
    """Who a service's processes are."""

    unit: str
    uid: int
    gids: frozenset[int]

    def may_use(self, node: Access) -> bool:
        """Whether it can read and write the node; root can what has an owner here."""
        if self.uid == _ROOT and UNMAPPED not in (node.uid, node.gid):
            return True
        permissions = node.mode >> self._permission_shift(node)
        return permissions & _RW == _RW

    def _permission_shift(self, node: Access) -> int:
        """Where in the node's mode the bits stand that count for this user."""
        if node.uid == self.uid:
            return _OWNER_SHIFT
        return _GROUP_SHIFT if node.gid in self.gids else _OTHERS_SHIFT


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A CUDA toolkit: its release, and the newest GCC that its headers take (None: they do not say)."""

    release: str
    gcc_limit: int | None
    folder: str


@dataclass(frozen=True, slots=True)
class Torch:
    """A torch: its version, the CUDA that it was built for ("": for none), and its venv."""

    version: str
    cuda: str
    folder: str


@dataclass(frozen=True, slots=True)
class Inside:
    """What a container said; ``libraries`` are versions by "libcuda" and "libnvidia-ml", ``stubs`` such without one."""

    nodes: tuple[Access, ...] = ()
    module: str = ""
    libraries: tuple[tuple[str, str], ...] = ()
    stubs: tuple[str, ...] = ()
    glibc: str = ""
    gcc: str = ""
    toolkits: tuple[Toolkit, ...] = ()
    users: tuple[User, ...] = ()
    torches: tuple[Torch, ...] = ()

    def versions(self, library: str) -> tuple[str, ...]:
        """The versions of one library that are there, each once."""
        versions = {version for name, version in self.libraries if name == library}
        return tuple(sorted(versions))


def inside_in(answer: str) -> Inside:
    """What a container said that gave this answer to ``SCRIPT``."""
    values: dict[str, list[str]] = {}
    for line in answer.splitlines():
        name, _, value = line.partition("\t")
        values.setdefault(name, []).append(value.strip())
    files = values.get("library", [])
    return Inside(
        nodes=_each(_access, values.get("node", ())),
        module=version_in(_first(values.get("module", ()))),
        libraries=tuple(sorted(set(_each(_library, files)))),
        stubs=tuple(sorted(set(filter(_STUB.search, files)))),
        glibc=version_in(_first(values.get("glibc", ()))),
        gcc=_first(values.get("gcc", ())),
        toolkits=_each(_toolkit, values.get("toolkit", ())),
        users=_each(_user, values.get("user", ())),
        torches=_each(_torch, values.get("torch", ())),
    )


def _first(values: Sequence[str]) -> str:
    return next(iter(values), "")


def _each(read: Callable[[str], _Fact | None], lines: Iterable[str]) -> tuple[_Fact, ...]:
    """What is read of each line, without the lines that nobody can read."""
    facts = []
    for line in lines:
        fact = read(line)
        if fact is not None:
            facts.append(fact)
    return tuple(facts)


def _library(file: str) -> tuple[str, str] | None:
    """The library's name and version, by the name of its file."""
    match = _LIBRARY.search(file)
    return (match[1], match[2]) if match else None


def _access(line: str) -> Access | None:
    parts = line.split()
    if len(parts) != _NODE_FIELDS:
        return None
    return Access(parts[0], int(parts[1], 8), int(parts[2]), int(parts[3]))


def _user(line: str) -> User | None:
    unit, uid, *gids = [*line.split(), "", ""]
    if not uid.isdigit():
        return None
    numbers = frozenset(int(gid) for gid in gids if gid.isdigit())
    return User(unit, int(uid), numbers)


def _toolkit(line: str) -> Toolkit | None:
    parts = line.split()
    if not parts or not parts[0].isdigit():
        return None
    number = int(parts[0])
    release = f"{number // 1000}.{number % 1000 // 10}"
    has_limit = len(parts) == _TOOLKIT_FIELDS and parts[1].isdigit()
    return Toolkit(release, int(parts[1]) if has_limit else None, parts[-1])


def _torch(line: str) -> Torch | None:
    parts = line.split()
    if len(parts) < _TORCH_FIELDS:
        return None
    version, *cuda, folder = parts
    return Torch(version, "".join(cuda), folder)
