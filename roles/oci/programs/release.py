"""Prints the number of Debian's release, and 0 where it is no Debian or none with a number."""

from __future__ import annotations

import pathlib
import sys


def release(text: str) -> int:
    """The number in the text of /etc/os-release, 0 where it says none."""
    said = dict(line.partition("=")[::2] for line in text.splitlines())
    number = said.get("VERSION_ID", "").strip('"')
    return int(number) if said.get("ID", "").strip('"') == "debian" and number.isascii() and number.isdigit() else 0


if __name__ == "__main__":
    sys.stdout.write(f"{release(pathlib.Path('/etc/os-release').read_text(encoding='utf-8'))}\n")
