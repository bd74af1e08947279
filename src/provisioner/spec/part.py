"""What every part of the file's models is: frozen, strict, closed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A mapping of the file; keys that it does not know are refused."""

    # Strict: YAML has types, and "1" for 1 is a mistake that Ansible would carry into a template.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        arbitrary_types_allowed=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        defer_build=True,  # most parts are only ever validated as part of the whole: halves the cost of these modules
    )
