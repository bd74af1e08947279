"""What vLLM itself says that a model needs, told by a venv that has it for the processor.

Run by that venv's Python: ``python vllm_sums.py`` reads a list of questions as JSON (``config``: a config.json;
``tokens``: of one request; ``options``: more arguments of the engine; ``concurrent``: batches at the same time), and
writes a line of JSON for each: ``needed`` and ``block`` in bytes, by vLLM's own sum for one request and for the block
that it never gives away; ``kinds``: class, layers, blocks and tokens of a block, of each of its groups; ``weights`` in
bytes, that its worker holds, and which of them ``quantization: fp8`` would halve (``halved``); and where
``files`` is asked for, the bytes of the same model as transformers writes it.

The weights have whatever numbers lie in memory, as nothing is computed with them; kernels are not registered, which
fails beside numba, by which n-grams draft. Two things are stand-ins: torchvision, which is imported with models that
take images, and what the processor says of bfloat16 and of AMX, by which vLLM decides about the numbers of states and
of weights on a processor alone.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

QUIET = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
IMAGES = ("", ".io", ".ops", ".transforms", ".transforms.functional", ".transforms.v2", ".transforms.v2.functional")


def stand_in() -> None:
    """Have vLLM look at its models in this process, and give it what is not there."""
    os.environ.update(QUIET)
    torch: Any = importlib.import_module("torch")
    torch.cpu._is_avx512_bf16_supported = torch.cpu._is_amx_tile_supported = lambda: False
    importlib.import_module("transformers")
    for part in IMAGES:
        sys.modules[f"torchvision{part}"] = mock.MagicMock(name=f"torchvision{part}")
    registry: Any = importlib.import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = lambda look: look()
    loader: Any = importlib.import_module("vllm.model_executor.model_loader.dummy_loader")
    loader.initialize_single_dummy_weight = lambda tensor: tensor
    operations: Any = importlib.import_module("vllm._custom_ops")
    operations._supports_onednn = False  # it takes over weights, which are then no parameters of the model
    cpu: Any = importlib.import_module("vllm.platforms.cpu")
    cpu.CpuPlatform.register_triton_kernel_overrides = lambda _self: None


def started(folder: Path, question: dict[str, Any]) -> tuple[Any, Any]:
    """Its settings and its executor, which has loaded the model and made no cache."""
    engines = importlib.import_module("vllm.engine.arg_utils")
    usage = importlib.import_module("vllm.usage.usage_lib")
    executors = importlib.import_module("vllm.v1.executor.uniproc_executor")
    managers = importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
    settings = {
        "model": str(folder),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "language_model_only": True,
        "max_model_len": question["tokens"],
        "max_num_seqs": 16,
        "enforce_eager": True,
        "kv_cache_memory_bytes": 2**28,
        "distributed_executor_backend": "uni",
        **question.get("options", {}),
    }
    engine = engines.EngineArgs(**settings)
    config = engine.create_engine_config(usage_context=usage.UsageContext.OPENAI_API_SERVER)
    managers.register_all_kvcache_specs(config)
    return config, executors.UniProcExecutor(config)


def held(executor: Any) -> int:
    """Bytes of all parameters and buffers of the model, each once."""
    model = executor.driver_worker.worker.model_runner.model
    sizes: dict[int, int] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def halved(executor: Any) -> int:
    """Bytes of the weights of those layers that vLLM quantises while it loads them."""
    linear = importlib.import_module("vllm.model_executor.layers.linear")
    total = 0
    for module in executor.driver_worker.worker.model_runner.model.modules():
        if isinstance(module, linear.LinearBase) or type(module).__name__ == "RoutedExperts":
            for name, tensor in module.named_parameters(recurse=False):
                total += tensor.nbytes if name.endswith("weight") else 0
    return total


def written(folder: Path) -> int:
    """Bytes of the tensors that transformers writes of that model, of two bytes a number."""
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        kind = transformers.AutoModelForImageTextToText if hasattr(config, "vision_config") else None
        model = (kind or transformers.AutoModelForCausalLM).from_config(config)
    numbers = sum(tensor.numel() for tensor in model.parameters())
    return 2 * int(numbers)


def summed(config: Any, specs: dict[str, Any], concurrent: int) -> dict[str, Any]:
    """The sum of vLLM's own code for one request."""
    caches = importlib.import_module("vllm.v1.core.kv_cache_utils")
    with mock.patch.object(type(config), "max_concurrent_batches", mock.PropertyMock(return_value=concurrent)):
        groups = caches.get_kv_cache_groups(config, dict(specs))
        kinds = []
        for group in groups:
            spec = group.kv_cache_spec
            blocks = -(-spec.max_memory_usage_bytes(config) // spec.page_size_bytes)
            kinds.append([type(spec).__name__, len(group.layer_names), blocks, spec.block_size])
        needed = caches._max_memory_usage_bytes_from_groups(config, groups)
        return {"needed": needed, "block": caches._pool_bytes_per_block(config, groups), "kinds": kinds}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What vLLM says to one question."""
    layouts = importlib.import_module("vllm.v1.attention.backends.utils")
    with tempfile.TemporaryDirectory() as made:
        Path(made, "config.json").write_text(json.dumps(question["config"]), encoding="utf-8")
        config, executor = started(Path(made), question)
        (specs,) = executor.get_kv_cache_specs()
        layouts.resolve_kv_cache_layout(config, executor.get_supported_kv_cache_layouts(), list(specs.values()))
        sizes = {"weights": held(executor), "halved": halved(executor)}
        if question.get("files"):
            sizes["files"] = written(Path(made))
        return {**summed(config, specs, question.get("concurrent", 1)), **sizes}


def answered(question: dict[str, Any]) -> dict[str, Any]:
    """What vLLM says to one question; nothing of it is left for the next."""
    parallel = importlib.import_module("vllm.distributed.parallel_state")
    try:
        return answer(question)
    finally:
        parallel.cleanup_dist_env_and_memory()


if __name__ == "__main__":
    stand_in()
    for asked in json.load(sys.stdin):
        sys.stdout.write("\n" + json.dumps(answered(asked)) + "\n")
        sys.stdout.flush()
