"""Sizes: one form in, the shortest exact form out."""

from __future__ import annotations

import pytest

from provisioner.values.quantities import LARGEST, SizeError, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [("1KiB", 1024), ("512MiB", 2**29), ("16GiB", 2**34), ("1TiB", 2**40), ("1.5GiB", 3 * 2**29), ("0.5KiB", 512)],
)
def test_a_size_is_its_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "form"), [("16 GB", "16GiB"), ("16g", "16GiB"), (" 4 mib ", "4MiB"), ("2T", "2TiB"), ("1GiB\n", "1GiB")]
)
def test_an_almost_right_size_is_told_its_right_form(text: str, form: str) -> None:
    with pytest.raises(SizeError) as caught:
        parse_size(text)
    assert f'"{form}"' in caught.value.hint


@pytest.mark.parametrize("text", ["", "16", "GiB", "-1GiB", "+1GiB", "1,5GiB", "1e3GiB", "0GiB", "\u0661GiB"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SizeError) as caught:
        parse_size(text)
    assert "16GiB" in caught.value.hint


def test_no_size_is_larger_than_a_host_could_count() -> None:
    assert parse_size("8388607TiB") <= LARGEST
    with pytest.raises(SizeError):
        parse_size("8388608TiB")


@pytest.mark.parametrize("text", ["1KiB", "1536MiB", "16GiB", "3TiB"])
def test_the_text_of_a_size_is_the_size_again(text: str) -> None:
    assert size_text(parse_size(text)) == text


def test_a_size_of_no_unit_is_written_in_digits() -> None:
    assert size_text(1000) == "1000"
    assert size_text(0) == "0"
