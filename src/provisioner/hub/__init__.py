"""The hub of models: which files are meant, and what they hash to. Asks Hugging Face's API, or one like it.

One request tells all: ``GET /api/models/ORG/REPO/revision/main?blobs=true`` gives the commit (``sha``) and of each file
(``siblings``) its name (``rfilename``), ``size`` and, as what is large lies in LFS, ``lfs.sha256`` of its content.
"""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from provisioner.plain_data import json_value
from provisioner.regular_files import text_of
from provisioner.spec.sources import (
    TOKEN_NAMES,
    ModelPart,
    is_inside,
    is_plain_filename,
    part_count,
    part_names,
    whole_stem,
)
from provisioner.state import Secret
from provisioner.time_limits import within

ENDPOINT = "https://huggingface.co"
REVISION = "main"
TIMEOUT_S = 30.0
DEADLINE_S = 60.0
"""For all of an answer and not for each piece of it; a file has more of it, by its size."""
SLOWEST = 200_000
"""Bytes a second that a file comes with at least."""
MAX_BYTES = 50_000_000
LARGEST_FILE = 1 << 50
MOST_SHOWN = 40
MAX_TOKEN_BYTES = 10_000
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DENIED, _MISSING = (401, 403), 404
_LACKING = ("RevisionNotFound", "EntryNotFound")
_LABEL = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|NVFP4\w*|B?F16|F32|FP16|FP32))$", re.IGNORECASE)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


class HubError(Exception):
    """What was asked for cannot be had from the hub; ``hint`` is what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UnreachableHubError(HubError):
    """The hub gave no answer; another time it may."""


class MissingRevisionError(HubError):
    """The repository is there, the branch, tag or commit is not."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository, of one commit: the same for ever; ``rest`` are the others of a model of several.

    Of a folder it is the config.json, which names the ``method`` of its quantisation.
    """

    revision: str
    file: str
    sha256: str
    size: int
    rest: tuple[ModelPart, ...] = ()
    method: str = ""


@dataclass(frozen=True, slots=True)
class Hub:
    """Where the hub is, and who asks."""

    endpoint: str = ENDPOINT
    token: Secret | None = None

    def address(self, repository: str, revision: str, file: str) -> str:
        """Where the file is downloaded."""
        return f"{self.endpoint}/{repository}/resolve/{revision}/{quote(file)}"


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows within the same server with the token, to another one without, and never to an unencrypted one."""

    def redirect_request(self, req: urllib.request.Request, *rest: Any) -> urllib.request.Request | None:
        """The request for the new place."""
        there = super().redirect_request(req, *rest)
        if there is not None and there.type not in {"https", req.type}:
            raise HubError(f"{req.host} leads to {there.type}://{there.host}, where nothing is encrypted")
        if there is not None and (there.type, there.host) == (req.type, req.host):
            there.unredirected_hdrs.update(req.unredirected_hdrs)
        return there


