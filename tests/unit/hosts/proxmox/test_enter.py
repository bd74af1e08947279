"""The way into a container: what ``pct exec`` calls, and ``pct`` itself where that cannot stand for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, execute, observe
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.values.errors import ProviderError
from tests.doubles.proxmox.pct import MODULE
from tests.unit.hosts.proxmox.nearby import PCT, Nearby, nearby, shell

__all__ = ["nearby", "shell"]  # fixtures

BEFORE_5_0_9 = """\
        exec('lxc-attach', '-n', $vmid);
        exec('lxc-attach', '-n', $vmid, '--', @{$param->{'extra-args'}});
"""
BETWEEN = MODULE.replace("@{ $param->{'extra-args'} }", "@{$param->{'extra-args'}}")
"""The same lines before pve-container was formatted by perltidy."""
SEEN = """\
printf '%s\\n' "$0 $*" "$PWD" "$(id -u)"
tr '\\0' '\\n' </proc/$$/environ | grep -v ^PROVISIONER_EXECUTION=
cat
exit 7
"""


def look(shell: Shell) -> tuple[list[str], bytes]:
    """Return the reasons for ``pct`` that a look into one container gave, and what was written there."""
    reasons: list[str] = []
    found = observe.look_into_containers(
        shell, ["echo", "there"], {"one": 105}, {"one": b""}, shared=b"", timeout_s=20, on_pct=reasons.append
    )
    return reasons, found.executions["one"].stdout


@pytest.mark.parametrize("module", [MODULE, BETWEEN, BEFORE_5_0_9], ids=["6.1", "5.1", "5.0.8"])
def test_lxc_attach_stands_for_pct_exec_of_known_versions(shell: Shell, nearby: Nearby, module: str) -> None:
    nearby.module.write_text(module, encoding="ascii")
    assert execute.execute(shell, 105, ["echo", "there"]).stdout == b"there\n"
    assert look(shell) == ([], b"there\n")
    assert nearby.entered == ["lxc-attach"] * 2


def test_a_command_sees_the_same_by_either_way(shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_NODE", "leaked")
    command, environment = ["sh", "-c", SEEN, "a b", "c'd"], {"WORD": "\n$1"}
    ways = []
    for why in ("", "told by the test"):
        monkeypatch.setenv("PROVISIONER_PCT", why)
        ways.append(execute.execute(shell, 105, command, stdin=b"in\0put", environment=environment))
    attached, by_pct = ways
    assert nearby.entered == ["lxc-attach", "pct"]
    assert attached == by_pct
    assert (attached.returncode, b"OF_THE_NODE" in attached.stdout) == (7, False)
    assert b"WORD=\n$1\n" in attached.stdout


def _wrapper(nearby: Nearby) -> None:
    (nearby.folder / "pct").rename(nearby.folder / "pct.real")
    nearby.installs("pct", f'#!/bin/sh\nexec {nearby.folder}/pct.real "$@"\n')


def _other_version(nearby: Nearby) -> None:
    changed = MODULE.replace("'-n', $vmid)", "'-n', $vmid, '--context', $context)")
    nearby.module.write_text(changed, encoding="ascii")


TRAPS: dict[str, tuple[Callable[[Nearby], object], str]] = {
    "a wrapper": (_wrapper, "pct is not Proxmox VE's own"),
    "another version": (_other_version, "pct of this version calls lxc-attach in another way"),
    "no module": (lambda nearby: nearby.module.unlink(), "pct of this version calls lxc-attach in another way"),
    "not root": (lambda nearby: nearby.installs("id", "#!/bin/sh\necho 1000\n"), "the login is not root"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_where_that_is_not_so_pct_is_used_with_the_reason(shell: Shell, nearby: Nearby, trap: str) -> None:
    spring, why = TRAPS[trap]
    spring(nearby)
    assert execute.execute(shell, 105, ["echo", "there"]).stdout == b"there\n"
    assert look(shell) == ([why], b"there\n")
    assert nearby.entered == ["pct"] * 2


@pytest.mark.parametrize(
    ("variable", "why"),
    [
        ("SSH_ORIGINAL_COMMAND", "sshd runs a command of its own for this key"),
        ("SUDO_COMMAND", "the login goes through sudo"),
    ],
)
def test_a_login_that_is_led_elsewhere_uses_pct(
    shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch, variable: str, why: str
) -> None:
    monkeypatch.setenv(variable, "sh")
    assert look(shell) == ([why], b"there\n")
    assert nearby.entered == ["pct"]


def test_a_node_without_lxc_attach_uses_pct(shell: Shell, nearby: Nearby) -> None:
    (nearby.folder / "lxc-attach").unlink()
    if Path("/usr/bin/lxc-attach").exists():
        pytest.skip("this machine has an lxc-attach")
    assert look(shell) == (["there is no lxc-attach"], b"there\n")


def test_a_container_of_another_node_is_left_to_pct(shell: Shell, nearby: Nearby) -> None:
    """Its monitor may still run here while it is moved; Proxmox goes by where its configuration lies."""
    (nearby.folder / "105.conf").unlink()
    nearby.installs("pct", PCT.format(folder=nearby.folder).replace("105|", ""))
    with pytest.raises(ProviderError) as caught:
        execute.execute(shell, 105, ["true"], name="web")
    assert str(caught.value) == "Unable to run true in container web\ncontainer '105' not running!"
    assert nearby.entered == ["pct"]


def test_a_machine_without_pct_is_no_node(shell: Shell, nearby: Nearby) -> None:
    (nearby.folder / "pct").unlink()
    with pytest.raises(ProviderError, match="Unable to run true in container web") as caught:
        execute.execute(shell, 105, ["true"], name="web")
    assert (caught.value.details, caught.value.resolution) == (
        "There is no pct there.",
        "Does ssh: lead to a Proxmox VE node, as root?",
    )


def test_the_reason_for_pct_is_said_once() -> None:
    said: list[tuple[str, str]] = []
    provider = ProxmoxProvider("box", access=Access("https://pve:8006", "root@pam"))
    provider.on_progress = lambda name, message: said.append((name, message))
    for _ in range(2):
        provider.explain_pct("the login is not root")
    assert said == [("box", "each command in a container takes a second more here, by pct: the login is not root")]
