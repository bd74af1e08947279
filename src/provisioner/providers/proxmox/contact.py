"""Explain failed requests: network, certificates, logins. Imported with requests, by its first use only."""

from __future__ import annotations

from urllib.parse import urlsplit

from requests.exceptions import (
    ChunkedEncodingError,
    ConnectTimeout,
    ProxyError,
    ReadTimeout,
    RequestException,
    SSLError,
)
from requests.exceptions import ConnectionError as DroppedError
from urllib3.exceptions import MaxRetryError, NameResolutionError, NewConnectionError

from provisioner.providers.proxmox import tls
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.failures import UnreachableError

PORT = 8006
CONNECT_S = 10.0

_HOW_TO_TRUST = (
    "Proxmox signs its certificates itself. Copy /etc/pve/pve-root-ca.pem from the node and write its path as `ca:`"
)
_NOT_PROXMOX = "Is `proxmox:` the address of Proxmox VE's own API, such as https://192.168.1.10:8006?"


def unreached(error: RequestException, access: Access, timeout_s: float) -> UnreachableError:
    """Why a request has no answer; ``unsent`` when it surely was not read by anybody."""
    cause = _cause(error)
    if isinstance(error, SSLError):
        return _untrusted(error, access)
    if isinstance(error, ProxyError):
        message = f"The proxy of this machine does not connect to {place(access)}: {cause}"
        return UnreachableError(message, resolution="Except the node from it: NO_PROXY names hosts without a proxy.")
    if isinstance(error, ConnectTimeout) or isinstance(cause, NewConnectionError):
        return _unconnected(cause, access, min(timeout_s, CONNECT_S))
    return _unanswered(error, cause, access, timeout_s)


def _unconnected(cause: object, access: Access, timeout_s: float) -> UnreachableError:
    if isinstance(cause, NameResolutionError):
        message = f"The name {urlsplit(access.url).hostname} is not known: {_system_words(cause)}"
        return UnreachableError(message, resolution="Write the node's address, or a name that this machine can look up")
    words = _system_words(cause) if isinstance(cause, NewConnectionError) else f"none within {timeout_s:.0f} s"
    return UnreachableError(
        f"There is no connection to {place(access)}: {words}", resolution=_is_it_on(access), is_passing=True
    )


def _unanswered(error: RequestException, cause: object, access: Access, timeout_s: float) -> UnreachableError:
    where = place(access)
    if isinstance(error, ReadTimeout):
        return UnreachableError(f"{where} gave no answer within {timeout_s:.0f} s.", unsent=False)
    if isinstance(error, DroppedError | ChunkedEncodingError):
        message = f"{where} closed the connection before it had answered: {cause}"
        return UnreachableError(message, is_passing=True, unsent=False)
    return UnreachableError(f"{where} gave an answer that is none: {error}", resolution=_NOT_PROXMOX, unsent=False)


def not_proxmox(access: Access) -> UnreachableError:
    """The words for an answer that Proxmox would not give."""
    message = f"{place(access)} answers, but not as Proxmox VE's API does."
    return UnreachableError(message, resolution=_NOT_PROXMOX, unsent=False)


def refused_token(access: Access, reason: str) -> UnreachableError:
    """The words for a token that is not taken; Proxmox never says what is wrong with one."""
    token = f"{access.user}!{access.token_id}"
    resolution = (
        f"Its user ({access.user}), its id ({access.token_id}) or its secret is wrong, or it has expired. On the node, "
        f"see: pveum user token list {access.user}; a secret is shown only when a token is made."
    )
    return UnreachableError(f"API token {token} was refused: {reason}", resolution=resolution, status=401)


def malformed_token(access: Access) -> UnreachableError:
    """The words for a secret that can be none."""
    message = f"The secret of API token {access.user}!{access.token_id} has characters that no such secret has."
    return UnreachableError(message, resolution="Copy it again: it looks like 01234567-89ab-4cde-8f01-23456789abcd")


def refused_password(access: Access, reason: str, realms: list[str]) -> UnreachableError:
    """The words for a password that is not taken; what is said of the realm is all that can be found out."""
    message = f"The login of {access.user} with its password was refused: {reason}"
    realm = access.user.rpartition("@")[2]
    if realms and realm not in realms:
        resolution = f"There is no realm {realm} there, but: {', '.join(realms)}. Write user: NAME@REALM"
    else:
        resolution = (
            f"The password is wrong, or there is no such user, or it is disabled. See: pveum user list ({realm})"
        )
    return UnreachableError(message, resolution=resolution, status=401)


def second_factor(access: Access) -> UnreachableError:
    """The words for a user who has to be asked for more than a password."""
    resolution = "Nobody can be asked for it here: use an API token (`token:`); for what only root may do, give `ssh:`."
    return UnreachableError(f"{access.user} logs in with a second factor.", resolution=resolution, status=401)


def place(access: Access) -> str:
    """Host and port."""
    address = urlsplit(access.url)
    return f"{address.hostname}:{address.port or 443}"


def _is_it_on(access: Access) -> str:
    if not urlsplit(access.url).port:
        return f"Proxmox listens on port {PORT}: write {access.url.rstrip('/')}:{PORT}"
    return "Is the node on, does pveproxy run there, and does no firewall stand between?"


def _untrusted(error: SSLError, access: Access) -> UnreachableError:
    """Why TLS failed: the certificate is another's, or signed by somebody unknown, or there is no TLS at all."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" not in text and "Fingerprints did not match" not in text:
        message = f"{place(access)} does not speak TLS as Proxmox does: {_last_words(text)}"
        return UnreachableError(message, resolution=_NOT_PROXMOX)
    seen = _shown(access)
    if "Fingerprints did not match" in text:
        resolution = (
            "When the certificate was renewed, this one is shown by `pvenode cert info` on the node, too: write it as "
            "`fingerprint:`. Else somebody else answers there."
        )
        return UnreachableError(f"{place(access)} shows another certificate: {seen}", resolution=resolution)
    message = f"The certificate of {place(access)} is not trusted: {_last_words(text)}"
    pin = f'when `pvenode cert info` on the node shows the same fingerprint, write fingerprint: "{seen}"'
    if "ismatch" in text:
        return UnreachableError(message, resolution=f"Use a name that is in the certificate, or {pin}")
    if "expired" in text or "not yet valid" in text:
        return UnreachableError(
            message, resolution=f"Renew it (pvecm updatecerts -f), or see this machine's clock: {pin}"
        )
    if access.ca:
        return UnreachableError(message, resolution=f"It was not signed by {access.ca}. {_HOW_TO_TRUST}, or, {pin}")
    return UnreachableError(message, resolution=f"{_HOW_TO_TRUST}, or, {pin}")


def _shown(access: Access) -> str:
    """The certificate's fingerprint as people read it."""
    try:
        found = tls.seen_fingerprint(access.url)
    except OSError as error:
        return f"(not readable: {error})"
    return ":".join(found[at : at + 2] for at in range(0, len(found), 2)).upper()


def _last_words(text: str) -> str:
    """The words of OpenSSL without the names of Python's classes around them."""
    return text.rpartition("] ")[2].rpartition(" (_ssl")[0].strip("'\" )") or text


def _cause(error: RequestException) -> object:
    inner = error.args[0] if error.args else error
    return inner.reason if isinstance(inner, MaxRetryError) else inner


def _system_words(error: BaseException) -> str:
    cause = error.__cause__ or error
    return str(getattr(cause, "strerror", "") or cause)
