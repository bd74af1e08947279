"""What ``ssh`` says when it cannot reach a node or is not let in, in our words: what failed, and what to do now."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from provisioner.values.errors import PreflightError, UnavailableError


@dataclass(frozen=True, slots=True)
class Destination:
    """``[USER@]HOST[:PORT]`` taken apart; ``port`` is empty where ssh itself decides."""

    login: str
    host: str
    port: str

    def __str__(self) -> str:
        return f"{self.login}:{self.port}" if self.port else self.login


def destination_of(text: str) -> Destination:
    """What ``ssh:`` says, as ssh wants it; an IPv6 address stands in brackets there."""
    user, at, rest = text.rpartition("@")
    match = re.fullmatch(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:]+))(?::(?P<port>\d+))?", rest)
    if match is None:
        raise PreflightError(f"Unable to use {text} as a destination of ssh", resolution="Write ssh: user@host:port.")
    host = match["six"] or match["host"]
    return Destination(f"{user}{at}{host}", host, match["port"] or "")


def no_ssh(what: str) -> PreflightError:
    """What is said where the file gives no way into the node."""
    return PreflightError(
        f"{what}: work inside containers on Proxmox needs ssh",
        details="The API of Proxmox VE runs no commands in containers and copies no files.",
        resolution="Write ssh: root@NODE on the host's page, with a key that the node lets in.",
    )


def unreachable(destination: Destination, said: str) -> UnavailableError:
    """The error for an ``ssh`` that did not get as far as to run anything; ``said`` is what it wrote."""
    advice = _ADVICE.get(reason(said))
    return UnavailableError(
        f"Unable to reach {destination} by ssh",
        details=said.strip() or "It ended without a word.",
        resolution=advice(destination) if advice else "",
    )


def reason(said: str) -> str:
    """Why ``ssh`` was not let in, by what it wrote; "" where that is not known."""
    return next((name for name, pattern in _REASONS.items() if re.search(pattern, said)), "")


def is_passing(said: str) -> bool:
    """Whether the other side let go before it had greeted us: nothing was asked of it, and the next time it may not."""
    return "kex_exchange_identification" in said


def _changed_key(to: Destination) -> str:
    name = f"[{to.host}]:{to.port}" if to.port else to.host
    return (
        "It shows another host key than the one that is known. Was it installed anew? Then compare its key on its own "
        f"console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), remove the old one (ssh-keygen -R '{name}') and "
        f"take up the new one: ssh {_options(to)}{to.login}. If not, somebody may stand between you and it."
    )


def _unknown_key(to: Destination) -> str:
    return (
        f"Its host key is not known here. Compare the fingerprint that ssh-keyscan {_options(to)}{to.host} "
        "| ssh-keygen -lf - prints with the one on its own console (ssh-keygen -lf "
        "/etc/ssh/ssh_host_ed25519_key.pub), and add the key to ~/.ssh/known_hosts; or log in once by hand, "
        f"ssh {_options(to)}{to.login}, and confirm it there."
    )


def _refused_key(to: Destination) -> str:
    return (
        "It takes none of the keys that ssh offers, and provision types no passwords. Put yours there: "
        f"ssh-copy-id {_options(to)}{to.login}; a key with a passphrase must be in ssh-agent (ssh-add)."
    )


def _refused(to: Destination) -> str:
    return f"Nothing listens on port {to.port or 22} of {to.host}: does its sshd run, and is the port right?"


def _let_go(to: Destination) -> str:
    return (
        f"The sshd of {to.host} lets go of newcomers: is it busy (MaxStartups in its sshd_config), or does something "
        "there, such as fail2ban, keep this machine out?"
    )


def _silent(to: Destination) -> str:
    return f"Is {to.host} switched on, is the address right, and does a firewall let port {to.port or 22} pass?"


def _nameless(to: Destination) -> str:
    return f"The name {to.host} leads nowhere from here: write its address, or a Host entry in ~/.ssh/config."


def _options(to: Destination) -> str:
    return f"-p {to.port} " if to.port else ""


_REASONS = {
    "changed key": "REMOTE HOST IDENTIFICATION HAS CHANGED|host key for .* has changed",
    "unknown key": "host key is known for|Host key verification failed",
    "refused key": "Permission denied|Too many authentication failures",
    "let go": "kex_exchange_identification",
    "refused": "Connection refused",
    "silent": "timed out|No route to host|Network is unreachable|Host is down",
    "nameless": "Could not resolve hostname",
}
_ADVICE: dict[str, Callable[[Destination], str]] = {
    "changed key": _changed_key,
    "unknown key": _unknown_key,
    "refused key": _refused_key,
    "let go": _let_go,
    "refused": _refused,
    "silent": _silent,
    "nameless": _nameless,
}
