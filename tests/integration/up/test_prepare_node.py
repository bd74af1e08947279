"""``host prepare FILE HOST``: a node of Proxmox that knows nothing of us, made ready over ssh, and only once.

The API and ``pvesh`` are the double's on one state; ssh, host keys and files are real.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.proxmox.fixture import PveHost
from tests.doubles.proxmox.permissions import Grant
from tests.doubles.proxmox.world import NEWER_TEMPLATE
from tests.integration.up.quickstart_lab import Lab, Ran

pytestmark = [pytest.mark.incus, pytest.mark.proxmox]

USER, TOKEN = "lab@pve", "homelab"
FILE = """
name: prep
hosts:
  pve1:
    proxmox: {url}
    user: lab@pve
    token: {{ id: homelab, secret: !secret node_token }}
    ssh: {ssh}
    ca: own-ca.pem
containers:
  one: {{ image: debian/13, proxmox: {{ storage: local-zfs }} }}
"""


@pytest.fixture
def lab(pve_host: PveHost, tmp_path: Path) -> Iterator[Lab]:
    """A lab of which the node knows nothing, and its file; whatever it made there is forgotten at the end."""
    world, access = pve_host.double.world, pve_host.double.world.access
    before = (dict(access.permissions.roles), set(access.permissions.grants), set(access.users))
    local = world.storages["local"]
    volumes = {node: dict(one) for node, one in local.volumes.items()}
    for there in local.volumes.values():  # another test may have had it downloaded
        there.pop(f"local:vztmpl/{NEWER_TEMPLATE}", None)
    lab = Lab(tmp_path, {"PROVISION_SSH_CONFIG": str(pve_host.access.ssh_config)}, "", "", name="prep")
    (tmp_path / "homelab.yml").write_text(FILE.format(url=pve_host.access.url, ssh=pve_host.access.ssh))
    yield lab
    access.permissions.roles, access.permissions.grants = before[0], before[1]
    for name in set(access.users) - before[2]:
        del access.users[name]
    local.volumes = volumes


def prepare(lab: Lab, *arguments: str) -> Ran:
    return lab.provision("host", "prepare", "homelab.yml", "pve1", *arguments)


def secret_of(pve_host: PveHost) -> str:
    return pve_host.double.world.access.users[USER].tokens[TOKEN].secret


def test_it_makes_what_is_needed_and_no_more_and_keeps_the_secret(lab: Lab, pve_host: PveHost) -> None:
    ran = prepare(lab)
    assert ran.code == 0, ran.out + ran.err
    permissions = pve_host.double.world.access.permissions
    paths = {"/vms", "/pool", "/storage/local", "/storage/local-lvm", "/storage/local-zfs"}
    paths.add("/sdn/zones/localnetwork/vmbr0")
    mine = {one for one in permissions.grants if one.who == USER}
    assert mine == {Grant("/", USER, "ProvisionerSees"), *(Grant(path, USER, "Provisioner") for path in paths)}
    assert "Sys.Modify" not in permissions.roles["Provisioner"] | permissions.roles["ProvisionerSees"]
    secrets = lab.folder / "secrets.env"
    assert f"node_token={secret_of(pve_host)}\n" in secrets.read_text()
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert (lab.folder / "own-ca.pem").read_bytes() == Path(pve_host.double.ca).read_bytes()
    assert "downloaded the template of debian/13" in ran.err
    assert secret_of(pve_host) not in ran.out + ran.err
    assert not [one for one in (*pve_host.pct.asked, *pve_host.lxc.attached) if secret_of(pve_host) in str(one)]
    checked = lab.provision("doctor")
    assert "rights" in checked.out
    assert checked.code == 0, checked.out


def test_the_second_time_it_changes_nothing(lab: Lab, pve_host: PveHost) -> None:
    assert prepare(lab).code == 0
    secret, commands = secret_of(pve_host), (lab.folder / "secrets.env").read_text()
    ran = prepare(lab)
    assert ran.code == 0, ran.err
    assert "was ready: nothing was changed" in ran.out
    assert (secret_of(pve_host), (lab.folder / "secrets.env").read_text()) == (secret, commands)


@pytest.mark.slow
def test_what_was_taken_away_is_given_back(lab: Lab, pve_host: PveHost) -> None:
    assert prepare(lab).code == 0
    permissions = pve_host.double.world.access.permissions
    permissions.roles["Provisioner"] -= {"VM.Clone"}
    permissions.grants -= {one for one in permissions.grants if one.path == "/pool"}
    ran = prepare(lab)
    assert ran.code == 0, ran.err
    assert "made VM.Clone in role Provisioner" in ran.err
    assert "made role Provisioner for lab@pve on /pool" in ran.err


@pytest.mark.slow
def test_a_token_whose_secret_nobody_has_is_left_and_told(lab: Lab, pve_host: PveHost) -> None:
    assert prepare(lab).code == 0
    (lab.folder / "secrets.env").unlink()
    secret = secret_of(pve_host)
    ran = prepare(lab)
    assert ran.code == 4
    assert "its secret is not known here" in ran.err
    assert "pveum user token remove lab@pve homelab" in ran.err
    assert secret_of(pve_host) == secret


@pytest.mark.slow
def test_an_older_secret_of_that_name_is_replaced(lab: Lab, pve_host: PveHost) -> None:
    secrets = lab.folder / "secrets.env"
    secrets.write_text("# mine\nother=x\nnode_token=stale\n")
    secrets.chmod(0o600)
    assert prepare(lab).code == 0
    assert secrets.read_text() == f"# mine\nother=x\nnode_token={secret_of(pve_host)}\n"


def test_a_secret_that_cannot_be_kept_leaves_no_token(lab: Lab, pve_host: PveHost) -> None:
    (lab.folder / "secrets.env").mkdir()
    ran = prepare(lab)
    assert ran.code != 0
    shutil.rmtree(lab.folder / "secrets.env")
    tokens = pve_host.double.world.access.users[USER].tokens if USER in pve_host.double.world.access.users else {}
    assert TOKEN not in tokens


def test_a_host_key_that_is_not_known_stops_it(lab: Lab, pve_host: PveHost, tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    text = Path(str(pve_host.access.ssh_config)).read_text()
    config.write_text(text.replace("known_hosts", "no_known_hosts"))
    lab.environment = {"PROVISION_SSH_CONFIG": str(config)}
    ran = prepare(lab)
    assert ran.code == 4
    assert "ssh-keyscan" in ran.err
    assert USER not in pve_host.double.world.access.users


def test_print_says_the_commands_and_touches_nothing(lab: Lab, pve_host: PveHost) -> None:
    commands = pve_host.ssh.commands
    ran = prepare(lab, "--print")
    assert ran.code == 0
    assert "pveum user token add lab@pve homelab --privsep 0" in ran.out
    assert "pveum acl modify /vms --users lab@pve --roles Provisioner" in ran.out
    assert pve_host.ssh.commands == commands
    assert USER not in pve_host.double.world.access.users
