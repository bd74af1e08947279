"""Stays logged in as somebody would: ``hold.py NAME PORT CERTIFICATE < password``, until it is ended."""

import sys
import time
from pathlib import Path

sys.path.insert(0, "/usr/local/lib/desktop")

import client
import judge
import tls

name, port, certificate = sys.argv[1:]
deadline = time.monotonic() + 60
while (
    not tls.is_open(client.LOCAL, int(port)) and time.monotonic() < deadline
):  # it may have been restarted a moment ago
    time.sleep(0.2)
password = sys.stdin.readline().rstrip("\n")
with (
    client.screen() as screen,
    client.login(screen, int(port), name, password, tls.fingerprint_of(Path(certificate))) as login,
):
    while login.code is None:
        if judge.kind(screen.picture()) == "mate":
            Path(f"/run/held-{name}").touch()
        time.sleep(0.5)
sys.exit(login.code)
