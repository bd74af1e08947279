"""The configuration (upstream's common/tabby_config.py): config.yml of the working directory, checked by the models.

Keys that the models do not know are ignored; a file that cannot be read means defaults; a wrong value ends the process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.config_models import SECTIONS
from loguru import logger
from ruamel.yaml import YAML

CACHE_STEP = 256


class Config(dict[str, dict[str, Any]]):
    """Sections with their values."""

    def load(self) -> None:
        """Read the file over the defaults."""
        given: dict[str, Any] = {}
        try:
            given = YAML(typ="safe").load(Path("config.yml").read_text(encoding="utf-8"))
        except OSError as error:
            logger.error(f"The YAML config couldn't load: {error}")
        for section, model in SECTIONS.items():
            fields = {name: getattr(model, name) for name in model.__annotations__}
            known = {name: value for name, value in given.get(section, {}).items() if name in fields}
            self[section] = fields | known
        if (self["model"]["cache_size"] or 0) % CACHE_STEP:
            raise ValueError("cache_size: Input should be a multiple of 256")


config = Config()
