"""The hub of models: which files are meant, and what they hash to. Asks Hugging Face's API, or one like it.

One request tells all: ``GET /api/models/ORG/REPO/revision/main?blobs=true`` gives the commit (``sha``) and of each file
(``siblings``) its name (``rfilename``), ``size`` and, as what is large lies in LFS, ``lfs.sha256`` of its content. Of
what is small it only tells git's id (``blobId``, the sha1 of "blob SIZE", a zero byte and the content): where a whole
folder is meant, that is downloaded, held against the id, and hashed here.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from provisioner.models.folders import SMALL_BYTES, FolderError, ModelSourceError, is_read_whole, method_in, selected
from provisioner.models.sources import (
    TOKEN_NAMES,
    ModelPart,
    is_inside,
    is_plain_filename,
    part_count,
    part_names,
    whole_stem,
)
from provisioner.values.limits import within
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of
from provisioner.values.state import Secret

WHOLE_DEADLINE_S = 600.0
"""For all small files of a folder together."""
MOST_OF_A_NAME = 100
ENDPOINT = "https://huggingface.co"
REVISION = "main"
TIMEOUT_S = 30.0
DEADLINE_S = 60.0
"""For all of an answer and not for each piece of it; a file has more of it, by its size."""
_SLOWEST = 200_000
"""Bytes a second that a file comes with at least."""
MAX_BYTES = 50_000_000
LARGEST_FILE = 1 << 50
MOST_SHOWN = 40
MAX_TOKEN_BYTES = 10_000
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DENIED, _MISSING = (401, 403), 404
_PROXY_VARIABLES = {"http_proxy": "http", "https_proxy": "https", "all_proxy": "all", "no_proxy": "no"}
_LACKING = ("RevisionNotFound", "EntryNotFound")
_LABEL = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|NVFP4\w*|B?F16|F32|FP16|FP32))$", re.IGNORECASE)
_HELPING = r"(?:mtp|draft|dflash\d*|eagle3|assistant|lora|adapter|mmproj)"
_HELPERS = re.compile(rf"(?:^|/){_HELPING}(?:[-_./])|[-_.]{_HELPING}[-_.][^-/]+\.gguf$", re.IGNORECASE)
"""Names of files, and of folders of them, that help a model: those that draft, adapters, projectors.

