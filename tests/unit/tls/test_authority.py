"""The lab's own authority: one root for one secret, certificates that OpenSSL takes, and what is refused."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509 import verification

from provisioner.tls.authority import LEAF_DAYS, P256_ORDER, Authority, AuthorityError

SECRET = "canary-of-an-authority"
AUTHORITY = Authority(SECRET)
NAMES = ["chat.home.example", "api.home.example"]
NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)
FINGERPRINT = "1B:91:EF:D6:71:40:33:4F:04:12:38:80:8F:DA:F3:C4:B7:C9:48:FC:F4:CC:46:C1:48:4D:0C:B7:88:BD:80:7A"


def request(key: CertificateIssuerPrivateKeyTypes | None = None, name: str = "evil.example") -> str:
    """A request that asks for more than it gets."""
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    asked = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key or ec.generate_private_key(ec.SECP256R1()), algorithm)
    )
    return asked.public_bytes(serialization.Encoding.PEM).decode()


def verified(certificate: str, root: str, name: str, when: datetime) -> None:
    """Raise ``VerificationError`` where a browser would refuse it."""
    store = verification.Store([x509.load_pem_x509_certificate(root.encode())])
    verifier = verification.PolicyBuilder().store(store).time(when).build_server_verifier(x509.DNSName(name))
    verifier.verify(x509.load_pem_x509_certificate(certificate.encode()), [])


def test_the_root_of_a_secret_is_always_the_same() -> None:
    """Devices trust it for years: another one in a later version would lock them out."""
    assert AUTHORITY.fingerprint == FINGERPRINT
    assert Authority(SECRET).root == AUTHORITY.root
    assert Authority(SECRET + "!").root != AUTHORITY.root
    assert ssl.PEM_cert_to_DER_cert(AUTHORITY.root)


def test_the_root_signs_leaves_and_nothing_else() -> None:
    root = x509.load_pem_x509_certificate(AUTHORITY.root.encode())
    limits = root.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.value.ca, limits.value.path_length, limits.critical) == (True, 0, True)
    assert root.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    root.verify_directly_issued_by(root)


@pytest.mark.parametrize("name", NAMES)
def test_a_certificate_is_for_its_names_and_its_days(name: str) -> None:
    certificate = AUTHORITY.signed(request(), NAMES, NOW)
    verified(certificate, AUTHORITY.root, name, NOW)
    verified(certificate, AUTHORITY.root, name, NOW + timedelta(days=LEAF_DAYS - 1))
    for other, root, when in (
        ("evil.example", AUTHORITY.root, NOW),
        (name, Authority("another-secret-of-a-lab").root, NOW),
        (name, AUTHORITY.root, NOW + timedelta(days=LEAF_DAYS + 1)),
        (name, AUTHORITY.root, NOW - timedelta(days=1)),
    ):
        with pytest.raises(verification.VerificationError):
            verified(certificate, root, other, when)


def test_what_a_request_asks_for_counts_for_nothing_but_its_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = x509.load_pem_x509_certificate(AUTHORITY.signed(request(key), NAMES, NOW).encode())
    assert certificate.public_key() == key.public_key()
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternative.get_values_for_type(x509.DNSName) == NAMES
    assert "evil" not in certificate.subject.rfc4514_string()


def tampered() -> str:
    """A request whose content was changed after it was signed."""
    der = x509.load_pem_x509_csr(request().encode()).public_bytes(serialization.Encoding.DER)
    changed = der.replace(b"evil.example", b"good.example")
    return x509.load_der_x509_csr(changed).public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("asked", "names", "words"),
    [
        ("nothing", NAMES, "cannot be read"),
        ("", NAMES, "cannot be read"),
        (AUTHORITY.root, NAMES, "cannot be read"),
        (tampered(), NAMES, "not signed by its own key"),
        (request(rsa.generate_private_key(65537, 2048)), NAMES, "not of P-256"),
        (request(ec.generate_private_key(ec.SECP384R1())), NAMES, "not of P-256"),
        (request(ed25519.Ed25519PrivateKey.generate()), NAMES, "not of P-256"),
        (request(), [], "needs a name"),
    ],
)
def test_what_is_no_request_is_refused(asked: str, names: list[str], words: str) -> None:
    with pytest.raises(AuthorityError, match=words) as caught:
        AUTHORITY.signed(asked, names, NOW)
    assert SECRET not in str(caught.value)


def test_a_short_secret_is_refused_and_none_is_ever_shown() -> None:
    with pytest.raises(AuthorityError, match="at least 20 characters") as caught:
        Authority("too-short-canary")
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(AUTHORITY)


def test_the_order_is_that_of_the_curve() -> None:
    """A key of one less is the largest that there is."""
    ec.derive_private_key(P256_ORDER - 1, ec.SECP256R1())
    with pytest.raises(ValueError, match=r".*"):
        ec.derive_private_key(P256_ORDER, ec.SECP256R1())
