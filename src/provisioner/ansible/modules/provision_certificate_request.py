# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: makes a key and a request for a certificate where the key is used, and puts what was signed there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_certificate_request
short_description: Have a certificate that an authority elsewhere signs, and its key, in one file
description:
  - Without I(certificate) it judges the file. Where its certificate is not of I(root), not for exactly I(names), not of
    its key or ends within I(spare_days), it makes a new key beside it and gives a request for a certificate.
  - With I(certificate) it puts this and the new key in the place of the file, in one step.
  - The key is made here and never leaves this machine. The programs that are called get no secret as an argument.
  - With I(certificate) and I(key) it puts a pair there that somebody gives, once it has judged that both belong
    together and are for I(names) today.
options:
  path: {type: path, required: true, description: [Where certificate and key lie, in one file.]}
  names: {type: list, elements: str, required: true, description: [The host names that the certificate is for.]}
  root: {type: str, default: "", description: [The certificate of the authority, as PEM; without a given I(key).]}
  spare_days: {type: int, default: 30, description: [So many days a certificate has to be valid that is kept.]}
  group: {type: str, required: true, description: [The group that reads the file.]}
  certificate: {type: str, default: "", description: [What the authority has signed, or is given, as PEM.]}
  key: {type: str, default: "", description: [The key that is given, as PEM without a password.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: certificate | Ask for a certificate
  provision_certificate_request:
    path: /etc/door/site.pem
    names: [chat.home.example]
    root: "{{ lookup('provision_authority', 'root', secret=door_authority) }}"
    group: haproxy
"""
RETURN = r"""
request: {type: str, returned: always, description: "A request for a certificate, as PEM; empty where none is needed."}
why: {type: str, returned: always, description: Why one is needed.}
paths: {type: list, returned: always, description: "What was changed, or is to be once it is signed."}
"""

import grp
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

MODE = 0o640
PENDING_MODE = 0o600
DAY_S = 86400
OPENSSL_S = 60
Decoded = dict[str, Any]


class UnusableError(ValueError):
    """A certificate that cannot be used here, and why."""


def main() -> None:
    """Judge and ask, or put in place what was signed."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "names": {"type": "list", "elements": "str", "required": True},
            "root": {"type": "str", "default": ""},
            "spare_days": {"type": "int", "default": 30},
            "group": {"type": "str", "required": True},
            "certificate": {"type": "str", "default": ""},
            "key": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    try:
        if asked["key"]:
            answer = given(asked, module.tmpdir, check_mode=module.check_mode)
        elif asked["certificate"]:
            answer = placed(asked, module.tmpdir, check_mode=module.check_mode)
        else:
            answer = judged(asked, module.tmpdir, check_mode=module.check_mode)
    except UnusableError as error:
        whose = "is given" if asked["key"] else "was signed"
        module.fail_json(msg=f"Unable to use the certificate that {whose}: {error}")
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", "") or ""
        module.fail_json(msg=f"Unable to ask for a certificate: {error} {said.strip()}")
    except (KeyError, OSError) as error:
        module.fail_json(msg=f"Unable to have a certificate in {asked['path']}: {error}")
    module.exit_json(**answer)


def judged(asked: dict[str, Any], folder: str, *, check_mode: bool) -> dict[str, Any]:
    """What the module returns where nothing was signed yet: a request, unless the file is as it should be."""
    file = Path(asked["path"])
    try:
        check(file, asked, folder)
    except UnusableError as error:
        request = "" if check_mode else requested(pending(file))
        return {"changed": True, "request": request, "why": str(error), "paths": [str(file)]}
    changed = has_other_owner(file, asked["group"])
    if changed and not check_mode:
        give_to(file, asked["group"])
    return {"changed": changed, "request": "", "why": "", "paths": [str(file)] if changed else []}


def placed(asked: dict[str, Any], folder: str, *, check_mode: bool) -> dict[str, Any]:
    """What the module returns where a certificate was signed; it is judged before it takes the place of the file."""
    file = Path(asked["path"])
    if not check_mode:
        key = pending(file)
        pair = asked["certificate"].strip() + "\n" + key.read_text(encoding="ascii")
        with private_file(pair, file.parent) as partial:
            check(partial, asked, folder)
            give_to(partial, asked["group"])
            partial.replace(file)
        key.unlink()
    return {"changed": True, "request": "", "why": "", "paths": [str(file)]}


def given(asked: dict[str, Any], folder: str, *, check_mode: bool) -> dict[str, Any]:
    """What the module returns where certificate and key are given; both are judged before anything is written."""
    file = Path(asked["path"])
    pair = f"{asked['certificate'].strip()}\n{asked['key'].strip()}\n"
    with private_file(pair, folder) as trial:
        check_given(trial, asked)
    is_there = file.is_file() and not file.is_symlink()
    changed = not is_there or file.read_text(encoding="ascii") != pair or has_other_owner(file, asked["group"])
    if changed and not check_mode:
        with private_file(pair, file.parent) as partial:
            give_to(partial, asked["group"])
            partial.replace(file)
    return {"changed": changed, "request": "", "why": "", "paths": [str(file)] if changed else []}


@contextmanager
def private_file(text: str, folder: str | Path) -> Iterator[Path]:
    """A file with that text, which only its owner can read; it is gone afterwards unless it was renamed."""
    number, name = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(number, "w", encoding="ascii") as stream:
            stream.write(text)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def check_given(file: Path, asked: dict[str, Any]) -> None:
    """Raise ``UnusableError`` where a pair that is given cannot be shown for the names today."""
    decoded = decoded_pair(file)
    covered = {value.lower() for kind, value in decoded.get("subjectAltName", ()) if kind == "DNS"}
    missing = [name for name in asked["names"] if not covered & {name, f"*.{name.partition('.')[2]}"}]
    if missing:
        raise UnusableError(f"it is not for {', '.join(missing)}, but for {', '.join(sorted(covered)) or 'no name'}")
    begins, ends = (ssl.cert_time_to_seconds(decoded[word]) for word in ("notBefore", "notAfter"))
    if ends < time.time():
        raise UnusableError(f"it expired on {decoded['notAfter']}")
    if begins > time.time():
        raise UnusableError(f"it is not valid before {decoded['notBefore']}")


def pending(file: Path) -> Path:
    """Where the key lies while its certificate is being signed."""
    return file.with_name(f".{file.name}.pending")


def check(file: Path, asked: dict[str, Any], folder: str) -> None:
    """Raise ``UnusableError`` where the certificate in the file is not what is asked for."""
    if not file.is_file() or file.is_symlink():
        raise UnusableError("there is none")
    decoded = decoded_pair(file)
    names = {value for kind, value in decoded.get("subjectAltName", ()) if kind == "DNS"}
    if names != set(asked["names"]):
        raise UnusableError(f"it is for {', '.join(sorted(names)) or 'no name'}")
    spare_s = ssl.cert_time_to_seconds(decoded["notAfter"]) - time.time()
    if spare_s < asked["spare_days"] * DAY_S:
        raise UnusableError(f"it ends on {decoded['notAfter']}")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        root = Path(place, "root.pem")
        root.write_text(asked["root"], encoding="ascii")
        done = openssl(["verify", "-purpose", "sslserver", "-no-CApath", "-CAfile", str(root), str(file)])
    if done.returncode:
        raise UnusableError("it is not signed by the root of this lab, or not valid yet")


def decoded_pair(file: Path) -> Decoded:
    """What the certificate says, once OpenSSL has taken it together with its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, password=no_password)
        decode: Callable[[str], Decoded] = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]  # noqa: SLF001  # nothing public reads a certificate without a connection
        return decode(str(file))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise UnusableError("certificate and key cannot be read, or do not belong together") from error


def no_password() -> str:
    """Refuse a key that is encrypted: OpenSSL would ask on a terminal."""
    raise UnusableError("the key is encrypted")


def requested(key: Path) -> str:
    """A request for a certificate, by a new key of P-256 that only root can read."""
    key.unlink(missing_ok=True)
    os.close(os.open(key, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PENDING_MODE))
    words = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=door"]
    done = openssl([*words, "-keyout", str(key)])
    done.check_returncode()
    return done.stdout


def openssl(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What the program says."""
    return subprocess.run(["openssl", *words], check=False, capture_output=True, text=True, timeout=OPENSSL_S)


def has_other_owner(file: Path, group: str) -> bool:
    """Whether mode, owner or group are not as they should be."""
    seen = file.stat()
    return (seen.st_mode & 0o7777, seen.st_uid, seen.st_gid) != (MODE, os.geteuid(), grp.getgrnam(group).gr_gid)


def give_to(file: Path, group: str) -> None:
    """Let root and the group read it, and nobody else."""
    os.chown(file, os.geteuid(), grp.getgrnam(group).gr_gid)
    file.chmod(MODE)


if __name__ == "__main__":
    main()
