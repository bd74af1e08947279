"""Pieces of web pages: elements that escape whatever they are given, times, tables, and lines that open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from provisioner.report.style import markup_text

VOID = frozenset({"br", "img", "meta"})
NO_TIME = "at a time that was not kept"
SIGNS = {"good": "✓", "bad": "✗", "mind": "!", "dim": "·"}


class Markup(str):
    """HTML that is complete as it stands; all other text is escaped when it is put into an element."""

    __slots__ = ()


NOTHING = Markup("")


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element; an attribute of None or False is left out, one of True has no value, ``class_`` is ``class``."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{markup_text(value)}"'


def join(children: Iterable[object]) -> Markup:
    """All of them behind each other; what is no markup is escaped."""
    return Markup("".join(map(_escaped, children)))


def _escaped(child: object) -> str:
    return child if isinstance(child, Markup) else markup_text(child)


def moment(at: str) -> Markup:
    """A time (ISO 8601) as people read it, in UTC; in words where there is none."""
    try:
        when = datetime.fromisoformat(at).astimezone(UTC)
    except (ValueError, OverflowError):
        return Markup(markup_text(at or NO_TIME))
    return tag("time", f"{when:%Y-%m-%d %H:%M} UTC", datetime=when.isoformat(timespec="seconds"))


def section(name: str, title: str, *parts: object) -> Markup:
    """A part of the page that can be jumped to, with its heading."""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *parts, id=name, aria_labelledby=f"{name}-title")


def table(label: str, head: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    """Rows below a head, in a box of its own that can be moved sideways where there is little room."""
    heads = [tag("th", cell, scope="col") for cell in head]
    return wide(f"Table: {label}", tag("table", tag("tr", *heads), *map(_row, rows)))


def _row(cells: Sequence[object]) -> Markup:
    return tag("tr", *(tag("td", cell) for cell in cells))


def wide(label: str, content: Markup, kind: str = "") -> Markup:
    """What may be wider than the page: it can be moved sideways, with the keyboard as well.

    ``kind`` "fits": it is made as wide as the page; "large": it would be too small then.
    """
    return tag("div", content, class_=f"wide {kind}".strip(), role="region", tabindex="0", aria_label=label)


def opened(summary: object, *parts: object, is_open: bool = False) -> Markup:
    """A line that opens to more."""
    return tag("details", tag("summary", summary), *parts, open=is_open)


def quiet(*words: object) -> Markup:
    """A paragraph that may be passed over."""
    return tag("p", *words, class_="dim")


def state(mood: str, words: object) -> Markup:
    """A word with its sign: "good", "bad", "mind" or "dim"; the colour alone tells nothing."""
    return tag("span", tag("span", SIGNS[mood], aria_hidden="true"), " ", words, class_=f"state {mood}")


# The frame of smaller pages, such as those of clusters: one file each, which needs nothing else, readable in the dark.

STYLE = """\
:root { color-scheme: light dark; --ink: #1c2128; --paper: #fff; --soft: #f3f5f7; --line: #d0d7de;
  --good: #1a7f37; --bad: #cf222e; --mind: #9a6700; --dim: #59636e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --soft: #161b22; --line: #3d444d;
  --good: #3fb950; --bad: #f85149; --mind: #d29922; --dim: #9198a1; } }
* { box-sizing: border-box; }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .6rem;
  border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
pre { background: var(--soft); padding: .6rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
section.item { border-left: 4px solid var(--line); padding-left: .8rem; margin: 1rem 0; }
section.good { border-color: var(--good); } section.bad { border-color: var(--bad); }
section.mind { border-color: var(--mind); }
.good { color: var(--good); } .bad { color: var(--bad); } .mind { color: var(--mind); } .dim { color: var(--dim); }
section.item > * { color: var(--ink); } section.item > p.dim { color: var(--dim); }
svg { max-width: 100%; height: auto; } svg text { text-anchor: middle; font-size: 13px; fill: var(--ink); }
svg circle { fill: var(--soft); stroke-width: 3; stroke: var(--line); }
svg circle.quorate { stroke: var(--good); } svg circle.alone { stroke: var(--bad); }
svg circle.silent { stroke: var(--mind); stroke-dasharray: 5 4; }
svg line { stroke-width: 2; } svg line.up { stroke: var(--good); }
svg line.down { stroke: var(--bad); stroke-dasharray: 6 5; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; border: 1px solid var(--line); }
"""


def table_html(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Rows of cells below a head, everything escaped."""
    lines = [_row_html("th", head)] if any(head) else []
    lines += [_row_html("td", row) for row in rows]
    return tag("table", *lines)


def _row_html(kind: str, row: Sequence[str]) -> Markup:
    return tag("tr", *(tag(kind, cell) for cell in row))


def page(title: str, parts: Sequence[Markup]) -> str:
    """Return a whole page of these parts; empty ones are left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{markup_text(title)}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<h1>{markup_text(title)}</h1>\n"
        + "\n".join(filter(None, parts))
        + "\n</body></html>\n"
    )
