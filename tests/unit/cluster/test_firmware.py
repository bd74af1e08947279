"""Images of firmware chips: regions by the descriptor, and what cannot be an image."""

from __future__ import annotations

import pytest

from provisioner.cluster.firmware import Region, regions, why_not_an_image

SIZE = 0x800000


def image(place: int = 0x10, entries: tuple[int, ...] = (0x00000000, 0x07FF0500, 0x04FF0003, 0x00020001)) -> bytes:
    """8 MiB with a descriptor whose region table is at 0x40: descriptor, bios, me, gbe, then unused ones."""
    unused = 0x00007FFF
    data = bytearray(b"\xff" * SIZE)
    data[place : place + 4] = b"\x5a\xa5\xf0\x0f"
    data[place + 4 : place + 8] = (0x00040003).to_bytes(4, "little")
    words = [*entries, *[unused] * (12 - len(entries))]
    for number, word in enumerate(words):
        data[0x40 + 4 * number : 0x44 + 4 * number] = word.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("place", [0x10, 0x0])
def test_the_regions_stand_in_the_order_of_their_places(place: int) -> None:
    assert regions(image(place)) == (
        Region("descriptor", 0x0, 0x1000),
        Region("gbe", 0x1000, 0x3000),
        Region("me", 0x3000, 0x500000),
        Region("bios", 0x500000, 0x800000),
    )


def test_a_region_behind_the_end_of_the_image_is_none() -> None:
    assert regions(image(entries=(0x00000000, 0x0FFF0500))) == (Region("descriptor", 0x0, 0x1000),)


@pytest.mark.parametrize("data", [b"", b"\x5a\xa5", b"\x00" * SIZE, b"x" * SIZE, image()[:0x18]])
def test_without_a_descriptor_there_are_no_regions(data: bytes) -> None:
    assert regions(data) == ()


@pytest.mark.parametrize(
    ("data", "why"), [(b"", "it is empty"), (b"\xff" * 64, "every byte is 0xff"), (b"\x00" * 64, "every byte is 0x00")]
)
def test_what_a_dead_programmer_reads_is_no_image(data: bytes, why: str) -> None:
    assert why in why_not_an_image(data)


def test_anything_else_may_be_one() -> None:
    assert why_not_an_image(image()) == ""
