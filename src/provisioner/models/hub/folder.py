"""A repository's branch, tag or commit as a folder: the files of one model, each with its sha256.

What is large lies in LFS, and the hub tells its sha256. Of what is small it only tells git's id (``blobId``, the sha1
of "blob SIZE", a zero byte and the content): that is downloaded, held against the id, and hashed here.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.models.folders import SMALL_BYTES, FolderError, is_read_whole, method_in, selected
from provisioner.models.hub import (
    DEADLINE_S,
    SLOWEST,
    Hub,
    HubError,
    HubFile,
    MissingRevisionError,
    asked,
    files_of,
    listed,
    mappings_in,
    page_of,
    part_of,
    size_in,
)
from provisioner.models.sources import ModelPart

WHOLE_DEADLINE_S = 600.0
"""For all small files of a folder together."""
MOST_OF_A_NAME = 100


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
        known = size_in(size)
        if known is None or known > SMALL_BYTES:
            what = "a size that the hub does not tell" if known is None else f"{known} bytes"
            raise HubError(f"{name} of {self.repository} has {what}, and {SMALL_BYTES // 10**6} MB are the most")
        url = self.hub.address(self.repository, self.commit, name)
        deadline_s = min(DEADLINE_S + known / SLOWEST, self.end - time.monotonic())
        return asked(self.hub, url, self.repository, SMALL_BYTES + 1, max(deadline_s, 0.0))


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def revisions_of(hub: Hub, repository: str) -> list[str]:
    """The names of the branches and tags that are there; raises ``HubError``."""
    page = page_of(hub, repository, "refs")
    refs = [*mappings_in(page.get("branches")), *mappings_in(page.get("tags"))]
    return [str(ref.get("name"))[:MOST_OF_A_NAME] for ref in refs]


def there(hub: Hub, repository: str) -> str:
    """The branches and tags that are there, in words; nothing where the hub does not tell them."""
    try:
        names = revisions_of(hub, repository)
    except HubError:
        return ""
    return f"there: {listed(names)}" if names else ""
