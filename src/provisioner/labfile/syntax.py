"""YAML's syntax errors in words: where something was opened or forgotten, and what to write there; never a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.tokens import (
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
    Token,
)

from provisioner.labfile.document import Place

Words = tuple[Place, str, str]
"""Where to look, what is wrong there, and what to do."""

_QUOTES = ("'", '"')
_CLOSERS = {"{": "}", "[": "]"}
_OPENERS = {FlowMappingStartToken: "{", FlowSequenceStartToken: "["}
_ENDS = (FlowMappingEndToken, FlowSequenceEndToken)
_OPEN_QUOTE = ("the quote that is opened here is not closed", "write the same quote at the end of the text")
_COLON_IN_VALUE = 'a second ":" behind a key'
_AFTER_QUOTE = (
    "text behind a closing quote",
    "put all of the value between the quotes; a ' inside of '…' is written twice: ''",
)
_HAS_VALUE = re.compile(r":\s+[^\s#]")
_NO_SPACE = re.compile(r"\s*(?:- )?[^\s:\"'{\[]+:(?=[^\s:])")
_QUOTED = r"'[^']*'|\"[^\"]*\""
_HARMLESS = r".(.|\\.|<[a-z ]+>)."  # one character, or a token's name

_FIXED: tuple[tuple[str, Literal["here", "context"], str, str], ...] = (
    (r"'\\t'", "here", "a tab where YAML allows only spaces", "indent with spaces"),
    (
        "undefined alias",
        "here",
        "an alias without its anchor",
        'put text that begins with "*" in quotes, or write "&NAME" at the values that are meant',
    ),
    ("another document", "here", "a second document in the file", 'remove the "---" between them'),
    ("quoted scalar.*(end of stream|document separator)", "context", *_OPEN_QUOTE),
    (
        "unknown escape character",
        "here",
        "a backslash in double quotes that says nothing",
        r'write "\\" for one of them, or put the text in single quotes',
    ),
    (
        "could not find expected ':'",
        "context",
        "a key without its colon",
        "write `KEY: VALUE`, or `KEY:` with what belongs to it on the lines below",
    ),
    (
        "sequence entries are not allowed here",
        "here",
        "a list that begins on the line of its key",
        "write each `- ITEM` on a line of its own below the key, or all of them as [ITEM, ITEM]",
    ),
    ("scanning an (alias|anchor)", "context", 'text that begins with "*" or "&"', "put it in quotes"),
    ("(scanning|parsing) a (tag|node)|tag handle", "context", 'text that begins with "!"', "put it in quotes"),
    (
        "scanning a block scalar",
        "context",
        'text on the line of its "|" or ">"',
        "write it on the lines below, indented, or put it in quotes",
    ),
    ("character '%' that|scanning a directive", "here", 'a value that begins with "%"', "put it in quotes"),
    ("character '@' that", "here", 'a value that begins with "@"', "put it in quotes"),
    ("character '`' that", "here", 'a value that begins with "`"', "put it in quotes"),
)
"""By what ruamel.yaml says: which place of the ``_Fault`` to look at, what is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """An error of ruamel.yaml with the text that it is about; lines and columns from 0."""

    said: str
    text: str
    line: int
    column: int
    context: Place

    @property
    def lines(self) -> list[str]:
        return re.split("\r\n|[\n\r\x85\u2028\u2029]", self.text)

    @property
    def here(self) -> Place:
        return self.line + 1, self.column + 1

    @property
    def before(self) -> str:
        """The text before the mark in its line."""
        return self.lines[self.line][: self.column]

    def tokens(self) -> list[Token]:
        """The tokens before it; those from a place on that cannot be read are left out."""
        found: list[Token] = []
        with suppress(MarkedYAMLError):  # it is the error that is described
            for token in YAML(typ="safe", pure=True).scan(self.text):
                if (token.start_mark.line, token.start_mark.column) >= (self.line, self.column):
                    break
                found.append(token)
        return found


def described(error: MarkedYAMLError, text: str) -> Words:
    """Return where a syntax error is, what is wrong, and what to do, in words of people."""
    said = ", ".join(filter(None, (error.context, error.problem)))
    mark = error.problem_mark
    context = error.context_mark or mark
    fault = _Fault(said, text, mark.line, mark.column, (context.line + 1, context.column + 1))
    quote = _quote_that_runs_on(fault)
    if quote is not None:
        return quote, *_OPEN_QUOTE
    for pattern, place, message, hint in _FIXED:
        if re.search(pattern, said):
            return getattr(fault, place), message, hint
    if fault.before.rstrip().endswith(_QUOTES):
        return fault.here, *_AFTER_QUOTE
    for pattern, describe in _DESCRIBED.items():
        if re.search(pattern, said):
            return describe(fault)
    return fault.here, *_unknown(said)


