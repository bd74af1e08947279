"""The block of one container, ready to be pasted under ``containers:`` of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from provisioner.reconcile.text import attribute_text
from provisioner.report.style import indent, safe_line

_PLAIN = re.compile(r"[A-Za-z/][^\n]*|[0-9.]+(KiB|MiB|GiB|TiB)|[0-9.]+/[0-9]+", re.ASCII)


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.2 reads as a number and PyYAML does not, such as ``1e3``."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # PyYAML's signature
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def block_text(
    name: str, written: Mapping[str, Any], changes: Mapping[str, tuple[Any, Any]], notes: Iterable[str] = ()
) -> str:
    """YAML of the container, indented as it stands in a file, what cannot be said in it as comments above."""
    comments = [*notes, *(_change_text(option, *values) for option, values in changes.items())]
    body = yaml.dump({name: dict(written)}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    lines = [f"# {safe_line(comment)}" for comment in comments]
    return indent("\n".join([*lines, body.rstrip("\n")]))


def _change_text(option: str, there: Any, wanted: Any) -> str:
    before = attribute_text(option, there) or "none"
    after = attribute_text(option, wanted) or "none"
    return f"{option}: there it is {before}; up would make it {after}"
