"""What the environment says, by upstream's names."""

from __future__ import annotations

import torch
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """A variable of the same name in capitals sets each."""

    model_config = SettingsConfigDict(env_file=".env", extra="ignore")

    default_voice: str = "af_heart"
    use_gpu: bool = True
    device_type: str | None = None
    model_dir: str = "/app/api/src/models"
    voices_dir: str = "/app/api/src/voices/v1_0"
    model_repo_id: str = "hexgrad/Kokoro-82M"
    absolute_max_tokens: int = 450
    enable_web_player: bool = True
    web_player_path: str = "web"
    cors_enabled: bool = True
    cors_origins: list[str] = ["*"]
    temp_file_dir: str = "api/temp_files"

    def get_device(self) -> str:
        """Where it computes."""
        if not self.use_gpu:
            return "cpu"
        return self.device_type or ("cuda" if torch.cuda.is_available() else "cpu")


settings = Settings()
