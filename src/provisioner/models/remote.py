"""What models elsewhere say of themselves: the head of a file at an address, and what a registry answers.

A registry is asked as Ollama's server asks it, for the manifest of a name and the heads of its files; without any
credentials: who asks for a login is not asked again. Files of models are not downloaded: of each only the head is read,
as far as its keys go and at most ``LIMIT`` bytes, or its config.json.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from provisioner.models.folders import SMALL_BYTES, header_of
from provisioner.models.gguf import read_head
from provisioner.models.header import GgufError, Header
from provisioner.models.hub import HubError, Redirects
from provisioner.models.pulled import MEDIA_TYPE, Layer, Manifest, ManifestError, ModelName, Pulled, read_manifest
from provisioner.values.limits import within
from provisioner.values.plain_data import Foreign, json_value

REGISTRY_DEADLINE_S = 30.0
"""For everything that is asked of one model."""
MOST_OF_A_MANIFEST = 4 << 20
MOST_OF_A_PAGE = 1 << 20
"""What a model's config and its options may take; the real ones have some hundred bytes."""
MOST_OF_AN_ERROR, MOST_OF_WHY, MOST_OF_A_WORD = 10_000, 300, 40
GGUF_FORMATS = ("", "gguf")
_CONTENT_RANGE = re.compile(r"bytes 0-[0-9]{1,18}/([0-9]{1,18})", re.ASCII)
LIMIT = 24 << 20
"""The vocabularies of today's models take 5 to 10 MB of a head; what is longer is not read."""
TIMEOUT_S, DEADLINE_S = 4.0, 20.0
_T = TypeVar("_T")


class NoHeadError(Exception):
    """The head cannot be had now; another time it may."""


def read_remote_head(
    url: str, token: str | None, deadline_s: float = DEADLINE_S, keep: Callable[[bytes], None] = lambda _head: None
) -> Header:
    """The head of the file at ``url``; the token goes to that server alone. ``keep`` is given its bytes.

    ``NoHeadError``: it does not come; ``GgufError``: what comes is no GGUF, or its head is too long.
    """
    return _asked(
        url, token, {"Range": f"bytes=0-{LIMIT - 1}"}, deadline_s, lambda answer: read_head(answer.read1, LIMIT, keep)
    )


def read_remote_config(url: str, token: str | None, sha256: str, deadline_s: float = DEADLINE_S) -> Header:
    """What the config.json at ``url`` says; the token goes to that server alone.

    ``NoHeadError``: it does not come, or is not the file of that ``sha256``; ``FolderError``: it is no model's.
    """
    content = _asked(url, token, {}, deadline_s, lambda answer: answer.read(SMALL_BYTES))
    if hashlib.sha256(content).hexdigest() != sha256:
        raise NoHeadError("what comes is another file than the one that was found there before")
    return header_of(content)


def reach(url: str, token: str | None, headers: dict[str, str], deadline_s: float) -> None:
    """Return when a server has what is at ``url``, of which nothing is read; the token goes to that server alone.

    ``NoHeadError``: it has not, by its cause, an ``HTTPError``, or it gives no answer.
    """
    _asked(url, token, {"Range": "bytes=0-0", **headers}, deadline_s, lambda _answer: None)


