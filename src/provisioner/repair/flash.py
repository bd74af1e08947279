"""What an image of a firmware chip is: its regions by the Intel flash descriptor, and whether it is worth keeping."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SIGNATURE = b"\x5a\xa5\xf0\x0f"
PLACES = (0x10, 0x0)
"""Where the signature is; the second in the oldest chipsets."""
NAMES = ("descriptor", "bios", "me", "gbe", "platform", "devexp", "bios2", "microcode", "ec", "devexp2", "ie", "10gbe0")
"""Regions by their number, as coreboot's ifdtool calls them."""
BLOCK = 0x1000


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the chip: its first byte and the one behind its last."""

    name: str
    start: int
    end: int


def regions(image: bytes) -> tuple[Region, ...]:
    """The regions in the order of their places; none where the image does not begin with an Intel flash descriptor."""
    for place in PLACES:
        if image[place : place + len(SIGNATURE)] == SIGNATURE:
            table = (_word(image, place + 4) >> 16 & 0xFF) << 4
            return tuple(sorted(_regions(image, table), key=lambda region: region.start))
    return ()


def why_not_an_image(image: bytes) -> str:
    """Why the bytes cannot be what is on a chip, or nothing."""
    if not image:
        return "it is empty"
    if image.count(image[:1]) == len(image):
        return f"every byte is 0x{image[0]:02x}, which is what a programmer reads when it reaches no chip"
    return ""


def _regions(image: bytes, table: int) -> Iterator[Region]:
    """The regions that are used, by the descriptor's table of their first and last blocks."""
    for number, name in enumerate(NAMES):
        word = _word(image, table + 4 * number)
        start, end = (word & 0x7FFF) * BLOCK, ((word >> 16 & 0x7FFF) + 1) * BLOCK
        if start < end <= len(image):  # an unused region begins behind its end
            yield Region(name, start, end)


def _word(image: bytes, place: int) -> int:
    return int.from_bytes(image[place : place + 4], "little")