def hub_of_environment() -> Hub:
    """The hub that ``HF_ENDPOINT`` names, and the token that its own client would use; raises ``HubError``."""
    endpoint = (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or parts.query:
        raise HubError("HF_ENDPOINT is not the address of a hub", f"Write one such as {ENDPOINT}, or unset it.")
    token = _token()
    if token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
        hint = "Write an https address, or unset the token."
        raise HubError(f"HF_ENDPOINT is {endpoint}, where anybody could read the token on its way", hint)
    return Hub(endpoint, token)


def _token() -> Secret | None:
    values = [os.environ.get(name, "") for name in TOKEN_NAMES]
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    file = Path(os.path.expandvars(os.environ.get("HF_TOKEN_PATH") or f"{home}/token")).expanduser()
    if not any(values) and file.is_file():
        try:
            values.append(text_of(file, MAX_TOKEN_BYTES))
        except (OSError, UnicodeDecodeError) as error:
            raise HubError(f"the token of the hub in {file} cannot be read: {error}") from error
    value = next((one.strip() for one in values if one.strip()), "")
    if value and not (value.isascii() and value.isprintable() and " " not in value):
        raise HubError("the token of the hub holds what no token holds", "Set HF_TOKEN to the token alone.")
    return Secret("hub:token", value) if value else None


def find_file(hub: Hub, repository: str, quantisation: str) -> HubFile:
    """The model of that quantisation as it is now, in one file or in several; raises ``HubError``."""
    revision, entries = files_of(hub, repository, REVISION)
    by_name = {name: one for name, one in entries.items() if _is_model(name)}
    first, *rest = (
        part_of(name, by_name[name], repository) for name in _chosen(sorted(by_name), repository, quantisation)
    )
    return HubFile(revision, first.file, first.sha256, first.size or 0, tuple(rest))


def files_of(hub: Hub, repository: str, revision: str) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """The commit that a branch, tag or commit is now, and what the hub says of each of its files; ``HubError``."""
    page = page_of(hub, repository, f"revision/{quote(revision, safe='')}?blobs=true")
    commit, files = page.get("sha"), mappings_in(page.get("siblings"))
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise HubError(f"the hub does not say which commit of {repository} it shows", "Use https: with a sha256.")
    return commit, {one["rfilename"]: one for one in files if is_inside(one.get("rfilename"))}


def mappings_in(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list that the hub gave; nothing of what is no list."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def size_in(value: Any) -> int | None:
    """A number of bytes that the hub told; None for what is no such number."""
    return value if type(value) is int and 0 <= value <= LARGEST_FILE else None


def part_of(name: str, entry: Mapping[str, Any], repository: str) -> ModelPart:
    """A file that lies in LFS, with the hash that the hub tells; raises ``HubError``."""
    told = entry.get("lfs")
    content = told if isinstance(told, Mapping) else {}
    sha256, size = content.get("sha256"), size_in(content.get("size", entry.get("size")))
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256) or size is None:
        raise HubError(f"the hub does not say what {name} of {repository} hashes to", "Use https: with a sha256.")
    return ModelPart(name, sha256, size)


def _is_model(name: str) -> bool:
    base = name.rpartition("/")[2]
    return is_plain_filename(base) and not base.lower().startswith("mmproj") and "imatrix" not in base.lower()


def _chosen(names: list[str], repository: str, quantisation: str) -> list[str]:
    wanted = quantisation.casefold()
    found = [name for name in names if label_of(name).casefold() == wanted]
    found = found or [name for name in names if _stem(name).casefold().endswith((f"-{wanted}", f".{wanted}"))]
    there = f"there: {listed({label_of(name) for name in names})}" if names else "it holds no GGUF at all"
    if not found:
        raise HubError(f"no {quantisation} in {repository}", there)
    models = {(whole_stem(name), part_count(name)): name for name in reversed(found)}
    if len(models) > 1:
        hint = f'Take one by its address: "{ENDPOINT}/{repository}/resolve/{REVISION}/FILE" and its sha256'
        raise HubError(f"several files of {repository} are {quantisation}: {listed(models.values())}", hint)
    parts = part_names(next(iter(models.values())))
    missing = [name for name in parts if name not in names]
    if missing:
        what = f"{quantisation} of {repository} is in {part_count(parts[0])} files, and there is no {missing[0]}"
        raise HubError(what, there)
    return list(parts)


def label_of(name: str) -> str:
    """The quantisation of a file by its name, "Q4_K_M" of "x-Q4_K_M-00001-of-00002.gguf"; else the name itself."""
    found = _LABEL.search(_stem(name))
    return found[1] if found else _stem(name)


def listed(names: Iterable[str]) -> str:
    """The names in order, the first of many: a hub may tell half a million of them."""
    shown = sorted(names)
    more = len(shown) - MOST_SHOWN
    return ", ".join(shown[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _stem(name: str) -> str:
    return whole_stem(name.rpartition("/")[2])


def page_of(hub: Hub, repository: str, place: str) -> Mapping[str, Any]:
    """What the hub's API says at a place of a repository; raises ``HubError``."""
    content = asked(hub, f"{hub.endpoint}/api/models/{repository}/{place}", repository, MAX_BYTES)
    try:
        page = json_value(content)
    except ValueError as error:
        raise UnreachableHubError(f"{hub.endpoint} answers what is no page of a hub: {error}") from error
    if not isinstance(page, dict):
        raise UnreachableHubError(f"{hub.endpoint} answers what is no page of a hub")
    return page


def asked(hub: Hub, url: str, repository: str, most: int, deadline_s: float | None = None) -> bytes:
    """What the hub answers at an address of its own, no more than ``most`` bytes; raises ``HubError``.

    ``deadline_s``: for all of it, ``DEADLINE_S`` where it is left out.
    """
    request = urllib.request.Request(url, headers={"Accept": "application/json, */*"})  # noqa: S310  # checked above
    if hub.token:
        request.add_unredirected_header("Authorization", f"Bearer {hub.token.reveal()}")
    try:
        return within(DEADLINE_S if deadline_s is None else deadline_s, lambda: _read(request, most))
    except urllib.error.HTTPError as error:
        raise _judged(error, hub, repository) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        hint = "Is this machine online? HF_ENDPOINT, HTTPS_PROXY and NO_PROXY say how the hub is reached."
        raise UnreachableHubError(f"{hub.endpoint} gives no answer: {reason}", hint) from error


def _read(request: urllib.request.Request, most: int) -> bytes:
    with urllib.request.build_opener(Redirects).open(request, timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read(most)
    return content


def _judged(error: urllib.error.HTTPError, hub: Hub, repository: str) -> HubError:
    said = f"{hub.endpoint} answers {error.code} {error.headers.get('X-Error-Message') or error.reason}"
    page = f"{hub.endpoint}/{repository}"
    if error.code in _DENIED:  # without a token also for what does not exist
        what = f"the hub does not show {repository}: {said}"
        if hub.token:
            return HubError(what, f"Is the name right, and may the token's account read it? Accept its terms on {page}")
        return HubError(what, f"Is the name right? If so: accept its terms on {page} and set HF_TOKEN")
    if error.code == _MISSING and error.headers.get("X-Error-Code") in _LACKING:
        return MissingRevisionError(f"{repository} has nothing there: {said}")
    if error.code == _MISSING:
        return HubError(f"the hub has no repository {repository}: {said}", "Correct the name.")
    return UnreachableHubError(said, "Try again later.")


def proxies_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The proxies by scheme ("no": who is asked directly), but for those on this machine: a container has its own."""
    found: dict[str, str] = {}
    for name, value in sorted(environment.items()):  # upper case first: urllib prefers the lower
        scheme, _, kind = name.lower().partition("_")
        if kind == "proxy" and scheme in {"http", "https", "all", "no"} and value:
            found[scheme] = value
    return {scheme: one for scheme, one in found.items() if scheme == "no" or not _is_here(one)}


def _is_here(proxy: str) -> bool:
    return urlsplit(proxy if "://" in proxy else f"//{proxy}").hostname in LOOPBACK
