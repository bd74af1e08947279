"""What is wrong with a certificate that somebody gives together with its key, for the names of a door's sites. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

SOON = timedelta(days=21)
"""A certificate of 90 days, as public authorities sign them, is usually renewed when it has 30 left."""
CERTIFICATE, KEY = "certificate", "key"
WHOLE_CHAIN = "Name the file that has the sites' own certificate first and then those above it, such as fullchain.pem."
RENEWED = "Put the renewed one in its place, then run: provision up"


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something wrong with a certificate or its key: ``part`` is one of both, or the name of the site it is not for."""

    part: str
    message: str
    hint: str


class UnreadableError(ValueError):
    """A text that is no certificate, or no key; nothing of it is in the words."""


def flaws(chain: str, key: str | None, names: Sequence[str], now: datetime) -> Iterator[Flaw]:
    """Why no door can show this certificate (PEM, with those above it) for ``names``.

    ``key`` is its key as PEM, None where nobody knows it yet.
    """
    try:
        certificates = certificates_in(chain)
    except UnreadableError as error:
        yield Flaw(CERTIFICATE, str(error), WHOLE_CHAIN)
        return
    yield from _of_dates(certificates, now)
    yield from _of_chain(certificates)
    yield from _of_names(certificates[0], names)
    if key is not None:
        yield from _of_key(certificates, key)


def remarks(chain: str, now: datetime) -> Iterator[Flaw]:
    """What a door can live with for now: a certificate that ends soon, one without those above it."""
    try:
        certificates = certificates_in(chain)
    except UnreadableError:
        return  # which ``flaws`` tells
    ends = min(certificate.not_valid_after_utc for certificate in certificates)
    if now <= ends < now + SOON:
        yield Flaw(CERTIFICATE, f"it ends on {ends:%Y-%m-%d}, in {(ends - now).days} days", RENEWED)
    if len(certificates) == 1 and _names_its_issuers_address(certificates[0]):
        message = "it stands alone in its file, and devices that do not know who signed it refuse it"
        yield Flaw(CERTIFICATE, message, WHOLE_CHAIN)


def certificates_in(chain: str) -> list[x509.Certificate]:
    """Return all certificates of a PEM text, in its order; raise ``UnreadableError`` where it holds none, or a key."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    if "PRIVATE KEY-----" in chain:
        raise UnreadableError("there is a private key in the file, which anybody may read")
    try:
        certificates = x509.load_pem_x509_certificates(chain.encode())
        for certificate in certificates:
            _ = certificate.extensions, certificate.public_key()  # both are read when they are asked for first
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise UnreadableError("there is no certificate in PEM form in the file, or a broken one") from error
    return certificates


def _of_dates(certificates: Sequence[x509.Certificate], now: datetime) -> Iterator[Flaw]:
    for place, certificate in enumerate(certificates):
        ends, begins = certificate.not_valid_after_utc, certificate.not_valid_before_utc
        which = _which(place)
        if ends < now:
            yield Flaw(CERTIFICATE, f"{which} expired on {ends:%Y-%m-%d}", RENEWED)
        elif begins > now:
            hint = "Wait until then, or look at the clock of this machine."
            yield Flaw(CERTIFICATE, f"{which} is not valid before {begins:%Y-%m-%d %H:%M} UTC", hint)


def _of_chain(certificates: Sequence[x509.Certificate]) -> Iterator[Flaw]:
    """Each is signed by the next one."""
    from cryptography.exceptions import InvalidSignature

    for place, (certificate, above) in enumerate(pairwise(certificates)):
        try:
            certificate.verify_directly_issued_by(above)
        except (InvalidSignature, TypeError, ValueError):
            message = f"{_which(place)} is not signed by the one that follows it"
            yield Flaw(CERTIFICATE, message, WHOLE_CHAIN)
            return


def _of_names(certificate: x509.Certificate, names: Sequence[str]) -> Iterator[Flaw]:
    covered = _covered(certificate)
    for name in names:
        if not any(_covers(pattern, name) for pattern in covered):
            message = f"the certificate is not for this name, but for {', '.join(covered) or 'none'}"
            yield Flaw(name, message, "Give one that is for all sites of the door, or leave the site out.")


def _covered(certificate: x509.Certificate) -> list[str]:
    """The host names that it is for; what its subject says counts for no browser."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name.lower() for name in names.get_values_for_type(x509.DNSName)]


def _covers(pattern: str, name: str) -> bool:
    """Whether a name of a certificate is for a host name: a star stands for one part of it, the first."""
    if pattern.startswith("*."):
        return name.partition(".")[2] == pattern.removeprefix("*.")
    return pattern == name


def _of_key(certificates: Sequence[x509.Certificate], key: str) -> Iterator[Flaw]:
    try:
        own = _public(_key(key))
    except UnreadableError as error:
        hint = "Give it as PEM text without a password: openssl pkey -in KEY prints it so."
        yield Flaw(KEY, str(error), hint)
        return
    owners = [place for place, one in enumerate(certificates) if _public(one) == own]
    if not owners:
        yield Flaw(KEY, "it is not the key of the certificate", "Give certificate and key of one pair.")
    elif owners[0]:
        message = f"it is the key of {_which(owners[0])}, and not of the first"
        yield Flaw(KEY, message, WHOLE_CHAIN)


def _key(text: str) -> PrivateKeyTypes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(text.encode(), password=None)
    except TypeError as error:
        raise UnreadableError("the key has a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnreadableError("it is no private key in PEM form, or a broken one") from error


def _public(owner: x509.Certificate | PrivateKeyTypes) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return owner.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _names_its_issuers_address(certificate: x509.Certificate) -> bool:
    """Whether it says where its issuer's own certificate is found, as public authorities do."""
    from cryptography import x509
    from cryptography.x509.oid import AuthorityInformationAccessOID

    try:
        access = certificate.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    except x509.ExtensionNotFound:
        return False
    return any(one.access_method == AuthorityInformationAccessOID.CA_ISSUERS for one in access)


def _which(place: int) -> str:
    return f"certificate {place + 1} of the file" if place else "the certificate"
