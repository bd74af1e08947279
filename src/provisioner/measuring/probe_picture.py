"""The picture of a search for the longest context, one SVG file: each try, and what memory it took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from provisioner.measuring.probe import Probed, Tried
from provisioner.report.svg import STYLE, Rectangle, escaped, rectangle, text, ticks

WIDTH, HEIGHT = 960, 480
LEFT, RIGHT, TOP, BOTTOM = 100, 900, 130, 400
"""The frame in which tries stand: from few tokens to many, from much memory to none."""
EDGE = 40
RADIUS = 6
GIB = 2**30
TITLE = "Contexts that were tried"
ANSWERED, NOT = "c2", "c1"
"""The colours of tries that were answered, and of others."""
MORE = """
.not { fill: none; stroke-width: 2 } .c1 .not { stroke: #bc4c00 } .longest { stroke: #1a7f37; stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) { .c1 .not { stroke: #f0883e } .longest { stroke: #3fb950 } }
"""


def probed_svg(found: Probed) -> str:
    """The whole picture of one search; the same bytes for the same figures."""
    return tries_svg(str(found.subject.service.address), found.tries, found.longest)


def tries_svg(address: str, found: Iterable[Tried], longest: int) -> str:
    """The whole picture, well-formed whatever the names are; ``longest`` is the most tokens that were answered."""
    tries = sorted(found, key=lambda one: one.context)
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escaped(f'{TITLE} of {address}')}</title>",
        f"<style>{STYLE}{MORE}</style>",
        f'<rect class="page" {size} rx="10"/>',
        text(EDGE, 44, TITLE, "title"),
        *_legend(address, longest),
        rectangle(Rectangle(LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP), "ground", 4),
        *_across(longest, tries),
        *_up(tries),
        *_tries(tries),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def memory_of(one: Tried) -> int:
    """Bytes that a try took: on its card where that tells, else those of its processes; 0 where nobody told."""
    return max(one.card if one.card >= 0 else one.memory, 0)


def _legend(address: str, longest: int) -> Iterator[str]:
    answered = f"{longest:,} tokens at most" if longest else "none of them"
    yield from _line_of(ANSWERED, "dot", 76, f"{address} answered {answered}")
    yield from _line_of(
        NOT, "not", 100, "did not answer, or not to all of a prompt; at the bottom where nobody knows what it took"
    )
    yield text(LEFT, TOP - 8, "GiB", "quiet", "end")


def _line_of(colour: str, kind: str, y: int, words: str) -> Iterator[str]:
    """A mark, and what it means."""
    yield f'<g class="{colour}"><circle class="{kind}" cx="{EDGE + RADIUS}" cy="{y - 4}" r="{RADIUS}"/></g>'
    yield f'<text x="{EDGE + 20}" y="{y}">{escaped(words)}</text>'


def _longest(tries: Iterable[Tried]) -> int:
    return max((one.context for one in tries), default=1)


def _x(context: float, tries: Sequence[Tried]) -> float:
    return LEFT + (RIGHT - LEFT) * 0.95 * context / _longest(tries)


def _most(tries: Iterable[Tried]) -> float:
    """GiB at the top of the frame."""
    return max((memory_of(one) for one in tries), default=0) / GIB * 1.1 or 1.0


def _y(size: float, tries: Sequence[Tried]) -> float:
    return BOTTOM - (BOTTOM - TOP) * size / _most(tries)


def _across(longest: int, tries: Sequence[Tried]) -> Iterator[str]:
    for context in ticks(_longest(tries)):
        yield text(_x(context, tries), BOTTOM + 22, f"{context:,.0f}", "quiet", "middle")
    yield text((LEFT + RIGHT) / 2, BOTTOM + 48, "tokens of context", "quiet", "middle")
    if longest:
        x = _x(longest, tries)
        yield f'<line class="longest" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{BOTTOM}"/>'


def _up(tries: Sequence[Tried]) -> Iterator[str]:
    for size in ticks(_most(tries)):
        yield text(LEFT - 10, _y(size, tries) + 4, f"{size:.3g}", "quiet", "end")


def _tries(tries: Sequence[Tried]) -> Iterator[str]:
    """A full dot where it answered, a ring where it did not: at what it took, or at the bottom where nobody told."""
    for one in tries:
        colour, kind = (ANSWERED, "dot") if one.is_answered else (NOT, "not")
        taken = memory_of(one)
        y = _y(taken / GIB, tries) if taken else BOTTOM - 2 * RADIUS
        title = escaped(f"{one.context:,} tokens: {one.outcome} {one.words}".strip())
        place = f'cx="{_x(one.context, tries):.1f}" cy="{y:.1f}" r="{RADIUS}"'
        yield f'<g class="{colour}"><circle class="{kind}" {place}><title>{title}</title></circle></g>'
