"""The keys (upstream's common/auth.py): read from the working directory, made where they are missing, always logged."""

from __future__ import annotations

import secrets
from pathlib import Path

from loguru import logger
from ruamel.yaml import YAML

AUTH_FILE = "api_tokens.yml"
KEYS: dict[str, str] = {}


def load_auth_keys() -> None:
    """Read or make them, and say them."""
    try:
        KEYS.update(YAML(typ="safe").load(Path(AUTH_FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        KEYS.update(api_key=secrets.token_hex(16), admin_key=secrets.token_hex(16))
        lines = [f"{name}: {key}\n" for name, key in KEYS.items()]
        Path(AUTH_FILE).write_text("".join(lines), encoding="utf-8")
    logger.info(f"Your API key is: {KEYS['api_key']}\nYour admin key is: {KEYS['admin_key']}")


def may(authorization: str) -> bool:
    """Whether the header carries one of the keys."""
    scheme, _, key = authorization.partition(" ")
    return scheme.lower() == "bearer" and key in KEYS.values()
