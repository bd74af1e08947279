"""As much of ruamel.yaml as tabbyAPI uses, by Debian's PyYAML."""

from __future__ import annotations

from typing import Any

import yaml


class YAML:
    """Reads."""

    def __init__(self, typ: str) -> None:
        self.typ = typ

    def load(self, text: str) -> Any:
        """What the text holds."""
        return yaml.safe_load(text)
