"""A container in which role `cuda_toolkit` is run, with the wheels that tests have downloaded before."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from provisioner.hosts.incus import IncusProvider
from provisioner.values import paths
from provisioner.values.state import Instance
from tests.integration.role_box import RoleBox
from tests.integration.running_containers import kept_running
from tests.shell_scripts import script

HEADERS = ("math_functions.h", "math_functions.hpp")
UNCHANGED = r"changed=0 .*failed=0"
LOOK_IN_WHEELS = "mkdir -p /srv/wheels && printf '[global]\\nfind-links = /srv/wheels\\n' > /etc/pip.conf"
MAKE_REPOSITORY = script("cuda_repository")
"""What NVIDIA's repository has, as far as the role asks, around the toolkit in /srv/cuda; nobody signs it."""


@dataclass
class Box(RoleBox):
    """A running container, and the role run in it."""

    version: str = "13.0"

    @property
    def home(self) -> str:
        """Where the toolkit is."""
        return f"/opt/cuda-{self.version}"

    def role(self, **options: object) -> str:
        """What the run says; its last line is its exit code."""
        given: dict[str, object] = {"version": self.version} | options
        variables = {f"cuda_toolkit_{name}": value for name, value in given.items()}
        return self.play({"roles": ["base", "cuda_toolkit"]}, variables)

    def headers(self) -> str:
        """The digests of the two math headers."""
        return self.run(f"cd {self.home}/include/crt && sha256sum {' '.join(HEADERS)}")

    def environment(self) -> str:
        """What the role wrote for builds."""
        return self.run(f"cat {self.home}/provision.env")

    def assert_works(self, **options: object) -> None:
        """The role passes, a second run changes nothing, and a build with its environment compiles."""
        said = self.role(**options)
        assert "failed=0" in said, said
        assert said.endswith("rc=0"), said
        assert re.search(UNCHANGED, again := self.role(**options)), again
        build = f"set -a; . {self.home}/provision.env; echo '#include <cmath>' > /tmp/one.cu; "
        self.run(f"{build} $CUDACXX -c /tmp/one.cu -o /tmp/one.o")


@contextmanager
def running(image: str, *large: Path) -> Iterator[tuple[IncusProvider, str]]:
    """A running container of the image; pip finds the wheels there that are in the cache, and of cuBLAS' ``large``."""
    provider = IncusProvider("box")
    with kept_running(provider, Instance(f"t{secrets.token_hex(4)}-cuda", "box", "cuda", image)) as one:
        assert provider.execute(one.name, ["bash", "-c", LOOK_IN_WHEELS]).returncode == 0
        small = [one for one in (paths.cache() / "cuda-wheels").glob("*-13.*/*.whl") if "cublas" not in one.name]
        for wheel in (*sorted(small), *large):
            provider.push(one.name, wheel, f"/srv/wheels/{wheel.name}")
        yield provider, one.name