In a file's name the word stands first, or before the quantisation: others are parts of what models are called.
"""
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


class HubError(ModelSourceError):
    """What was asked for cannot be had from the hub."""


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
        target = super().redirect_request(req, *rest)
        if target is None:
            return None
        if target.type not in {"https", req.type}:
            raise HubError(f"{req.host} leads to {target.type}://{target.host}, where nothing is encrypted")
        if (target.type, target.host) == (req.type, req.host):
            target.unredirected_hdrs.update(req.unredirected_hdrs)
        return target


def hub_of_environment() -> Hub:
    """The hub that ``HF_ENDPOINT`` names, and the token that its own client would use; raises ``HubError``."""
    endpoint = (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    parts = urlsplit(endpoint)
    is_server = parts.scheme in {"http", "https"} and bool(parts.hostname)
    has_more = "@" in parts.netloc or bool(parts.query)
    if not is_server or has_more:
        raise HubError("HF_ENDPOINT is not the address of a hub", f"Write one such as {ENDPOINT}, or unset it.")
    token = _token()
    is_readable_on_its_way = parts.scheme == "http" and parts.hostname not in LOOPBACK
    if token and is_readable_on_its_way:
        hint = "Write an https address, or unset the token."
        raise HubError(f"HF_ENDPOINT is {endpoint}, where anybody could read the token on its way", hint)
    return Hub(endpoint, token)


def _token() -> Secret | None:
    """The token of the environment, else that of its file; None where there is none."""
    texts = [os.environ.get(name, "") for name in TOKEN_NAMES]
    if not any(texts):
        texts = [_text_of_token_file()]
    values = [text.strip() for text in texts]
    value = next(filter(None, values), "")
    if not value:
        return None
    is_plain = value.isascii() and value.isprintable()
    if not is_plain or " " in value:
        raise HubError("the token of the hub holds what no token holds", "Set HF_TOKEN to the token alone.")
    return Secret("hub:token", value)


def _text_of_token_file() -> str:
    """What the file holds in which the hub's own client keeps its token; "" where there is no such file."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    path = os.environ.get("HF_TOKEN_PATH") or f"{home}/token"
    file = Path(os.path.expandvars(path)).expanduser()
    if not file.is_file():
        return ""
    try:
        return text_of(file, MAX_TOKEN_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise HubError(f"the token of the hub in {file} cannot be read: {error}") from error


def find_file(hub: Hub, repository: str, quantisation: str) -> HubFile:
    """The model of that quantisation as it is now, in one file or in several; raises ``HubError``."""
    revision, entries = files_of(hub, repository, REVISION)
    names = sorted(filter(_is_model, entries))
    models = [name for name in names if not _HELPERS.search(name)]
    # Where no other file is of that quantisation, its head tells what it is.
    chosen = _chosen(models if _of_quantisation(models, quantisation) else names, repository, quantisation)
    first, *rest = [part_of(name, entries[name], repository) for name in chosen]
    return HubFile(revision, first.file, first.sha256, first.size or 0, tuple(rest))


def files_of(hub: Hub, repository: str, revision: str) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """The commit that a branch, tag or commit is now, and what the hub says of each of its files; ``HubError``."""
    page = page_of(hub, repository, f"revision/{quote(revision, safe='')}?blobs=true")
    commit = page.get("sha")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise HubError(f"the hub does not say which commit of {repository} it shows", "Use https: with a sha256.")
    entries: dict[str, Mapping[str, Any]] = {}
    for entry in _mappings_in(page.get("siblings")):
        name = entry.get("rfilename")
        if isinstance(name, str) and is_inside(name):
            entries[name] = entry
    return commit, entries


def _mappings_in(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list that the hub gave; nothing of what is no list."""
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, Mapping)]


def _size_in(value: Any) -> int | None:
    """A number of bytes that the hub gave; None for what is no such number."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= LARGEST_FILE else None


def part_of(name: str, entry: Mapping[str, Any], repository: str) -> ModelPart:
    """A file that lies in LFS, with the hash that the hub gives; raises ``HubError``."""
    lfs = entry.get("lfs")
    content = lfs if isinstance(lfs, Mapping) else {}
    sha256 = content.get("sha256")
    size = _size_in(content.get("size", entry.get("size")))
    if size is None or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise HubError(f"the hub does not say what {name} of {repository} hashes to", "Use https: with a sha256.")
    return ModelPart(name, sha256, size)


def _is_model(name: str) -> bool:
    base = name.rpartition("/")[2]
    if not is_plain_filename(base):
        return False
    lower_case = base.lower()
    return not lower_case.startswith("mmproj") and "imatrix" not in lower_case


def _chosen(names: list[str], repository: str, quantisation: str) -> list[str]:
    """The files of the one model of that quantisation; ``HubError`` where there is none or several."""
    alternatives = "it holds no GGUF at all"
    if names:
        alternatives = f"there: {listed({label_of(name) for name in names})}"
    matching = _of_quantisation(names, quantisation)
    if not matching:
        raise HubError(f"no {quantisation} in {repository}", alternatives)
    models = {(whole_stem(name), part_count(name)): name for name in reversed(matching)}
    if len(models) > 1:
        hint = _hint_of_several(repository, [_stem(name) for name in models.values()])
        raise HubError(f"several files of {repository} are {quantisation}: {listed(models.values())}", hint)
    parts = part_names(next(iter(models.values())))
    missing = [name for name in parts if name not in names]
    if missing:
        what = f"{quantisation} of {repository} is in {part_count(parts[0])} files, and there is no {missing[0]}"
        raise HubError(what, alternatives)
    return list(parts)


def _hint_of_several(repository: str, stems: list[str]) -> str:
    if len(set(map(str.casefold, stems))) == len(stems):
        return f'Write the name of one of them in its place, such as "hf:{repository}:{min(stems)}"'
    return f'Take one by its address: "{ENDPOINT}/{repository}/resolve/{REVISION}/FILE" and its sha256'


def _of_quantisation(names: list[str], quantisation: str) -> list[str]:
    """The files of that name; without any, those with that label; without any, those whose names end with it."""
    wanted = quantisation.casefold()
    named = [name for name in names if _stem(name).casefold() == wanted]
    if named:
        return named
    labelled = [name for name in names if label_of(name).casefold() == wanted]
    if labelled:
        return labelled
    endings = (f"-{wanted}", f".{wanted}")
    return [name for name in names if _stem(name).casefold().endswith(endings)]


def label_of(name: str) -> str:
    """The quantisation of a file by its name, "Q4_K_M" of "x-Q4_K_M-00001-of-00002.gguf"; else the name itself."""
    stem = _stem(name)
    label = _LABEL.search(stem)
    return label[1] if label else stem


def listed(names: Iterable[str]) -> str:
    """The names in order, the first of many: a hub may name half a million of them."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:MOST_SHOWN])
    more = len(ordered) - MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


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
        raise _error_of_answer(error, hub, repository) from error
    except (OSError, UnicodeError, http.client.HTTPException) as error:  # UnicodeError: no name of a host
        reason = getattr(error, "reason", error)
        hint = "Is this machine online? HF_ENDPOINT, HTTPS_PROXY and NO_PROXY say how the hub is reached."
        raise UnreachableHubError(f"{hub.endpoint} gives no answer: {reason}", hint) from error


def _read(request: urllib.request.Request, most: int) -> bytes:
    with urllib.request.build_opener(Redirects).open(request, timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read(most)
    return content


def _error_of_answer(error: urllib.error.HTTPError, hub: Hub, repository: str) -> HubError:
    reason = error.headers.get("X-Error-Message") or error.reason
    answer = f"{hub.endpoint} answers {error.code} {reason}"
    if error.code in _DENIED:  # without a token also for what does not exist
        return HubError(f"the hub does not show {repository}: {answer}", _hint_of_denial(hub, repository))
    if error.code != _MISSING:
        return UnreachableHubError(answer, "Try again later.")
    if error.headers.get("X-Error-Code") in _LACKING:
        return MissingRevisionError(f"{repository} has nothing there: {answer}")
    return HubError(f"the hub has no repository {repository}: {answer}", "Correct the name.")


def _hint_of_denial(hub: Hub, repository: str) -> str:
    page = f"{hub.endpoint}/{repository}"
    if hub.token:
        return f"Is the name right, and may the token's account read it? Accept its terms on {page}"
    return f"Is the name right? If so: accept its terms on {page} and set HF_TOKEN"


def proxies_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The proxies by scheme ("no": who is asked directly), but for those on this machine: a container has its own."""
    proxies: dict[str, str] = {}
    for name, value in sorted(environment.items()):  # upper case first: urllib prefers the lower
        scheme = _PROXY_VARIABLES.get(name.lower())
        if scheme and value:
            proxies[scheme] = value
    for scheme, proxy in list(proxies.items()):
        if scheme != "no" and _is_here(proxy):
            del proxies[scheme]
    return proxies


def _is_here(proxy: str) -> bool:
    address = proxy if "://" in proxy else f"//{proxy}"
    return urlsplit(address).hostname in LOOPBACK


def find_folder(hub: Hub, repository: str, revision: str) -> HubFile:
    """The model's files as they are now, config.json first; raises ``HubError``, with what is there instead."""
    try:
        commit, entries = files_of(hub, repository, revision)
    except MissingRevisionError as error:
        raise HubError(f"{repository} has no revision {revision}", there(hub, repository)) from error
    reading = _Reading(hub, repository, commit)
    names_at_top = [name for name in entries if "/" not in name]
    try:
        names = selected(names_at_top)
        first, *rest = [reading.part(name, entries[name]) for name in names]
        method = method_in(reading.contents, names)
    except FolderError as error:
        what = f"{repository} at {revision} is no model that is a folder: {error.message}"
        raise HubError(what, error.hint) from error
    return HubFile(commit, first.file, first.sha256, first.size or 0, tuple(rest), method)


@dataclass
class _Reading:
    """One commit of a repository; ``contents`` are those of the files that tell whether it is a whole model."""

    hub: Hub
    repository: str
    commit: str
    contents: dict[str, bytes] = field(default_factory=dict)
    end: float = field(default_factory=lambda: time.monotonic() + WHOLE_DEADLINE_S)

    def part(self, name: str, entry: Mapping[str, Any]) -> ModelPart:
        """The file with its sha256, downloaded where only that tells it."""
        announced = part_of(name, entry, self.repository) if entry.get("lfs") else None
        is_needed_whole = is_read_whole(name)
        if announced and not is_needed_whole:
            return announced
        size = announced.size if announced else entry.get("size")
        content = self._content(name, size)
        downloaded = ModelPart(name, hashlib.sha256(content).hexdigest(), len(content))
        is_same = downloaded == announced if announced else _blob_id(content) == entry.get("blobId")
        if not is_same:
            hint = "Try again later; a proxy on the way may answer in the hub's place."
            raise HubError(f"what came as {name} of {self.repository} is not what the hub says it is", hint)
        if is_needed_whole:
            self.contents[name] = content
        return downloaded

    def _content(self, name: str, size: Any) -> bytes:
        known = _size_in(size)
        if known is None or known > SMALL_BYTES:
            what = "a size that the hub does not tell" if known is None else f"{known} bytes"
            raise HubError(f"{name} of {self.repository} has {what}, and {SMALL_BYTES // 10**6} MB are the most")
        url = self.hub.address(self.repository, self.commit, name)
        deadline_s = min(DEADLINE_S + known / _SLOWEST, self.end - time.monotonic())
        return asked(self.hub, url, self.repository, SMALL_BYTES + 1, max(deadline_s, 0.0))


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def revisions_of(hub: Hub, repository: str) -> list[str]:
    """The names of the branches and tags that are there; raises ``HubError``."""
    page = page_of(hub, repository, "refs")
    refs = [*_mappings_in(page.get("branches")), *_mappings_in(page.get("tags"))]
    return [str(ref.get("name"))[:MOST_OF_A_NAME] for ref in refs]


def there(hub: Hub, repository: str) -> str:
    """The branches and tags that are there, in words; nothing where the hub does not tell them."""
    try:
        names = revisions_of(hub, repository)
    except HubError:
        return ""
    return f"there: {listed(names)}" if names else ""
