"""Certificates and keys of openssl's making, with the dates that a test wants."""

from __future__ import annotations

import subprocess
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj=/CN=x")
AUTHORITY = """\
[ca]
default_ca = own
[own]
database = {folder}/index.txt
rand_serial = yes
new_certs_dir = {folder}
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def dated_pair(folder: Path, begins: str, ends: str) -> tuple[str, str]:
    """A certificate that is valid between these times (YYYYMMDDHHMMSSZ), and its key; ``openssl req`` sets no dates."""
    key, request, certificate, about = (folder / name for name in ("key.pem", "request.pem", "c.pem", "ca.cnf"))
    (folder / "index.txt").write_text("", encoding="ascii")
    about.write_text(AUTHORITY.format(folder=folder), encoding="ascii")
    _openssl("req", "-new", *CURVE, "-keyout", str(key), "-out", str(request))
    signing = ["-selfsign", "-keyfile", str(key), "-in", str(request), "-startdate", begins, "-enddate", ends]
    _openssl("ca", "-batch", "-notext", "-config", str(about), *signing, "-out", str(certificate))
    return certificate.read_text(encoding="ascii"), key.read_text(encoding="ascii")


def expired_pair(folder: Path) -> tuple[str, str]:
    """A pair whose time was the year 2020."""
    return dated_pair(folder, "20200101000000Z", "20210101000000Z")


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
