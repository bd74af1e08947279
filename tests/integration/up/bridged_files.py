"""Gives a folder's files to the containers of a lab, at the host's end of their bridge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.http_servers import files_served
from tests.integration.up.quickstart_lab import Lab


@contextmanager
def files_on_bridge(lab: Lab, folder: Path, port: int) -> Iterator[str]:
    """The address of the folder's files; it is the same each time, where what is built from them is kept."""
    networks = json.loads(lab.incus("network", "list", "--format=json"))
    bridge = next(one for one in networks if one["managed"] and one["type"] == "bridge")
    address = bridge["config"]["ipv4.address"].partition("/")[0]
    with files_served(folder, (address, port)) as url:
        yield url
