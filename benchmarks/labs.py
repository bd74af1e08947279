"""Labs of some containers that each serve the built-in model: brought up once, destroyed at the end."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.measuring import BIN, Cost, cost, say
from provisioner.hosts import provider_for
from provisioner.hosts.base import Provider
from provisioner.hosts.incus import api
from provisioner.hosts.incus.api import local_endpoint
from provisioner.lab.opening import Lab, open_lab

PROVISION = (str(BIN / "provision"),)
NANOSECONDS = 1e9
HEAD = """\
name: {name}
models:
  tiny: {{ source: "builtin:tiny", context: 512 }}
containers:
"""
CONTAINER = """\
  {name}:
    image: debian/12
    cpu: 1
    memory: 512MiB
    services: {{ llama_cpp: {{ model: tiny, parallel: {parallel}, api_key: !secret engine_key }} }}
"""


class BenchLab:
    """A lab of ``size`` containers in a folder of its own."""

    def __init__(self, size: int, folder: Path) -> None:
        self.size = size
        self.folder = folder
        self.name = f"bench-{size}"
        self.containers = [f"bench-{size}-{number}" for number in range(1, size + 1)]
        self.provider: Provider = provider_for("local", "incus")
        secret = folder / "secrets.env"
        secret.touch(0o600)
        secret.write_text(f"engine_key={secrets.token_hex(16)}\n", encoding="utf-8")
        self.write()

    @property
    def file(self) -> Path:
        """The lab's file."""
        return self.folder / "homelab.yml"

    def write(self, parallel: int = 1) -> None:
        """Write the file; ``parallel`` is an option of the service, so that another one is a change."""
        boxes = "".join(CONTAINER.format(name=name, parallel=parallel) for name in self.containers)
        self.file.write_text(HEAD.format(name=self.name) + boxes, encoding="utf-8")

    def provision(self, *arguments: str) -> Cost:
        """What the command took in the lab's folder."""
        return self.watched(lambda: cost([*PROVISION, *arguments], {}, self.folder))

    def watched(self, work: Callable[[], Cost]) -> Cost:
        """What the work took, with the containers' CPU seconds."""
        before = self._cpu_s()
        done = work()
        return replace(done, inside_s=self._cpu_s() - before)

    def settle(self) -> None:
        """Make everything as the first file says, whatever a benchmark has done."""
        self.write()
        cost([*PROVISION, "up", "--yes"], {}, self.folder)

    def destroy(self) -> None:
        """Delete all that there is of the lab."""
        say(f"destroying lab {self.name}")
        cost([*PROVISION, "destroy", "--yes", "--lab", self.name], {}, self.folder)

    def opened(self) -> Lab:
        """The lab as the product reads it now."""
        return open_lab(self.file, run_secret_command=True)

    def inside(self, name: str, command: str) -> bytes:
        """What a shell command that must succeed wrote in a container."""
        ran = self.provider.execute(name, ["sh", "-c", command])
        if ran.returncode:
            raise RuntimeError(f"Unable to run {command!r} in {name}: {ran.stderr.decode(errors='replace')}")
        return ran.stdout

    @cached_property
    def addresses(self) -> dict[str, str]:
        """The containers' IPv4 addresses."""
        found = {name: _state(name)["network"]["eth0"]["addresses"] for name in self.containers}
        return {name: next(one["address"] for one in each if one["family"] == "inet") for name, each in found.items()}

    def _cpu_s(self) -> float:
        return cpu_s_of(self.containers)


def cpu_s_of(names: Iterable[str]) -> float:
    """The CPU seconds that the running containers have used so far."""
    used: int = sum(_state(name)["cpu"]["usage"] for name in names)
    return used / NANOSECONDS


def _state(name: str) -> dict[str, Any]:
    path = api.path_of("instances", name, "state")
    state: dict[str, Any] = api.call(local_endpoint(), "GET", path)["metadata"]
    return state


class Labs:
    """The labs of one run by size; each is brought up when it is first asked for."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._up: dict[int, BenchLab] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def of(self, size: int) -> BenchLab:
        """The lab of that size, up and as its first file says."""
        if size not in self._up:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=f"bench-{size}-")))
            lab = BenchLab(size, folder)
            # Also what an earlier, killed run left is removed; half a lab goes at the end, too.
            self._stack.callback(lab.destroy)
            self._up[size] = lab
        say(f"bringing up lab {self._up[size].name}")
        self._up[size].settle()
        return self._up[size]
