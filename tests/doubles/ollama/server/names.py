"""Names of models: their parts, their defaults, and those that lead to the cloud."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.settings import Settings

DEFAULT_HOST = "registry.ollama.ai"
MISSING = "!MISSING!"
_PARTS = (
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}"),
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}"),
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
)


class Name(NamedTuple):
    """A model's full name (types/model/name.go)."""

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def valid(self) -> bool:
        """Whether each part has the letters and the length that upstream takes."""
        return all(pattern.fullmatch(part) for pattern, part in zip(_PARTS, self, strict=True))

    @property
    def full(self) -> str:
        """The name with its host, its namespace and its tag."""
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"

    @property
    def shortest(self) -> str:
        """The name as lists show it: always with its tag."""
        if self.host.lower() != DEFAULT_HOST:
            return self.full
        below = "" if self.namespace.lower() == "library" else f"{self.namespace}/"
        return f"{below}{self.model}:{self.tag}"


def _cut(text: str, separator: str) -> tuple[str, str, bool]:
    before, found, after = text.rpartition(separator)
    return (before or MISSING, after or MISSING, True) if found else ("", text, False)


def parse_name(text: str) -> Name:
    """The parts of a name, with upstream's defaults; whether it is one is for ``valid`` to say."""
    tag = "latest"
    if text.rfind(":") > text.rfind("/"):
        text, tag, _ = _cut(text, ":")
    rest, model, more = _cut(text, "/")
    if not more:
        return Name(DEFAULT_HOST, "library", model, tag)
    rest, namespace, more = _cut(rest, "/")
    host = rest.rpartition("://")[2] if more else DEFAULT_HOST
    return Name(host, namespace, model, tag)


def asked_name(raw: str, settings: Settings, unnamed: Refused) -> Name:
    """The name that a request asks for; one of the cloud is refused here, where upstream sends the prompt off."""
    text = raw.strip()
    if not text:
        raise unnamed
    base, _, suffix = text.rpartition(":")
    low = suffix.lower()
    # internal/modelref/modelref.go: a request for NAME:cloud leaves the machine unless OLLAMA_NO_CLOUD is set.
    if base and (low == "cloud" or (low.endswith("-cloud") and "/" not in low)):
        if settings.no_cloud:
            raise Refused(403, "ollama cloud is disabled: remote model is unavailable")
        raise Refused(502, "the stand-in never reaches ollama.com")
    name = parse_name(base if base and low == "local" else text)
    if not name.valid:
        raise Refused(400, "invalid model name")
    return name
