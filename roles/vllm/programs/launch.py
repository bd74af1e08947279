"""Starts vLLM's server by its own command, with its key from a file and the former one beside it for a while.

``launch.py KEY_FILE FORMER_FILE GRACE_S ARGUMENT...``: the arguments are those of ``vllm serve``. vLLM writes all of
them to its journal, so that the key is none of them: it is in the environment. Exit code 78: starting it again would
not help.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from former import Application, FormerKey, Kept, kept_in

KEY = "VLLM_API_KEY"
FORMER_FILE, GRACE_S = "PROVISION_FORMER_KEY_FILE", "PROVISION_KEY_GRACE_S"
"""Variables of the environment by which the class that vLLM makes by its name finds what it needs."""
CANNOT_START = 78
"""EX_CONFIG of sysexits.h; the unit does not restart after it."""


class WithFormerKey(FormerKey):
    """``application`` with the former key beside the present one, as both are when the server starts."""

    def __init__(self, app: Application) -> None:
        kept = kept_in(Path(os.environ[FORMER_FILE]), float(os.environ[GRACE_S]))
        super().__init__(app, kept or Kept("", until=0.0), os.environ[KEY])


def main(words: Sequence[str]) -> None:
    """Serve until systemd ends it."""
    key_file, former_file, grace_s, *arguments = words
    try:
        key = Path(key_file).read_text(encoding="utf-8").strip()
    except OSError as error:
        cannot_start(f"its key cannot be read: {error}")
    if not key:  # without one vLLM would ask nobody for it
        cannot_start(f"{key_file} holds no key")
    os.environ.update({KEY: key, FORMER_FILE: former_file, GRACE_S: grace_s})
    if kept_in(Path(former_file), float(grace_s)):
        arguments += ["--middleware", f"{Path(__file__).stem}.{WithFormerKey.__name__}"]
    sys.argv = ["vllm", "serve", *arguments]
    importlib.import_module("vllm.entrypoints.cli.main").main()


def cannot_start(why: str) -> None:
    """End in a way that the unit does not try again."""
    sys.stderr.write(f"Unable to start vLLM: {why}.\n")
    raise SystemExit(CANNOT_START)


if __name__ == "__main__":
    main(sys.argv[1:])
