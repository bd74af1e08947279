"""A registry of OCI images that lies, until it is ended or its time is over.

``registry.py PORT SECONDS CERTIFICATE KEY FOLDER``: serves ``MODE/web`` for each mode of ``MODES`` and writes into the
folder what the file of a lab says of it: ``digest-MODE``.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import ssl
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODES = ("other-manifest", "endless", "other-layer", "short-layer", "drips", "elsewhere", "out-of-it", "steers")
OUT_OF_IT = ("../../../../etc/cron.d/hostile", "/etc/cron.d/hostile")
SECRET = b"CANARY-of-another-service"
TYPES = {"layer": "application/vnd.oci.image.layer.v1.tar+gzip", "config": "application/vnd.oci.image.config.v1+json"}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def digest(content: bytes) -> str:
    """Return the name that content has in a registry."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def layer() -> bytes:
    """Return a layer with files that lie outside of it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as files:
        for name in ("inside", *OUT_OF_IT):
            one = tarfile.TarInfo(name)
            one.size = len(SECRET)
            files.addfile(one, io.BytesIO(SECRET))
    return packed.getvalue()


PLAIN = layer()
LAYER = gzip.compress(PLAIN, mtime=0)
CONFIG = json.dumps(
    {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [digest(PLAIN)]}}
).encode()
PARTS = {digest(LAYER): LAYER, digest(CONFIG): CONFIG}


def manifest(mode: str) -> bytes:
    """Return the manifest of a mode's image; each has its own."""
    parts = {
        kind: {"mediaType": TYPES[kind], "digest": digest(content), "size": len(content)}
        for kind, content in (("config", CONFIG), ("layer", LAYER))
    }
    page = {"schemaVersion": 2, "mediaType": MANIFEST, "config": parts["config"], "layers": [parts["layer"]]}
    return json.dumps({**page, "annotations": {"mode": mode}}).encode()


class Registry(BaseHTTPRequestHandler):
    """Answers as a registry does, up to the lie of the mode that is the first part of the image's name."""

    protocol_version = "HTTP/1.1"
    until, port = 0.0, 0

    def do_GET(self) -> None:
        """Answer one request."""
        parts = self.path.split("?")[0].strip("/").split("/")
        with contextlib.suppress(OSError):  # whoever asked has gone
            if parts == ["v2"]:
                self.sent(b"{}")
            elif parts[:1] == ["secret"]:
                self.sent(SECRET)
            elif "manifests" in parts:
                self.manifest(parts[1])
            else:
                self.part(parts[1], parts[-1])

    do_HEAD = do_GET

    def manifest(self, mode: str) -> None:
        """Send a manifest, or what stands in its place."""
        if mode == "steers":
            message = "\x1b[2J\x1b]0;owned\x07" + "{{ 7*7 }}" + "x" * 200_000
            self.sent(json.dumps({"errors": [{"code": "DENIED", "message": message}]}).encode(), status=403)
        elif mode == "endless":
            self.begun(MANIFEST, 2**40)
            self.on_and_on(b"x" * 65536, 0)
        else:
            self.sent(manifest(f"not {mode}" if mode == "other-manifest" else mode), MANIFEST)

    def part(self, mode: str, name: str) -> None:
        """Send a layer or a configuration, or what stands in its place."""
        content = PARTS.get(name, b"")
        if name != digest(LAYER) or mode == "out-of-it":
            self.sent(content)
        elif mode == "elsewhere":
            self.send_response(307)
            self.send_header("Location", f"https://localhost:{self.port}/secret")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif mode == "drips":
            self.begun("application/octet-stream", len(content))
            self.on_and_on(b"x", 1)
        elif mode == "short-layer":
            self.begun("application/octet-stream", len(content))
            self.wfile.write(content[:20])
            self.close_connection = True
        else:
            self.sent(bytes(reversed(content)))

    def sent(self, content: bytes, kind: str = "application/json", status: int = 200) -> None:
        """Send a whole answer."""
        self.begun(kind, len(content), status)
        if self.command == "GET":
            self.wfile.write(content)

    def begun(self, kind: str, length: int, status: int = 200) -> None:
        """Send the head of an answer of that length."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def on_and_on(self, part: bytes, pause_s: float) -> None:
        """Send the same until the time is over, or whoever asked has gone."""
        while self.command == "GET" and time.monotonic() < self.until:
            self.wfile.write(part)
            time.sleep(pause_s)  # the pace of the attack
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    for mode in MODES:
        (Path(sys.argv[5]) / f"digest-{mode}").write_text(digest(manifest(mode)), encoding="ascii")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    Registry.until, Registry.port = time.monotonic() + seconds, port
    server = ThreadingHTTPServer(("127.0.0.1", port), Registry)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    threading.Timer(seconds, server.shutdown).start()
    server.serve_forever()
