"""Names of models in a registry, such as ``qwen3:0.6b`` or ``hf.co/ORG/REPO:Q4_K_M``, taken apart. Pure.

What is left out of a name, and which letters its parts may have, is that of Ollama (``types/model/name.go`` of August
2026): its server is the one that asks for the model in the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HOST, NAMESPACE, TAG = "registry.ollama.ai", "library", "latest"
"""What a name means that does not say it."""
_PARTS = re.compile(
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349})/(?P<namespace>[A-Za-z0-9_][A-Za-z0-9_-]{0,79})"
    r"/(?P<model>[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}):(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,79})",
    re.ASCII,
)
_MOST_PARTS = 3


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model in a registry, with everything that its name leaves out."""

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def manifest(self) -> str:
        """The address of its manifest, which lists what it is made of."""
        return f"{self._place}/manifests/{self.tag}"

    def blob(self, digest: str) -> str:
        """The address of one of its files; ``digest`` begins with ``sha256:``."""
        return f"{self._place}/blobs/{digest}"

    @property
    def _place(self) -> str:
        return f"https://{self.host}/v2/{self.namespace}/{self.model}"


def model_name(text: str) -> ModelName | None:
    """The name, taken apart; None where no registry calls a model so."""
    place, slash, last = text.rpartition("/")
    name, colon, tag = last.partition(":")
    parts = [*place.split("/"), name] if slash else [name]
    if len(parts) > _MOST_PARTS:
        return None
    left_out = [HOST, NAMESPACE][: _MOST_PARTS - len(parts)]
    whole = "/".join([*left_out, *parts]) + ":" + (tag if colon else TAG)
    found = _PARTS.fullmatch(whole)
    return ModelName(**found.groupdict()) if found else None
