"""Role `cuda_toolkit` on a real conflict: Debian sid, whose glibc declares what CUDA 13.0 and 13.1 declare, and GCC 16.

The container is made once from Debian's ordinary mirror, our image of Debian 13 with sid's libraries and compilers,
and kept in the cache.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values import paths
from provisioner.values.state import Instance
from tests.integration.role_box import TIMEOUT_S
from tests.integration.running_containers import kept_running
from tests.integration.toolkit_box import MAKE_REPOSITORY, UNCHANGED, Box, running
from tests.lab.incus import Lab
from tests.shell_scripts import script

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

ALIAS = "provision-test/sid"
UPGRADE = script("newest_libc")
CONFLICT = r"mathcalls.h\(\d+\): error: exception specification is incompatible .* \\*\"rsqrt\\*\""


def incus(lab: Lab, *arguments: str | Path) -> None:
    """Run the client on the lab."""
    environment: Mapping[str, str] = os.environ | lab.environment
    subprocess.run(["incus", *arguments], env=environment, check=True, capture_output=True, timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def image(incus_lab: Lab) -> str:
    """Debian sid as an image of the lab: from the cache, or made now."""
    provider = IncusProvider("box")
    cached = paths.cache() / "images/debian-sid-toolchain.tar.gz"
    if ALIAS in provider.observe("none").hosts["box"].images:
        return ALIAS
    if not cached.is_file():
        with kept_running(provider, Instance(f"t{secrets.token_hex(4)}-sid", "box", "sid", "debian/13")) as one:
            done = provider.execute(one.name, ["bash", "-c", UPGRADE], timeout_s=TIMEOUT_S)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr
            provider.stop(one)
            incus(incus_lab, "publish", one.name, "--alias", ALIAS)
        incus(incus_lab, "image", "export", ALIAS, cached.with_suffix("").with_suffix(".partial"))
        cached.with_suffix("").with_suffix(".partial.tar.gz").replace(cached)
        return ALIAS
    incus(incus_lab, "image", "import", cached, "--alias", ALIAS)
    return ALIAS


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[tuple[IncusProvider, str]]:
    """A running container of it, with the wheels that were downloaded before."""
    with running(image) as one:
        yield one


@pytest.fixture
def sid(container: tuple[IncusProvider, str], tmp_path: Path) -> Box:
    """The container, without any toolkit."""
    one = Box(*container, tmp_path)
    one.run("rm -rf /opt/cuda-*")
    return one


def test_what_conflicts_is_mended_either_way_and_put_back_byte_for_byte(sid: Box) -> None:
    refused = sid.role(header_fix="none")
    assert re.search(CONFLICT, refused), refused
    assert "Set `header_fix` to auto" in refused
    before = sid.headers()
    sid.assert_works(header_fix="auto")
    assert f"NVCC_PREPEND_FLAGS=-I{sid.home}/glibc-overlay\n" in sid.environment()
    assert "NVCC_CCBIN=g++-15\n" in sid.environment(), "the system's GCC 16 is too new for CUDA 13.0"
    assert sid.headers() == before
    sid.assert_works(header_fix="patch")
    assert "NVCC_PREPEND_FLAGS" not in sid.environment()
    assert sid.headers() != before
    sid.run(f"! test -e {sid.home}/glibc-overlay")
    again = sid.role(header_fix="none")
    assert re.search(CONFLICT, again), "without the edit it fails as it did"
    assert sid.headers() == before
    assert "failed=0" in sid.role(state="absent")
    sid.run(f"! test -e {sid.home}")
    assert re.search(UNCHANGED, sid.role(state="absent"))


@pytest.mark.parametrize(
    ("version", "compiler", "overlay"), [("13.1", "g++-15", True), ("13.2", "g++-15", False), ("13.5", "", False)]
)
def test_each_version_gets_what_it_needs_and_no_more(sid: Box, version: str, compiler: str, *, overlay: bool) -> None:
    sid.version = version
    sid.assert_works()
    environment = sid.environment()
    assert ("NVCC_PREPEND_FLAGS" in environment) is overlay
    assert (f"NVCC_CCBIN={compiler}\n" in environment) if compiler else ("NVCC_CCBIN" not in environment)


def test_a_compiler_that_the_toolkit_does_not_take_is_told_apart(sid: Box) -> None:
    refused = sid.role(compiler="g++-16")
    assert "Its headers take no GCC later than 15" in refused
    assert "-allow-unsupported-compiler" in refused
    assert "exception specification" not in refused


@pytest.fixture
def directory(sid: Box) -> Iterator[str]:
    """The toolkit of the wheels, in a directory that is somebody else's."""
    sid.assert_works()
    sid.run(f"rm -rf /srv/cuda && mv {sid.home} /srv/cuda && rm /srv/cuda/provision.env")
    yield "/srv/cuda"
    sid.run("if mountpoint -q /srv/cuda; then umount /srv/cuda; fi; rm -rf /srv/cuda")


def test_a_read_only_toolkit_takes_no_edit_and_needs_none(sid: Box, directory: str) -> None:
    sid.run(f"mount --bind {directory} {directory} && mount -o remount,ro,bind {directory}")
    refused = sid.role(source="directory", directory=directory, header_fix="patch")
    assert "Unable to write the headers in" in refused
    assert "Read-only file system" in refused
    sid.assert_works(source="directory", directory=directory)
    assert f"CUDA_HOME={directory}\n" in sid.environment()
    assert "failed=0" in sid.role(source="directory", directory=directory, state="absent")
    sid.run(f"test -x {directory}/bin/nvcc && ! test -e {sid.home}")


def test_an_apt_repository_is_used_and_left_again(sid: Box, directory: str) -> None:
    assert directory == "/srv/cuda"
    sid.run(MAKE_REPOSITORY)
    given = {"source": "repository", "repository": "file:///srv/repository"}
    assert "Unable to fetch file:///srv/repository/debian13/x86_64/cuda-keyring" in sid.role(**given)
    keyring = sid.run("sha256sum /srv/repository/debian13/x86_64/cuda-keyring_1.1-1_all.deb").split()[0]
    given["repository_keyring_sha256"] = keyring
    sid.assert_works(**given)
    assert "CUDA_HOME=/usr/local/cuda-13.0\n" in sid.environment()
    assert "failed=0" in sid.role(**given, state="absent")
    sid.run(
        f"! test -e /usr/local/cuda-13.0/bin && ! test -e {sid.home} && ! test -e /etc/apt/sources.list.d/cuda.list"
    )
