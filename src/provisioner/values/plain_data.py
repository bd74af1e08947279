"""JSON, YAML, TOML and Python that came from outside: whatever is wrong with a text is a ``ValueError``.

The parsers themselves raise a dozen other errors, such as ``RecursionError`` for 20,000 brackets.
Text from outside that people read is ``Foreign``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self

if TYPE_CHECKING:
    import ast

DEEPEST = 64
"""Lists and objects within each other; an answer that we ask for has less than ten."""
DIGITS = 18
"""More than any count of bytes has."""
PYTHON = (3, 11)
"""That of Debian 12, by which services run files of Python."""
_TOO_DEEP = "it is nested too deeply"
_DEEPEST = 100
LONGEST = 500
"""Characters; what is said of one thing is a line."""
MOST_OF_AN_OUTPUT = 4000
"""The same of what a command wrote."""
_LEFT_OUT = " … "
_DOUBTFUL = re.compile(r"[^\n\t -~]+")


class Foreign(str):
    r"""Text that a container, a hub, an image, a registry or a node chose.

    What cannot be printed is written out ("\x1b"), but for line ends and tabs. Of more than ``longest`` characters the
    middle is left out.
    """

    __slots__ = ()

    def __new__(cls, text: str, longest: int = LONGEST) -> Self:
        """Make harmless text of any."""
        head, tail = written_out(text[:longest]), written_out(text[-longest:])
        if len(text) <= longest and len(head) <= longest:
            return super().__new__(cls, head)
        half = (longest - len(_LEFT_OUT)) // 2
        head, tail = head[:half], tail[-half:]
        if "\n" in head and "\n" in tail:  # a secret that is cut through would not be found any more
            head, tail = head[: head.rindex("\n") + 1], tail[tail.index("\n") :]
        return super().__new__(cls, f"{head}{_LEFT_OUT}{tail}")

    @classmethod
    def of_output(cls, output: bytes) -> Self:
        """Return what a command wrote, without blanks around it."""
        return cls(output.decode(errors="replace").strip(), MOST_OF_AN_OUTPUT)


def foreign(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer with ``Foreign`` in the place of each text at any depth; keys stay as they are."""
    return {key: _foreign(value) for key, value in answer.items()}


def _foreign(value: Any) -> Any:
    if isinstance(value, str):
        return Foreign(value)
    if isinstance(value, dict):
        return foreign(value)
    return list(map(_foreign, value)) if isinstance(value, list) else value


def written_out(text: str) -> str:
    """Return the text with escapes in the place of what cannot be printed, but for line ends and tabs."""
    return _DOUBTFUL.sub(lambda found: "".join(map(_written_out, found[0])), text)


def _written_out(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def json_value(text: str | bytes) -> Any:
    """What the JSON says; ``ValueError`` where it is none, and for numbers that JSON does not have."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error


def answer_value(text: bytes) -> Any:
    """What the JSON of a program of ours says; ``ValueError`` for all that such a one never writes.

    That is, besides what ``json_value`` refuses: text that is not UTF-8, an object that names a key twice, numbers of
    more than ``DIGITS`` digits, and more than ``DEEPEST`` levels.
    """
    plain = text.decode("utf-8")
    try:
        value = json.loads(
            plain, object_pairs_hook=_object, parse_constant=_no_number, parse_int=_whole, parse_float=_fraction
        )
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _require_shallow(value)
    return value


def yaml_value(text: str) -> Any:
    """What the YAML says in plain values; ``ValueError`` where it is none."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C takes a tenth of the time
    try:
        _check_depth(text, loader)
        return yaml.load(text, loader)  # noqa: S506  # a SafeLoader
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(str(error)) from error


def toml_value(text: str) -> dict[str, Any]:
    """What the TOML says; ``ValueError`` where it is none."""
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(str(error)) from error


def python_tree(text: str) -> ast.Module:
    """Return the syntax tree of a module, nothing of which is run; raise ``ValueError`` where it is no Python.

    It is compiled as well: some errors are only found then.
    """
    import ast  # as below: few labs have such files
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, feature_version=PYTHON)
            compile(tree, "module", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno or 0}: no Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"no Python that can be read: {error}") from error
    return tree


def _check_depth(text: str, loader: Any) -> None:
    """Refuse what is nested too deeply before anything calls itself for it, be it in C."""
    import yaml

    depth = 0
    for event in yaml.parse(text, loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(_TOO_DEEP)


def _finite(digits: str) -> float:
    """The number; one such as 1e999 would be infinite, which no whole number is."""
    number = float(digits)
    return number if math.isfinite(number) else _no_number(digits)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"it names {key[:DEEPEST]!r} twice")
        made[key] = value
    return made


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError("it holds a number that is too long")
    return int(digits)


def _fraction(digits: str) -> float:
    value = float(digits)
    if len(digits) > 2 * DIGITS or abs(value) >= 10**DIGITS:
        raise ValueError("it holds a number that is too long")
    return value


def _require_shallow(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(_TOO_DEEP)
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
        level = [one for one in inner if isinstance(one, dict | list)]
