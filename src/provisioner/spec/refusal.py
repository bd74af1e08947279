"""How a validator of the file's models says what is wrong: with our wording and what to do."""

from __future__ import annotations

from pydantic_core import PydanticCustomError

REFUSED = "refused"


def refusal(message: str, hint: str = "") -> PydanticCustomError:
    """An error that becomes a ``Problem`` of exactly this wording; it must hold no value that may be secret."""
    return PydanticCustomError(REFUSED, "{message}", {"message": message, "hint": hint})
