"""What our web pages share: one file each, which needs nothing else, readable in the dark as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provisioner.report.elements import Markup, tag
from provisioner.report.style import markup_text

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
