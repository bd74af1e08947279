r"""A line's end in a template is one: in a string of Jinja Ansible leaves a backslash as it is.

Only in double quotes does YAML make a line's end of ``\n`` before Ansible reads it. In any other scalar, and as ``\\n``
in those, ``split('\n')`` parts a text where a backslash stands before an n: what others say is not parted, or in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from provisioner.values import paths

PARTED = re.compile(r"\b(split|join|replace)\(\s*(['\"])\\[nrt]\2")
LAST_WORDS = re.compile(r"stderr\b[^}]*?\.splitlines\(\)(?! \| last \| default\('[^']+', true\))")
"""What a program said last, where nothing is put in the place of nothing."""
FILES = [
    file
    for root in (paths.roles(), paths.roles().parent / "playbooks", paths.roles().parent / "molecule")
    for file in sorted(root.rglob("*.yml"))
]


def scalars(node: Node) -> Iterator[ScalarNode]:
    """All scalars below."""
    if isinstance(node, ScalarNode):
        yield node
    elif isinstance(node, MappingNode):
        for pair in node.value:
            for one in pair:
                yield from scalars(one)
    else:
        for one in node.value:
            yield from scalars(one)


def wrong_lines(text: str) -> list[int]:
    """Lines at which a template parts or joins by what is no line's end."""
    return [
        node.start_mark.line + 1
        for page in yaml.compose_all(text, yaml.CSafeLoader)
        for node in scalars(page)
        if PARTED.search(node.value)
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(Path(file).relative_to(paths.roles().parent)))
def test_a_template_parts_text_at_the_end_of_a_line(file: Path) -> None:
    assert wrong_lines(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(Path(file).relative_to(paths.roles().parent)))
def test_a_program_that_ends_without_a_word_is_no_reason_to_pass(file: Path) -> None:
    """Of no lines there is no last one: a list of what is wrong would be empty, and a complaint none."""
    assert LAST_WORDS.findall(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "{{ (x.stderr | trim).splitlines()[-1:] }}",
        "{{ (x.stderr | default('', true) | trim).splitlines() | last | default('') }}",
        "{{ (x.stderr | trim).splitlines() | last }}",
        "{{ (x.stderr | trim).splitlines() | last | default('', true) }}",
    ],
)
def test_where_nothing_stands_for_nothing_is_found(text: str) -> None:
    assert LAST_WORDS.search(text)


CASES = [
    (r"a: >-|  {{ x | split('\n') | last }}", True),
    (r"""a: "{{ x | split('\\n') }}" """, True),
    (r"a: '{{ x | join( ''\n'' ) }}'", True),
    (r"a: >-|  {{ x | replace('\t', '') }}", True),
    (r"""a: "{{ x | split('\n') | last }}" """, False),
    (r"a: >-|  {{ x.splitlines() | last }}", False),
    (r"a: >-|  {{ x | regex_replace('\n', '') }}", False),
]
"""Behind ``>-`` a ``|`` is a line's end."""


@pytest.mark.parametrize(("text", "is_wrong"), CASES)
def test_a_wrong_one_is_found(text: str, *, is_wrong: bool) -> None:
    lines = text.replace(">-|", ">-\n")
    assert bool(wrong_lines(lines)) == is_wrong
