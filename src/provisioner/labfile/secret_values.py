"""Where the values of ``!secret name`` come from: the environment, ``secrets.env`` beside the file, a command.

No value is ever part of an error. A value is what stands on one line, or a PEM text in quotes, over several.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from provisioner.values.declared import Secret
from provisioner.values.regular_files import open_file

ENVIRONMENT_PREFIX = "PROVISION_SECRET_"
SECRETS_FILE = "secrets.env"
COMMAND_TIMEOUT_S = 120.0  # long enough to type a passphrase
MAX_BYTES = 1_000_000
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_-]*)\s*=(.*)", re.ASCII | re.DOTALL)
_PEM = "-----BEGIN "
_QUOTES = ("'", '"')
_SHORTEST_QUOTED = 2


class SecretError(Exception):
    """A source of secrets that cannot be used; ``hint`` is what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def environment_name(name: str) -> str:
    """The variable of the environment that gives a secret: ``pve1-token`` → ``PROVISION_SECRET_PVE1_TOKEN``."""
    return ENVIRONMENT_PREFIX + name.upper().replace("-", "_").removeprefix(ENVIRONMENT_PREFIX)


def secrets_file(file: Path) -> Path:
    """The ``secrets.env`` beside a lab's file."""
    return file.parent / SECRETS_FILE


def from_environment(names: Iterable[str]) -> dict[str, str]:
    """The values that the environment has; an empty one is none."""
    found = {name: os.environ.get(environment_name(name), "") for name in names}
    return {name: value for name, value in found.items() if value}


def from_file(names: Iterable[str], file: Path) -> dict[str, str]:
    """The values that ``file`` has, nothing when it is missing; raise ``SecretError`` when others could read it."""
    try:
        content = _read_private(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SecretError(f"{file.name} cannot be read: {error.strerror}") from error
    values = _parse(content, file.name)
    found = {name: values.get(environment_name(name), "") for name in names}
    return {name: value for name, value in found.items() if value}


def without_secret(content: str, name: str) -> str:
    """The text of a ``secrets.env`` without the line that gives this secret."""
    key = environment_name(name)
    kept = []
    for _, line in _lines(content):
        match = _LINE.fullmatch(line)
        if match is None or environment_name(match[1]) != key:
            kept.append(line)
    return "\n".join(kept)


def from_command(name: str, command: Sequence[str]) -> str:
    """What the user's command prints for one secret, without the final newline; raise ``SecretError`` when it fails."""
    import subprocess  # most files name no command

    words = [word.replace("{name}", name) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=COMMAND_TIMEOUT_S)
        value = done.stdout.decode().rstrip("\r\n")
    except OSError as error:
        raise SecretError(f"{words[0]} cannot be run for secret {name}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SecretError(f"{words[0]} gave no answer for secret {name} in {COMMAND_TIMEOUT_S:.0f} s") from error
    except UnicodeDecodeError as error:
        raise SecretError(f"{words[0]} printed no UTF-8 text for secret {name}") from error
    if done.returncode or not value:
        told = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        why = f"exit status {done.returncode}" if done.returncode else "it printed nothing"
        raise SecretError(f"{words[0]} gave no secret {name} ({why})", f"it said: {told[0][:200]}" if told else "")
    return value


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """Plain data with each ``Secret`` made anew with its value."""
    if isinstance(value, Secret):
        return Secret(value.name, values.get(value.name))
    if isinstance(value, dict):
        return {key: filled(one, values) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, values) for one in value]
    return value


def _read_private(file: Path) -> bytes:
    with open_file(file) as stream:
        mode = os.fstat(stream.fileno()).st_mode & 0o777
        if mode & 0o077:
            raise SecretError(f"{file.name} can be read by others (mode {mode:04o})", f"chmod 600 {file}")
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise SecretError(f"{file.name} is larger than {MAX_BYTES} bytes")
    return content


def _parse(content: bytes, name: str) -> dict[str, str]:
    values: dict[str, str] = {}
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SecretError(f"{name} is not UTF-8", "save it as UTF-8") from error
    for number, line in _lines(text):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.rstrip("\r"))
        if not match:
            raise SecretError(f"line {number} of {name} is not NAME=VALUE", "begin comments with #")
        if _is_open(line):
            raise SecretError(f"line {number} of {name} begins a text in quotes that does not end", "close the quotes")
        key = environment_name(match[1])
        if key in values:
            raise SecretError(f"line {number} of {name} gives {match[1]} a second time", "keep one of them")
        values[key] = _unquoted(match[2].strip())
    return values


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with its number; a PEM text in quotes is one of them, with all that it has."""
    pending: list[str] = []
    quote = ""
    for number, line in enumerate(text.split("\n"), 1):
        if not pending:
            quote = _open_quote(line)
        pending.append(line)
        if not quote or (len(pending) > 1 and line.rstrip().endswith(quote)):
            yield number - len(pending) + 1, "\n".join(pending)
            pending = []
    if pending:
        yield number - len(pending) + 1, "\n".join(pending)


def _open_quote(line: str) -> str:
    """The quote with which a PEM text begins that goes on in the next line; empty where none does."""
    match = _LINE.fullmatch(line)
    value = match[2].strip() if match else ""
    is_pem = value[:1] in _QUOTES and value.startswith(_PEM, 1)
    return value[0] if is_pem and value[-1] != value[0] else ""


def _is_open(line: str) -> bool:
    """Whether a PEM text begins in it that does not end."""
    quote = _open_quote(line.partition("\n")[0])
    return bool(quote) and not ("\n" in line and line.rstrip().endswith(quote))


def _unquoted(value: str) -> str:
    # Nothing else is special: `#`, `%`, `=` and backslashes are part of a value.
    if len(value) >= _SHORTEST_QUOTED and value[0] == value[-1] and value[0] in _QUOTES:
        return value[1:-1]
    return value
