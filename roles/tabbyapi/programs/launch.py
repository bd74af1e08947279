"""Starts tabbyAPI from its checkout without the four things that it does and a service must not do.

It logs its keys at every start: here they are masked in every record of its logger and in everything that this process
and its children write. With its port taken it would listen on the next one: here it ends instead, before any model is
loaded. It reads a body of any size before it looks at the key: here a guard stands in front of it. It reads its keys
anew within two seconds of their change, when those who ask do not know the new ones yet and nothing masks these: here
it keeps those of its start, and takes the key before for a while. No file of the checkout is touched for that, so that
its commit still says what runs.

Run in the folder of ``config.yml`` and ``api_tokens.yml``. Exit code 78: starting it again would not help.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from former import FormerKey, Kept, kept_in
from guard import Guard, Limits, is_worth_a_line, watched

TOKENS = Path("api_tokens.yml")
MASK = "********"
CANNOT_START = 78
"""EX_CONFIG of sysexits.h; the unit does not restart after it."""
NO_SINK = -1
CHUNK = 65536
DRAIN_S = 45
HOOKS = ("entrypoint", "entrypoint_async", "is_port_in_use")
"""What upstream's ``main.py`` has to have, for what is done here to work."""
WATCHER = "_watch_auth_file"
"""What reads the keys anew in upstream's ``common/auth.py``, since 2026-07-16."""


