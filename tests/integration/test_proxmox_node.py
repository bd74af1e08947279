"""Work on a Proxmox node and inside its containers, over a real sshd: commands, streams, volumes, and ways to fail."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, execute, volumes
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.state import Device, Instance
from tests.doubles.proxmox.fixture import PveHost
from tests.doubles.proxmox.incus_containers import MAKER, IncusContainers
from tests.integration.test_attach import Terminal
from tests.processes import awaited_at_end, killed_at_end
from tests.waiting import wait_until

TIMEOUT_S = 120
pytestmark = [pytest.mark.incus, pytest.mark.proxmox]

PATIENCE_S = 30.0
LARGE_BYTES = 8_000_000
CANARY = "canary-4711"
SEES = """\
printf '%s\\n' "$0 $*" "$PWD" "$(umask)"
id
cat /proc/self/cgroup
cat /proc/self/attr/current 2>/dev/null; echo
grep -E '^(Cap|Seccomp|NoNewPrivs|Sig)' /proc/self/status
tr '\\0' '\\n' </proc/$$/environ
echo said >&2
cat
exit 7
"""
"""Tells user, folder, control groups, label, capabilities, environment and input; ends with 7."""
ATTACH = """
import sys
from pathlib import Path
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.attach import Ends, attach
from provisioner.hosts.proxmox.ssh import Shell
ssh, config, vmid, kind, *command = sys.argv[1:]
shell = Shell(Access("", "", ssh=ssh, ssh_config=Path(config)))
sys.exit(attach(shell, int(vmid), command, Ends(0, 1, 2, kind == "terminal"), {"WORD": "a b"}))
"""


@pytest.fixture(scope="module")
def provider(pve_host: PveHost) -> ProxmoxProvider:
    return ProxmoxProvider("box", access=pve_host.access)


@pytest.fixture(scope="module")
def shell(pve_host: PveHost) -> Shell:
    return Shell(pve_host.access)


@pytest.fixture(scope="module")
def container(provider: ProxmoxProvider) -> Iterator[Instance]:
    lab = f"t{secrets.token_hex(4)}"
    one = Instance(f"{lab}-one", "box", lab, "debian/12")
    provider.create(one)
    provider.start(one)
    yield provider.wait_until_ready(one)
    provider.delete(one)


@pytest.fixture(scope="module")
def vmid(provider: ProxmoxProvider, container: Instance) -> int:
    return int(provider.connection_variables(container.name)["provision_vmid"])


def is_running(shell: Shell, vmid: int, what: str) -> bool:
    return execute.execute(shell, vmid, ["pgrep", "-f", what]).returncode == 0


def reached(host: PveHost, **changes: object) -> Shell:
    """A shell by the same way but for what is said."""
    return Shell(replace(host.access, **changes))  # type: ignore[arg-type]


@pytest.fixture
def config(pve_host: PveHost, tmp_path: Path) -> Callable[..., Path]:
    """Writes an ssh configuration that differs from the node's own in some words."""

    def written(**words: Path) -> Path:
        text = pve_host.ssh.config.read_text(encoding="ascii")
        for word, value in words.items():
            text = "".join(
                f"  {word} {value}\n" if line.split()[:1] == [word] else line for line in text.splitlines(keepends=True)
            )
        file = tmp_path / f"config-{secrets.token_hex(4)}"
        file.write_text(text, encoding="ascii")
        return file

    return written


def test_a_command_on_the_node_gives_all_that_it_said(shell: Shell) -> None:
    done = shell.run(["sh", "-c", 'cat; echo "$1" >&2; exit 255', "sh", "a 'b' $HOME"], stdin=bytes(range(256)))
    assert (done.returncode, done.stdout, done.stderr) == (255, bytes(range(256)), b"a 'b' $HOME\n")


def test_all_commands_share_one_connection(shell: Shell, pve_host: PveHost) -> None:
    shell.run(["true"])
    before = pve_host.ssh.log.count("Accepted publickey")
    assert before
    for _ in range(3):
        Shell(pve_host.access).run(["true"])
    assert pve_host.ssh.log.count("Accepted publickey") == before


