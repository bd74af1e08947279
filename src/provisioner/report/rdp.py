"""A desktop for programs that show it: the file that RDP clients open, and the words that start one here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

WINDOWED = ("remmina", "open", "mstsc.exe")
"""Clients that ask for password and certificate in a window, in the order in which they are looked for; the last are
macOS's own way to a file's program, and Windows' client."""
ON_TERMINAL = ("xfreerdp3", "xfreerdp", "wlfreerdp3", "wlfreerdp")
"""Those that ask for the password on the terminal on which they were started."""


@dataclass(frozen=True, slots=True)
class Desktop:
    """Where a desktop answers, and as whom one logs in. The password is in no file and on no command line."""

    name: str
    address: str
    port: int
    user: str
    clipboard: bool = False
    drives: bool = False
    certificate: str = ""
    """The file in its container that holds the certificate it shows; empty where nobody knows it."""


def rdp_text(desktop: Desktop) -> str:
    """The file, with CRLF line endings."""
    lines = (
        f"full address:s:{desktop.address}:{desktop.port}",
        *([f"username:s:{desktop.user}"] if desktop.user else []),
        "screen mode id:i:2",
        "use multimon:i:0",
        "session bpp:i:24",
        "prompt for credentials:i:1",
        "authentication level:i:2",
        "enablecredsspsupport:i:0",
        "negotiate security layer:i:1",
        f"redirectclipboard:i:{desktop.clipboard:d}",
        "redirectprinters:i:0",
        f"drivestoredirect:s:{'*' if desktop.drives else ''}",
        "autoreconnection enabled:i:1",
    )
    return "".join(f"{line}\r\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Client:
    """How a client is started; it asks for the password itself, in a window or ``on_terminal``."""

    command: Sequence[str]
    on_terminal: bool


def client(desktop: Desktop, file: str, find: Callable[[str], str | None], *, has_terminal: bool) -> Client | None:
    """The first client that ``find`` knows and that can ask what it has to; None without one."""
    names = (*WINDOWED, *ON_TERMINAL) if has_terminal else WINDOWED
    for name in names:
        program = find(name)
        if program:
            return Client((program, *_words(desktop, file, name)), on_terminal=name in ON_TERMINAL)
    return None


def _words(desktop: Desktop, file: str, name: str) -> Sequence[str]:
    if name == "remmina":
        return ("-c", file)
    if "freerdp" not in name:
        return (file,)
    words = [f"/v:{desktop.address}:{desktop.port}"]
    if desktop.user:
        words.append(f"/u:{desktop.user}")
    words += ["/d:", "/sec:tls", "/dynamic-resolution"]
    words.append("+clipboard" if desktop.clipboard else "-clipboard")
    if desktop.drives:
        words.append("+drives")
    return (*words, "/from-stdin:force")  # FreeRDP 2 does not ask by itself


def certificate_word(fingerprint: str) -> str:
    """FreeRDP's word for the one certificate that it takes, by its sha256 as openssl tells it, or as digits alone."""
    with_colons = fingerprint.lower()  # FreeRDP 2 wants these
    without_colons = with_colons.replace(":", "")  # and FreeRDP 3 these
    return f"/cert:fingerprint:sha256:{without_colons},fingerprint:sha256:{with_colons}"
