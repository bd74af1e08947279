"""One model in three sizes, for labs that are measured: some 80 million weights, which were drawn.

It says nothing sensible, and computes what a model of that shape computes: nobody has to download anything for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from provisioner.measuring.endpoints import WORDS
from provisioner.models.tiny import SPACE, vocabulary

WIDTH, LAYERS, HEADS, KEY_HEADS, INNER = 576, 12, 9, 9, 1536
CONTEXT, TOKENS = 32_768, 49_152
SEED = 24
SPREAD_OF_TOKENS = 0.08
"""With it some tokens are far more probable than others, as in a model that has learned something."""
KINDS: Mapping[str, gguf.GGMLQuantizationType] = {
    "F16": gguf.GGMLQuantizationType.F16,
    "Q8_0": gguf.GGMLQuantizationType.Q8_0,
    "Q4_0": gguf.GGMLQuantizationType.Q4_0,
}
"""By how the weights are kept: the whole one, and two quants of the same."""
FILE_TYPES: Mapping[str, gguf.LlamaFileType] = {
    "F16": gguf.LlamaFileType.MOSTLY_F16,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
}
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A tensor by its name and shape, rows first; a norm has one row of ones."""

    name: str
    shape: tuple[int, ...]

    def drawn(self, source: np.random.Generator) -> np.ndarray:
        """Its weights: so large that what goes in is about as large as what comes out."""
        if len(self.shape) == 1:
            return np.ones(self.shape, np.float32)
        spread = SPREAD_OF_TOKENS if self.name.startswith("token_embd") else self.shape[1] ** -0.5
        return (source.standard_normal(self.shape) * spread).astype(np.float32)


def write_models(folder: Path) -> dict[str, Path]:
    """Write ``small-F16.gguf`` and its quants, the same bytes each time; the files by their kind."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name in KINDS:
        files[name] = folder / f"small-{name}.gguf"
        _write(files[name], name)
    return files


def _write(file: Path, kind: str) -> None:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("Small")
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(TOKENS)
    _add_tokenizer(writer)
    source = np.random.default_rng(SEED)
    for matrix in _matrices():
        weights = matrix.drawn(source)
        stored = KINDS[kind] if len(matrix.shape) > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(matrix.name, gguf.quantize(weights, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokens = vocabulary([f"{SPACE}{word}" for word in WORDS])
    unused = [(f"<unused{place}>", -float(place), 1) for place in range(TOKENS - len(tokens))]
    whole = [*tokens, *unused]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _, _ in whole])
    writer.add_token_scores([score for _, score, _ in whole])
    writer.add_token_types([kind for _, _, kind in whole])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)


def _matrices() -> Iterator[Matrix]:
    yield Matrix("token_embd.weight", (TOKENS, WIDTH))
    yield Matrix("output_norm.weight", (WIDTH,))
    keys = WIDTH // HEADS * KEY_HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (WIDTH,),
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (keys, WIDTH),
        "attn_v": (keys, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_norm": (WIDTH,),
        "ffn_gate": (INNER, WIDTH),
        "ffn_up": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
    }
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            yield Matrix(f"blk.{layer}.{name}.weight", shape)