def _asked(
    url: str,
    token: str | None,
    headers: dict[str, str],
    deadline_s: float,
    read: Callable[[http.client.HTTPResponse], _T],
) -> _T:
    """What ``read`` makes of the answer; raises ``NoHeadError`` where none comes in time."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **headers})  # noqa: S310  # http or https: the sources say so
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")

    def answered() -> _T:
        with urllib.request.build_opener(Redirects).open(request, timeout=TIMEOUT_S) as answer:
            return read(answer)

    try:
        return within(deadline_s, answered)
    except HubError as error:
        raise NoHeadError(error.message) from error
    except (OSError, EOFError, UnicodeError, http.client.HTTPException) as error:  # UnicodeError: no name of a host
        raise NoHeadError(str(getattr(error, "reason", None) or error) or type(error).__name__) from error


def read_pulled(name: ModelName, known: Pulled | None = None, deadline_s: float = REGISTRY_DEADLINE_S) -> Pulled:
    """What the registry says of the model now; ``known`` itself where it is still that version.

    ``NoHeadError``: it does not say it now, another time it may.
    """
    try:
        return within(deadline_s, lambda: _read(name, known))
    except HubError as error:
        raise NoHeadError(error.message) from error
    except (OSError, EOFError, UnicodeError, http.client.HTTPException) as error:  # UnicodeError: no name of a host
        reason = getattr(error, "reason", None) or error
        raise NoHeadError(f"{name.host} gives no answer: {str(reason) or type(error).__name__}") from error


def _read(name: ModelName, known: Pulled | None) -> Pulled:
    content = _answered(name.manifest, {"Accept": MEDIA_TYPE}, _whole(MOST_OF_A_MANIFEST))
    digest = hashlib.sha256(content).hexdigest()  # of these bytes: Ollama tells the same as the model's digest
    if known is not None and known.digest == digest:
        return known
    try:
        manifest = read_manifest(content)
    except ManifestError as error:
        raise NoHeadError(f"{name.host} answers what is no manifest: {error}") from error
    try:
        return _pulled(name, digest, manifest)
    except GgufError as error:  # another time it is the same
        return Pulled(digest, unknown=str(error))


def _pulled(name: ModelName, digest: str, manifest: Manifest) -> Pulled:
    config = _page(name, manifest.config)
    if config.get("remote_host"):
        return Pulled(digest, unknown="it is computed elsewhere, and has no weights")
    model = manifest.layers.get("model")
    model_format = str(config.get("model_format") or "")
    if model_format not in GGUF_FORMATS:
        return Pulled(digest, unknown=f"its weights are no GGUF but {model_format[:MOST_OF_A_WORD]}")
    if model is None:
        return Pulled(digest, unknown="its manifest lists no file of a model")
    options = _page(name, manifest.layers.get("params"))
    projector = manifest.layers.get("projector")
    family = config.get("model_family")
    return Pulled(
        digest,
        _head(name, model),
        model.size,
        _head(name, projector) if projector else None,
        projector.size if projector else 0,
        family if isinstance(family, str) else "",
        _numbers(options),
        tuple(sorted(manifest.layers)),
    )


def _numbers(options: Mapping[str, Any]) -> dict[str, int]:
    """The whole numbers, which Ollama also takes as 4096.0."""
    found: dict[str, int] = {}
    for name, value in options.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and value == int(value):
            found[name] = int(value)
    return found


def _page(name: ModelName, layer: Layer | None) -> Mapping[str, Any]:
    """The object in a small file, whose content is held against its digest; empty without such a file."""
    if layer is None:
        return {}
    content = _answered(name.blob(layer.digest), {}, _whole(MOST_OF_A_PAGE))
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != layer.digest:
        raise NoHeadError(f"{name.host} gives another file than its manifest lists")
    try:
        page = json_value(content)
    except ValueError as error:
        raise NoHeadError(f"{name.host} gives a file that is no JSON: {error}") from error
    return page if isinstance(page, dict) else {}


def _head(name: ModelName, layer: Layer) -> Header:
    """The head of a model's file; a server that knows no ranges is left when the head is over."""

    def read(answer: http.client.HTTPResponse) -> Header:
        size = _size_of(answer)
        if size is not None and size != layer.size:
            raise NoHeadError(f"{name.host} lists a file of {layer.size:,} bytes, and has one of {size:,}")
        return read_head(answer.read1, LIMIT)

    return _answered(name.blob(layer.digest), {"Range": f"bytes=0-{LIMIT - 1}"}, read)


def _size_of(answer: http.client.HTTPResponse) -> int | None:
    """Bytes of the whole file of which this is the beginning, as the answer tells; None where it does not."""
    if answer.status == http.client.PARTIAL_CONTENT:
        told = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if told is None:
            raise NoHeadError("what comes is not the beginning of the file")
        return int(told[1])
    return answer.length


def _whole(most: int) -> Callable[[http.client.HTTPResponse], bytes]:
    """What reads all of an answer, which may have so many bytes."""

    def read(answer: http.client.HTTPResponse) -> bytes:
        content = answer.read(most + 1)
        if len(content) > most:
            raise NoHeadError(f"what comes has more than {most:,} bytes")
        return content

    return read


def _answered(url: str, headers: dict[str, str], read: Callable[[http.client.HTTPResponse], _T]) -> _T:
    """What ``read`` makes of the answer; ``NoHeadError`` with the registry's own words where it refuses."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **headers})  # noqa: S310  # https
    try:
        with urllib.request.build_opener(Redirects).open(request, timeout=TIMEOUT_S) as answer:
            return read(answer)
    except urllib.error.HTTPError as error:
        with error:
            why = _reason_in(error.read(MOST_OF_AN_ERROR)) or str(error.reason)
        raise NoHeadError(f"{request.host} answers {error.code}: {why}") from error


def _reason_in(content: bytes) -> str:
    """Why a registry refuses, in its words; empty where it says nothing that people could read.

    A registry says ``{"errors": [{"code": …, "message": …}]}``, Hugging Face ``{"error": …}``.
    """
    try:
        page = json_value(content)
    except ValueError:
        return ""
    if not isinstance(page, dict):
        return ""
    listed = page.get("errors")
    first = listed[0] if isinstance(listed, list) and listed else None
    why = first.get("message") if isinstance(first, dict) else page.get("error")
    if not isinstance(why, str):
        return ""
    return Foreign(" ".join(why.split()), MOST_OF_WHY)
