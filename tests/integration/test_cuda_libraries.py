"""Role `cuda_toolkit` with cuBLAS and the driver's stub, on ordinary Debian: what llama.cpp's CMake asks for links."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.toolkit_box import MAKE_REPOSITORY, UNCHANGED, Box, running
from tests.lab.incus import Lab
from tests.shell_scripts import script
from tests.unit.cuda.wheels import CUBLAS_13_0, cached

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

BUILD = script("cuda_project")
"""As ggml does it: a shared backend that links to all three, and a program that links to the backend."""
CUBLAS = {"libraries": ["cublas"]}


@pytest.fixture(scope="module", params=["debian/12", "debian/13"])
def box(request: pytest.FixtureRequest, incus_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A container of this release with the role run in it for a toolkit with cuBLAS."""
    assert incus_lab
    with running(request.param, cached(CUBLAS_13_0)) as (provider, name):
        one = Box(provider, name, tmp_path_factory.mktemp("play"))
        one.assert_works(**CUBLAS)
        yield one


def built(box: Box) -> str:
    """What configuring, building and running the project printed."""
    return box.run(f"ENVIRONMENT={box.home}/provision.env\n{BUILD}")


def test_cmake_finds_all_three_and_a_program_gets_the_stub_s_answer(box: Box) -> None:
    said = built(box)
    assert "Found CUDAToolkit" in said
    for name in ("libcudart.so.13", "libcublas.so.13", "libcuda.so.1"):
        assert f"[{name}]" in said
    assert "the stub answers 34" in said


def test_a_damaged_stub_is_found_and_made_anew(box: Box) -> None:
    stub = f"{box.home}/lib64/stubs/libcuda.so"
    before = box.run(f"sha256sum {stub}; readlink {stub}.1")
    assert re.search(r"libcuda.so\n", before)
    for damage in (f"rm {stub}", f"echo >> {stub}", f"rm {stub}.1"):
        box.run(damage)
        assert re.search(r"changed=1 .*failed=0", said := box.role(**CUBLAS)), said
        assert box.run(f"sha256sum {stub}; readlink {stub}.1") == before


def test_what_a_directory_lacks_is_named_and_what_it_has_is_used(box: Box) -> None:
    box.run(f"cp -a --reflink=auto {box.home} /srv/cuda && mv {box.home} /srv/kept")
    try:
        given = {"source": "directory", "directory": "/srv/cuda", **CUBLAS}
        box.assert_works(**given)
        box.run("rm /srv/cuda/lib/libcublas.so")
        refused = box.role(**given)
        assert "The toolkit has not all of `libraries`" in refused
        assert "cannot find -lcublas" in refused
        assert "libcublas-dev-13-0" in refused
        box.assert_works(**{**given, "libraries": []})
    finally:
        box.run(f"rm -rf /srv/cuda {box.home} && mv /srv/kept {box.home}")


def test_a_repository_s_packages_come_when_they_are_asked_for_and_go(box: Box) -> None:
    box.run(f"cp -a --reflink=auto {box.home} /srv/cuda && mv {box.home} /srv/kept")
    try:
        box.run("mkdir -p /srv/repository && rm -f /srv/cuda/provision.env")
        box.run(MAKE_REPOSITORY.replace("debian13", distribution(box)))
        keyring = box.run(f"sha256sum /srv/repository/{distribution(box)}/x86_64/cuda-keyring_*.deb").split()[0]
        given = {"source": "repository", "repository": "file:///srv/repository", "repository_keyring_sha256": keyring}
        box.assert_works(**given)
        box.run("! test -e /usr/local/cuda-13.0/include/cublas_v2.h")
        box.assert_works(**given, **CUBLAS)
        assert "the stub answers 34" in built(box)
        assert "failed=0" in box.role(**given, state="absent")
        box.run("! test -e /usr/local/cuda-13.0/bin && ! test -e /usr/local/cuda-13.0/include/cublas_v2.h")
    finally:
        box.run(f"rm -rf {box.home} /srv/repository && mv /srv/kept {box.home}")


def test_another_wish_is_laid_out_anew_and_absent_removes_it_all(box: Box) -> None:
    box.assert_works()
    box.run(f"! test -e {box.home}/include/cublas_v2.h && test -e {box.home}/lib64/stubs/libcuda.so")
    assert "failed=0" in box.role(**CUBLAS, state="absent")
    box.run(f"! test -e {box.home}")
    assert re.search(UNCHANGED, box.role(**CUBLAS, state="absent"))


def distribution(box: Box) -> str:
    """The system's name in the repository."""
    return box.run(". /etc/os-release; echo -n $ID$VERSION_ID")
