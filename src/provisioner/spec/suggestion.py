"""What the user may have meant."""

from __future__ import annotations

from collections.abc import Iterable

_MANY = 12
_LONG = 100  # no slip of the pen any more, and comparing it costs time


def did_you_mean(word: str, known: Iterable[str], *, always: bool = False) -> str:
    """``did you mean "context"?``, else the known words when they are few or ``always``, else nothing."""
    import difflib

    words = [one for one in known if one]
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6) if len(word) <= _LONG else []
    if close:
        return f'did you mean "{close[0]}"?'
    if words and (always or len(words) <= _MANY):
        return f"known: {', '.join(words)}"
    return ""
