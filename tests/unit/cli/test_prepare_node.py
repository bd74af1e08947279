"""``host prepare FILE HOST``: where the secrets come from that it logs in with, and what it refuses before it makes it.

The node is the double; its shell is a stand-in that has its ``pvesh``. Over a real ssh: ``tests/integration/up``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.cli.app import run
from provisioner.hosts.proxmox import ssh
from provisioner.hosts.proxmox.access import Access
from provisioner.values.state import Execution
from tests.doubles.proxmox import Double, pvesh
from tests.doubles.proxmox.fixture import pve
from tests.doubles.proxmox.programs import Asked
from tests.unit.cli.conftest import Answer, provision

__all__ = ["pve"]

CANARY = "canary-token-40c2"
PASSWORD = "canary-roots-93"
TOKEN = "token: { id: homelab, secret: !secret node_token }"
ROOTS = "password: !secret roots_password"
FILE = """\
name: prep
{secrets}
hosts:
  pve1: {{ proxmox: "{url}", user: {user}, {login}, ca: {ca}, ssh: root@127.0.0.1:1 }}
containers:
  one: {{ image: debian/12{block} }}
"""
VNETS_FILE = "/etc/pve/sdn/vnets.cfg"
VNETS = "vnet: dmz\n\tzone outer\n\ttag 20\n\nvnet: homenet\n\tzone inner\n\talias zone\n"
Prepare = Callable[..., Answer]


def typed(text: str, vnets: Path, programs: Path = Path("/nowhere")) -> str:
    """Return what a shell says to whom ``text`` is typed; ``vnets`` takes the place of the node's list of vnets."""
    done = subprocess.run(
        ["sh", "-e", "-c", text.replace(VNETS_FILE, str(vnets))],
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.fixture
def vnets(tmp_path: Path) -> Path:
    """Two vnets as pve-network writes them (``PVE::Network::SDN::Vnets``, a section file); most nodes have none."""
    return tmp_path / "vnets.cfg"


@pytest.fixture(autouse=True)
def _node(pve: Double, vnets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        def __init__(self, access: Access) -> None:
            self.destination = access.ssh

        def run(self, argv: Sequence[str]) -> Execution:
            if VNETS_FILE in argv[-1]:
                return Execution(0, typed(argv[-1], vnets).encode(), b"")
            if argv[0] != "pvesh":
                return Execution(0, b"0\nnodes/pve1\n", b"")
            done = pvesh.answer(pve, Asked(list(argv[1:]), {}, terminal=False))
            return Execution(done.code, done.out.encode(), done.err.encode())

    monkeypatch.setattr(ssh, "Shell", Node)
    pve.world.access.users["root@pam"].password = PASSWORD


@pytest.fixture
def prepare(pve: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Writes a file with these words and prepares its host; no secret is ever said."""
    monkeypatch.chdir(tmp_path)

    def prepared(
        *options: str, user: str = "lab@pve", login: str = TOKEN, secrets: str = "", block: str = ""
    ) -> Answer:
        text = FILE.format(block=block, secrets=secrets, url=pve.url, user=user, login=login, ca=pve.ca)
        (tmp_path / "homelab.yml").write_text(text, encoding="utf-8")
        answer = provision(monkeypatch, "host", "prepare", "homelab.yml", "pve1", *options)
        said = answer.out + answer.err
        assert "foresee" not in said, said
        users = pve.world.access.users.values()
        tokens = [token.secret for one in users for token in one.tokens.values()]
        assert [one for one in (CANARY, PASSWORD, *tokens) if one in said] == []
        return answer

    return prepared


def teller(folder: Path, *, value: str = "", complaint: str = "") -> str:
    """What the file says so that a program gives all secrets ``value``, or none with that complaint."""
    program = folder / "tell"
    answer = f"echo {complaint} >&2; exit 1" if complaint else f"echo {value}"
    program.write_text(f'#!/bin/sh\necho "$1" >>{folder}/asked\n{answer}\n', encoding="ascii")
    program.chmod(0o755)
    return f'secrets: {{ command: ["{program}", "{{name}}"] }}'


def asked(folder: Path) -> list[str]:
    file = folder / "asked"
    return file.read_text(encoding="ascii").splitlines() if file.exists() else []


def has_token(pve: Double) -> bool:
    user = pve.world.access.users.get("lab@pve")
    return user is not None and "homelab" in user.tokens


def test_a_token_is_made_and_kept_beside_the_file(
    pve: Double, prepare: Prepare, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    answer = prepare()
    assert answer.code == 0, answer.err
    secret = pve.world.access.users["lab@pve"].tokens["homelab"].secret
    assert (tmp_path / "secrets.env").read_text().endswith(f"\nnode_token={secret}\n")
    again = prepare()
    assert again.out == snapshot


@pytest.mark.parametrize("words", [{"value": CANARY}, {"complaint": "locked"}], ids=["that gives one", "that fails"])
def test_a_token_of_the_command_s_is_not_made_and_nothing_else_is(
    words: dict[str, str], pve: Double, prepare: Prepare, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    assert prepare(secrets=teller(tmp_path, **words)).ended(4) == snapshot
    assert "lab@pve" not in pve.world.access.users
    assert "Provisioner" not in pve.world.access.permissions.roles
    assert not (tmp_path / "secrets.env").exists()


def test_a_token_of_the_environment_s_is_not_made_either(
    pve: Double, prepare: Prepare, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("PROVISION_SECRET_NODE_TOKEN", CANARY)
    assert prepare().ended(4) == snapshot
    assert "lab@pve" not in pve.world.access.users


def test_a_token_that_is_there_is_used_with_the_command_s_value(
    pve: Double, prepare: Prepare, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    pve.world.access.add_user("lab@pve", "")
    secret = pve.world.access.add_token("lab@pve", "homelab", privsep=False)
    answer = prepare(secrets=teller(tmp_path, value=secret))
    assert answer.code == 0, answer.err
    assert asked(tmp_path) == ["node_token"]
    assert answer.err == snapshot
    assert not (tmp_path / "secrets.env").exists()


def test_a_token_that_is_there_and_a_command_that_fails(
    pve: Double, prepare: Prepare, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    pve.world.access.add_user("lab@pve", "")
    pve.world.access.add_token("lab@pve", "homelab", privsep=False)
    assert prepare(secrets=teller(tmp_path, complaint="locked")).ended(4) == snapshot
    assert "Provisioner" not in pve.world.access.permissions.roles


def test_what_secrets_env_has_is_replaced_there_though_the_file_has_a_command(
    pve: Double, prepare: Prepare, tmp_path: Path
) -> None:
    (tmp_path / "secrets.env").write_text("node_token=stale\n")
    (tmp_path / "secrets.env").chmod(0o600)
    answer = prepare(secrets=teller(tmp_path, value=CANARY))
    assert answer.code == 0, answer.err
    assert has_token(pve)
    assert asked(tmp_path) == []
    assert "stale" not in (tmp_path / "secrets.env").read_text()


def test_root_logs_in_with_a_password_of_the_command_s(prepare: Prepare, tmp_path: Path) -> None:
    answer = prepare(user="root@pam", login=ROOTS, secrets=teller(tmp_path, value=PASSWORD))
    assert answer.code == 0, answer.err
    assert asked(tmp_path) == ["roots_password"]


def test_a_password_that_nobody_has_is_asked_for(prepare: Prepare, snapshot: SnapshotAssertion) -> None:
    assert prepare(user="root@pam", login=ROOTS).ended(64) == snapshot


@pytest.mark.parametrize("options", [(), ("--print",)], ids=["made", "printed"])
def test_a_user_who_could_not_log_in_is_not_made(
    options: tuple[str, ...],
    pve: Double,
    prepare: Prepare,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setenv("PROVISION_SECRET_ROOTS_PASSWORD", CANARY)
    assert prepare(*options, login=ROOTS).ended(4) == snapshot
    assert "lab@pve" not in pve.world.access.users


def test_what_is_printed_names_a_token_only_where_the_page_has_one(
    prepare: Prepare, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with_token = prepare("--print", secrets=teller(tmp_path, value=CANARY))
    assert with_token.out == snapshot
    roots = prepare("--print", user="root@pam", login=ROOTS, secrets=teller(tmp_path, value=CANARY))
    assert (roots.code, "pveum" in roots.out, "None" in roots.out) == (0, False, False)
    assert asked(tmp_path) == []


PVESM = """\
#!/bin/sh
[ "$1 $2 $3 $4" = "status --enabled 1 --content" ] || exit 2
echo 'Name              Type     Status     Total (KiB)      Used (KiB) Available (KiB)        %'
case $5 in
rootdir) echo 'backup  dir  inactive 0 0 0 0.00%
dir     dir  active 98497780 13700000 79750000 13.91%
local-lvm  lvmthin  active 366276608 0 366276608 0.00%
zz-pool zfspool active 98497780 0 79750000 0.00%' ;;
vztmpl) echo 'dir     dir  active 98497780 13700000 79750000 13.91%
local      dir  active 98497780 13700000 79750000 13.91%' ;;
esac
"""
"""What ``pvesm status`` says on a node with several storages of each kind."""


@pytest.mark.parametrize(
    ("bridge", "listed", "path"),
    [
        ("vmbr0", VNETS, "localnetwork/vmbr0"),
        ("homenet", VNETS, "inner/homenet"),
        ("dmz", VNETS, "outer/dmz"),
        ("plain", VNETS, "localnetwork/plain"),
        ("homenet", "", "localnetwork/homenet"),
        ("homenet", None, "localnetwork/homenet"),
    ],
)
def test_what_is_typed_grants_what_the_run_does_and_nowhere_else(
    pve: Double, vnets: Path, prepare: Prepare, tmp_path: Path, *, bridge: str, listed: str | None, path: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {"pvesm": PVESM, "pveum": '#!/bin/sh\necho "$@"\n'}.items():
        (programs / name).write_text(text, encoding="ascii")
        (programs / name).chmod(0o755)
    if listed is not None:
        vnets.write_text(listed, encoding="ascii")
    block = f", proxmox: {{ network: {{ bridge: {bridge} }} }}"
    said = typed(prepare("--print", block=block).out, vnets, programs)
    assert prepare(block=block).code == 0
    made = {(grant.path, grant.role) for grant in pve.world.access.permissions.grants if grant.who == "lab@pve"}
    printed = {re.findall(r"modify (\S+) .*--roles (\S+)", line)[0] for line in said.splitlines() if "acl" in line}
    assert printed == made
    assert f"/sdn/zones/{path}" in {granted for granted, _ in made}


def test_a_storage_that_the_node_has_not_is_refused_and_nothing_made(pve: Double, prepare: Prepare) -> None:
    answer = prepare(login=f"{TOKEN}, storage: tank")
    assert answer.code == 4
    assert "it has no storage tank" in answer.err
    assert "Provisioner" not in pve.world.access.permissions.roles


def test_a_host_has_to_be_named(prepare: Prepare) -> None:
    prepare("--print")
    assert run(["host", "prepare", "homelab.yml", "--print"]) == 64
