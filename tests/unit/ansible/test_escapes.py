r"""A backslash in a string of Jinja stands for one: Python warns of ``'\Z'``, and says that it will refuse it.

In ``{{ }}`` of YAML Ansible doubles each backslash itself. In ``{% %}``, in a bare condition and in a file of templates
it does not, so it is written twice there: ``'\\Z'``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

from provisioner.values import paths

CONDITIONS = frozenset({"changed_when", "failed_when", "that", "until", "when"})
"""What takes an expression without braces."""
FILES = [
    file
    for name in ("inventory", "molecule", "playbooks", "roles")
    for file in sorted((paths.share() / name).rglob("*"))
    if file.suffix in {".j2", ".yml"} and "files" not in file.parts
]
LEXER = Environment(extensions=["jinja2.ext.do"], autoescape=True).lexer


class Loader(yaml.CSafeLoader):
    """Reads tags as the texts that they are on."""


Loader.add_multi_constructor("!", lambda _loader, _tag, node: node.value)


def templates(value: Any, key: str = "") -> Iterator[str]:
    """The templates in a page of YAML; a bare condition as Ansible reads it."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from templates(below, str(name))
    elif isinstance(value, list):
        for below in value:
            yield from templates(below, key)
    elif isinstance(value, str) and ("{{" in value or "{%" in value):
        yield value
    elif isinstance(value, str) and key in CONDITIONS:
        yield f"{{% if {value} %}}{{% endif %}}"


def strings(template: str, *, is_doubled: bool) -> Iterator[str]:
    """The strings of a template, as Python is to decode them; ``is_doubled``: Ansible doubles those in braces."""
    is_inside = False
    for _line, kind, text in LEXER.tokeniter(template, None):
        if kind in {"variable_begin", "variable_end"}:
            is_inside = kind == "variable_begin"
        elif kind == "string" and not (is_doubled and is_inside):
            yield text


def refused(text: str) -> bool:
    """Whether Python warns of a string's escapes, decoded as Jinja does it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        text[1:-1].encode("ascii", "backslashreplace").decode("unicode-escape")
    return bool(told)


def wrong_strings(text: str, *, is_page: bool) -> list[str]:
    """Strings of a page of YAML, or of a file of templates, that a later Python refuses."""
    sources = [text]
    if is_page:
        sources = [one for page in yaml.load_all(text, Loader) for one in templates(page)]
    return [one for source in sources for one in strings(source, is_doubled=is_page) if refused(one)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(Path(file).relative_to(paths.share())))
def test_no_string_of_a_template_is_one_that_a_later_python_refuses(file: Path) -> None:
    assert wrong_strings(file.read_text(encoding="utf-8"), is_page=file.suffix == ".yml") == []


CASES = [
    (r"when: x is match('[a-z]+\Z')", True, True),
    (r"that: [x is defined, 'x is match(''\d'')']", True, True),
    (r"a: '{% set y = x is match(''\Z'') %}'", True, True),
    (r"{{ x | regex_replace('\.', '') }}", False, True),
    (r"when: x is match('[a-z]+\\Z')", True, False),
    (r"a: '{{ x is match(''\Z'') }}'", True, False),
    (r"a: '{% set y = x is match(''\\Z'') %}'", True, False),
    (r"a: 'no template, such as \Z'", True, False),
    (r"{{ x | replace('\n', '') }}", False, False),
]


@pytest.mark.parametrize(("text", "is_page", "is_wrong"), CASES)
def test_a_wrong_one_is_found(text: str, *, is_page: bool, is_wrong: bool) -> None:
    assert bool(wrong_strings(text, is_page=is_page)) == is_wrong


def test_the_pages_are_there() -> None:
    assert {file.suffix for file in FILES} == {".j2", ".yml"}
