"""Has Ollama hold the models that it is told, imported or pulled, and no longer those that it was told before.

Reads JSON: ``url`` (the server itself), ``models`` (``name``, ``path`` of a GGUF, perhaps ``context``), ``pull``
(``name``, ``model`` as its registry calls it, perhaps the ``digest`` that Ollama tells of it), ``record`` (the file
that says which models were brought by this program), ``store`` (the server's folder of models), ``stall_s`` (how long
the server may say nothing). Answers as JSON with ``done``, in words what was changed.

What others have put into the server is left alone. Python's own library is enough.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

JSON = {"Content-Type": "application/json"}
LONGEST_LINE = 2**20
LONGEST_ANSWER = 16 * 2**20
MOST_LINES = 10_000_000
"""A pull tells its progress ten times a second; more lines than of a fortnight are no progress."""
PIECE = 2**20
PARTS = re.compile(r"-00001-of-(\d{5})\.gguf$")
MANIFEST = "MANIFEST.sha256"
USUAL = ("registry.ollama.ai/", "library/")
"""Ollama leaves these out of the names that it lists."""
ROOM = 2
"""Ollama writes a file that it is given anew, and keeps both for a while."""


class FailedError(Exception):
    """What could not be done, with what the server said."""


class Ollama:
    """A server, by the part of its own interface that makes and deletes models."""

    def __init__(self, url: str, stall_s: float) -> None:
        """Where it listens, and how long it may say nothing."""
        self._place = urlsplit(url).netloc
        self._stall_s = stall_s

    def listed(self) -> dict[str, str]:
        """The digest of each model that it has, by its full name (``name:tag``)."""
        content = self._asked("GET", "/api/tags")
        return {str(one["name"]): str(one["digest"]) for one in content.get("models") or ()}

    def has_blob(self, digest: str) -> bool:
        """Whether it has a file of that content."""
        with self._connected() as connection:
            connection.request("HEAD", f"/api/blobs/{digest}")
            return connection.getresponse().status == http.client.OK

    def take_blob(self, digest: str, file: Path) -> None:
        """Give it a file, whose content it compares with the digest."""
        with self._connected() as connection, file.open("rb") as content:
            length = {"Content-Length": str(file.stat().st_size)}
            connection.request("POST", f"/api/blobs/{digest}", content, length)
            self._content(connection.getresponse(), f"take {file}")

    def told(self, path: str, body: Mapping[str, Any]) -> None:
        """Have it do what takes long; it tells how far it is, line by line, and at last whether that was all."""
        last = ""
        with self._connected() as connection:
            connection.request("POST", path, json.dumps(body), JSON)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                self._content(answer, path)
            for line in _lines(answer):
                if "error" in line:
                    raise FailedError(f"it said: {line['error']}")
                last = str(line.get("status", ""))
        if last != "success":
            raise FailedError(f"it ended with {last or 'nothing'!r} instead of 'success'")

    def copy(self, source: str, name: str) -> None:
        """Give a model a second name."""
        self._asked("POST", "/api/copy", {"source": source, "destination": name})

    def delete(self, name: str) -> None:
        """Delete a model, and what no other one has of it."""
        self._asked("DELETE", "/api/delete", {"model": name})

    def _asked(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        with self._connected() as connection:
            connection.request(method, path, None if body is None else json.dumps(body), JSON)
            return self._content(connection.getresponse(), f"{method} {path}")

    def _content(self, answer: http.client.HTTPResponse, what: str) -> Any:
        """What it answered; an error in its words."""
        text = answer.read(LONGEST_ANSWER).decode(errors="replace")
        if answer.status not in (http.client.OK, http.client.CREATED):
            raise FailedError(f"{what}: HTTP {answer.status}, {text.strip() or 'without a word'}")
        return json.loads(text) if text.strip() else {}

    def _connected(self) -> closing[http.client.HTTPConnection]:
        """A connection that is closed at the end of its block. It asks no proxy."""
        return closing(http.client.HTTPConnection(self._place, timeout=self._stall_s))


def _lines(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Each line of a stream of JSON, as it comes."""
    for _ in range(MOST_LINES):
        line = answer.readline(LONGEST_LINE)
        if not line:
            return
        if line.strip():
            content = json.loads(line)
            yield content if isinstance(content, dict) else {"error": "a line that is no object"}
    raise FailedError(f"it said more than {MOST_LINES} lines")


def full_name(name: str) -> str:
    """The name as Ollama lists it: with its tag, and without what its own registry's models begin with."""
    for usual in USUAL:
        name = name.removeprefix(usual)
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def files_of(first: Path) -> list[Path]:
    """All files of a model, of which the first is named."""
    parts = PARTS.search(first.name)
    if parts is None:
        return [first]
    stem, count = first.name[: parts.start()], int(parts[1])
    return [first.with_name(f"{stem}-{part:05d}-of-{count:05d}.gguf") for part in range(1, count + 1)]


