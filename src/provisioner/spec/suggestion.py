"""What the user may have meant."""

from __future__ import annotations

from collections.abc import Iterable

_MANY = 12
_LONG = 100  # no slip of the pen any more, and comparing it costs time
_COMPARED = 200
_SHOWN = 40


def did_you_mean(word: str, known: Iterable[str], *, always: bool = False) -> str:
    """``did you mean "context"?``, else the known words when they are few or ``always``, else nothing."""
    import difflib

    words = [one for one in known if one]
    near = [one for one in words[:_COMPARED] if len(one) <= _LONG] if len(word) <= _LONG else []
    close = difflib.get_close_matches(word, near, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    if words and (always or len(words) <= _MANY):
        return f"known: {_listed(words)}"
    return ""


def _listed(words: list[str]) -> str:
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
