"""``ha-manager status``: whether there is quorum, then what the test said."""

from __future__ import annotations

import sys
from pathlib import Path

from . import node

SAID = Path("/var/lib/pve-lab/ha-status")


def main() -> None:
    """The only command of it that repairs use."""
    node.assert_pmxcfs()
    if sys.argv[1:2] != ["status"]:
        node.die("ERROR: this stand-in knows ha-manager status only")
    node.say("quorum OK" if node.is_quorate() else f"quorum No quorum on node '{node.name()}'!")
    sys.stdout.write(SAID.read_text(encoding="utf-8") if SAID.exists() else "")


if __name__ == "__main__":
    main()
