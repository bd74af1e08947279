"""Gives a folder's files to the containers of a lab, at the host's end of their bridge."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.integration.up.quickstart_lab import Lab


class Quietly(SimpleHTTPRequestHandler):
    """Gives files and says nothing."""

    def log_message(self, *_: Any) -> None:
        """Say nothing: hundreds of lines would hide why a test failed."""


@contextmanager
def files_on_bridge(lab: Lab, folder: Path, port: int) -> Iterator[str]:
    """The address of the folder's files; it is the same each time, where what is built from them is kept."""
    networks = json.loads(lab.incus("network", "list", "--format=json"))
    bridge = next(one for one in networks if one["managed"] and one["type"] == "bridge")
    address = bridge["config"]["ipv4.address"].partition("/")[0]
    handler = functools.partial(Quietly, directory=str(folder))
    server = ThreadingHTTPServer((address, port), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://{address}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
