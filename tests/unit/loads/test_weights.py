"""Weights where no GGUF file tells them: by name, and by safetensors."""

from __future__ import annotations

import json
import struct

import pytest

from provisioner.loads.weighing import WeightsError, estimated_by_name, estimated_bytes, index_bytes, safetensors_bytes


@pytest.mark.parametrize(
    ("kind", "size"), [("Q4_K_M", 5_670_000_000), ("Q5_K_M", 6_480_000_000), ("F16", 18_000_000_000)]
)
def test_nine_billion_weights(kind: str, size: int) -> None:
    assert estimated_bytes(9e9, kind) == estimated_bytes(9e9, kind.lower()) == size


def test_a_quantisation_that_is_not_known_gives_no_figure() -> None:
    assert estimated_bytes(9e9, "Q9_X") is None


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("hf:unsloth/Qwen3.5-9B-GGUF:Q5_K_M", (6_480_000_000, "9B weights of 0.72 B (Q5_K_M)")),
        ("hf:a/Qwen3-0.6B-GGUF:Q8_0", (636_000_000, "0.6B weights of 1.06 B (Q8_0)")),
        ("https://a.example/Qwen3-30B-A3B-Q4_K_M.gguf", (18_900_000_000, "30B weights of 0.63 B (Q4_K_M)")),
        ("hf:a/model-7b:bf16", (14_000_000_000, "7B weights of 2.0 B (BF16)")),
        ("hf:a/large-GGUF:Q5_K_M", None),
        ("hf:a/Qwen3-9B:IQ1_S", None),
    ],
)
def test_a_name_tells_weights_and_quantisation(source: str, found: tuple[int, str] | None) -> None:
    assert estimated_by_name(source) == found


def test_an_index_of_safetensors_tells_all_files_together() -> None:
    assert index_bytes('{"metadata": {"total_size": 18037129728}, "weight_map": {}}') == 18_037_129_728


def test_the_head_of_a_safetensors_file_tells_where_its_tensors_end() -> None:
    tensors = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
    }
    text = json.dumps(tensors).encode()
    assert safetensors_bytes(struct.pack("<Q", len(text)) + text + b"rest") == 16


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "it ends after 0 bytes"),
        (struct.pack("<Q", 2**62), f"its head would have {2**62} bytes"),
        (struct.pack("<Q", 0), "its head would have 0 bytes"),
        (struct.pack("<Q", 9) + b"{}", "it ends after 10 bytes, its head after 17"),
        (struct.pack("<Q", 2) + b"{x", "it is no JSON"),
        (struct.pack("<Q", 2) + b"\xff\xff", "it is no JSON"),
        (struct.pack("<Q", 2) + b"[]", "it is no JSON object"),
        (struct.pack("<Q", 8) + b'{"a": 1}', "does not say where it lies"),
        (struct.pack("<Q", 26) + b'{"a":{"data_offsets":[1]}}', "does not say where it lies"),
    ],
)
def test_what_is_no_safetensors_file_is_told_in_words(head: bytes, words: str) -> None:
    with pytest.raises(WeightsError) as caught:
        safetensors_bytes(head)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"metadata": 1}', '{"metadata": {"total_size": "a"}}', '{"metadata": {"total_size": 0}}']
)
def test_what_is_no_index_is_told_in_words(text: str) -> None:
    with pytest.raises(WeightsError):
        index_bytes(text)
