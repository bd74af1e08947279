"""Trust tokens: what is written in one, and how our client certificate becomes trusted by the Incus that made it."""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

from provisioner.hosts.incus import api
from provisioner.hosts.incus.api import Endpoint
from provisioner.values.errors import InputError, PreflightError, ProviderError, UnavailableError
from provisioner.values.plain_data import json_value

DAYS = 3650
_ANOTHER = "On the machine of that Incus, make another one: incus config trust add NAME"
_REFUSALS = {
    "No matching certificate add operation found": "It was used already, or taken back, or its Incus was started anew.",
    "Token has expired": "It has expired.",
}
_FAILURES = (api.WireError, OSError, HTTPException)


@dataclass(frozen=True, slots=True)
class Token:
    """What an Incus wrote into a token: who it is, where it listens, and a secret, of which nothing is shown."""

    text: str = field(repr=False)
    fingerprint: str
    addresses: tuple[str, ...]


def token_in(text: str) -> Token:
    """The token that is the last word of ``text``, as in what Incus prints; ``InputError`` when that is none."""
    word = next(reversed(text.split()), "")
    try:
        told = json_value(b64decode(word, validate=True))
        token = Token(word, str(told["fingerprint"]).lower(), tuple(map(str, told["addresses"])))
        has_secret = bool(told["secret"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        has_secret = False
    if not has_secret:
        raise InputError(
            "Unable to use the trust token: that is none",
            details="A token is one word, as `incus config trust add NAME` prints it in its last line.",
            resolution=_ANOTHER,
        )
    return token


def enrol(token: Token, pair: tuple[Path, Path], address: str = "") -> tuple[Endpoint, dict[str, Any]]:
    """Have the certificate of ``pair`` trusted; where that Incus is, and what it says of itself.

    The files are made where there are none, and are not left when the token is refused. Without ``address`` the
    addresses of the token are tried one after the other. One that trusts us already is success, and keeps its token.
    """
    stranger = _reached(token, address)
    is_new = _ensure_pair(pair)
    endpoint = replace(stranger, cert=str(pair[0]), key=str(pair[1]))
    try:
        if not _is_trusted(endpoint):
            api.call(endpoint, "POST", "/1.0/certificates", {"type": "client", "trust_token": token.text})
    except api.WireError as error:
        if is_new:
            _remove(pair)
        raise _refused(endpoint, error) from error
    except api.UnreachableError as error:
        raise UnavailableError(_reaching(endpoint), details=str(error), resolution=error.resolution) from error
    server: dict[str, Any] = api.call(endpoint, "GET", "/1.0")["metadata"]
    if server["auth"] != "trusted":
        details, resolution = api.untrusted_reason(endpoint)
        raise ProviderError(f"Unable to be trusted by Incus at {endpoint}", details=details, resolution=resolution)
    return endpoint, server


def make_pair(cert: Path, key: Path, *, start: datetime | None = None, days: int = DAYS) -> None:
    """Make a key that only its owner can read, and a certificate of it that it has signed itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    private = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provisioner")])
    begin = start or datetime.now(UTC) - timedelta(days=1)  # clocks differ
    certificate = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(private, hashes.SHA384())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    _write(key, private.private_bytes(pem, form, serialization.NoEncryption()), 0o600)
    _write(cert, certificate.public_bytes(pem), 0o644)


def _reached(token: Token, address: str) -> Endpoint:
    """The first of the token's addresses at which the Incus answers that made it."""
    addresses = [address] if address else [f"https://{place}" for place in token.addresses]
    failures: list[tuple[Endpoint, Exception]] = []
    for candidate in addresses:
        endpoint = Endpoint(candidate, fingerprint=token.fingerprint)
        try:
            api.call(endpoint, "GET", "/1.0")
        except _FAILURES as error:
            failures.append((endpoint, error))
        else:
            return endpoint
    raise _unreached(failures)


def _unreached(failures: Sequence[tuple[Endpoint, Exception]]) -> UnavailableError:
    details = "\n".join(f"{endpoint}: {error}" for endpoint, error in failures)
    if any(isinstance(error, api.WrongServerError) for _, error in failures):
        return UnavailableError(
            "Unable to use the trust token: it is another server's",
            details=details,
            resolution="Somebody else answers there. Make the token on the machine that you mean, or name that "
            "machine's address: --address https://NAME:8443",
        )
    return UnavailableError(
        "Unable to reach the Incus that made the trust token",
        details=details or "No address is written in it: that Incus listens on none.",
        resolution="On its machine, have it listen in your network: incus config set core.https_address :8443. If it "
        "has another address from here, add: --address https://NAME:8443",
    )


def _is_trusted(endpoint: Endpoint) -> bool:
    return bool(api.call(endpoint, "GET", "/1.0")["metadata"]["auth"] == "trusted")


def _refused(endpoint: Endpoint, error: api.WireError) -> PreflightError:
    details, resolution = api.untrusted_reason(endpoint)
    if "expired on" in details:
        return PreflightError(_reaching(endpoint), details=details, resolution=resolution)
    found = next((words for part, words in _REFUSALS.items() if part in str(error)), "")
    return PreflightError(
        f"Unable to use the trust token: Incus at {endpoint} does not take it",
        details=" ".join(filter(None, (found, f"It said: {error}"))),
        resolution=_ANOTHER,
    )


def _reaching(endpoint: Endpoint) -> str:
    return f"Unable to be trusted by Incus at {endpoint}"


def _ensure_pair(pair: tuple[Path, Path]) -> bool:
    """Have both files there, and say whether they were made."""
    cert, key = pair
    if cert.exists() and key.exists():
        return False
    cert.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_pair(cert, key)
    return True


def _remove(pair: tuple[Path, Path]) -> None:
    for file in pair:
        file.unlink(missing_ok=True)


def _write(file: Path, content: bytes, mode: int) -> None:
    """The file with this content and mode, at once and whole."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    part.replace(file)
