"""The keys (upstream's common/auth.py): read from the working directory, made where they are missing, always logged.

Since 2026-07-16 upstream reads them anew within two seconds of a change of their file, and one that it cannot read
leaves those that it had.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from loguru import logger
from ruamel.yaml import YAML

AUTH_FILE = "api_tokens.yml"
AUTH_FILE_POLL_INTERVAL = 2.0
KEYS: dict[str, str] = {}
WATCHERS: list[asyncio.Task[None]] = []


def changed_at() -> float:
    """When their file was written."""
    return Path(AUTH_FILE).stat().st_mtime


def read() -> None:
    """Take the keys of the file."""
    KEYS.update(YAML(typ="safe").load(Path(AUTH_FILE).read_text(encoding="utf-8")))


async def _watch_auth_file() -> None:
    """Read the keys anew whenever their file has changed."""
    last = changed_at()
    while True:
        await asyncio.sleep(AUTH_FILE_POLL_INTERVAL)
        try:
            now = changed_at()
            if now != last:
                read()
        except OSError as error:
            logger.warning(f"Failed to reload {AUTH_FILE}, keeping the previous keys: {error}")
            continue
        last = now


def read_or_make() -> None:
    """Take the keys of the file, or write one."""
    try:
        read()
    except FileNotFoundError:
        KEYS.update(api_key=secrets.token_hex(16), admin_key=secrets.token_hex(16))
        lines = [f"{name}: {key}\n" for name, key in KEYS.items()]
        Path(AUTH_FILE).write_text("".join(lines), encoding="utf-8")


async def load_auth_keys() -> None:
    """Say them, and look after them."""
    read_or_make()
    WATCHERS.append(asyncio.create_task(_watch_auth_file()))
    logger.info(f"Your API key is: {KEYS['api_key']}\nYour admin key is: {KEYS['admin_key']}")


def may(authorization: str) -> bool:
    """Whether the header carries one of the keys."""
    scheme, _, key = authorization.partition(" ")
    return scheme.lower() == "bearer" and key in KEYS.values()
