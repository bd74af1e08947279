"""Pieces of SVG: text, rectangles, and the colours of light and dark pages."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from provisioner.report.style import safe_line

LETTER = 8.0
"""The width of a letter at the most, in any font that a reader may have."""
LONGEST = 34
"""So many letters of a text are shown."""
STYLE = """
svg { font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.page { fill: #ffffff } .frame { fill: #f6f8fa; stroke: #d0d7de }
.ground { fill: #f6f8fa } .away { stroke-dasharray: 5 4 }
.box { fill: #ffffff; stroke: #afb8c1 } .card { fill: #f6f8fa; stroke: #d0d7de }
text { fill: #1f2328; font-size: 13px } .title { font-size: 20px; font-weight: 600 } .strong { font-weight: 600 }
.quiet { fill: #59636e; font-size: 12px } .small { font-size: 11px }
.engine { fill: #1a7f37 } .gateway { fill: #8250df } .app { fill: #0969da } .model { fill: #6e7781 }
.upstream { fill: #bf8700 } .lan { fill: #cf222e } .pill { fill: #cf222e } .on { fill: #ffffff; font-weight: 600 }
.line { fill: none; stroke: #6e7781; stroke-width: 1.6 } .head { fill: #6e7781 } .fallback { stroke-dasharray: 6 4 }
.rank { fill: #ffffff; stroke-width: 1.2 }
.c0 .line, .c0 .rank { stroke: #0969da } .c0 .head, .c0 .dot { fill: #0969da }
.c1 .line, .c1 .rank { stroke: #bc4c00 } .c1 .head, .c1 .dot { fill: #bc4c00 }
.c2 .line, .c2 .rank { stroke: #1a7f37 } .c2 .head, .c2 .dot { fill: #1a7f37 }
.c3 .line, .c3 .rank { stroke: #8250df } .c3 .head, .c3 .dot { fill: #8250df }
.c4 .line, .c4 .rank { stroke: #bf3989 } .c4 .head, .c4 .dot { fill: #bf3989 }
.c5 .line, .c5 .rank { stroke: #1b7c83 } .c5 .head, .c5 .dot { fill: #1b7c83 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .frame { fill: #151b23; stroke: #3d444d }
.ground { fill: #151b23 } .box { fill: #0d1117; stroke: #656c76 }
.card { fill: #151b23; stroke: #3d444d } text { fill: #f0f6fc } .quiet { fill: #9198a1 } .on { fill: #ffffff }
.line { stroke: #9198a1 } .head { fill: #9198a1 } .rank { fill: #0d1117 }
.c0 .line, .c0 .rank { stroke: #4493f8 } .c0 .head, .c0 .dot { fill: #4493f8 }
.c1 .line, .c1 .rank { stroke: #f0883e } .c1 .head, .c1 .dot { fill: #f0883e }
.c2 .line, .c2 .rank { stroke: #3fb950 } .c2 .head, .c2 .dot { fill: #3fb950 }
.c3 .line, .c3 .rank { stroke: #ab7df8 } .c3 .head, .c3 .dot { fill: #ab7df8 }
.c4 .line, .c4 .rank { stroke: #db61a2 } .c4 .head, .c4 .dot { fill: #db61a2 }
.c5 .line, .c5 .rank { stroke: #39c5cf } .c5 .head, .c5 .dot { fill: #39c5cf }
}
"""


_RULES = re.compile(r"<style>.*?</style>", re.DOTALL)


@dataclass(frozen=True)
class Rectangle:
    """A place on the page."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height


def shown(text: str) -> str:
    """``text`` on one line, what cannot be seen written out, shortened where it would make the drawing too wide."""
    safe = safe_line(text)
    if len(safe) <= LONGEST:
        return safe
    return safe[: LONGEST - 1] + "…"


def text_width(text: str) -> float:
    """How wide a text is at most, in any font that a reader may have."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return LETTER * (len(text) + wide)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    """Words at a place, shortened where they are long, the whole of them for who points at them."""
    classes = f' class="{kind}"' if kind else ""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    whole = f"<title>{escaped(words)}</title>" if shown(words) != safe_line(words) else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{classes}{anchored}>{whole}{escaped(shown(words))}</text>'


def escaped(words: str) -> str:
    """Text of a file as XML's; what XML cannot hold at all is written out."""
    return escape(safe_line(words))


def rectangle(place: Rectangle, kind: str, radius: int = 8) -> str:
    """A rectangle with round corners."""
    return (
        f'<rect class="{kind}" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="{radius}"/>'
    )


# The numbers on the axis of a picture.

TICKS = 6
"""So many at the most stand on an axis."""


def ticks(longest: float) -> Iterator[float]:
    """Round numbers up to ``longest``, few enough to be read: 1, 2 or 5 times a power of ten apart."""
    least = longest / (TICKS - 1)
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
    yield from (number * step for number in range(math.floor(longest / step) + 1))


def without_style(picture: str) -> str:
    """Return the picture without its own rules, for a page whose sheet has them."""
    return _RULES.sub("", picture)
