"""Pictures as the proof needs them: Xvfb's framebuffer and PNG in, PNG out, colours counted; nothing but Python."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

Colour = tuple[int, int, int]
XWD_HEADER = struct.Struct(">25I")
COLOUR_ENTRY = 12
SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Samples of a pixel by PNG's colour type."""


@dataclass(frozen=True)
class Picture:
    """Pixels of four bytes (blue, green, red, 0), row after row from the top."""

    width: int
    height: int
    pixels: bytes

    def rows(self, first: int, last: int) -> Picture:
        """The rows from ``first`` to before ``last``; negative numbers count from the bottom, 0 as ``last`` is it."""
        begin, end = first % self.height, last if last > 0 else self.height + last
        return Picture(self.width, end - begin, self.pixels[begin * self.width * 4 : end * self.width * 4])

    def numbers(self) -> memoryview:
        """Each pixel as one number."""
        return memoryview(self.pixels).cast("I")

    def colours(self) -> Counter[Colour]:
        """How often each colour is there."""
        counted = Counter(self.numbers().tolist())
        return Counter({colour_of(number): count for number, count in counted.items()})


def colour_of(number: int) -> Colour:
    """Red, green and blue of a pixel's number."""
    blue, green, red, _ = struct.pack("=I", number)
    return red, green, blue


def number_of(colour: Colour) -> int:
    """The pixel's number."""
    red, green, blue = colour
    number: int = struct.unpack("=I", bytes((blue, green, red, 0)))[0]
    return number


def read_framebuffer(file: Path) -> Picture:
    """The screen that ``Xvfb -fbdir`` keeps as an XWD file. Raises ``ValueError`` for another depth than 24."""
    content = file.read_bytes()
    header = XWD_HEADER.unpack_from(content)
    size, width, height, bits, line, colours = header[0], header[4], header[5], header[11], header[12], header[19]
    if bits != 32:
        raise ValueError(f"{file} has {bits} bits a pixel, expected are 32")
    begin = size + colours * COLOUR_ENTRY
    rows = (content[begin + row * line : begin + row * line + width * 4] for row in range(height))
    pixels = bytearray(b"".join(rows))
    pixels[3::4] = bytes(width * height)
    return Picture(width, height, bytes(pixels))


def write_png(picture: Picture, file: Path) -> None:
    """Write it, of three bytes a pixel."""
    samples = bytearray(picture.width * picture.height * 3)
    for place, channel in enumerate((2, 1, 0)):
        samples[place::3] = picture.pixels[channel::4]
    line = picture.width * 3
    lines = b"".join(b"\0" + samples[row * line : (row + 1) * line] for row in range(picture.height))
    head = struct.pack(">IIBBBBB", picture.width, picture.height, 8, 2, 0, 0, 0)
    file.write_bytes(
        SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def read_png(file: Path) -> Picture:
    """The picture of a PNG with up to 8 bits a sample that is not interlaced; ``ValueError`` for any other."""
    chunks = _chunks(file.read_bytes())
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    if depth > 8 or interlaced or kind not in CHANNELS:
        raise ValueError(f"{file} is a PNG of a kind that is not read")
    channels = CHANNELS[kind]
    line = (width * channels * depth + 7) // 8
    rows = _unfiltered(zlib.decompress(chunks[b"IDAT"]), line, max(1, channels * depth // 8))
    if depth < 8:
        rows = [_spread(row, depth, width, scale=kind == 0) for row in rows]
    samples = b"".join(rows)
    if kind == 3:
        table = chunks[b"PLTE"].ljust(768, b"\0")
        planes = [samples.translate(table[channel::3][:256]) for channel in range(3)]
    else:
        planes = [samples[min(channel, channels - 1) if channels > 2 else 0 :: channels] for channel in range(3)]
    pixels = bytearray(width * height * 4)
    for place, plane in zip((2, 1, 0), planes, strict=True):
        pixels[place::4] = plane
    return Picture(width, height, bytes(pixels))


def _chunks(content: bytes) -> dict[bytes, bytes]:
    if not content.startswith(SIGNATURE):
        raise ValueError("it is no PNG")
    found: dict[bytes, bytes] = {}
    place = len(SIGNATURE)
    while place < len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        found[kind] = found.get(kind, b"") + content[place + 8 : place + 8 + length]
        place += length + 12
    return found


def _unfiltered(data: bytes, line: int, step: int) -> list[bytes]:
    rows: list[bytes] = []
    before = bytes(line)
    for place in range(0, len(data), line + 1):
        row = bytearray(data[place + 1 : place + 1 + line])
        _unfilter(data[place], row, before, step)
        before = bytes(row)
        rows.append(before)
    return rows


def _unfilter(method: int, row: bytearray, above: bytes, step: int) -> None:
    if method == 1:
        for at in range(step, len(row)):
            row[at] = (row[at] + row[at - step]) & 255
    elif method == 2:
        row[:] = bytes((one + other) & 255 for one, other in zip(row, above, strict=True))
    elif method == 3:
        for at, up in enumerate(above):
            row[at] = (row[at] + ((row[at - step] if at >= step else 0) + up) // 2) & 255
    elif method == 4:
        for at, up in enumerate(above):
            left, corner = (row[at - step], above[at - step]) if at >= step else (0, 0)
            row[at] = (row[at] + _paeth(left, up, corner)) & 255


def _paeth(left: int, up: int, corner: int) -> int:
    by_left, by_up, by_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if by_left <= by_up and by_left <= by_corner:
        return left
    return up if by_up <= by_corner else corner


def _spread(row: bytes, depth: int, width: int, *, scale: bool) -> bytes:
    """One byte for each sample of fewer bits."""
    most = (1 << depth) - 1
    samples = (byte >> shift & most for byte in row for shift in range(8 - depth, -1, -depth))
    factor = 255 // most if scale else 1
    return bytes(sample * factor for _, sample in zip(range(width), samples, strict=False))
