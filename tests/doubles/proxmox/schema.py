"""PVE's own API schema: which methods there are, and whether a call's parameters are what they take.

The checks follow ``PVE::JSONSchema``: everything is text; a boolean is ``1`` or ``0`` and nothing else; of a parameter
the first fault is told; all parameters are looked at before the call is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.doubles.proxmox import formats
from tests.doubles.proxmox.formats import FormatError

FILE = Path(__file__).with_name("api-schema.json")
TYPES = {
    "boolean": re.compile("[01]"),
    "integer": re.compile(r"[+-]?\d+"),
    "number": re.compile(r"[+-]?(\d+\.\d+|\d+\.|\.\d+|\d+)([eE][+-]?\d+)?"),
}
UNKNOWN = "property is not defined in schema and the schema does not allow additional properties"
MISSING = "property is missing and it is not optional"

Errors = dict[str, str]
Value = str | bool | list[Any] | dict[str, Any]


@dataclass(frozen=True)
class Method:
    """One method of the API."""

    verb: str
    path: str
    page: Mapping[str, Any]

    @property
    def proxied(self) -> bool:
        """Whether the named node answers, whichever node was asked."""
        return bool(self.page.get("proxyto"))

    def option(self, name: str) -> Mapping[str, Any] | None:
        """What is known of a parameter; ``net3`` is found under ``net[n]``."""
        known: Mapping[str, Mapping[str, Any]] = self.page["parameters"]
        return known.get(name) or known.get(re.sub(r"(?<=[a-z])\d+$", "[n]", name))

    def errors(self, given: Mapping[str, Value]) -> Errors:
        """What is wrong with the parameters of a call, by parameter."""
        found: Errors = {}
        for name, option in self.page["parameters"].items():
            if "[n]" not in name and name not in given and not option.get("optional"):
                found[name] = MISSING
        for name, value in given.items():
            option = self.option(name)
            if option is None:
                found[name] = UNKNOWN
                continue
            needed = option.get("requires")
            if needed and needed not in given:
                found[needed] = f"missing property required by '{name}'"
            wrong = fault(option, value, name)
            if wrong:
                found[name] = wrong
        return found


@cache
def methods() -> Mapping[str, Method]:
    """All methods by ``VERB /path/{template}``."""
    pages: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    found: dict[str, Method] = {}
    for key, page in pages.items():
        verb, path = key.split(" ")
        found[key] = Method(verb, path, page)
    return found


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Paths as patterns, those with the most fixed parts first; a volume may have slashes."""
    paths = {method.path for method in methods().values()}
    ranked = sorted(paths, key=lambda path: (path.count("{volume}"), path.count("{")))
    return [(re.compile(_pattern(path)), path) for path in ranked]


def _pattern(path: str) -> str:
    parts = re.split(r"(\{[^}]+\})", path)
    names = {"{volume}": "(?P<volume>.+)"}
    return "".join(names.get(p, f"(?P<{_name(p)}>[^/]+)") if p.startswith("{") else re.escape(p) for p in parts)


def _name(part: str) -> str:
    return part.strip("{}").replace("-", "_")


def find(verb: str, path: str) -> tuple[Method, dict[str, str]] | None:
    """The method that a call means and the parameters in its path, or nothing: there is no such method."""
    for pattern, template in _patterns():
        match = pattern.fullmatch(path)
        method = methods().get(f"{verb} {template}")
        if match and method:
            return method, match.groupdict()
    return None


def fault(option: Mapping[str, Any], value: Value, path: str) -> str:
    """What is wrong with one value, in PVE's words, or nothing."""
    kind = option.get("type", "string")
    if isinstance(value, bool) and kind == "boolean":
        return ""
    if not isinstance(value, str):
        name = "JSON::PP::Boolean" if isinstance(value, bool) else "HASH" if isinstance(value, dict) else "ARRAY"
        return f"type check ('{kind}') failed - got {name}"
    if kind in TYPES and not TYPES[kind].fullmatch(value):
        return f"type check ('{kind}') failed - got '{value}'"
    return _format_fault(option, value, path) or _limit_fault(option, value)


def _format_fault(option: Mapping[str, Any], value: str, path: str) -> str:
    form = option.get("format")
    try:
        if isinstance(form, dict):
            parts(form, value, path)
        elif form:
            formats.check(form, value)
    except FormatError as error:
        return f"invalid format - {error}"
    return ""


def _limit_fault(option: Mapping[str, Any], value: str) -> str:
    pattern = option.get("pattern")
    if pattern and not re.fullmatch(pattern.replace("(?^", "(?"), value):
        return "value does not match the regex pattern"
    if len(value) > option.get("maxLength", len(value)):
        return f"value may only be {option['maxLength']} characters long"
    if len(value) < option.get("minLength", 0):
        return f"value must be at least {option['minLength']} characters long"
    if TYPES["number"].fullmatch(value):
        for word, limit, beyond in (("maximum", option.get("maximum"), 1), ("minimum", option.get("minimum"), -1)):
            if limit is not None and (float(value) - float(limit)) * beyond > 0:
                return f"value must have a {word} value of {limit}"
    choices = option.get("enum")
    if choices and value not in choices:
        return f"value '{value}' does not have a value in the enumeration '{', '.join(choices)}'"
    return ""


def parts(form: Mapping[str, Mapping[str, Any]], text: str, path: str = "") -> dict[str, str]:
    """The parts of a property string such as ``name=eth0,ip=dhcp``; ``FormatError`` with all that is wrong with it."""
    found = _split(form, text)
    errors = {name: MISSING for name, option in form.items() if name not in found and not option.get("optional")}
    for name, value in found.items():
        wrong = fault(form[name], value, f"{path}.{name}")
        if wrong:
            errors[name] = wrong
    if errors:
        prefix = f"{path}." if path else ""
        raise FormatError("format error\n" + "".join(f"{prefix}{name}: {errors[name]}\n" for name in sorted(errors)))
    return found


def _split(form: Mapping[str, Mapping[str, Any]], text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    default = next((name for name, option in form.items() if option.get("default_key")), "")
    for part in text.split(","):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        if not equals:
            if not default:
                raise FormatError("value without key, but schema does not define a default key\n")
            name, value = default, part
        elif not name or not value:
            raise FormatError("missing key in comma-separated list property\n")
        if name in found:
            raise FormatError(f"duplicate key in comma-separated list property: {name}\n")
        if name not in form:
            raise FormatError(f"invalid key in comma-separated list property: {name}\n")
        found[name] = _boolean(value) if form[name].get("type") == "boolean" else value
    return found


def _boolean(value: str) -> str:
    """Inside property strings, and only there, PVE takes words for booleans."""
    words = {"1": "1", "on": "1", "yes": "1", "true": "1", "0": "0", "off": "0", "no": "0", "false": "0"}
    return words.get(value.lower(), value)


def joined(form: Mapping[str, Mapping[str, Any]], values: Mapping[str, str]) -> str:
    """A property string as PVE writes it: the main part first, then what must be there, then the rest by name."""

    def rank(name: str) -> tuple[bool, bool, str]:
        return not form[name].get("default_key"), bool(form[name].get("optional")), name

    return ",".join(
        values[name] if form[name].get("default_key") else f"{name}={values[name]}" for name in sorted(values, key=rank)
    )
