"""A desktop for programs that show it: the file that RDP clients open, and the words that start one here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

CLIENTS = ("xfreerdp3", "xfreerdp", "wlfreerdp", "remmina", "open", "mstsc.exe")
"""In the order in which they are looked for; the last are macOS's own way to a file's program, and Windows' client."""


@dataclass(frozen=True, slots=True)
class Desktop:
    """Where a desktop answers, and as whom one logs in. The password is in no file and on no command line."""

    name: str
    address: str
    port: int
    user: str


def rdp_text(desktop: Desktop) -> str:
    """The file, with the line ends of its origin."""
    lines = (
        f"full address:s:{desktop.address}:{desktop.port}",
        f"username:s:{desktop.user}",
        "screen mode id:i:2",
        "use multimon:i:0",
        "session bpp:i:24",
        "prompt for credentials:i:1",
        "authentication level:i:2",
        "enablecredsspsupport:i:0",
        "negotiate security layer:i:1",
        "redirectclipboard:i:0",
        "redirectprinters:i:0",
        "drivestoredirect:s:",
        "autoreconnection enabled:i:1",
    )
    return "".join(f"{line}\r\n" for line in lines)


def client_command(desktop: Desktop, file: str, find: Callable[[str], str | None]) -> Sequence[str] | None:
    """How the first client that ``find`` knows is started, which asks for the password itself; None without one."""
    program = next((found for one in CLIENTS if (found := find(one))), None)
    if program is None:
        return None
    if "freerdp" in program.rpartition("/")[2]:
        return (
            program,
            f"/v:{desktop.address}:{desktop.port}",
            f"/u:{desktop.user}",
            "/sec:tls",
            "/dynamic-resolution",
        )
    return (program, "-c", file) if program.endswith("remmina") else (program, file)
