"""The files of a small model that is a folder, as tests want them on a disk and in a hub."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG = "config.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"

SERVICE = """\
title: tabbyAPI
stage: engine
unit: tabbyapi.service
port: 5000
health: /health
protocol: openai
references:
  model: {kind: model, formats: [exl3, exl2], name_to: alias}
internal: [alias]
stampable: true
"""
OPTIONS = """\
argument_specs:
  main:
    options:
      tabbyapi_model: {type: path, required: true, description: The model to serve.}
      tabbyapi_alias: {type: str, required: true, description: Name of the model.}
      tabbyapi_max_seq_len: {type: int, default: -1, description: Tokens of a sequence.}
      tabbyapi_cpu_moe_offload_layers: {type: int, default: 0, description: Layers whose experts are elsewhere.}
      tabbyapi_sysmem_kv_cache: {type: int, default: 0, description: MiB.}
      tabbyapi_sysmem_recurrent_cache: {type: int, default: 4096, description: MiB.}
"""


def config(method: str | None) -> bytes:
    """A config.json that names the method; None: it has no quantisation."""
    quantised = {"quantization_config": {"quant_method": method, "bits": 4.0}} if method else {}
    return json.dumps({"architectures": ["Qwen3ForCausalLM"], **quantised}).encode()


def index_of(*shards: str) -> bytes:
    """An index whose tensors lie in these files."""
    return json.dumps({"metadata": {"total_size": 6}, "weight_map": {f"t{one}": one for one in shards}}).encode()


def folder_files(method: str | None = "exl3") -> dict[str, bytes]:
    """By their names: what is needed, and beside it what is never taken."""
    needed = {
        CONFIG: config(method),
        "chat_template.jinja": b"{{ messages }}",
        INDEX: index_of(*SHARDS),
        **{name: name.encode() * 3 for name in SHARDS},
        "tokenizer.json": b'{"model": {}}',
        "tokenizer_config.json": b"{}",
    }
    left = (".gitattributes", "README.md", "pytorch_model.bin", "tokenizer.pt", "logo.png", "small-Q4_K_M.gguf")
    return needed | dict.fromkeys((*left, "modeling_small.py"), b"left")


def taken(files: Mapping[str, bytes]) -> list[str]:
    """The names of those that are needed, in the order in which they are stored."""
    return sorted((name for name, content in files.items() if content != b"left"), key=lambda one: (one != CONFIG, one))


def write_folder(folder: Path, files: Mapping[str, bytes]) -> Path:
    """The folder with these files in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def sibling_of(name: str, content: bytes) -> dict[str, Any]:
    """A file as the hub tells it: weights and vocabularies lie in LFS, what is small has git's id only."""
    entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob_id(content)}
    if name.endswith((".safetensors", "tokenizer.json", ".bin", ".gguf")):
        digest = hashlib.sha256(content).hexdigest()
        return {**entry, "blobId": "b" * 40, "lfs": {"sha256": digest, "size": len(content), "pointerSize": 135}}
    return entry


def blob_id(content: bytes) -> str:
    """Git's id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324  # git's own


def write_catalog(roles: Path) -> Path:
    """The tests' roles and one, tabbyapi, whose engine reads folders."""
    shutil.copytree(Path(__file__).parent / "unit" / "fixtures" / "catalog", roles)
    meta = roles / "tabbyapi" / "meta"
    meta.mkdir(parents=True)
    (meta / "service.yml").write_text(SERVICE)
    (meta / "argument_specs.yml").write_text(OPTIONS)
    shutil.copy(roles / "llama_cpp" / "meta" / "managed.yml", meta)
    return roles
