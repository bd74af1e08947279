"""What is connected with what: the picture of ``graph``, and the same as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provisioner.report.elements import Markup, moment, opened, quiet, tag, wide
from provisioner.report.graph import graph_svg, graph_text
from provisioner.report.lab_page.content import LabContent
from provisioner.report.lab_page.style import without_style

LEGIBLE = 1500
"""A picture that is wider, in pixels, would be too small to read as wide as the page."""
WIDTH = re.compile(r'width="(\d+)')


def picture_of(content: LabContent) -> Iterator[Markup]:
    """The picture, which may be wider than the page, and its words below it."""
    picture = Markup(without_style(graph_svg(content.graph)))
    found = WIDTH.search(picture)
    width = int(found[1]) if found else 0
    yield quiet("What the file connects, read ", moment(content.at), ".")
    yield wide("Picture of what is connected with what", picture, "large" if width > LEGIBLE else "")
    yield opened("The same as text", wide("What is connected with what", tag("pre", graph_text(content.graph))))
