"""What a forced rejoin needs beside the cluster's own state, as ``data/cluster/ready.sh`` says it; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Readiness:
    """``missing``: programs that the node lacks. ``ssh``: what ssh from the node to the lead said, empty when it works.

    ``ssh_back``: the same from the lead to the node. ``root_login``: the line of the node's ``sshd_config`` that says
    whether root may log in, as it is now; empty without one. ``fingerprints``: the lead's host keys, told by itself.
    """

    missing: tuple[str, ...] = ()
    ssh: str = ""
    ssh_back: str = ""
    root_login: str = ""
    fingerprints: tuple[str, ...] = ()

    @property
    def keeps_root_login(self) -> bool:
        """Whether ``pvecm add`` finds what it wants there, and writes nothing."""
        return lets_root_in(self.root_login)


FAILED = "it failed without a word"


def lets_root_in(line: str) -> bool:
    """Whether it is the line that ``pvecm add`` writes into ``sshd_config``."""
    return bool(re.fullmatch(r"PermitRootLogin\s+yes\s*", line))


def root_login_in(sshd_config: str) -> str:
    """The line of that file which says whether root may log in; empty without one."""
    found = re.search(r"^PermitRootLogin.*$", sshd_config, re.MULTILINE)
    return found[0].strip() if found else ""


def missing_programs(text: str) -> tuple[str, ...]:
    """The programs that the script did not find."""
    return tuple(_told("missing", text))


def ssh_refusal(text: str) -> str:
    """What ssh said when it could not log in to the other node without a question; empty when it could."""
    return "" if "\nssh: ok\n" in f"\n{text}\n" else "\n".join(_told("ssh", text)).strip() or FAILED


def root_login(text: str) -> str:
    """The line of ``sshd_config``."""
    return next(iter(_told("root-login", text)), "")


def fingerprints(text: str) -> tuple[str, ...]:
    """The host's own keys, as ``ssh-keygen -l`` prints them."""
    return tuple(_told("host-key", text))


def _told(name: str, text: str) -> list[str]:
    return re.findall(rf"^{name}: (.*)$", text, re.MULTILINE)