def main() -> None:
    """Start the server, and stay it until it ends."""
    options = parsed(sys.argv[1:])
    try:
        keys = keys_of(TOKENS.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        stop(f"Unable to read the keys from {TOKENS.absolute()}: {error}. Run the role again, which writes them.")
    former = kept_in(options.former_key, options.key_grace)
    masked_ones = longest_first([*keys.values(), *([former.key] if former else [])])
    mask_output(masked_ones)
    refuse_taken_port(options.host, options.port)
    mask_records(masked_ones)
    program = upstream(options.checkout, options.context)
    guard_port(program, options.host, options.port)
    guard_requests(Limits(body=options.max_body), options.drain, former, keys["api_key"])
    keep_keys(program)
    if options.ngram:
        draft_by_ngram(program, options.ngram)
    program.entrypoint()


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The launcher's own arguments; upstream gets none of them but another context."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    # The unit of an earlier version says nothing; it has to start after a run that was refused half-way, too.
    parser.add_argument("--max-body", type=int, default=Limits().body, help="bytes of a request's body")
    parser.add_argument("--drain", type=int, default=DRAIN_S, help="seconds that running answers have at the end")
    parser.add_argument("--former-key", type=Path, default=Path("former-api-key"), help="file of the key before")
    parser.add_argument("--key-grace", type=int, default=0, help="seconds for which that one is taken")
    parser.add_argument("--ngram", type=int, default=0, help="match length, for commits without that option")
    parser.add_argument("--context", type=int, default=0, help="tokens of a sequence, in the place of config.yml's")
    return parser.parse_args(arguments)


def stop(words: str) -> NoReturn:
    """End with words that stand last in the journal, in a way that is not tried again."""
    sys.stderr.write(f"{words}\n")
    raise SystemExit(CANNOT_START)


def keys_of(text: str) -> dict[str, str]:
    """The ``api_key`` and the ``admin_key`` of ``api_tokens.yml`` as the role writes it, a JSON string each.

    Raises ``ValueError`` where they are not there: nothing is started that cannot be masked.
    """
    lines = [line.partition(": ") for line in text.splitlines()]
    found = [(name, json.loads(value)) for name, _, value in lines if name in ("api_key", "admin_key")]
    keys = dict(found)
    if len(found) != len(keys) or len(keys) != 2 or not all(isinstance(key, str) and key for key in keys.values()):
        raise ValueError("there should be one api_key and one admin_key, each in double quotes")
    return keys


def longest_first(keys: Iterable[str]) -> list[str]:
    """The keys in the order in which they are masked: one that another one holds comes after that."""
    return sorted(keys, key=len, reverse=True)


def masked(text: str, keys: Sequence[str]) -> str:
    """The text with every key made unreadable; of two keys of which one holds the other, the longer comes first."""
    return functools.reduce(lambda left, key: left.replace(key, MASK), keys, text)


def mask_output(keys: Sequence[str]) -> None:
    """Let a process of its own pass on, masked, whatever this one and its children write from now on.

    It works on the descriptors, so that C libraries, children and what else does not use the logger are masked, too.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        # It ends when all that write have ended, so that their last words are not lost.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pass_on(reader, sys.stdout.fileno(), [key.encode() for key in keys])
        os._exit(0)
    os.close(reader)
    os.dup2(writer, sys.stdout.fileno())
    os.dup2(writer, sys.stderr.fileno())
    os.close(writer)


def pass_on(source: int, target: int, keys: Sequence[bytes]) -> None:
    """Copy one descriptor to the other until it ends, with every key masked, also one that comes in pieces."""
    rest = b""
    while chunk := os.read(source, CHUNK):
        text = functools.reduce(lambda left, key: left.replace(key, MASK.encode()), keys, rest + chunk)
        cut = safe_cut(text, max(map(len, keys)))
        write_all(target, text[:cut])
        rest = text[cut:]
    write_all(target, rest)


def safe_cut(text: bytes, longest: int) -> int:
    """How much of the text may go out: no key can begin before that and end after the text. No key has a line break."""
    return max(text.rfind(b"\n") + 1, len(text) - longest + 1, 0)


def write_all(target: int, data: bytes) -> None:
    """Write everything, in as many parts as it takes."""
    while data:
        data = data[os.write(target, data) :]


def mask_records(keys: Sequence[str]) -> None:
    """Mask what goes through loguru before it is formatted: no key is found in a line that is folded inside it.

    Upstream's files of logs, which hold what the journal holds and pass no mask, are not opened.
    """
    os.environ["LOGURU_DIAGNOSE"] = "NO"  # read when loguru is imported: no values of variables in tracebacks
    logger = importlib.import_module("loguru").logger
    add = logger.add

    def mask(record: dict[str, Any]) -> None:
        record["message"] = masked(record["message"], keys)

    def add_unless_file(sink: object, **options: Any) -> int:
        return NO_SINK if isinstance(sink, (str, os.PathLike)) else int(add(sink, **options))

    logger.configure(patcher=mask)
    logger.add = add_unless_file


def refuse_taken_port(host: str, port: int) -> None:
    """End when the address cannot be listened on."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as uvicorn does
                tried.bind(address)
                tried.listen()
    except OSError as error:
        stop(
            f"Unable to listen on port {port} of {host}: {error.strerror or error}. "
            "Stop the program that listens there, or set another `port`."
        )


def upstream(checkout: Path, context: int) -> ModuleType:
    """Upstream's main module, which has what is hooked here; another shape is refused.

    Its own arguments count before its file: by them it is told another ``context``.
    """
    sys.path.insert(0, str(checkout))
    sys.argv = [str(checkout / "main.py"), *(["--max-seq-len", str(context)] if context else [])]
    program = importlib.import_module("main")
    missing = [name for name in HOOKS if not callable(getattr(program, name, None))]
    if missing:
        stop(
            f"Unable to start {checkout / 'main.py'}: it has no {' and no '.join(missing)}, which keep its port. "
            "Set `commit` to one that has them."
        )
    return program


def guard_port(program: ModuleType, host: str, port: int) -> None:
    """Let upstream's own question, whose answer "yes" leads to the next port, end the process instead."""

    def is_port_in_use(_port: int) -> bool:
        refuse_taken_port(host, port)
        return False

    vars(program)["is_port_in_use"] = is_port_in_use


def guard_requests(limits: Limits, drain_s: int, former: Kept | None, present: str) -> None:
    """Let uvicorn serve whatever it is given behind the guard, which is asked with the former key as with the present.

    It finishes running answers before it ends.
    """
    server = importlib.import_module("uvicorn")
    connection = importlib.import_module("uvicorn.protocols.http.auto").AutoHTTPProtocol
    create = server.Config.__init__
    ours: dict[str, Any] = {"http": watched(connection, limits)}
    # Without that option (uvicorn before 0.22) it waits without an end, and systemd ends it.
    if "timeout_graceful_shutdown" in inspect.signature(create).parameters:
        ours["timeout_graceful_shutdown"] = drain_s

    @functools.wraps(create)
    def created(self: object, app: Any, *arguments: Any, **options: Any) -> None:
        asked = FormerKey(app, former, present) if former else app
        create(self, Guard(asked, limits), *arguments, **{**options, **ours})
        logging.getLogger("uvicorn.access").addFilter(is_worth_a_line)

    server.Config.__init__ = created


def keep_keys(program: ModuleType) -> None:
    """Have it keep the keys with which it was started, with a commit that would read them anew while it runs."""
    start = program.entrypoint_async

    async def stay() -> None:
        """Look at nothing."""

    async def entrypoint_async() -> None:
        authorization = vars(importlib.import_module("common.auth"))
        if WATCHER in authorization:
            authorization[WATCHER] = stay
        await start()

    vars(program)["entrypoint_async"] = entrypoint_async


def draft_by_ngram(program: ModuleType, match_min: int) -> None:
    """Have the text so far draft, with a commit that does not know how to ask for that (before 2026-06-13).

    It is done in memory, so that the checkout stays the commit, and when upstream has read its configuration: importing
    exllamav3 imports torch, whose allocator is chosen by what upstream sets before.
    """
    start = program.entrypoint_async

    async def entrypoint_async() -> None:
        backend = importlib.import_module("exllamav3")
        if "ngram_match_min" not in inspect.signature(backend.Generator.__init__).parameters:
            stop(
                "Unable to draft by n-grams: this exllamav3 is too old. Set `draft_mode` to disabled, or a newer stack."
            )
        backend.AsyncGenerator.__init__ = with_ngram(backend.AsyncGenerator.__init__, match_min)
        await start()

    vars(program)["entrypoint_async"] = entrypoint_async


def with_ngram(create: Callable[..., None], match_min: int) -> Callable[..., None]:
    """``create`` with n-grams, unless a model drafts or the caller says itself how n-grams do."""

    @functools.wraps(create)
    def created(self: object, *arguments: Any, **options: Any) -> None:
        if not options.get("draft_model") and "ngram_match_min" not in options:
            options["ngram_match_min"] = match_min
            if not options.get("num_draft_tokens"):
                # Without a draft model these commits ask for 0 tokens, which is obeyed: nothing would be drafted.
                options.pop("num_draft_tokens", None)
        create(self, *arguments, **options)

    return created


if __name__ == "__main__":
    main()
