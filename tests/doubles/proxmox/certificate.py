"""A certificate authority of the double's own, and the certificate that its nodes show."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFE = dt.timedelta(days=2)


@dataclass(frozen=True)
class Files:
    """Where the authority's certificate is, for clients, and the server's own with its key."""

    ca: Path
    server: Path

    def context(self) -> ssl.SSLContext:
        """What the server speaks TLS with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        return context


def issue(folder: Path, host: str, *, ended_days: int = 0) -> Files:
    """Make both anew in a folder; ``ended_days``: for how long the server's own is no longer good."""
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = _name("Proxmox Virtual Environment (double)")
    ca = _basis(ca_name, ca_name, ca_key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host)), x509.DNSName("localhost")])
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    usage = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    signed_ca = ca.add_extension(usage, critical=False).sign(ca_key, hashes.SHA256())
    basis = _basis(_name("pve1"), ca_name, key, dt.timedelta(days=ended_days)).add_extension(names, critical=False)
    signed = basis.add_extension(authority, critical=False).sign(ca_key, hashes.SHA256())
    files = Files(folder / "pve-root-ca.pem", folder / "pve-ssl.pem")
    files.ca.write_bytes(signed_ca.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files.server.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _basis(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ended: dt.timedelta = dt.timedelta()
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC) - (LIFE + ended if ended else ended)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFE)
        .not_valid_after(now + LIFE)
    )