def _unknown(said: str) -> tuple[str, str]:
    # The words between quotes come from the file: they may be half of a secret that should have been quoted.
    shown = re.sub(_QUOTED, lambda word: word[0] if re.fullmatch(_HARMLESS, word[0]) else "…", said)
    return f"not YAML: {shown}", "put text with signs in quotes"


def _quote_that_runs_on(fault: _Fault) -> Place | None:
    """Return the beginning of a quoted text whose end is missing: it began before the line of the fault."""
    for token in fault.tokens():
        is_quoted = getattr(token, "style", None) in _QUOTES
        if is_quoted and token.start_mark.line < token.end_mark.line == fault.line:
            return _place(token)
    return None


def _place(token: Token) -> Place:
    return int(token.start_mark.line) + 1, int(token.start_mark.column) + 1


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _bracket(fault: _Fault) -> Words:
    """Words for what stands between brackets: the last of them that is open is not closed, or a comma is missing."""
    opened: list[Token] = []
    for token in fault.tokens():
        if isinstance(token, _ENDS):
            opened.pop()
        elif type(token) in _OPENERS:
            opened.append(token)
    if not opened:
        return fault.here, *_unknown(fault.said)
    opener = _OPENERS[type(opened[-1])]
    closer, (line, column) = _CLOSERS[opener], _place(opened[-1])
    found = fault.said.rstrip("'").rpartition("'")[2]
    unclosed = f'the "{opener}" that is opened here is not closed'
    if found in _CLOSERS.values():
        message = f'"{found}" where the "{opener}" of line {line}, column {column} is still open'
        return fault.here, message, f'write "{closer}" before it'
    if found == "<stream end>" or (fault.line + 1 > line and fault.column <= _indent(fault.lines[line - 1])):
        return (line, column), unclosed, f'write "{closer}" where it ends'
    if found == ":":
        return fault.here, _COLON_IN_VALUE, "put the value in quotes, or a comma before the next key"
    return fault.here, "a comma is missing before this", f'or the "{closer}" of the "{opener}" on line {line}'


def _indentation(fault: _Fault) -> Words:
    """Words for a line that stands at another depth than those to which it belongs, or is of another kind."""
    _, column = fault.context
    if fault.before.strip():
        return fault.here, "what stands here belongs to nothing", "put the value in quotes"
    if fault.column + 1 != column:
        message = f"this line begins in column {fault.column + 1}, those beside it in column {column}"
        return fault.here, message, "begin keys of one mapping in the same column"
    is_item = "found '-'" in fault.said
    message = 'an item of a list ("- ") among keys' if is_item else "a key among the items of a list"
    return fault.here, message, "write either keys or items here, or indent what belongs to the line above"


def _misplaced_value(fault: _Fault) -> Words:
    """Words for a colon where none can be: mostly the line above lacks something, as the text goes on in this one."""
    if _HAS_VALUE.search(f"{fault.before}x"):
        return fault.here, _COLON_IN_VALUE, "put the value in quotes, or the second key on a line of its own"
    for number in range(fault.line - 1, -1, -1):
        above = fault.lines[number]
        if above.partition("#")[0].strip():
            return _line_above(fault, number, above)
    return fault.here, *_unknown(fault.said)


def _line_above(fault: _Fault, number: int, above: str) -> Words:
    own = _indent(fault.lines[fault.line])
    if match := _NO_SPACE.match(above):
        return (number + 1, match.end()), "no space behind the colon", "write `KEY: VALUE`"
    if _HAS_VALUE.search(above):
        message = f"this line begins in column {own + 1}, the key above it in column {_indent(above) + 1}"
        return (fault.line + 1, own + 1), message, "begin keys of one mapping in the same column"
    place = (number + 1, len(above.rstrip()) + 1)
    return place, "no colon behind the key", "write `KEY:`, and below it, indented, what belongs to it"


_DESCRIBED: dict[str, Callable[[_Fault], Words]] = {
    "mapping values are not allowed here": _misplaced_value,
    "parsing a flow ": _bracket,
    "expected <block end>": _indentation,
}
"""By what ruamel.yaml says, which function finds the words."""
