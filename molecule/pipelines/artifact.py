"""Builds role pipelines' artifact with the stand-in of upstream's server: ``artifact.py FOLDER``.

Prints what ``python -m provisioner.cli.artifacts`` does; a second time everything is there.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.pipelines_source import standin_in  # noqa: E402  # found by the line above

PORT = 18882
"""The same each time: the address is part of what the artifact is known by."""


def main(folder: Path) -> int:
    """Have it, and say where."""
    folder.mkdir(parents=True, exist_ok=True)
    source = standin_in(folder)
    with serving(folder) as address:
        options = {
            "source": address,
            "commit": source.commit,
            "source_sha256": source.source_sha256,
            "api_key": "asked-for-by-nobody",
            "pipelines": [str(HERE / "files/pipelines/settings.py")],
        }
        containers = {"molecule-pipelines": {"image": "debian/12", "services": {"pipelines": options}}}
        lab = folder / "lab.yml"
        lab.write_text(yaml.safe_dump({"name": "molecule", "containers": containers}), encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "provisioner.cli.artifacts", str(lab)], check=False, timeout=3600
        ).returncode


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Where containers reach the folder: on the host's end of their bridge."""
    shown = subprocess.run(
        ["incus", "network", "list", "--format=json"], capture_output=True, text=True, check=True, timeout=120
    )
    bridge = next(one for one in json.loads(shown.stdout) if one["managed"] and one["type"] == "bridge")
    address = bridge["config"]["ipv4.address"].partition("/")[0]
    server = ThreadingHTTPServer((address, PORT), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{address}:{PORT}"
    finally:
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that keeps no log."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
