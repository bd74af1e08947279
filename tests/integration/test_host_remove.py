"""``host remove`` on a bare Debian in a container: after it the machine is as it was before ``host prepare``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_host_prepare import WAIT_FOR_NETWORK, WAIT_UNTIL_UP, become_a_machine, container, incus
from tests.integration.test_wheel_on_distributions import wheel
from tests.lab.incus import Lab

__all__ = ["container", "wheel"]  # fixtures

pytestmark = [pytest.mark.incus, pytest.mark.slow, pytest.mark.network]

PROVISION = "/opt/venv/bin/provision"
PREPARE = "--pool-driver dir --subnet 10.99.1.1/24 --image-server http://127.0.0.1:1"
STATE = r"""
dpkg-query --show --showformat '${Package} ${db:Status-Status}\n' | grep ' installed'
find /etc /var/lib /var/cache /usr/local /root -xdev \( -path '*/dpkg*' -o -path '/var/*/apt/*' -o -path '*/ansible*' \
  -o -path '*/.ansible*' -o -path '/var/lib/systemd*' -o -path /root/.config -o -path /root/.cache/incus \
  -o -path /etc/dnsmasq.d \) -prune -o -print | sort
cat /etc/subuid /etc/subgid /etc/group
"""
"""What a machine has; beside it programs keep their own, such as the client of Incus and the package dnsmasq-base."""


@pytest.fixture
def machine(container: str, incus_lab: Lab, wheel: Path, tmp_path: Path) -> str:
    """A container with the wheel in a venv, the image that it needs, and an account."""
    assert incus_lab
    incus("launch", "debian/12", container, "--config", "security.nesting=true")
    incus("exec", container, "--", "sh", "-c", f"{WAIT_UNTIL_UP}; {WAIT_FOR_NETWORK}", timeout=120)
    become_a_machine(container, tmp_path)
    incus("file", "push", "--quiet", str(wheel), f"{container}/root/")
    script = f"""
PIP_CERT=/etc/ssl/certs/ca-certificates.crt /opt/venv/bin/pip install --quiet /root/{wheel.name}
useradd penny
mkdir -p /root/.cache/provisioner && mv /opt/ours/images /root/.cache/provisioner/
{PROVISION} --version
"""
    incus("exec", container, "--", "sh", "-ec", script, timeout=600)
    return container


def done(machine: str, command: str) -> str:
    """What root's command says, which ended well, and its complaints."""
    return incus("exec", machine, "--", "sh", "-ec", f"{command} 2>&1", timeout=900)


def test_the_machine_is_as_it_was_and_can_be_prepared_again(machine: str) -> None:
    before = done(machine, STATE)
    done(machine, f"SUDO_USER=penny {PROVISION} host prepare {PREPARE}")
    assert "penny" in done(machine, "getent group incus-admin")
    done(machine, "incus init debian/12 web")
    done(machine, "incus storage volume create default photos")
    done(machine, "incus network create lan0 ipv4.address=none ipv6.address=none")
    refused = done(machine, f"{PROVISION} host remove --yes || echo exit $?")
    for words in ("instances/web", "network/lan0", "volumes/custom/photos", "exit 4"):
        assert words in refused, refused
    done(machine, "incus delete web && incus storage volume delete default photos && incus network delete lan0")
    done(machine, "incus storage volume create default built user.provisioner.artifact=abc")
    refused = done(machine, f"{PROVISION} host remove < /dev/null || echo exit $?")
    assert "built volume built" in refused
    assert "exit 4" in refused
    done(machine, f"{PROVISION} host remove --yes")
    assert done(machine, STATE) == before
    assert "Nothing to remove" in done(machine, f"{PROVISION} host remove --yes")
    done(machine, f"INCUS_DIR=/var/lib/second {PROVISION} host prepare {PREPARE} --bridge second0")
    assert "second0" in done(machine, "INCUS_DIR=/var/lib/second incus network list")
    done(machine, f"{PROVISION} host remove --yes")
    assert done(machine, STATE) == before
