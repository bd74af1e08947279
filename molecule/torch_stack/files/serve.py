"""Serves /srv/wheels on 127.0.0.1:8099; the first answer of each file ends in its middle, and ranges are known."""

from __future__ import annotations

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WHEELS = Path("/srv/wheels")
SEEN = Path("/srv/asked")
cut: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    """Answers GET, and writes down which bytes of which file were asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The file from the byte on that was asked for; half of it the first time."""
        if self.path == "/":
            self._page("".join(f'<a href="{one.name}">{one.name}</a>\n' for one in WHEELS.iterdir()).encode())
            return
        file = WHEELS / Path(self.path.replace("%2B", "+")).name
        if not file.is_file():
            self.send_error(404)
            return
        content, asked = file.read_bytes(), re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        with SEEN.open("a") as seen:
            seen.write(f"{file.name} {start}\n")
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", '"one"')
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        is_first = file.name not in cut and not file.name.startswith("uv")  # pip would not ask for the rest
        cut.add(file.name)
        self.wfile.write(content[start : len(content) // 2] if is_first else content[start:])
        self.close_connection = True

    def _page(self, content: bytes) -> None:
        """The list of the files, in which pip looks for the installer."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


ThreadingHTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
