"""Where the log goes: the console, and a file below the working directory (upstream's common/logger.py does both)."""

from __future__ import annotations

import sys

from loguru import logger


def setup_logger() -> None:
    """Log to both."""
    logger.remove()
    logger.add(lambda line: print(line, file=sys.stdout, flush=True))  # noqa: T201  # the console
    logger.add("logs/{time}.log")
