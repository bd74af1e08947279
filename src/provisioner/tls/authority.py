"""The lab's own certificate authority: a root that is made of a secret alone, and what it signs. Pure.

Nothing of it is stored. Whoever knows the secret gets the same root, byte for byte, in every run and on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

SHORTEST_SECRET = 20
"""Characters: anyone who has the root can try out secrets against it, as long as they like."""
LEAF_DAYS = 90
CLOCK_SKEW = timedelta(hours=1)
"""By so much the clock of a device may be slow that sees a certificate at once."""
ROOT_BEGINS = datetime(2025, 1, 1, tzinfo=UTC)
ROOT_ENDS = datetime(2049, 12, 31, tzinfo=UTC)
ORGANISATION = "provisioner"
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the curve's group (SEC 2, version 2.0, section 2.4.2)."""
KEY_BYTES = 48
"""16 bytes more than the order has, so that no key is likelier than another (FIPS 186-5, A.2.1)."""
PURPOSE = b"provisioner certificate authority"
KEY_USE = b"P-256 key of the root"


class AuthorityError(ValueError):
    """A secret or a request of which no certificate can be made; the secret is never in its words."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority; ``secret`` has at least ``SHORTEST_SECRET`` characters, else ``AuthorityError``."""

    secret: str

    def __post_init__(self) -> None:
        if len(self.secret) < SHORTEST_SECRET:
            raise AuthorityError(f"the secret of an authority needs at least {SHORTEST_SECRET} characters")

    def __repr__(self) -> str:
        return "Authority(secret=********)"

    @property
    def root(self) -> str:
        """The root's certificate as PEM."""
        return _pem(self._root)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the root's certificate, as telephones and browsers show it: pairs of digits and colons."""
        from cryptography.hazmat.primitives import hashes

        return self._root.fingerprint(hashes.SHA256()).hex(":").upper()

    def signed(self, request: str, names: Sequence[str], now: datetime | None = None) -> str:
        """A certificate as PEM for the key of ``request`` (PEM) and for ``names``, valid for ``LEAF_DAYS``.

        What the request itself asks for counts for nothing. Raises ``AuthorityError`` where it is no request of P-256
        that its own key has signed, or where no name is given.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        if not names:
            raise AuthorityError("a certificate needs a name")
        key = _requested_key(request)
        moment = now or datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_subject("door"))
            .issuer_name(self._root.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - CLOCK_SKEW)
            .not_valid_after(moment + timedelta(days=LEAF_DAYS))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        return _pem(builder.sign(self._key, hashes.SHA256()))

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derived = HKDF(hashes.SHA256(), KEY_BYTES, salt=PURPOSE, info=KEY_USE).derive(self.secret.encode())
        number = int.from_bytes(derived, "big") % (P256_ORDER - 1) + 1
        return ec.derive_private_key(number, ec.SECP256R1())

    @cached_property
    def _root(self) -> x509.Certificate:
        """Signed without chance (RFC 6979), so that it is the same each time."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        key = self._key.public_key()
        point = key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        identity = hashlib.sha256(point).digest()
        name = _subject(f"Authority of a lab, {identity[:4].hex()}")
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key)
            .serial_number(int.from_bytes(identity[:16], "big") >> 1 or 1)
            .not_valid_before(ROOT_BEGINS)
            .not_valid_after(ROOT_ENDS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage("key_cert_sign"), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256(), ecdsa_deterministic=True)


def _requested_key(request: str) -> ec.EllipticCurvePublicKey:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        asked = x509.load_pem_x509_csr(request.encode())
        key = asked.public_key()
        is_its_own = asked.is_signature_valid
    except Exception as error:  # what a parser says of a text that came from a container has many types
        raise AuthorityError("the request for a certificate cannot be read") from error
    if not is_its_own:
        raise AuthorityError("the request for a certificate is not signed by its own key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise AuthorityError("the request for a certificate has a key that is not of P-256")
    return key


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    words = ((NameOID.ORGANIZATION_NAME, ORGANISATION), (NameOID.COMMON_NAME, name))
    return x509.Name([x509.NameAttribute(kind, word) for kind, word in words])


def _key_usage(only: str) -> x509.KeyUsage:
    """What a key may be used for, and nothing else."""
    from cryptography import x509

    uses = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(**{**uses, only: True})


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
