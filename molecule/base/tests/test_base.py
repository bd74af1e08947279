"""A container without python3 has it, and can install packages, after role `base`."""

from __future__ import annotations

from testinfra.host import Host


def test_python3_and_its_apt_bindings_are_installed(host: Host) -> None:
    assert host.package("python3").is_installed
    assert host.check_output("/usr/bin/python3 -c 'import apt, sys; print(sys.version_info[0])'") == "3"
