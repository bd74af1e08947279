"""Pieces of web pages: elements that escape whatever they are given, times, tables, and lines that open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from provisioner.report.style import markup_text

VOID = frozenset({"br", "img", "meta"})
NO_TIME = "at a time that was not kept"


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


SIGNS = {"good": "✓", "bad": "✗", "mind": "!", "dim": "·"}


def state(mood: str, words: object) -> Markup:
    """A word with its sign: "good", "bad", "mind" or "dim"; the colour alone tells nothing."""
    return tag("span", tag("span", SIGNS[mood], aria_hidden="true"), " ", words, class_=f"state {mood}")
