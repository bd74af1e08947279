"""What an encoder of images takes beside its weights, held against what llama.cpp said it allocates."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.loads.terms import MIB, image_buffer


def projector(**sizes: Any) -> dict[str, Any]:
    return {"clip.projector_type": sizes.pop("kind", "mlp")} | {
        f"clip.vision.{name}": one for name, one in sizes.items()
    }


@pytest.mark.parametrize(
    ("width", "inner", "said_mib"),
    [(256, 1024, 7.31), (128, 1024, 6.31), (512, 512, 10.31)],
)
def test_an_encoder_of_one_size_takes_at_most_that(width: int, inner: int, said_mib: float) -> None:
    """llama.cpp 0.5.0, image 448, patch 14, flash attention."""
    values = projector(image_size=448, patch_size=14, embedding_length=width, feed_forward_length=inner)
    found = image_buffer(values)
    assert found is not None
    assert said_mib - 0.02 <= found / MIB <= said_mib * 1.16


def test_an_encoder_of_any_size_is_counted_with_its_largest_image() -> None:
    values = projector(
        kind="qwen3vl_merger", image_size=768, patch_size=16, embedding_length=1024, feed_forward_length=4096
    )
    found = image_buffer(values | {"clip.vision.spatial_merge_size": 2})
    assert found == 16_384 * (4096 + 2 * 1024 + 3 * 256) * 4
    assert found * 8464 / 16_384 / MIB == pytest.approx(223.30, abs=0.2)  # as it said for 92 by 92 patches


def test_layers_that_hand_their_vectors_on_keep_them() -> None:
    values = projector(
        kind="qwen3vl_merger", image_size=768, patch_size=16, embedding_length=1024, feed_forward_length=4096
    )
    handing_on = [place in {5, 11, 17} for place in range(24)]
    found = image_buffer(values | {"clip.vision.spatial_merge_size": 2, "clip.vision.is_deepstack_layers": handing_on})
    assert found is not None
    assert found * 8464 / 16_384 / MIB == pytest.approx(322.49, abs=0.2)  # as it said for 92 by 92 patches
    assert image_buffer(values | {"clip.vision.is_deepstack_layers": "odd"}) == image_buffer(values)


@pytest.mark.parametrize(
    "values", [{}, projector(kind="pixtral", image_size=1024, patch_size=16), projector(patch_size=0)]
)
def test_what_does_not_tell_its_images_has_no_figure(values: dict[str, Any]) -> None:
    assert image_buffer(values) is None