def test_a_lost_connection_is_made_again(shell: Shell) -> None:
    shell.run(["true"])
    shell.close()
    assert shell.run(["echo", "again"]).stdout == b"again\n"


def test_what_a_dead_ssh_left_is_no_obstacle(shell: Shell) -> None:
    shell.close()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(shell.socket))
    assert shell.run(["echo", "again"]).stdout == b"again\n"


def test_a_missing_program_is_told_from_one_that_fails(shell: Shell, pve_host: PveHost) -> None:
    assert shell.run(["sh", "-c", "exit 127"]).returncode == 127
    with pytest.raises(ProviderError, match="Unable to run no-such-program") as caught:
        shell.run(["no-such-program"])
    assert "Install" in caught.value.resolution
    with pytest.raises(ProviderError) as caught:
        shell.run(["pctx"])
    assert "Proxmox VE node" in caught.value.resolution
    assert pve_host.ssh.destination in caught.value.message


def test_a_command_that_takes_too_long_is_killed_on_the_node(shell: Shell) -> None:
    with pytest.raises(ProviderError, match="Unable to wait for sh"):
        shell.run(["sh", "-c", "sleep 70101; true"], timeout_s=0.5)
    wait_until(lambda: b"sleep 70101" not in shell.run(["ps", "-eo", "args"]).stdout.replace(b"ps -eo", b""))


