"""What ``doctor`` asks apt in a real container: an older package that is installed is seen, and nothing is written."""

from __future__ import annotations

import pytest

from provisioner.doctor.hosts import SCRIPT, Packages, packages_in
from provisioner.hosts.incus import IncusProvider

pytestmark = [pytest.mark.incus]

LISTS = "/var/lib/apt/lists"
LIST = """\
Package: base-passwd
Version: 999:1
Architecture: {architecture}
Maintainer: nobody
Filename: ./base-passwd.deb
Size: 1
SHA256: {sha256}
Description: newer
"""


def look(provider: IncusProvider, container: str) -> Packages | None:
    """What the container says."""
    done = provider.execute(container, ["sh", "-c", SCRIPT])
    assert (done.returncode, done.stderr) == (0, b"")
    return packages_in(done.stdout.decode())


def run(provider: IncusProvider, container: str, script: str) -> str:
    """Run a script in it."""
    done = provider.execute(container, ["sh", "-c", script])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_a_newer_version_in_a_list_is_seen_and_nothing_is_written(provider: IncusProvider, container: str) -> None:
    run(provider, container, f"rm -rf {LISTS}/*_*")
    assert look(provider, container) == Packages(None)
    architecture = run(provider, container, "dpkg --print-architecture").strip()
    page = LIST.format(architecture=architecture, sha256="a" * 64)
    run(provider, container, f"mkdir -p /srv/own && cat > /srv/own/Packages <<'END'\n{page}\nEND")
    run(provider, container, "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*")
    run(provider, container, "echo 'deb [trusted=yes] file:/srv/own ./' > /etc/apt/sources.list && apt-get update")
    run(provider, container, f"touch -d '3 days ago' {LISTS}; rm -f /var/cache/apt/*.bin")
    before = run(provider, container, "find /var/lib/apt /var/cache/apt /var/lib/dpkg -printf '%p %T@ %C@\\n' | sort")
    seen = look(provider, container)
    assert seen is not None
    assert seen.age_s is not None
    assert 3 * 86400 <= seen.age_s < 3 * 86400 + 600
    assert [(one.name, one.version) for one in seen.newer] == [("base-passwd", "999:1")]
    after = run(provider, container, "find /var/lib/apt /var/cache/apt /var/lib/dpkg -printf '%p %T@ %C@\\n' | sort")
    assert after == before
