"""The model and its pipelines, one for each language."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import torch
from api.src.core.config import settings
from kokoro import KModel, KPipeline


class KokoroV1:
    """Upstream's backend, as far as the role has to do with it."""

    def __init__(self) -> None:
        self._device = settings.get_device()
        self._model: KModel | None = None
        self._pipelines: dict[str, KPipeline] = {}

    def load_model(self, path: Path) -> None:
        """Load the weights and what describes them beside them."""
        real = path.resolve(strict=True)
        model = KModel(repo_id=settings.model_repo_id, config=str(real.parent / "config.json"), model=str(real))
        self._model = model.eval().to(torch.device(self._device))

    def _get_pipeline(self, code: str) -> KPipeline:
        if code not in self._pipelines:
            made = KPipeline(lang_code=code, repo_id=settings.model_repo_id, model=self._model, device=self._device)
            self._pipelines[code] = made
        return self._pipelines[code]

    async def generate(self, text: str, _name: str, voice_path: str, speed: float) -> AsyncIterator[np.ndarray]:
        """The audio of each part that the pipeline makes of the text."""
        self._get_pipeline("a")
        for result in self._pipelines["a"](text, voice=voice_path, speed=speed, model=self._model):
            if result.audio is not None:
                yield result.audio.numpy()
