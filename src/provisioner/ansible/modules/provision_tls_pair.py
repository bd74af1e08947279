# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: has a certificate and its key in place: a pair that was given, or one of its own making."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_tls_pair
short_description: Have a certificate and its key in place
description:
  - A pair that is given is judged (both can be read, they belong together, it is valid now) before a file is written.
  - Without one a self-signed pair is made by openssl, once, and again only when it is no good any more.
  - The certificate may be read by all, the key by root and I(group).
options:
  certificate: {type: path, required: true, description: [Where the certificate lies.]}
  key: {type: path, required: true, description: [Where its key lies.]}
  content: {type: str, default: "", description: [The certificate that is given, as PEM, with those above it.]}
  key_content: {type: str, default: "", description: [The key that is given, as PEM without a password.]}
  group: {type: str, required: true, description: [The group that reads the key.]}
  name: {type: str, default: localhost, description: [The name in a certificate that is made here.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: configure | Have a certificate
  provision_tls_pair:
    certificate: /etc/xrdp/tls/cert.pem
    key: /etc/xrdp/tls/key.pem
    group: xrdp
"""
RETURN = r"""
not_after: {type: str, returned: when there is a certificate, description: Until when it is valid.}
"""

import grp
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

CERTIFICATE_MODE = 0o644
KEY_MODE = 0o640
DAYS = 3650
SOON_S = 30 * 24 * 3600
"""A pair of our own is made anew so long before it ends."""


def main() -> None:
    """Judge what is given, or make one; write what differs."""
    text = {"type": "str", "default": ""}
    module = AnsibleModule(
        argument_spec={
            "certificate": {"type": "path", "required": True},
            "key": {"type": "path", "required": True},
            "content": text,
            "key_content": {**text, "no_log": True},
            "group": {"type": "str", "required": True},
            "name": {"type": "str", "default": "localhost"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    try:
        changed, until = ensured(asked, check_mode=module.check_mode, folder=module.tmpdir)
    except ValueError as error:
        module.fail_json(msg=f"Unable to use the certificate that is given: {error}")
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or ""
        module.fail_json(msg=f"Unable to have a certificate in {asked['certificate']}: {error} {said.strip()}")
    module.exit_json(changed=changed, not_after=until)


def ensured(asked: dict[str, Any], *, check_mode: bool, folder: str) -> tuple[bool, str]:
    """Whether something changed, and until when the certificate is valid."""
    content, key = asked["content"].strip(), asked["key_content"].strip()
    files = (Path(asked["certificate"]), Path(asked["key"]))
    if content or key:
        until = judged(content, key, folder)
        return placed(files, (content + "\n", key + "\n"), asked["group"], check_mode=check_mode), until
    there = (text_of(files[0]), text_of(files[1]))
    try:
        until = judged(*there, folder, SOON_S)
    except ValueError:  # it is missing or no good any more
        if check_mode:
            return True, ""
        there = self_signed(asked["name"], folder)
        until = judged(*there, folder)
    return placed(files, there, asked["group"], check_mode=check_mode), until


def text_of(file: Path) -> str:
    """The file's text, empty where there is none."""
    return file.read_text(encoding="ascii") if file.is_file() else ""


def judged(content: str, key: str, folder: str, spare_s: float = 0) -> str:
    """Until when the pair is valid. Raises ``ValueError`` that says what is wrong with it."""
    for name, text in (("certificate", content), ("key", key)):
        if "-----BEGIN" not in text:
            raise ValueError(f"the {name} is no PEM text (-----BEGIN …)")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        certificate, secret = Path(place, "certificate.pem"), Path(place, "key.pem")
        certificate.write_text(content + "\n", encoding="ascii")
        secret.touch(0o600)
        secret.write_text(key + "\n", encoding="ascii")
        load_pair(certificate, secret)
        decode: Callable[[str], dict[str, Any]] = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]  # noqa: SLF001  # nothing public tells the dates of a certificate without a connection
        dates = decode(str(certificate))
    begins, ends = ssl.cert_time_to_seconds(dates["notBefore"]), ssl.cert_time_to_seconds(dates["notAfter"])
    if ends < time.time() + spare_s:
        raise ValueError(f"the certificate expired on {dates['notAfter']}. Give one that is valid")
    if begins > time.time():
        raise ValueError(f"the certificate is not valid before {dates['notBefore']}")
    return str(dates["notAfter"])


def load_pair(certificate: Path, key: Path) -> None:
    """Have OpenSSL take both. Raises ``ValueError``."""

    def no_password() -> str:
        raise ValueError("the key is encrypted; give it without a password")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        if error.reason and "MISMATCH" in error.reason:
            raise ValueError("certificate and key do not belong together") from error
        raise ValueError(f"OpenSSL cannot read the pair ({error.reason or error})") from error


def self_signed(name: str, folder: str) -> tuple[str, str]:
    """A new pair: an elliptic curve, valid for ten years."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        certificate, key = Path(place, "certificate.pem"), Path(place, "key.pem")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-days", str(DAYS), "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
        command += ["-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return certificate.read_text(encoding="ascii"), key.read_text(encoding="ascii")


def placed(files: tuple[Path, Path], contents: tuple[str, ...], group: str, *, check_mode: bool) -> bool:
    """Have both files with that content, owner and mode; whether anything changed."""
    wanted = list(zip(files, contents, (CERTIFICATE_MODE, KEY_MODE), strict=True))
    if check_mode:
        return any(not file.is_file() or file.read_text(encoding="ascii") != text for file, text, _ in wanted)
    reader = grp.getgrnam(group).gr_gid
    written = [write(file, text, mode, reader) for file, text, mode in wanted if text]
    return any(written)


def write(file: Path, text: str, mode: int, reader: int) -> bool:
    """Write it beside and put it in its place, where anything about it differs."""
    if file.is_file() and not file.is_symlink():
        seen = file.stat()
        is_owned = (seen.st_mode & 0o7777, seen.st_uid, seen.st_gid) == (mode, 0, reader)
        if is_owned and file.read_text(encoding="ascii") == text:
            return False
    number, partial = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(number, "w", encoding="ascii") as stream:
        os.fchown(number, 0, reader)
        os.fchmod(number, mode)
        stream.write(text)
    Path(partial).replace(file)
    return True


if __name__ == "__main__":
    main()
