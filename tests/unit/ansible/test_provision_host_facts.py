"""What the module makes of a machine's own files: routes, apt sources, ID ranges, kernel limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.ansible.modules import provision_host_facts as facts

ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0
incusbr0 0040AD0A 00000000 0001 0 0 0 00FFFFFF 0 0 0
eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0
"""
MACHINE = "0 0 4294967295\n"
CONTAINER = "0 1000000 1000000000\n"


def no_file(path: str) -> str:
    raise AssertionError(path)


@pytest.mark.parametrize(
    ("subnet", "devices"),
    [
        ("192.0.2.9/28", ["eth0"]),  # part of a network of the machine
        ("192.0.0.1/16", ["eth0"]),  # the machine's network is part of it
        ("10.173.64.1/24", []),  # the bridge's own, from an earlier run
        ("10.0.0.1/24", []),  # only the default route
    ],
)
def test_a_subnet_overlaps_networks_that_are_reached_otherwise(subnet: str, devices: list[str]) -> None:
    assert [route["device"] for route in facts.overlapping_routes(ROUTES, subnet, "incusbr0")] == devices


def test_the_default_route_names_its_device() -> None:
    assert facts.default_device(ROUTES) == "eth0"
    assert facts.default_device(ROUTES.splitlines()[0]) is None


def test_mirrors_are_debians_and_nobody_elses() -> None:
    targets = """bookworm main Zabbly https://pkgs.example/incus/
bookworm stable Docker https://docker.example/linux/debian/
bookworm main Debian http://mirror.example/debian/
bookworm-security main Debian http://mirror.example/debian-security/
"""
    assert facts.mirrors(targets, "bookworm", no_file) == {
        "main": "http://mirror.example/debian",
        "security": "http://mirror.example/debian-security",
        "backports": False,
    }


def test_without_package_lists_the_archive_with_updates_is_debians() -> None:
    fetched = "\n".join(
        f"'http://{repository}/InRelease' name 0 "
        for repository in (
            "docker.example/linux/debian/dists/bookworm",
            "mirror.example/debian/dists/bookworm",
            "mirror.example/debian/dists/bookworm-updates",
            "mirror.example/debian/dists/bookworm-backports",
            "tools.example/apt/dists/stable",
        )
    )
    found = facts.mirrors(fetched, "bookworm", no_file)
    assert found == {"main": "http://mirror.example/debian", "security": "", "backports": True}


def test_an_archive_whose_lists_were_not_fetched_is_known_all_the_same() -> None:
    targets = (
        "bookworm stable Docker https://docker.example/linux/debian/",
        "bookworm main Debian http://mirror.example/debian/",
        "'http://docker.example/linux/debian/dists/bookworm/InRelease' name 0 ",
        "'http://mirror.example/debian/dists/bookworm/InRelease' name 0 ",
        "'http://mirror.example/debian-security/dists/bookworm-security/InRelease' name 0 ",
    )
    assert facts.mirrors("\n".join(targets), "bookworm", no_file) == {
        "main": "http://mirror.example/debian",
        "security": "http://mirror.example/debian-security",
        "backports": False,
    }


def test_a_source_that_names_its_mirrors_in_a_file_gives_the_first() -> None:
    texts = {"/etc/apt/mirrors/debian.list": "# cloud\n\nhttps://one.example/debian\nhttps://two.example/debian\n"}
    targets = "trixie main Debian mirror+file:/etc/apt/mirrors/debian.list/"
    assert facts.mirrors(targets, "trixie", texts.__getitem__)["main"] == "https://one.example/debian"


def test_no_source_of_debian_is_no_mirror() -> None:
    assert facts.mirrors("stable main Other http://unreachable.example/apt", "bookworm", no_file)["main"] == ""


@pytest.mark.parametrize(
    ("subids", "uid_map", "line"),
    [
        ("", MACHINE, "root:1000000:1000000000"),
        ("root:1000000:1000000000\n", MACHINE, None),
        ("root:100000:65536\n", MACHINE, None),  # few, but enough, and its owner's choice
        ("root:100000:1000\n", MACHINE, "root:1000000:1000000000"),
        ("penny:2000000:65536\n", MACHINE, "root:2065536:1000000000"),
        ("root:1000000:1000000000\n", CONTAINER, "root:1000000:999000000"),
        ("", "0 100000 65536\n", ""),  # a container within which there is no room for another
    ],
)
def test_root_gets_ids_that_exist_and_are_nobody_elses(subids: str, uid_map: str, line: str | None) -> None:
    assert facts.id_range_line(subids, uid_map) == line


def test_limits_are_only_ever_raised(tmp_path: Path) -> None:
    (tmp_path / "fs").mkdir()
    (tmp_path / "fs/low").write_text("128\n", encoding="ascii")
    (tmp_path / "fs/high").write_text("9999\n", encoding="ascii")
    assert facts.limits_to_raise({"fs.low": 4096, "fs.high": 4096, "fs.absent": 1}, tmp_path) == {"fs.low": 4096}