def test_an_unknown_host_key_is_never_accepted(pve_host: PveHost, config: Callable[..., Path], tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    with pytest.raises(UnavailableError, match="Unable to reach") as caught:
        reached(pve_host, ssh_config=config(UserKnownHostsFile=known)).run(["true"])
    assert "ssh-keyscan" in caught.value.resolution
    assert not known.exists()


def test_a_changed_host_key_is_refused_with_a_warning(
    pve_host: PveHost, config: Callable[..., Path], tmp_path: Path
) -> None:
    other = pve_host.ssh.make_key(f"other-{secrets.token_hex(4)}").with_suffix(".pub").read_text(encoding="ascii")
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{pve_host.ssh.port} {other}", encoding="ascii")
    with pytest.raises(UnavailableError) as caught:
        reached(pve_host, ssh_config=config(UserKnownHostsFile=known)).run(["true"])
    assert "CHANGED" in caught.value.details
    assert "somebody may stand between" in caught.value.resolution
    assert known.read_text(encoding="ascii").endswith(other)


def test_a_refused_key_says_how_one_is_let_in(pve_host: PveHost, config: Callable[..., Path]) -> None:
    stranger = pve_host.ssh.make_key(f"stranger-{secrets.token_hex(4)}")
    with pytest.raises(UnavailableError) as caught:
        reached(pve_host, ssh_config=config(IdentityFile=stranger)).run(["true"])
    assert "Permission denied" in caught.value.details
    assert "ssh-copy-id" in caught.value.resolution


def test_a_port_where_nothing_listens_is_named(pve_host: PveHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(UnavailableError) as caught:
        reached(pve_host, ssh=f"root@127.0.0.1:{port}").run(["true"])
    assert "Connection refused" in caught.value.details
    assert str(port) in caught.value.resolution


def test_the_nodes_environment_does_not_leak_and_ours_is_no_argument(
    shell: Shell, vmid: int, pve_host: PveHost
) -> None:
    assert shell.run(["printenv", "FROM_THE_NODE"]).stdout == b"leaked\n"
    words = {"SECRET": CANARY, "LINES": "a\nb'\"$x", "BYTES": "ä€\udcff"}
    done = execute.execute(shell, vmid, ["cat", "/proc/self/environ"], environment=words)
    found = dict(one.split(b"=", 1) for one in done.stdout.split(b"\0") if one)
    assert {name: found[name.encode()] for name in words} == {
        name: value.encode(errors="surrogateescape") for name, value in words.items()
    }
    assert b"FROM_THE_NODE" not in found
    assert b"SSH_CONNECTION" not in found
    assert CANARY not in str(pve_host.pct.asked) + str(pve_host.lxc.attached)


def test_a_command_finds_the_same_as_by_pct_exec(shell: Shell, vmid: int, pve_host: PveHost) -> None:
    call = execute.PctCall(vmid, ["sh", "-c", SEES, "a b", "c'd"], {"WORD": "\n$1"})
    asked, attached = len(pve_host.pct.asked), len(pve_host.lxc.attached)
    told = execute.execute_call(shell, call, "Unable to see", stdin=b"in\0put")
    by_pct = shell.run(["env", "PROVISIONER_PCT=for the test", *call.argv], stdin=[call.head, b"in\0put"])
    assert [words[:3] for words in pve_host.lxc.attached[attached:]] == [
        ["-n", str(vmid), "--clear-env"],
        ["-n", str(vmid), "--keep-env"],
    ]
    assert [words[:2] for words in pve_host.pct.asked[asked:]] == [["exec", str(vmid)]]
    assert told.stdout.decode().startswith("a b c'd\n/root\n")
    assert told.returncode == by_pct.returncode == 7
    assert told.stdout == by_pct.stdout
    assert told.stderr == call.own_stderr(by_pct.stderr)


def test_a_command_longer_than_the_node_takes_is_run(shell: Shell, vmid: int) -> None:
    half = "x" * 70_000  # a shell takes 128 KiB as one argument, and ssh sends a whole command as one
    assert execute.execute(shell, vmid, ["printf", "%s", half, half]).stdout == 2 * half.encode()


def test_a_command_is_a_program_and_never_a_word_of_the_shell(shell: Shell, vmid: int) -> None:
    assert execute.execute(shell, vmid, ["exit", "3"]).returncode == 127
    assert execute.execute(shell, vmid, ["echo", "-n", "a", "$x"]).stdout == b"a $x"


def test_a_command_that_takes_too_long_is_killed_in_the_container(shell: Shell, vmid: int) -> None:
    asked = time.monotonic()
    execute.execute(shell, vmid, ["true"])
    # On a busy node it takes longer to begin.
    enough_s = round(8 + 5 * (time.monotonic() - asked))
    lasting = ["sh", "-c", "setsid sleep 70102 & exec env -i sleep 70103"]
    with pytest.raises(ProviderError, match="Unable to run sh in container") as caught:
        execute.execute(shell, vmid, lasting, timeout_s=float(enough_s))
    assert f"killed after {enough_s} s" in caught.value.details
    # Left alone, they would go on for a day.
    wait_until(lambda: not is_running(shell, vmid, "^sleep 7010[23]"), PATIENCE_S)


def test_a_file_that_ends_early_is_no_file(shell: Shell, vmid: int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"whole")
    execute.push_file(shell, vmid, source, "/root/early")

    class Shrinking(type(source)):  # type: ignore[misc]
        def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
            found = super().stat(follow_symlinks=follow_symlinks)
            return os.stat_result((*found[:6], found.st_size + 1, *found[7:]))

    with pytest.raises(ProviderError, match="Unable to copy a file to /root/early") as caught:
        execute.push_file(shell, vmid, Shrinking(source), "/root/early")
    assert caught.value.details == "6 bytes were sent, 5 arrived"
    assert (
        execute.execute(shell, vmid, ["sh", "-c", "cat /root/early; ls -A /root | grep provision"]).stdout == b"whole"
    )


def test_a_folder_is_neither_replaced_nor_copied(shell: Shell, vmid: int, tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="Unable to copy a file to /etc"):
        execute.push_file(shell, vmid, b"x", "/etc")
    with pytest.raises(ProviderError, match="it is a directory"):
        execute.pull_file(shell, vmid, "/etc", tmp_path / "etc")
    with pytest.raises(ProviderError, match="Unable to copy a file to /no/such/file"):
        execute.push_file(shell, vmid, b"x", "/no/such/file")


def words(host: PveHost, vmid: int, *command: str, terminal: bool = False) -> tuple[str, ...]:
    kind = "terminal" if terminal else "streams"
    return (sys.executable, "-c", ATTACH, host.ssh.destination, str(host.ssh.config), str(vmid), kind, *command)


def attached(host: PveHost, vmid: int, *command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words(host, vmid, *command), input=stdin, capture_output=True, check=False, timeout=60)


def test_attached_streams_and_the_exit_code_are_the_commands_own(pve_host: PveHost, vmid: int) -> None:
    done = attached(pve_host, vmid, "sh", "-c", "cat; printf '%s' \"$WORD\" >&2; exit 255", stdin="ä\0\n".encode())
    assert (done.stdout, done.stderr, done.returncode) == ("ä\0\n".encode(), b"a b", 255)
    content = secrets.token_bytes(LARGE_BYTES)
    assert attached(pve_host, vmid, "cat", stdin=content).stdout == content
    done = attached(pve_host, vmid, "sh", "-c", "cat >&2", stdin=content)
    assert done.stderr == content
    assert attached(pve_host, vmid, "sh", "-c", "exec >&- 2>&-; sleep 1; exit 9").returncode == 9


def test_attached_output_comes_while_the_command_runs(pve_host: PveHost, vmid: int) -> None:
    call = words(pve_host, vmid, "sh", "-c", "echo first; read line; echo $line")
    with awaited_at_end(subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.stdin.write(b"second\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"second\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    "script",
    [
        "echo begun; sleep 71001; true",
        "trap '' INT TERM HUP; echo begun; while :; do sleep 71001; done",
        "echo begun; exec env -i /bin/sleep 71001",
    ],
    ids=["with a child", "that does not hear", "that lost its mark"],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_attached_command_with_its_children(
    pve_host: PveHost, shell: Shell, vmid: int, script: str, number: signal.Signals
) -> None:
    heard = signal.signal(number, signal.default_int_handler)
    try:
        call = words(pve_host, vmid, "sh", "-c", script)
        running = killed_at_end(subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    finally:
        signal.signal(number, heard)
    with running as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 130
    assert not is_running(shell, vmid, "sleep 71001")


@pytest.mark.parametrize("script", ["yes", "echo first; sleep 71002; true"], ids=["that writes", "that is silent"])
def test_a_reader_that_goes_away_ends_the_attached_command_quietly(
    pve_host: PveHost, shell: Shell, vmid: int, script: str
) -> None:
    with killed_at_end(
        subprocess.Popen(
            words(pve_host, vmid, "sh", "-c", script),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 141
        assert process.stderr.read() == b""
    assert not is_running(shell, vmid, "^yes|sleep 71002")


def test_attaching_to_what_is_missing_is_an_error(pve_host: PveHost, provider: ProxmoxProvider) -> None:
    with pytest.raises(ProviderError, match="Unable to run true in container no-such-container"):
        provider.attach("no-such-container", ["true"], stdin=0, stdout=1, stderr=2, terminal=False)
    done = attached(pve_host, 999_999, "true")
    assert done.returncode == 1
    assert b"Configuration file 'nodes/pve1/lxc/999999.conf' does not exist" in done.stderr


class PveTerminal(Terminal):
    """A terminal of the test's own, with a command in a container of the node attached to it."""

    host: PveHost

    def call(self, container: str, *command: str) -> tuple[str, ...]:
        """The same over ssh."""
        return words(self.host, int(container), *command, terminal=True)


def test_a_shell_has_a_terminal_with_our_size_and_name(
    pve_host: PveHost, vmid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PveTerminal, "host", pve_host, raising=False)
    with PveTerminal(str(vmid), "/bin/bash", "--norc", "--noprofile") as terminal:
        terminal.expect("# ")
        terminal.type("tty; echo $TERM $WORD; stty size\n")
        terminal.expect("/dev/pts/")
        terminal.expect("vt220 a b")
        terminal.expect("33 77")
        terminal.resize(41, 101)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.type("sleep 0.5; stty size\n")
        terminal.expect("41 101")
        terminal.type("ls -A /tmp | grep -c tmp\n")
        terminal.expect("0\r\n")
        terminal.type("exit 5\n")
        assert terminal.ended() == 5


def test_a_terminal_is_restored_when_we_are_ended(
    pve_host: PveHost, shell: Shell, vmid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PveTerminal, "host", pve_host, raising=False)
    with PveTerminal(str(vmid), "/bin/sh", "-c", "echo begun; sleep 71005; true") as terminal:
        terminal.expect("begun")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 130
        wait_until(lambda: not is_running(shell, vmid, "sleep 71005"))


@pytest.fixture
def volume(provider: ProxmoxProvider) -> Iterator[str]:
    name = f"v{secrets.token_hex(4)}"
    yield name
    provider.volumes.delete(name)
    provider.volumes.delete(f"{name}-copy")


def built(provider: ProxmoxProvider, volume: str, lab: str, script: str) -> None:
    """A volume made as ``artifacts`` makes one: by a builder that is then stopped and deleted."""
    provider.volumes.create(volume, "digest")
    mount = {"volume": volume, "path": "/srv/data", "readonly": "false"}
    builder = Instance(f"{lab}-build", "box", lab, "debian/12", devices=(Device("artifact", "volume", mount),))
    try:
        provider.create(builder)
        provider.start(builder)
        provider.wait_until_ready(builder)
        done = provider.execute(builder.name, ["sh", "-ec", f"cd /srv/data; {script}"])
        assert done.returncode == 0, done.stderr
        provider.stop(builder)
        provider.volumes.mark_ready(volume)
    finally:
        provider.delete(builder)


def test_what_a_builder_has_made_lies_in_each_consumer(
    provider: ProxmoxProvider, shell: Shell, volume: str, tmp_path: Path
) -> None:
    lab = f"t{secrets.token_hex(4)}"
    built(
        provider,
        volume,
        lab,
        "mkdir bin; echo one >bin/tool; chmod 0751 bin/tool; ln -s tool bin/link; chown 33:44 bin/tool; "
        "head -c 3000000 /dev/urandom >large; sha256sum large >sum",
    )
    assert volumes.size(shell, volume) > 3_000_000
    provider.volumes.export(volume, tmp_path / "export")
    provider.volumes.import_from(f"{volume}-copy", "other", tmp_path / "export")
    assert {volume, f"{volume}-copy"} <= volumes.ready(shell)
    mount = {"volume": volume, "path": "/opt/a b", "readonly": "true"}
    one = Instance(f"{lab}-one", "box", lab, "debian/12", devices=(Device("data", "volume", mount),))
    try:
        provider.create(one)
        provider.start(one)
        vmid = int(provider.connection_variables(one.name)["provision_vmid"])
        look = ["sh", "-c", "cd '/opt/a b' && sha256sum -c sum && stat -c '%a %u %g' bin/tool && readlink bin/link"]
        assert provider.execute(one.name, look).stdout == b"large: OK\n751 33 44\ntool\n"
        assert not volumes.fill(shell, vmid, volume, "/opt/a b"), "it is there already"
        provider.execute(one.name, ["touch", "/opt/a b/more"])
        assert volumes.fill(shell, vmid, f"{volume}-copy", "/opt/a b"), "another one takes its place"
        listed = provider.execute(one.name, ["ls", "-A", "/opt/a b"]).stdout.split()
        assert listed == [b".provisioner-volume", b"bin", b"large", b"sum"]
    finally:
        provider.delete(one)


def test_a_link_in_a_builder_does_not_lead_into_the_node(
    provider: ProxmoxProvider, shell: Shell, volume: str, pve_host: PveHost
) -> None:
    lab = f"t{secrets.token_hex(4)}"
    with pytest.raises(ProviderError, match=f"Unable to mark volume {volume}") as caught:
        built(provider, volume, lab, "cd /; rm -r /srv/data; ln -s /etc /srv/data")
    assert "leads elsewhere" in caught.value.details
    assert volume not in volumes.ready(shell)
    assert all("lock" not in guest.config for guest in pve_host.double.world.guests.values()), "it is unmounted"


def test_a_file_from_elsewhere_is_no_volume(
    provider: ProxmoxProvider, shell: Shell, volume: str, tmp_path: Path
) -> None:
    for name, content in {"text": b"text", "gzip": b"\x1f\x8b\x08\0 and no more"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ProviderError, match=f"Unable to import volume {volume}"):
            provider.volumes.import_from(volume, "digest", tmp_path / name)
    subprocess.run(["tar", "-czf", str(tmp_path / "incus"), "-C", "/etc", "hostname"], check=True, timeout=TIMEOUT_S)
    with pytest.raises(ProviderError, match="Unable to import volume"):
        provider.volumes.import_from(volume, "digest", tmp_path / "incus")
    assert volume not in volumes.ready(shell)
    done = shell.run(["sh", "-c", f"ls -A {volumes.ROOT} | grep {volume}"])
    assert done.stdout == b""


def test_a_volume_needs_a_name(provider: ProxmoxProvider) -> None:
    for name in ("../etc", ".hidden", "a/b", ""):
        with pytest.raises(ProviderError, match="Unable to delete volume"):
            provider.volumes.delete(name)


def test_what_a_killed_run_has_left_is_removed_by_the_next(incus_lab: object, pve_host: PveHost) -> None:
    assert incus_lab
    client = pve_host.containers._client
    name = f"pve-dead-{secrets.token_hex(3)}"
    body = {"name": name, "source": {"type": "none"}, "config": {MAKER: "1 1"}}
    client.change("post", "instances", body=body)
    IncusContainers(pve_host.containers.lab).close()
    assert client.find("instances", name) is None


def test_the_node_ends_with_the_process_that_started_it() -> None:
    program = (
        "import os; from tests.lab.incus import LAB; from tests.doubles.proxmox.fixture import real_host\n"
        "with real_host(LAB) as host: print(host.ssh.port, flush=True); os.kill(os.getpid(), 9)"
    )
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory(prefix="t") as left:
        call = (sys.executable, "-c", program)
        environment = {**os.environ, "TMPDIR": left}
        done = subprocess.run(call, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == -signal.SIGKILL, done.stderr

        def is_gone() -> bool:
            with socket.socket() as end:
                return end.connect_ex(("127.0.0.1", int(done.stdout))) != 0

        wait_until(is_gone)


def test_whether_a_file_system_grew_is_read_inside_of_the_container(
    pve_host: PveHost, provider: ProxmoxProvider, container: Instance, vmid: int
) -> None:
    said: list[str] = []
    provider.on_progress = lambda _name, message: said.append(message)
    assert provider.update(replace(container, disk=10 * 2**30)).disk == 10 * 2**30
    assert [message for message in said if "not read" in message] == []
    pve_host.double.world.faults.keeps_file_systems.add(vmid)
    with pytest.raises(ProviderError) as caught:
        provider.update(replace(container, disk=12 * 2**30))
    assert "df in it shows" in caught.value.details
    assert "Failed to update the container's filesystem" in caught.value.details


def test_a_frozen_container_is_named_with_what_resumes_it(
    pve_host: PveHost, provider: ProxmoxProvider, container: Instance, vmid: int
) -> None:
    """The API calls it running; only the node's lxc-info tells."""
    name = pve_host.containers.name(vmid)
    subprocess.run(("incus", "pause", name), check=True, timeout=TIMEOUT_S)
    try:
        looked = provider.look(["true"], {container.name: b""}, timeout_s=1)
        with pytest.raises(ProviderError, match="Unable to run true") as caught:
            provider.execute(container.name, ["true"], timeout_s=1)
    finally:
        subprocess.run(("incus", "start", name), check=True, timeout=TIMEOUT_S)
    advice = f"CT {vmid} is frozen: nothing in it runs. Resume it, on its node: lxc-unfreeze -n {vmid}"
    assert advice in caught.value.details
    assert advice in looked.failures[container.name].details
