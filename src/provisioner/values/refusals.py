"""How values of the file are refused: the error of a validator, and what the user may have meant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from pydantic_core import PydanticCustomError

from provisioner.values.declared import Secret

KeyPath = tuple[str | int, ...]
"""Where something stands in a file: keys and list indexes, from its top."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,63}", re.ASCII)
_MANY = 12
_LONG = 100  # no slip of the pen any more, and comparing it costs time
_COMPARED = 200
_SHOWN = 40


def did_you_mean(word: str, known: Iterable[str], *, always: bool = False) -> str:
    """``did you mean "context"?``, else the known words when they are few or ``always``, else nothing."""
    words = list(filter(None, known))
    closest = _closest(word, words)
    if closest:
        return f'did you mean "{closest}"?'
    if not words:
        return ""
    if always or len(words) <= _MANY:
        return f"known: {_listed(words)}"
    return ""


def _closest(word: str, words: list[str]) -> str:
    """The known word that is most like what was written; nothing when none is."""
    import difflib

    if len(word) > _LONG:
        return ""
    candidates = [candidate for candidate in words[:_COMPARED] if len(candidate) <= _LONG]
    matches = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    return matches[0] if matches else ""


def _listed(words: list[str]) -> str:
    shown = ", ".join(words[:_SHOWN])
    more = len(words) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


REFUSED = "refused"


def refusal(message: str, hint: str = "") -> PydanticCustomError:
    """An error that becomes a ``Problem`` of exactly this wording; it must hold no value that may be secret."""
    return PydanticCustomError(REFUSED, "{message}", {"message": message, "hint": hint})


def path_text(path: KeyPath) -> str:
    """``containers.llama.services.litellm.aliases.fast[0]``; an odd key is quoted and cut to fit in a line."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        key = step if _PLAIN_KEY.fullmatch(step) else json.dumps(step[:63])
        text += f".{key}" if text else key
    return text


def kind_of(value: object) -> str:
    """What a value of the file is, in words."""
    kinds = {
        dict: "a mapping",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "nothing",
        Secret: "a secret",
    }
    return kinds.get(type(value), "a number")
