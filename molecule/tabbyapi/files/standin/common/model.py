"""The loaded model (upstream's common/model.py); none until it is loaded, and none where no name is given."""

from __future__ import annotations

from pathlib import Path

from backends.exllamav3.model import ExllamaV3Container
from common.tabby_config import config

loaded: dict[str, ExllamaV3Container] = {}


def load_model() -> None:
    """Load what the configuration names."""
    folder = Path(config["model"]["model_dir"], config["model"]["model_name"])
    loaded["model"] = ExllamaV3Container(folder)
