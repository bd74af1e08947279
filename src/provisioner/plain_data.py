"""JSON, YAML and TOML that came from outside, as plain values: whatever is wrong with a text is a ``ValueError``.

The parsers themselves raise a dozen other errors, such as ``RecursionError`` for 20,000 brackets.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

_TOO_DEEP = "it is nested too deeply"


def json_value(text: str | bytes) -> Any:
    """What the JSON says; ``ValueError`` where it is none, and for numbers that JSON does not have."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error


def yaml_value(text: str) -> Any:
    """What the YAML says in plain values; ``ValueError`` where it is none."""
    import yaml

    try:
        return yaml.safe_load(text)
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


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
