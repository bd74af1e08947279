"""What stands in the place of something that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """Return a function that takes anything and only raises this."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail
