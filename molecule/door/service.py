"""A web service that says what it was asked: ``service.py PORT``.

``/said`` answers with the headers and the port as JSON, ``/cookies`` sets some, ``/hsts`` wants TLS for two years,
``/stream`` sends ten parts 0.2 s apart, each with the time at which it is sent, ``/silent`` sends two and nothing for
5 s before each of them, ``/socket`` is a websocket that sends back what it gets. ``/page`` is a page for a browser: it
sends a word by the websocket and reports what came, waits until ``/go`` answers 200 (once the file ``/run/go`` is
there), sends one more and reports again; what was reported last is in ``/run/report``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PARTS, PAUSE_S, SILENCE_S = 10, 0.2, 5
COOKIES = ("plain=1; Path=/", "already=2; path=/; secure", "dated=3; Expires=Wed, 01 Jan 2031 00:00:00 GMT; HttpOnly")
FURTHER = {
    "/cookies": tuple(("Set-Cookie", cookie) for cookie in COOKIES),
    "/hsts": (("Strict-Transport-Security", "max-age=63072000; includeSubDomains; preload"),),
}
GO, REPORT = Path("/run/go"), Path("/run/report")
PAGE = """\
<!doctype html><title>page</title><script>
const said = [];
const report = () => fetch("/report", {method: "POST", body: JSON.stringify(said)});
const pause = () => new Promise(done => setTimeout(done, 200));
const socket = new WebSocket("wss://" + location.host + "/socket");
const happens = what => new Promise((done, fail) => {
  socket["on" + what] = event => done(event.data);
  socket.onclose = event => fail("closed " + event.code);
});
const answer = word => { const came = happens("message"); socket.send(word); return came; };
(async () => {
  await happens("open");
  said.push(await answer("before"));
  await report();
  while ((await fetch("/go")).status != 200) await pause();
  said.push(await answer("after"));
})().catch(error => said.push("failed: " + error)).finally(report);
</script>
"""
ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Handler(BaseHTTPRequestHandler):
    """Answers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """By the path."""
        if self.path == "/stream":
            self.stream(PARTS, PAUSE_S)
        elif self.path == "/silent":
            time.sleep(SILENCE_S)
            self.stream(2, SILENCE_S)
        elif self.path == "/socket":
            self.socket()
        elif self.path == "/page":
            self.text(200, PAGE)
        elif self.path == "/go":
            self.text(200 if GO.exists() else 202, "")
        else:
            said = {"port": self.server.server_port, "headers": self.headers.items(), "path": self.path}
            self.whole(said, FURTHER.get(self.path, ()))

    def do_POST(self) -> None:
        """Read the body, and tell how long it was."""
        length = self.headers["Content-Length"]
        body = self.chunks() if length is None else self.rfile.read(int(length))
        if self.path == "/report":
            REPORT.write_bytes(body)
        self.whole({"port": self.server.server_port, "length": len(body)}, ())

    def chunks(self) -> bytes:
        """A body that does not say how long it is."""
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def whole(self, said: object, further: tuple[tuple[str, str], ...]) -> None:
        """One answer, with further headers."""
        body = json.dumps(said).encode()
        self.send_response(200)
        for name, value in further:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def text(self, status: int, page: str) -> None:
        """A page for a browser."""
        body = page.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, count: int, pause_s: float) -> None:
        """An answer in parts."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(count):
            part = f"{time.time()}\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            time.sleep(pause_s)
        self.wfile.write(b"0\r\n\r\n")

    def socket(self) -> None:
        """Shake hands, and send back each short frame, unmasked, until the other side ends."""
        digest = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + ACCEPT).encode()).digest()  # noqa: S324  # RFC 6455
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
        self.end_headers()
        while head := self.rfile.read(2):
            mask = self.rfile.read(4)
            masked = self.rfile.read(head[1] & 0x7F)
            text = bytes(byte ^ mask[number % 4] for number, byte in enumerate(masked))
            self.wfile.write(bytes([head[0], len(text)]) + text)
        self.close_connection = True


ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
