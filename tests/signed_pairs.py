"""Certificates as authorities elsewhere sign them, with their keys, for the names and the time that a test wants."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AuthorityInformationAccessOID, NameOID

PEM = serialization.Encoding.PEM
NOW = datetime.now(UTC).replace(microsecond=0)
ISSUERS_ADDRESS = x509.AccessDescription(
    AuthorityInformationAccessOID.CA_ISSUERS, x509.UniformResourceIdentifier("http://authority.example/a.der")
)

SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
"""What the key of an authority is for."""


@dataclass(frozen=True)
class Signed:
    """A certificate with its key and those above it, the next one first."""

    certificate: x509.Certificate
    private: ec.EllipticCurvePrivateKey
    above: tuple[x509.Certificate, ...] = ()

    @property
    def own(self) -> str:
        """The certificate alone, as PEM."""
        return self.certificate.public_bytes(PEM).decode()

    @property
    def chain(self) -> str:
        """The certificate with those above it but for the root, as public authorities give it (fullchain.pem)."""
        return "".join(one.public_bytes(PEM).decode() for one in (self.certificate, *self.above[:-1]))

    @property
    def key(self) -> str:
        """Its key as PEM, without a password."""
        return self.locked("")

    def locked(self, password: str) -> str:
        """Its key as PEM, with a password."""
        lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        return self.private.private_bytes(PEM, serialization.PrivateFormat.PKCS8, lock).decode()


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def signed(
    name: str,
    above: Signed | None = None,
    *names: str,
    begins: datetime = NOW - timedelta(days=30),
    ends: datetime = NOW + timedelta(days=60),
) -> Signed:
    """A certificate for these names and addresses, signed by the one above, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(above.certificate.subject if above else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_san(one) for one in names]), False)
    else:
        builder = builder.add_extension(SIGNS, critical=True)
    if above:
        builder = builder.add_extension(x509.AuthorityInformationAccess([ISSUERS_ADDRESS]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(above.private.public_key())
        builder = builder.add_extension(issuer, critical=False)
    certificate = builder.sign(above.private if above else key, hashes.SHA256())
    return Signed(certificate, key, (above.certificate, *above.above) if above else ())
