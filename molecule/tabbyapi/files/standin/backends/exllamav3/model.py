"""The model and its generator (upstream's backends/exllamav3/model.py)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from common.tabby_config import config
from exllamav3 import AsyncGenerator, Cache
from loguru import logger


class ExllamaV3Container:
    """A model that is loaded when this is made."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.cache = Cache(config["model"]["cache_size"] or about["max_position_embeddings"])
        time.sleep(about["load_s"])
        self.cache.fit(about["room"])
        self.generator = self.create_generator()
        logger.info("Model successfully loaded.")

    def create_generator(self) -> Any:
        """The one call that matters to who asks for n-grams."""
        draft = config["draft_model"]
        match_min = draft["ngram_match_min"] if draft["draft_mode"] == "ngram" else 0
        return AsyncGenerator(
            cache=self.cache,
            draft_model=None,
            num_draft_tokens=None,
            ngram_match_min=match_min,
        )
