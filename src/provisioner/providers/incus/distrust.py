"""Explain why an Incus elsewhere does not answer, or refuses everything, and what to do. Imported when that happens."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from provisioner.providers.incus import wire
from provisioner.providers.incus.endpoint import Endpoint
from provisioner.values.regular_files import content_of

ENROL = (
    "On the machine of that Incus, `incus config trust add NAME` prints a token; here, give it to: "
    "provision host prepare --trust -"
)
_LIMITED = "does not have permission"
"""So begins what it says to a certificate that its owner restricted; the status is 403 or 500."""


def reason(endpoint: Endpoint, error: Exception) -> tuple[str, str]:
    """Why a request has failed as it did, and what to do about it."""
    if isinstance(error, wire.UnreachableError):
        return str(error), error.resolution
    if _LIMITED in str(error):
        resolution = (
            "Its owner limited our certificate to some projects, and provision works in project default. On that "
            "machine, see: incus config trust list"
        )
        return f"It knows us, and does not let us in: {error}", resolution
    if isinstance(error, wire.WireError) and error.status == HTTPStatus.FORBIDDEN:
        return untrusted(endpoint)
    words = str(error).strip() or type(error).__name__
    return words, f"Does Incus run there? Is `incus: {endpoint}` the address of its API?"


def is_refusal(error: Exception) -> bool:
    """Whether the server answers, and does not let us do what was asked for."""
    return isinstance(error, wire.WireError) and (error.status == HTTPStatus.FORBIDDEN or _LIMITED in str(error))


def untrusted(endpoint: Endpoint) -> tuple[str, str]:
    """Why the server does not take our certificate, and what to do about it."""
    if not endpoint.cert:
        return "It was shown no client certificate.", ENROL
    ended = _end(Path(endpoint.cert))
    if ended is not None and ended < datetime.now(UTC):
        again = f"Move {endpoint.cert} and {endpoint.key} away, so that new ones are made. {ENROL}"
        return f"The client certificate {endpoint.cert} has expired on {ended:%Y-%m-%d}.", again
    return f"It does not trust the client certificate {endpoint.cert}.", ENROL


def _end(cert: Path) -> datetime | None:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(content_of(cert)).not_valid_after_utc
    except (OSError, ValueError):
        return None
