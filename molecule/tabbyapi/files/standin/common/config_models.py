"""The keys of config.yml, by section (upstream's common/config_models.py has many more)."""

from __future__ import annotations


class NetworkConfig:
    """Where it listens."""

    host: str | None = "127.0.0.1"
    port: int | None = 5000


class ModelConfig:
    """What is loaded."""

    model_dir: str = "models"
    model_name: str | None = None
    backend: str | None = None
    max_seq_len: int | None = None
    cache_size: int | None = None
    cache_mode: str | None = "FP16"
    chunk_size: int | None = 2048
    cpu_moe_offload_layers: int | None = 0
    max_batch_size: int | None = None


class DraftModelConfig:
    """What drafts."""

    draft_model_dir: str | None = "models"
    draft_model_name: str | None = None
    draft_mode: str | None = "model"
    ngram_match_min: int | None = 2


class MemoryConfig:
    """Memory of the host."""

    sysmem_recurrent_cache: int | None = 4096


class TabbyConfigModel:
    """All sections."""

    network: NetworkConfig | None = None
    model: ModelConfig | None = None
    draft_model: DraftModelConfig | None = None
    memory: MemoryConfig | None = None


SECTIONS = {"network": NetworkConfig, "model": ModelConfig, "draft_model": DraftModelConfig, "memory": MemoryConfig}
