"""The collection by the newest line of ansible-core that we name, on a Python newer than the oldest: debian/13's."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from provisioner.hosts.incus import IncusProvider
from provisioner.values.state import Instance
from tests.integration.plain_machine import UNCHANGED
from tests.integration.running_containers import kept_running
from tests.integration.test_collection import PLAY
from tests.integration.test_collection_sanity import BOOTSTRAP, passed
from tests.lab.incus import Lab

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = ROOT / ".ci/execution-environment/execution-environment.yml"
TIMEOUT_S = 1800.0
TREE = "/root/ansible_collections/provisioner/inference"
FILE = "/root/collection.tar.gz"
# ansible-test fetches a script that installs pip from a server of its own: Python carries one.
WITH_TOOLS = f"""
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install python3-venv shellcheck >/dev/null
python3 -m venv /root/venv
/root/venv/bin/pip --quiet install "$NEWEST"
/root/venv/bin/ansible-galaxy collection install --offline {FILE} -p /root/ansible_collections
requirements=$(echo /root/venv/lib/python3*/site-packages/ansible_test/_internal/python_requirements.py)
pip=$(sed -n "s/^ *pip='\\([0-9.]*\\)',$/\\1/p" "$requirements" | tr . _)
mkdir -p /root/.ansible/test/cache
cat > "/root/.ansible/test/cache/get_pip_$pip.py"
"""


class Newest:
    """The machine, which has that ansible-core and the collection."""

    def __init__(self, provider: IncusProvider, name: str) -> None:
        self.provider, self.name = provider, name

    def sh(self, script: str, given: bytes = b"") -> str:
        """What the shell prints; the last line is its exit code."""
        words = f"export PATH=/root/venv/bin:$PATH ANSIBLE_COLLECTIONS_PATH=/root; {script}"
        done = self.provider.execute(self.name, ["bash", "-c", words], stdin=given, timeout_s=TIMEOUT_S)
        return f"{(done.stdout + done.stderr).decode(errors='replace')}\nrc={done.returncode}"


@pytest.fixture(scope="module")
def newest(incus_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newest]:
    """A machine that no lab made, with the line of ansible-core that the image for AWX has."""
    assert incus_lab
    line = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))["dependencies"]["ansible_core"]["package_pip"]
    folder = tmp_path_factory.mktemp("collection")
    subprocess.run([sys.executable, ROOT / ".ci/collection.py", folder], check=True, capture_output=True, timeout=120)
    (file,) = folder.glob("*.tar.gz")
    provider = IncusProvider("box")
    with kept_running(provider, Instance(f"t{secrets.token_hex(4)}-newest", "box", "none", "debian/13")) as one:
        provider.push(one.name, file, FILE)
        made = Newest(provider, one.name)
        said = made.sh(f"NEWEST='{line}'; {WITH_TOOLS}", BOOTSTRAP.encode())
        assert said.endswith("rc=0"), said
        yield made


def test_a_role_proves_itself_by_it_and_then_changes_nothing(newest: Newest) -> None:
    version = newest.sh("ansible --version")
    assert re.search(r"\[core 2\.2[1-9]\.", version), version
    assert re.search(r"python version = 3\.1[3-9]\.", version), version
    # The machine that it manages is its own: the way in is another test's.
    local = PLAY.replace("hosts: plain", "hosts: localhost\n  connection: local")
    play = "cd /root && cat > play.yml && ansible-playbook play.yml"
    first = newest.sh(play, local.encode())
    assert first.endswith("rc=0"), first
    assert "provisioner.inference.cuda_toolkit : verify | Check that it compiled with the right toolkit" in first
    assert "DEPRECATION WARNING" not in first
    second = newest.sh(play, local.encode())
    assert second.endswith("rc=0"), second
    assert UNCHANGED in second, second


def test_every_test_of_ansible_s_own_passes_by_it(newest: Newest) -> None:
    python = newest.sh("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").split()[0]
    passed(newest.sh(f"cd {TREE} && ansible-test sanity --local --requirements --python {python} --color no"))