def digest_of(file: Path) -> str:
    """The sha256 of a file's content: as the manifest beside it says, which was compared when it came; else counted."""
    try:
        manifest = (file.parent / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        manifest = ""
    for line in manifest.splitlines():
        sha256, _, name = line.partition(" ")
        if name.strip(" *").removeprefix("./") == file.name and re.fullmatch("[0-9a-f]{64}", sha256):
            return f"sha256:{sha256}"
    counted = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(PIECE):
            counted.update(piece)
    return f"sha256:{counted.hexdigest()}"


def wanted(asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each model is made of, by its name: that is recorded, and compared the next time."""
    found: dict[str, dict[str, Any]] = {}
    for one in asked["models"]:
        files = {file.name: digest_of(file) for file in files_of(Path(one["path"]))}
        context = one.get("context")
        found[one["name"]] = {"files": files, "parameters": {"num_ctx": context} if context else {}}
    for one in asked["pull"]:
        found[one["name"]] = {"pulled": one["model"], "asked": one.get("digest") or ""}
    return found


def import_model(server: Ollama, name: str, made_of: Mapping[str, Any], folder: Path, store: Path) -> None:
    """Make a model of the files of a GGUF."""
    digests = made_of["files"]
    missing = [folder / file for file, digest in digests.items() if not server.has_blob(digest)]
    needed = ROOM * sum(file.stat().st_size for file in missing)
    free = shutil.disk_usage(store).free
    if needed > free:
        raise FailedError(
            f"{store} has {free} bytes left, and importing it takes {needed} for a while. Give it more disk."
        )
    for file in missing:
        server.take_blob(digests[file.name], file)
    server.told("/api/create", {"model": name, "files": digests, "parameters": made_of["parameters"]})
    for file in missing:
        _drop_unused(store, digests[file.name])


def _drop_unused(store: Path, digest: str) -> None:
    """Delete a file that was given to the server, which wrote it anew, unless a model is made of it as it was."""
    for manifest in (store / "manifests").rglob("*"):
        if manifest.is_file() and digest in manifest.read_text(encoding="utf-8", errors="replace"):
            return
    (store / "blobs" / digest.replace(":", "-")).unlink(missing_ok=True)


def pull_model(server: Ollama, name: str, made_of: Mapping[str, Any], before: Mapping[str, str]) -> None:
    """Have the server fetch a model from its registry; one with another digest than was asked for is not kept."""
    source = made_of["pulled"]
    server.told("/api/pull", {"model": source})
    digest = server.listed().get(full_name(source), "")
    is_right = made_of["asked"] in ("", digest)
    if is_right and full_name(source) != full_name(name):
        server.copy(source, name)
    if full_name(source) not in before and (not is_right or full_name(source) != full_name(name)):
        server.delete(source)
    if not is_right:
        raise FailedError(f"its registry has {digest} by now, and digest says {made_of['asked']}")


def recorded(record: Path) -> dict[str, dict[str, Any]]:
    """What this program has brought, by the names: what it is made of, and Ollama's own digest of it."""
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return content if isinstance(content, dict) else {}


def write_record(record: Path, content: Mapping[str, Any]) -> None:
    """Note what was brought, whole or not at all."""
    descriptor, name = tempfile.mkstemp(dir=record.parent, prefix=f".{record.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, sort_keys=True)
    Path(name).replace(record)


def bring(asked: Mapping[str, Any]) -> list[str]:
    """Import, pull and delete what is to be, and say in words what that was."""
    server, record = Ollama(asked["url"], asked["stall_s"]), Path(asked["record"])
    known, there, goal = recorded(record), server.listed(), wanted(asked)
    done = []
    for name, made_of in goal.items():
        seen = known.get(name, {})
        if seen.get("made_of") == made_of and there.get(full_name(name), "-") == seen.get("digest"):
            continue
        _refuse_others(name, known, there)
        # Before it is there: one that a killed run has left is this program's, and is made anew.
        known[name] = {"made_of": made_of, "digest": ""}
        write_record(record, known)
        done.append(_bring_one(server, asked, name, made_of, there))
        known[name] = {"made_of": made_of, "digest": server.listed().get(full_name(name), "")}
        write_record(record, known)
    return done + _let_go(server, record, known, set(goal))


def _bring_one(
    server: Ollama, asked: Mapping[str, Any], name: str, made_of: Mapping[str, Any], there: Mapping[str, str]
) -> str:
    """Pull or import one model, and say which of both."""
    try:
        if "pulled" in made_of:
            pull_model(server, name, made_of, there)
            return f"pulled {name}"
        (folder,) = (Path(one["path"]).parent for one in asked["models"] if one["name"] == name)
        import_model(server, name, made_of, folder, Path(asked["store"]))
    except (OSError, ValueError, http.client.HTTPException, FailedError) as error:
        raise FailedError(f"Unable to have Ollama serve {name}: {error}") from error
    return f"imported {name}"


def _refuse_others(name: str, known: Mapping[str, Any], there: Mapping[str, str]) -> None:
    """Refuse to replace a model that somebody else has put there."""
    if name not in known and full_name(name) in there:
        raise FailedError(
            f"Unable to have Ollama serve {name}: it has a model of that name which the role did not bring."
            f" Give the one of the file another name, or delete the other: ollama rm {name}"
        )


def _let_go(server: Ollama, record: Path, known: dict[str, dict[str, Any]], kept: set[str]) -> list[str]:
    """Delete what was brought earlier and is no longer asked for."""
    done = []
    for name in sorted(set(known) - kept):
        done.append(f"deleted {name}")
        if full_name(name) in server.listed():
            server.delete(name)
        del known[name]
        write_record(record, known)
    return done


def main() -> None:
    """Do it, or say why not."""
    asked = json.load(sys.stdin)
    try:
        done = bring(asked)
    except (OSError, ValueError, http.client.HTTPException, FailedError) as error:
        why = str(error) if isinstance(error, FailedError) else f"Unable to ask Ollama for its models: {error}"
        sys.exit(" ".join(why.split()))  # of what it ended with, the last line is told
    json.dump({"done": done}, sys.stdout)


if __name__ == "__main__":
    main()
