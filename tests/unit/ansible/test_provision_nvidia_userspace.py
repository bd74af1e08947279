"""Which versions of NVIDIA's user space there are, from what the loader, the kernel, dpkg and apt say."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.ansible.modules.provision_nvidia_userspace import (
    Source,
    debian_entries,
    driver_packages,
    kernel_version,
    lines_in,
    loaded_files,
    other_versions,
    read_sources,
    sources_text,
    stanzas_in,
    version_of,
    versions_in,
)
from tests.case_files import read_cases

CASES = read_cases("ansible/provision_nvidia_userspace")

MAPPED = """\
/usr/bin/python3.11
/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.261.03
/usr/lib/x86_64-linux-gnu/libc.so.6
"""
MADISON = """\
  libcuda1 | 535.309.01-0+deb12u1 | http://mirror/debian-security bookworm-security/non-free amd64 Packages
  libcuda1 | 535.261.03-1 | http://mirror/debian bookworm/non-free amd64 Packages
  libcuda1 | 535.261.03-1 | http://mirror/debian bookworm-updates/non-free amd64 Packages
"""
LINES = """\
# deb http://old/debian bookworm main
deb http://mirror/debian/ bookworm main contrib # ours
deb [arch=amd64,i386 signed-by=/usr/share/keyrings/debian.gpg] http://mirror/debian bookworm-updates main
deb-src http://mirror/debian bookworm main
deb http://mirror/debian-security bookworm-security main
deb https://packages.example/debian bookworm main
"""
STANZA: str = CASES["stanza"]


def test_what_is_loaded_is_the_mapped_file_and_its_version() -> None:
    files = loaded_files(MAPPED)
    assert {name: version_of(file) for name, file in files.items()} == {
        "libcuda.so.1": "535.261.03",
        "libnvidia-ml.so.1": "",
    }
    assert files["libnvidia-ml.so.1"] == ""


def test_a_toolkits_stand_in_is_of_no_version() -> None:
    assert version_of(loaded_files("/opt/cuda-13.0/lib/stubs/libcuda.so")["libcuda.so.1"]) == ""


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Tue Jun 10 03:14:37 UTC 2025", "535.261.03"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)",
            "580.95.05",
        ),
        ("", ""),
    ],
)
def test_the_kernel_modules_version_is_in_its_first_line(line: str, version: str) -> None:
    assert kernel_version(f"{line}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n") == version


def test_libraries_of_other_versions_are_found_wherever_the_loader_looks(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    (folder / "nvidia/current").mkdir(parents=True)
    (folder / "nvidia/current/libcuda.so.535.261.03").touch()
    (folder / "libcuda.so.1").symlink_to("libcuda.so.550.163.01")
    left = [folder / "libcuda.so.550.163.01", folder / "libnvidia-ml.so.550.163.01"]
    for file in left:
        file.touch()
    assert list(other_versions(tmp_path, "535.261.03")) == left


def test_packages_are_those_of_the_driver_that_are_installed() -> None:
    lines = ["ii \tlibcuda1\tnvidia-graphics-drivers", "rc \tnvidia-smi\tnvidia-graphics-drivers", "ii \tzlib1g\tzlib"]
    lines.append("ii \tlibnvidia-tesla-470-cuda1\tnvidia-graphics-drivers-tesla-470")
    assert driver_packages("\n".join(lines)) == ["libcuda1", "libnvidia-tesla-470-cuda1"]


def test_what_apt_has_is_named_by_the_drivers_own_versions() -> None:
    assert versions_in(MADISON) == ["535.309.01", "535.261.03"]
    assert versions_in("N: Unable to locate package libcuda1\n") == []


def test_what_the_machines_sources_leave_out_is_added_as_they_are_trusted() -> None:
    entries = list(debian_entries(lines_in(LINES), "bookworm"))
    assert [(one.uris[0], one.suites[0]) for one in entries] == [
        ("http://mirror/debian", "bookworm"),
        ("http://mirror/debian", "bookworm-updates"),
        ("http://mirror/debian-security", "bookworm-security"),
    ]
    first, second, _ = sources_text(entries, lacking=True).split("\n\n")
    assert first.splitlines()[-1] == "Components: non-free"
    assert second.splitlines() == [
        "Types: deb",
        "URIs: http://mirror/debian",
        "Suites: bookworm-updates",
        "Components: contrib non-free",
        "Architectures: amd64 i386",
        "Signed-By: /usr/share/keyrings/debian.gpg",
    ]
    assert sources_text(entries, lacking=False).count("Components: contrib non-free") == 3


def test_stanzas_keep_their_key_and_those_that_are_off_do_not_count() -> None:
    entries = list(debian_entries(stanzas_in(STANZA), "trixie"))
    assert [one.suites for one in entries] == [("trixie",), ("trixie-updates",)]
    assert sources_text(entries[:1], lacking=True).splitlines() == [
        "Types: deb",
        "URIs: mirror+file:///etc/apt/mirrors/debian.list",
        "Suites: trixie",
        "Components: contrib non-free",
        "Signed-By: ",
        " -----BEGIN PGP PUBLIC KEY BLOCK-----",
        " .",
        " -----END PGP PUBLIC KEY BLOCK-----",
    ]


def test_the_file_that_is_written_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb http://mirror/debian bookworm main\n", encoding="utf-8")
    ours = tmp_path / "sources.list.d/nvidia-userspace.sources"
    ours.write_text(
        "Types: deb\nURIs: http://mirror/debian\nSuites: bookworm\nComponents: non-free\n", encoding="utf-8"
    )
    assert read_sources(tmp_path, besides=ours) == [Source(("http://mirror/debian",), ("bookworm",), ("main",))]
