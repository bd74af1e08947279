#!/usr/bin/env python3
"""A stand-in of Ollama's server: its routes, store, scheduler and traps, with fixed words in place of a model.

It is one file because it is installed as one program, ``ollama``. Places such as ``server/routes.go:1803`` are those
of upstream's commit fb30760. It never reaches the network but for ``STAND_IN_REGISTRY``. Only for tests:
``STAND_IN_REGISTRY`` (a folder or http address with the registry's layout), ``STAND_IN_LOAD_S``, ``STAND_IN_TOKEN_S``,
``STAND_IN_WORDS`` (of an answer), ``STAND_IN_VRAM_SHARE``, ``STAND_IN_PRUNE_GRACE_S``, ``STAND_IN_PPROF`` and
``STAND_IN_BLOB_BYTES``.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import http.client
import ipaddress
import json
import math
import mmap
import os
import posixpath
import re
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

VERSION = "0.32.15"
FOREVER = (2**63 - 1) / 1e9
LONGEST_WAIT = 900.0
JSON_BYTES = 64 << 20
PIECE = 1 << 20
PERMISSION_OF_A_BLOB = 0o644


class Refused(Exception):  # noqa: N818  # a refusal is an answer
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ClientGone(Exception):  # noqa: N818  # an event, not an error
    """The client closed its connection."""


# --- settings -------------------------------------------------------------------------------------------------------

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


def duration(text: str) -> float | None:
    """The seconds of a duration as Go writes it, or None if it is none."""
    sign = -1 if text.startswith("-") else 1
    rest = text.lstrip("+-")
    if rest == "0":
        return 0.0
    parts = _QUANTITY.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        return None
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)


def keep_alive_seconds(value: Any) -> float | None:
    """What a request's ``keep_alive`` asks for (api/types.go, Duration.UnmarshalJSON): negative is for ever."""
    if value is None:
        return None
    if isinstance(value, str):
        seconds = duration(value)
        if seconds is None:
            raise Refused(400, f'time: invalid duration "{value}"')
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise Refused(400, f"Unsupported type: '{type(value).__name__}'")
    return FOREVER if seconds < 0 else min(seconds, FOREVER)


_SHOWN = (
    *("CUDA_VISIBLE_DEVICES", "HTTP_PROXY", "HTTPS_PROXY", "LLAMA_ARG_FIT", "LLAMA_ARG_FIT_TARGET", "NO_PROXY"),
    *("OLLAMA_CONTEXT_LENGTH", "OLLAMA_DEBUG", "OLLAMA_FLASH_ATTENTION", "OLLAMA_GPU_OVERHEAD", "OLLAMA_IGPU_ENABLE"),
    *("OLLAMA_KEEP_ALIVE", "OLLAMA_KV_CACHE_TYPE", "OLLAMA_LLM_LIBRARY", "OLLAMA_LOAD_TIMEOUT", "OLLAMA_REMOTES"),
    *("OLLAMA_MAX_LOADED_MODELS", "OLLAMA_SCHED_SPREAD", "OLLAMA_VULKAN", "http_proxy", "https_proxy", "no_proxy"),
)


class Settings:
    """What the environment says, read as envconfig/config.go reads it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.models = Path(self.text("OLLAMA_MODELS") or Path(self.home()) / ".ollama" / "models")
        self.parallel = max(self.number("OLLAMA_NUM_PARALLEL", 1), 1)
        self.most_loaded = self.number("OLLAMA_MAX_LOADED_MODELS", 0) or 3  # server/sched.go:86, defaultModelsPerGPU
        self.most_waiting = self.number("OLLAMA_MAX_QUEUE", 512)
        self.context = self.number("OLLAMA_CONTEXT_LENGTH", 0) or 4096
        self.keep_alive = self._keep_alive()
        self.no_prune = self.truth("OLLAMA_NOPRUNE")
        self.no_cloud = self.truth("OLLAMA_NO_CLOUD")
        self.load_s = float(self.text("STAND_IN_LOAD_S") or 0.2)
        self.token_s = float(self.text("STAND_IN_TOKEN_S") or 0.01)
        self.words = self.number("STAND_IN_WORDS", 24)
        self.vram_share = float(self.text("STAND_IN_VRAM_SHARE") or 0)
        self.prune_grace_s = float(self.text("STAND_IN_PRUNE_GRACE_S") or 3600)
        self.blob_bytes = self.number("STAND_IN_BLOB_BYTES", 8 << 30)
        self.registry = self.text("STAND_IN_REGISTRY")
        self.pprof = self.truth("STAND_IN_PPROF")

    def text(self, name: str) -> str:
        """A variable without the spaces and quotes around it (envconfig.Var)."""
        return self._environment.get(name, "").strip().strip("\"'")

    def number(self, name: str, default: int) -> int:
        """A whole number, or the default where it is none."""
        text = self.text(name)
        return int(text) if text.isascii() and text.isdigit() else default

    def truth(self, name: str) -> bool:
        """A yes or no; a value that is neither counts as yes (envconfig.BoolWithDefault)."""
        return self.text(name) not in {"", "0", "f", "F", "false", "FALSE", "False"}

    def home(self) -> str:
        """The home, without which neither the store's default nor the key has a place (os.UserHomeDir)."""
        home = self._environment.get("HOME", "")
        if not home:
            raise OSError("$HOME is not defined")
        return home

    def address(self) -> tuple[str, int]:
        """Where to listen (envconfig.Host)."""
        scheme, found, rest = self.text("OLLAMA_HOST").partition("://")
        port = {"http": "80", "https": "443"}.get(scheme, "11434") if found else "11434"
        place = (rest if found else scheme).partition("/")[0]
        split = re.fullmatch(r"(?:\[(.*)\]|([^:]*)):(\d*)", place)
        if split:
            host, port = split[1] or split[2] or "", split[3]  # ":11434" listens everywhere
        else:
            host = place.strip("[]") or "127.0.0.1"
        valid = port.isdigit() and int(port) <= 65535
        return host, int(port) if valid else 11434

    def origins(self) -> list[str]:
        """Patterns of pages that may call (envconfig.AllowedOrigins)."""
        own = [one for one in self.text("OLLAMA_ORIGINS").split(",") if one]
        for host in ("localhost", "127.0.0.1", "0.0.0.0"):  # noqa: S104  # a pattern, not an address to bind
            own += [f"{scheme}://{host}{port}" for port in ("", ":*") for scheme in ("http", "https")]
        return [*own, "app://*", "file://*", "tauri://*", "vscode-webview://*", "vscode-file://*"]

    def shown(self) -> str:
        """The environment as the log tells it: all of it, whatever is secret in a proxy's address."""
        host, port = self.address()
        own: dict[str, Any] = {name: self.text(name) for name in _SHOWN}
        derived = {
            "OLLAMA_HOST": f"http://{host}:{port}",
            "OLLAMA_MODELS": str(self.models),
            "OLLAMA_NUM_PARALLEL": self.parallel,
            "OLLAMA_MAX_QUEUE": self.most_waiting,
            "OLLAMA_NOPRUNE": str(self.no_prune).lower(),
            "OLLAMA_NO_CLOUD": str(self.no_cloud).lower(),
            "OLLAMA_ORIGINS": "[" + " ".join(self.origins()) + "]",
        }
        pairs = sorted((own | derived).items())
        return "map[" + " ".join(f"{name}:{value}" for name, value in pairs) + "]"

    def _keep_alive(self) -> float:
        text = self.text("OLLAMA_KEEP_ALIVE")
        seconds = duration(text)
        if seconds is None:
            seconds = float(text) if re.fullmatch(r"[+-]?\d+", text) else 300.0
        return FOREVER if seconds < 0 else min(seconds, FOREVER)


def log(source: str, message: str, level: str = "INFO", **fields: Any) -> None:
    """Write a line to the journal as Go's slog does."""
    rest = "".join(f" {name}={json.dumps(str(value), ensure_ascii=False)}" for name, value in fields.items())
    text = json.dumps(message, ensure_ascii=False)
    console(f"time={now_text()} level={level} source={source} msg={text}{rest}", sys.stderr)


def console(line: str, stream: TextIO | None = None) -> None:
    """Write a line at once, so that a journal has it whatever ends the program."""
    print(line, file=stream, flush=True)


def now_text(seconds_from_now: float = 0.0) -> str:
    """A time as Go writes it into JSON."""
    return moment_text(datetime.now(UTC) + timedelta(seconds=seconds_from_now))


def moment_text(moment: datetime) -> str:
    """A moment as Go writes it into JSON."""
    return moment.isoformat().replace("+00:00", "Z")


def json_line(value: Any) -> bytes:
    """One value in one line, as Go's encoder ends it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


# --- names of models ------------------------------------------------------------------------------------------------

DEFAULT_HOST = "registry.ollama.ai"
MISSING = "!MISSING!"
_PARTS = (
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}"),
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}"),
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
)


class Name(NamedTuple):
    """A model's full name (types/model/name.go)."""

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def valid(self) -> bool:
        """Whether each part has the letters and the length that upstream takes."""
        return all(pattern.fullmatch(part) for pattern, part in zip(_PARTS, self, strict=True))

    @property
    def full(self) -> str:
        """The name with its host, its namespace and its tag."""
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"

    @property
    def shortest(self) -> str:
        """The name as lists show it: always with its tag."""
        if self.host.lower() != DEFAULT_HOST:
            return self.full
        below = "" if self.namespace.lower() == "library" else f"{self.namespace}/"
        return f"{below}{self.model}:{self.tag}"


def _cut(text: str, separator: str) -> tuple[str, str, bool]:
    before, found, after = text.rpartition(separator)
    return (before or MISSING, after or MISSING, True) if found else ("", text, False)


def parse_name(text: str) -> Name:
    """The parts of a name, with upstream's defaults; whether it is one is for ``valid`` to say."""
    tag = "latest"
    if text.rfind(":") > text.rfind("/"):
        text, tag, _ = _cut(text, ":")
    rest, model, more = _cut(text, "/")
    if not more:
        return Name(DEFAULT_HOST, "library", model, tag)
    rest, namespace, more = _cut(rest, "/")
    host = rest.rpartition("://")[2] if more else DEFAULT_HOST
    return Name(host, namespace, model, tag)


def asked_name(raw: str, settings: Settings, unnamed: Refused) -> Name:
    """The name that a request asks for; one of the cloud is refused here, where upstream sends the prompt off."""
    text = raw.strip()
    if not text:
        raise unnamed
    base, _, suffix = text.rpartition(":")
    low = suffix.lower()
    # internal/modelref/modelref.go: a request for NAME:cloud leaves the machine unless OLLAMA_NO_CLOUD is set.
    if base and (low == "cloud" or (low.endswith("-cloud") and "/" not in low)):
        if settings.no_cloud:
            raise Refused(403, "ollama cloud is disabled: remote model is unavailable")
        raise Refused(502, "the stand-in never reaches ollama.com")
    name = parse_name(base if base and low == "local" else text)
    if not name.valid:
        raise Refused(400, "invalid model name")
    return name


# --- GGUF -----------------------------------------------------------------------------------------------------------

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY, _UINT32 = 8, 9, 4
_MOST_ENTRIES = 1 << 24
_FILE_TYPES = {1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 10: "Q2_K", 12: "Q3_K_M", 14: "Q4_K_S", 15: "Q4_K_M"}
_FILE_TYPES |= {16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16"}


class BadGguf(Exception):  # noqa: N818  # says what the file is
    """A file that begins as a GGUF and is none."""


class Gguf:
    """The head of a GGUF file: its values, and where its parts lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.spans: list[tuple[str, int, int]] = []
        self.parameters = 0
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._read(data)
        except (struct.error, ValueError, UnicodeDecodeError) as error:
            raise BadGguf("unexpected EOF") from error

    @property
    def architecture(self) -> str:
        """The architecture; "unknown" where the file names none (fs/ggml/ggml.go)."""
        return str(self.values.get("general.architecture") or "unknown")

    def own(self, key: str) -> Any:
        """A value below the architecture's name."""
        return self.values.get(f"{self.architecture}.{key}")

    @property
    def file_type(self) -> str:
        """How its numbers are stored; F32 is 0, which upstream takes for unknown (KV.FileType)."""
        return _FILE_TYPES.get(self.values.get("general.file_type") or 0, "unknown")

    def _read(self, data: mmap.mmap) -> None:
        magic, version, tensors, values = struct.unpack_from("<4sIQQ", data, 0)
        if magic != b"GGUF" or version not in {2, 3} or max(tensors, values) > _MOST_ENTRIES:
            raise BadGguf("invalid file magic")
        at = 24
        for _ in range(values):
            start = at
            key, at = _text_at(data, at)
            (kind,) = struct.unpack_from("<I", data, at)
            self.values[key], at = _value_at(data, at + 4, kind)
            self.spans.append((key, start, at))
        self.tensors_at = at
        for _ in range(tensors):
            _, at = _text_at(data, at)
            (dimensions,) = struct.unpack_from("<I", data, at)
            self.parameters += math.prod(struct.unpack_from(f"<{dimensions}Q", data, at + 4))
            at += 4 + 8 * dimensions + 12
        alignment = int(self.values.get("general.alignment") or 32)
        self.tensors_end = at
        self.data_at = at + -at % alignment
        self.head = struct.pack("<4sIQ", magic, 3, tensors)
        if self.data_at > len(data):
            raise BadGguf("unexpected EOF")

    def rewritten(self) -> Iterator[bytes]:
        """The file as ``llama-quantize COPY`` writes it: the version and the type of numbers are set anew, last."""
        last = ("general.quantization_version", "general.file_type")
        kept = [span for span in self.spans if span[0] not in last]
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            head = self.head + struct.pack("<Q", len(kept) + 2)
            head += b"".join(data[start:end] for _, start, end in kept)
            for key, default in zip(last, (2, 0), strict=True):
                number = 2 if default else int(self.values.get(key) or 0)
                head += struct.pack(f"<Q{len(key)}sII", len(key), key.encode(), _UINT32, number)
            head += data[self.tensors_at : self.tensors_end]
            yield head + bytes(-len(head) % int(self.values.get("general.alignment") or 32))
            for at in range(self.data_at, len(data), PIECE):
                yield data[at : at + PIECE]


def _text_at(data: mmap.mmap, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    end = at + 8 + length
    if end > len(data):
        raise BadGguf("unexpected EOF")
    return data[at + 8 : end].decode(), end


def _value_at(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    if kind == _TEXT:
        return _text_at(data, at)
    if kind == _ARRAY:
        return _array_at(data, at)
    if kind not in _SCALARS:
        raise BadGguf(f"invalid type: {kind}")
    form = "<" + _SCALARS[kind]
    (value,) = struct.unpack_from(form, data, at)
    return value, at + struct.calcsize(form)


def _array_at(data: mmap.mmap, at: int) -> tuple[Any, int]:
    """A short list, or None for a long one, which no answer shows (server/routes.go, getModelData)."""
    kind, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if count > _MOST_ENTRIES:
        raise BadGguf("unexpected EOF")
    if kind in _SCALARS:
        form = "<" + _SCALARS[kind]
        end = at + count * struct.calcsize(form)
        short = list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", data, at)) if count <= 5 else None
        return short, end
    values = []
    for _ in range(count):
        value, at = _value_at(data, at, kind)
        values.append(value)
    return values if count <= 5 else None, at


def human_number(count: int) -> str:
    """A number of parameters as upstream shortens it (format/format.go, HumanNumber)."""
    for size, letter, digits in ((10**9, "B", 1), (10**6, "M", 2)):
        if count >= size:
            return f"{count // size}{letter}" if count % size == 0 else f"{count / size:.{digits}f}{letter}"
    return f"{count / 1000:.0f}K" if count >= 1000 else str(count)


# --- the store ------------------------------------------------------------------------------------------------------

KIND = "application/vnd.ollama.image."
MANIFEST_KIND = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_KIND = "application/vnd.docker.container.image.v1+json"
_DIGEST = re.compile(r"sha256[:-][0-9a-fA-F]{64}")


@dataclass(frozen=True)
class Layer:
    """A blob of a model: what it is, and whether it had to be written."""

    kind: str
    digest: str
    size: int
    fresh: bool = False
    source: str = ""

    @property
    def status(self) -> str:
        """What a stream of progress says of it."""
        return f"{'creating new' if self.fresh else 'using existing'} layer {self.digest}"

    def entry(self) -> dict[str, Any]:
        """The layer as a manifest names it."""
        plain: dict[str, Any] = {"mediaType": self.kind, "digest": self.digest, "size": self.size}
        return plain | ({"from": self.source} if self.source else {})


@dataclass(frozen=True)
class Manifest:
    """A manifest as it lies in the store."""

    name: Name
    path: Path
    config: dict[str, Any]
    layers: list[dict[str, Any]]
    digest: str
    modified: float

    @property
    def modified_at(self) -> str:
        """When it was written."""
        return moment_text(datetime.fromtimestamp(self.modified, UTC))

    def all_layers(self) -> list[dict[str, Any]]:
        """Every blob it needs, its configuration included."""
        return [*self.layers, *([self.config] if self.config.get("digest") else [])]

    @property
    def size(self) -> int:
        """The bytes of all its blobs."""
        return sum(int(layer.get("size", 0)) for layer in self.all_layers())


class Store:
    """Blobs and manifests in upstream's layout (manifest/paths.go), so that models outlive a restart."""

    def __init__(self, root: Path, blob_bytes: int) -> None:
        self.blobs = root / "blobs"
        self.manifests_folder = root / "manifests"
        self._blob_bytes = blob_bytes
        for folder in (self.blobs, self.manifests_folder):
            folder.mkdir(parents=True, exist_ok=True)

    def blob(self, digest: str) -> Path:
        """Where a blob lies; refuses what is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise Refused(400, "invalid digest format")
        return self.blobs / digest.replace(":", "-")

    def add(self, pieces: Iterable[bytes], kind: str = "") -> Layer:
        """Keep these bytes under the digest they have, whichever was promised (manifest/layer.go, NewLayer)."""
        digest = hashlib.sha256()
        size = 0
        with tempfile.NamedTemporaryFile(dir=self.blobs, prefix="sha256-", delete=False) as file:
            place = Path(file.name)
            try:
                for piece in pieces:
                    size += len(piece)
                    if size > self._blob_bytes:
                        raise Refused(500, "no space left on device")
                    digest.update(piece)
                    file.write(piece)
                file.flush()
                name = f"sha256:{digest.hexdigest()}"
                blob = self.blob(name)
                fresh = not blob.exists()
                if fresh:
                    place.chmod(PERMISSION_OF_A_BLOB)
                    place.rename(blob)
            finally:
                place.unlink(missing_ok=True)
        os.utime(blob)  # manifest/layer.go:104, touchLayer: its age starts anew
        return Layer(kind, name, size, fresh)

    def manifests(self) -> dict[Name, Manifest]:
        """Every manifest that can be read."""
        found = {}
        for path in sorted(self.manifests_folder.glob("*/*/*/*")):
            name = Name(*path.relative_to(self.manifests_folder).parts)
            manifest = self.manifest(name) if name.valid else None
            if manifest:
                found[name] = manifest
        return found

    def manifest(self, name: Name) -> Manifest | None:
        """One manifest; None if there is none or if it is broken."""
        path = self.manifests_folder.joinpath(*name)
        try:
            content = path.read_bytes()
            stated = json.loads(content)
            layers, config = stated.get("layers") or [], stated.get("config") or {}
            digest = hashlib.sha256(content).hexdigest()
            return Manifest(name, path, config, layers, digest, path.stat().st_mtime)
        except (OSError, ValueError, AttributeError):
            return None

    def existing(self, name: Name) -> Name:
        """The name in the letters of one that is there (server/routes.go:1222, getExistingName)."""
        parts = list(name)
        for other in self.manifests():
            for at, part in enumerate(other):
                if part.lower() == parts[at].lower():
                    parts[at] = part
        return Name(*parts)

    def write_manifest(self, name: Name, content: bytes) -> None:
        """Make or replace a model."""
        path = self.manifests_folder.joinpath(*name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def remove_unused(self, digests: Iterable[str]) -> int:
        """Remove those of these blobs that no manifest needs; the number of them."""
        used = {layer["digest"] for manifest in self.manifests().values() for layer in manifest.all_layers()}
        unused = set(digests) - used
        for digest in unused:
            self.blob(digest).unlink(missing_ok=True)
        return len(unused)

    def remove(self, manifest: Manifest) -> None:
        """Remove a model, its blobs where no other needs them, and the folders that are empty then."""
        manifest.path.unlink()
        for folder in list(manifest.path.parents)[:3]:
            with contextlib.suppress(OSError):
                folder.rmdir()
        self.remove_unused(layer["digest"] for layer in manifest.all_layers())

    def prune(self, grace: float) -> None:
        """Remove what no model needs and what is half, if it is older than the grace: an hour (server/images.go:40)."""
        old = []
        for path in self.blobs.iterdir():
            if path.is_dir() or time.time() - path.stat().st_mtime < grace:
                continue
            if _DIGEST.fullmatch(path.name):
                old.append(path.name.replace("-", ":"))
            else:
                path.unlink()
        log("images.go:916", f"total blobs: {len(old)}")
        log("images.go:923", f"total unused blobs removed: {self.remove_unused(old)}")


# --- models ---------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """A model as requests meet it (server/images.go, GetModel)."""

    name: Name
    manifest: Manifest
    config: dict[str, Any]
    gguf: Gguf
    size: int
    template: str = ""
    system: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    licenses: list[str] = field(default_factory=list)

    @property
    def chat_template(self) -> str:
        """The template in the GGUF file."""
        return str(self.gguf.values.get("tokenizer.chat_template") or "")

    def capabilities(self) -> list[str]:
        """What it can do, by its templates alone (server/images.go:112)."""
        own = _chat_capabilities(self.chat_template)
        go = [word for word, sign in _GO_SIGNS.items() if sign in self.template]
        if self.template and len(own) <= len(go):  # server/images.go:295, shouldPreferChatTemplate
            own = []
        kind = "completion" if self.gguf.own("pooling_type") is None else "embedding"
        return [*own, kind, *(word for word in go if word not in own)]

    def details(self) -> dict[str, Any]:
        """What lists tell of it."""
        return {
            "parent_model": "",
            "format": self.config.get("model_format", ""),
            "family": self.config.get("model_family", ""),
            "families": self.config.get("model_families") or None,
            "parameter_size": self.config.get("model_type", ""),
            "quantization_level": self.config.get("file_type", ""),
        }


_GO_SIGNS = {"tools": ".Tools", "insert": ".Suffix", "thinking": ".Thinking"}


def _chat_capabilities(template: str) -> list[str]:
    tools = "tools" in template or "tool_call" in template
    # server/images.go:223 wants both tags; that the word is enough is the stand-in's, for short templates in tests.
    thinking = ("<think>" in template and "</think>" in template) or "thinking" in template
    return [word for word, able in (("tools", tools), ("thinking", thinking)) if able]


class Models:
    """The models of a store, with the heads of their files remembered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._heads: dict[str, Gguf] = {}

    def get(self, name: Name) -> Model | None:
        """A model; None if there is none, or none that is whole."""
        manifest = self._store.manifest(name)
        return self.of(manifest) if manifest else None

    def of(self, manifest: Manifest) -> Model | None:
        """The model of a manifest; None if one of its blobs is missing."""
        try:
            return self._whole(manifest)
        except (OSError, ValueError, KeyError, StopIteration, BadGguf) as error:
            log("images.go:725", "couldn't open model file", "ERROR", error=error)
            return None

    def _whole(self, manifest: Manifest) -> Model:
        config = json.loads(self._store.blob(manifest.config["digest"]).read_bytes())
        layer = next(layer for layer in manifest.layers if layer["mediaType"] == f"{KIND}model")
        model = Model(manifest.name, manifest, config, self._head(layer["digest"]), int(layer["size"]))
        for layer in manifest.layers:
            kind = layer["mediaType"].removeprefix(KIND)
            if kind not in {"template", "system", "params", "license"}:
                continue
            text = self._store.blob(layer["digest"]).read_text("utf-8")
            if kind == "params":
                model.options = json.loads(text)
            elif kind == "license":
                model.licenses.append(text)
            else:
                setattr(model, kind, text)
        return model

    def _head(self, digest: str) -> Gguf:
        if digest not in self._heads:
            if len(self._heads) > 64:
                self._heads.clear()
            self._heads[digest] = Gguf(self._store.blob(digest))
        return self._heads[digest]


# --- making and pulling models --------------------------------------------------------------------------------------

Progress = Iterator[dict[str, Any]]


def create(store: Store, settings: Settings, body: dict[str, Any], name: Name) -> Progress:
    """Make a model of uploaded files or of another model (server/create.go)."""
    old = store.manifest(name)
    layers: list[Layer] = []
    config: dict[str, Any] = {}
    if body.get("from"):
        layers, config = _layers_of(store, str(body["from"]))
    elif body.get("files") is not None:
        yield from _layers_of_files(store, body["files"], layers, config)
    else:
        raise Refused(400, "neither 'from' or 'files' was specified")
    layers += _written_layers(store, body, layers)
    for layer in layers:
        yield {"status": layer.status}
    yield {"status": "writing manifest"}
    content = json_line(config | {"architecture": "amd64", "os": "linux"})
    stated = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_KIND,
        "config": store.add([content], CONFIG_KIND).entry(),
        "layers": [layer.entry() for layer in layers],
    }
    store.write_manifest(name, json_line(stated))
    if old and not settings.no_prune:
        store.remove_unused(layer["digest"] for layer in old.all_layers())
    yield {"status": "success"}


def _layers_of(store: Store, text: str) -> tuple[list[Layer], dict[str, Any]]:
    name = parse_name(text)
    if not name.valid:
        raise Refused(400, "invalid model name")
    base = store.manifest(store.existing(name))
    if not base:
        raise Refused(500, "pull model manifest: file does not exist")  # parseFromModel pulls what is not there
    layers = [Layer(layer["mediaType"], layer["digest"], layer["size"], source=name.shortest) for layer in base.layers]
    return layers, json.loads(store.blob(base.config["digest"]).read_bytes())


def _layers_of_files(store: Store, files: dict[str, str], layers: list[Layer], config: dict[str, Any]) -> Progress:
    for file, digest in sorted(files.items()):
        path = store.blob(digest)
        # server/create.go, detectModelTypeFromFiles: the name decides, and only then the content.
        if not file.endswith(".gguf") and (not path.exists() or _magic(path) != b"GGUF"):
            raise Refused(400, "unknown type")
        yield {"status": "parsing GGUF"}
        if not path.exists():
            raise Refused(500, f"open {path}: no such file or directory")
        if _magic(path) != b"GGUF":
            raise Refused(400, "supplied file was not in GGUF format")
        os.utime(path)
        head = _head_of(path)
        if head.architecture == "clip":
            layers.append(Layer(f"{KIND}projector", digest.replace("-", ":"), path.stat().st_size, source=file))
            continue
        yield {"status": "verifying conversion"}
        # server/create.go:942, copyLayerWithLlamaQuantize: what is kept is a rewritten file with a digest of its own.
        # Nothing needs the upload any more; the first start later than an hour after this prunes it.
        layer = store.add(head.rewritten(), f"{KIND}model")
        layers.append(layer)
        config |= _config_of(_head_of(store.blob(layer.digest)))
    if not layers:
        raise Refused(400, "unknown type")


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _head_of(path: Path) -> Gguf:
    try:
        return Gguf(path)
    except BadGguf as error:
        raise Refused(500, str(error)) from error


def _config_of(head: Gguf) -> dict[str, Any]:
    return {
        "model_format": "gguf",
        "model_family": head.architecture,
        "model_families": [head.architecture],
        "model_type": human_number(head.parameters),
        "file_type": head.file_type,
    }


def _written_layers(store: Store, body: dict[str, Any], layers: list[Layer]) -> list[Layer]:
    """Layers of the request's own texts, which take the place of those that the base has."""
    texts = {kind: str(body[kind]) for kind in ("template", "system") if body.get(kind)}
    licenses = body.get("license") or []
    parameters = dict(body.get("parameters") or {})
    for layer in list(layers):
        kind = layer.kind.removeprefix(KIND)
        if kind == "params":
            parameters = json.loads(store.blob(layer.digest).read_bytes()) | parameters
        if kind in texts or kind == "params":
            layers.remove(layer)
    written = [store.add([text.encode()], KIND + kind) for kind, text in texts.items()]
    licenses = [licenses] if isinstance(licenses, str) else licenses
    written += [store.add([text.encode()], f"{KIND}license") for text in licenses]
    if parameters:
        written.append(store.add([json_line(parameters)], f"{KIND}params"))
    return written


class Registry:
    """The registry that ``STAND_IN_REGISTRY`` names; without it every pull fails as on a machine with no network."""

    def __init__(self, place: str) -> None:
        self._place = place

    @contextlib.contextmanager
    def open(self, name: Name, below: str) -> Iterator[Any]:
        """One of its files, as something to read from."""
        address = f"https://{name.host}/v2/{name.namespace}/{name.model}/{below}"
        if not self._place or name.host != DEFAULT_HOST:
            raise Refused(500, f'Get "{address}": dial tcp: lookup {name.host}: no such host')
        try:
            with self._opened(f"v2/{name.namespace}/{name.model}/{below}") as file:
                yield file
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise Refused(500, "file does not exist") from error
        except urllib.error.HTTPError as error:
            unknown = error.code == HTTPStatus.NOT_FOUND
            raise Refused(500, "file does not exist" if unknown else f"{error.code}: {error.reason}") from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
            raise Refused(500, f'Get "{address}": {error}') from error

    def _opened(self, below: str) -> Any:
        if self._place.startswith(("http://", "https://")):
            return urllib.request.urlopen(f"{self._place.rstrip('/')}/{below}", timeout=60)  # noqa: S310
        return Path(self._place, below).open("rb")


def pull(store: Store, settings: Settings, name: Name) -> Progress:
    """Bring a model from the registry (server/images.go, PullModel)."""
    registry = Registry(settings.registry)
    old = store.manifest(name)
    yield {"status": "pulling manifest"}
    try:
        with registry.open(name, f"manifests/{name.tag}") as file:
            content = file.read(JSON_BYTES)
    except Refused as refused:
        raise Refused(refused.status, f"pull model manifest: {refused.message}") from refused
    stated = json.loads(content)
    fresh = []
    for layer in [*stated["layers"], *([stated["config"]] if stated.get("config") else [])]:
        digest, size = str(layer["digest"]), int(layer["size"])
        told = {"status": f"pulling {digest[7:19]}", "digest": digest, "total": size}
        path = store.blob(digest)
        if not path.exists():
            yield told
            _download(registry, name, digest, path)
            fresh.append((digest, path))
        yield told | {"completed": size}
    yield {"status": "verifying sha256 digest"}
    for digest, path in fresh:
        _verify(digest, path)
    yield {"status": "writing manifest"}
    store.write_manifest(name, content)
    if old and not settings.no_prune:
        store.remove_unused(layer["digest"] for layer in old.all_layers())
    yield {"status": "success"}


def _download(registry: Registry, name: Name, digest: str, path: Path) -> None:
    partial = path.with_name(f"{path.name}-partial")  # server/download.go: what is half keeps this name
    with registry.open(name, f"blobs/{digest}") as file, partial.open("wb") as kept:
        shutil.copyfileobj(file, kept, PIECE)
    partial.rename(path)


def _verify(digest: str, path: Path) -> None:
    with path.open("rb") as file:
        right = hashlib.file_digest(file, "sha256").hexdigest() == digest.removeprefix("sha256:")
    if not right:  # server/images.go:1447: the blob is removed, and no model is written
        path.unlink()
        raise Refused(500, "digest mismatch, file must be downloaded again")


def push(store: Store, name: Name) -> Progress:
    """Refuse to give a model away, as upstream does for a key that ollama.com does not know."""
    yield {"status": "retrieving manifest"}
    if not store.manifest(name):
        yield {"status": "couldn't retrieve manifest"}
        path = store.manifests_folder.joinpath(*name)
        raise Refused(500, f"open {path}: no such file or directory")
    raise Refused(500, "you must be signed in to push models to ollama.com")


# --- the scheduler --------------------------------------------------------------------------------------------------


class Waiting:
    """A request that waits: whether its client still does, and what is due when it ends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = time.monotonic() + LONGEST_WAIT
        self.at_end: list[Callable[[], None]] = []

    def check(self) -> None:
        """Raise if the client is gone or if it has waited for longer than anything takes."""
        if time.monotonic() > self._until:
            raise ClientGone
        try:
            readable, _, _ = select.select([self._connection], [], [], 0)
            if readable and not self._connection.recv(1, socket.MSG_PEEK):
                raise ClientGone
        except (OSError, ValueError) as error:
            raise ClientGone from error

    def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than the client waits."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, 0.1))

    def end(self) -> None:
        """Do what is due, last first."""
        while self.at_end:
            self.at_end.pop()()


@dataclass
class Runner:
    """A loaded model."""

    model: Model
    context: int
    explicit: bool
    slots: threading.BoundedSemaphore
    stays: float
    loading: bool = True
    users: int = 0
    expires: float = math.inf


class Scheduler:
    """Who is loaded, and who waits for being so (server/sched.go)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._loaded: dict[str, Runner] = {}
        self._pending: deque[object] = deque()

    def runner(self, model: Model, asked_context: int | None, keep: float | None, waiting: Waiting) -> Runner:
        """The model, loaded; it stays so until ``waiting`` ends, and then for as long as it is to be kept."""
        key = model.gguf.path.name
        with self._changed:
            runner = self._ready(key, asked_context, waiting) or self._scheduled(key, model, asked_context, waiting)
            runner.users += 1
            runner.stays = runner.stays if keep is None else keep
            waiting.at_end.append(lambda: self._release(key, runner))
        if runner.loading and runner.users == 1:
            self._load(runner, waiting)
        return runner

    @contextlib.contextmanager
    def slot(self, runner: Runner, waiting: Waiting) -> Iterator[None]:
        """One of the model's turns to compute.

        llm/llama_server.go:1536: whoever waits here for a loaded model is counted by nothing: OLLAMA_MAX_QUEUE does
        not bound it, and no 503 comes.
        """
        while not runner.slots.acquire(timeout=0.05):
            waiting.check()
        try:
            yield
        finally:
            runner.slots.release()

    def expire(self, model: Model) -> None:
        """Unload as soon as nobody uses it."""
        with self._changed:
            runner = self._loaded.get(model.gguf.path.name)
            if runner:
                runner.stays, runner.expires = 0.0, 0.0
                self._purge()

    def loaded(self) -> list[dict[str, Any]]:
        """What ``/api/ps`` tells, the longest to stay first."""
        with self._changed:
            self._purge()
            runners = list(self._loaded.values())
        runners.sort(key=lambda runner: -_left(runner))
        return [_shown(runner, self._settings.vram_share) for runner in runners]

    def _ready(self, key: str, context: int | None, waiting: Waiting) -> Runner | None:
        """The loaded one; who comes while it loads waits for it here, counted by nothing either (sched.go:1381)."""
        self._purge()
        while (runner := self._loaded.get(key)) and runner.loading:
            self._wait(waiting)
        return runner if runner and not _outdated(runner, context) else None

    def _scheduled(self, key: str, model: Model, context: int | None, waiting: Waiting) -> Runner:
        # server/sched.go:204: one request is being scheduled, OLLAMA_MAX_QUEUE more wait, the next is told 503.
        if len(self._pending) > self._settings.most_waiting:
            raise Refused(503, "server busy, please try again.  maximum pending requests exceeded")
        ticket = object()
        self._pending.append(ticket)
        try:
            while self._pending[0] is not ticket:
                self._wait(waiting)
            return self._placed(key, model, context, waiting)
        finally:
            self._pending.remove(ticket)
            self._changed.notify_all()

    def _placed(self, key: str, model: Model, context: int | None, waiting: Waiting) -> Runner:
        while True:
            self._purge()
            runner = self._ready(key, context, waiting)
            if runner:
                return runner
            old = self._loaded.get(key)
            if not old and len(self._loaded) < self._settings.most_loaded:
                break
            # server/sched.go:1664: the idle one that is the first to go, else the first to go: its answers end before.
            old = old or min(self._loaded.values(), key=lambda one: (one.users > 0, one.stays))
            old.stays, old.expires = 0.0, 0.0
            self._purge()
            if old in self._loaded.values():
                self._wait(waiting)
        trained = int(model.gguf.own("context_length") or 0)
        size = max(context or self._settings.context, 4)
        places = self._settings.parallel if "completion" in model.capabilities() else 1
        slots = threading.BoundedSemaphore(places)
        effective = min(size, trained) if trained else size
        runner = Runner(model, effective, context is not None, slots, self._settings.keep_alive)
        self._loaded[key] = runner
        return runner

    def _load(self, runner: Runner, waiting: Waiting) -> None:
        try:
            waiting.sleep(self._settings.load_s)
        finally:
            with self._changed:
                runner.loading = False
                self._changed.notify_all()

    def _release(self, key: str, runner: Runner) -> None:
        with self._changed:
            runner.users -= 1
            if runner.users <= 0:
                runner.expires = time.monotonic() + runner.stays
            if self._loaded.get(key) is runner:
                self._purge()
            self._changed.notify_all()

    def _purge(self) -> None:
        now = time.monotonic()
        for key, runner in list(self._loaded.items()):
            if runner.users <= 0 and runner.expires <= now:
                del self._loaded[key]
                self._changed.notify_all()

    def _wait(self, waiting: Waiting) -> None:
        self._changed.wait(0.05)
        waiting.check()
        self._purge()


def _outdated(runner: Runner, context: int | None) -> bool:
    """Whether a request's options need it loaded anew (sched.go:1381, needsReload): another num_ctx does."""
    if context is None:
        return runner.explicit
    trained = int(runner.model.gguf.own("context_length") or 0)
    return runner.context != (min(context, trained) if trained else context)


def _left(runner: Runner) -> float:
    return runner.stays if runner.users else runner.expires - time.monotonic()


def _shown(runner: Runner, share: float) -> dict[str, Any]:
    model = runner.model
    return {
        "name": model.name.shortest,
        "model": model.name.shortest,
        "size": model.size,
        "digest": model.manifest.digest,
        "details": model.details(),
        "expires_at": now_text(min(_left(runner), FOREVER)),
        "size_vram": int(model.size * share),
        "context_length": runner.context,
    }


# --- answers --------------------------------------------------------------------------------------------------------


@dataclass
class Turn:
    """An answer in the making: its pieces first, its numbers when they are over."""

    model: str
    thoughts: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    reason: str = "stop"
    prompt_tokens: int = 0
    runner: Runner | None = None
    started: float = field(default_factory=time.monotonic)
    loaded: float = 0.0
    spoken: int = 0

    @property
    def empty(self) -> bool:
        """Whether the request only loaded or unloaded the model."""
        return self.runner is None

    def metrics(self) -> dict[str, int]:
        """The numbers of the last event."""
        if self.empty:
            return {}
        total = int((time.monotonic() - self.started) * 1e9)
        load = int((self.loaded - self.started) * 1e9)
        numbers = {
            "total_duration": total,
            "load_duration": load,
            "prompt_eval_count": self.prompt_tokens,
            "prompt_eval_duration": 1_000_000,
            "eval_count": self.spoken,
            "eval_duration": max(total - load, 1),
        }
        return {name: number for name, number in numbers.items() if number}


class App:
    """What every request shares."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.models, settings.blob_bytes)
        self.models = Models(self.store)
        self.scheduler = Scheduler(settings)

    def model(self, raw: str, unnamed: Refused, unknown: str) -> Model:
        """The model that a request names."""
        name = self.store.existing(asked_name(raw, self.settings, unnamed))
        model = self.models.get(name)
        if model is None:
            raise Refused(404, unknown)
        return model

    def pieces(self, turn: Turn, waiting: Waiting) -> Iterator[tuple[str, str]]:
        """The words of an answer at their times, as ("thinking" or "content", word)."""
        if turn.runner is None:
            return
        with self.scheduler.slot(turn.runner, waiting):
            for kind, words in (("thinking", turn.thoughts), ("content", turn.words)):
                for word in words:
                    waiting.sleep(self.settings.token_s)
                    waiting.check()
                    turn.spoken += 1
                    yield kind, word

    def answer(self, turn: Turn, waiting: Waiting) -> tuple[str, str]:
        """All of an answer: its thoughts and its text."""
        said = {"thinking": "", "content": ""}
        for kind, word in self.pieces(turn, waiting):
            said[kind] += word
        return said["thinking"], said["content"]


THOUGHTS = "The question is plain, so the answer is."


def with_spaces(text: str) -> list[str]:
    """The words of a text, each with the space before it."""
    return re.findall(r"\s*\S+", text)


def answer_words(model: Model, prompt: str, body: dict[str, Any], length: int) -> list[str]:
    """The words that are always said to this prompt by this model."""
    heard = " ".join(prompt.split()[:64])
    if body.get("format"):
        return with_spaces(json.dumps({"heard": heard}, ensure_ascii=False))
    words = with_spaces(f"{model.name.model} heard: {heard}.")
    return words + [f" {number}" for number in range(1, length - len(words) + 1)]


def say(app: App, call: Call, body: dict[str, Any], model: Model, prompt: str, *, think: bool) -> Turn:
    """Load the model and decide what it says."""
    options = model.options | (body.get("options") or {})
    turn = Turn(str(body["model"]))
    context = options.get("num_ctx")
    keep = keep_alive_seconds(body.get("keep_alive"))
    turn.runner = app.scheduler.runner(model, int(context) if context else None, keep, call.waiting)
    turn.loaded = time.monotonic()
    turn.prompt_tokens = max(len(prompt.split()), 1)
    turn.thoughts = with_spaces(THOUGHTS) if think else []
    turn.words = answer_words(model, prompt, body, app.settings.words)
    limit = options.get("num_predict", -1)
    if isinstance(limit, int) and 0 <= limit < len(turn.thoughts) + len(turn.words):
        turn.words = turn.words[: max(limit - len(turn.thoughts), 0)]
        turn.thoughts = turn.thoughts[:limit]
        turn.reason = "length"
    return turn


def wants_thinking(body: dict[str, Any], model: Model, *, relaxed: bool = False) -> bool:
    """Whether to think: a model that can does so unless it is told not to (server/routes.go, ChatHandler)."""
    think = body.get("think")
    if not (think is None or isinstance(think, bool) or think in {"high", "medium", "low", "max"}):
        levels = '"high", "medium", "low", "max", true, or false'
        raise Refused(400, f"invalid think value: {json.dumps(think)} (must be {levels})")
    if "thinking" in model.capabilities():
        return think is None or bool(think)
    if think and not relaxed:
        raise Refused(400, f'"{body["model"]}" does not support thinking')
    return False


def begin_chat(app: App, call: Call, body: dict[str, Any], *, relaxed: bool = False) -> Turn:
    """Check a chat as upstream does, and load its model (server/routes.go, ChatHandler)."""
    asked = body["model"] = str(body.get("model") or "")
    model = app.model(asked, Refused(400, "model is required"), f"model '{asked}' not found")
    messages = body.get("messages") or []
    if not messages and keep_alive_seconds(body.get("keep_alive")) == 0:
        app.scheduler.expire(model)
        return Turn(asked, reason="unload")
    think = wants_thinking(body, model, relaxed=relaxed)
    able = model.capabilities()
    if "completion" not in able:
        raise Refused(400, f'"{asked}" does not support chat')
    if body.get("tools") and "tools" not in able:
        raise Refused(400, f"{model.name.full} does not support tools")
    if messages:
        return say(app, call, body, model, _prompt(model, messages), think=think)
    say(app, call, body, model, "", think=think)
    return Turn(asked, reason="load")


def _prompt(model: Model, messages: list[Any]) -> str:
    texts = [str(message.get("content") or "") for message in messages if isinstance(message, dict)]
    if not texts:
        raise Refused(400, "json: cannot unmarshal messages into Go struct field ChatRequest.messages")
    return texts[-1] if messages[0].get("role") == "system" else f"{model.system} {texts[-1]}".strip()


def begin_generate(app: App, call: Call, body: dict[str, Any]) -> Turn:
    """Check a completion as upstream does, and load its model (server/routes.go, GenerateHandler)."""
    asked = body["model"] = str(body.get("model") or "")
    unknown = f"model '{asked}' not found"
    model = app.model(asked, Refused(404, unknown), unknown)
    prompt = str(body.get("prompt") or "")
    if not prompt and keep_alive_seconds(body.get("keep_alive")) == 0:
        app.scheduler.expire(model)
        return Turn(asked, reason="unload")
    think = wants_thinking(body, model)
    able = model.capabilities()
    if "completion" not in able:
        raise Refused(400, f'"{asked}" does not support generate')
    if body.get("suffix") and "insert" not in able:
        raise Refused(400, f"{model.name.full} does not support insert")
    turn = say(app, call, body, model, prompt, think=think)
    return turn if prompt else Turn(asked, reason="load")


def embed_texts(app: App, call: Call, body: dict[str, Any], texts: list[str], model: Model) -> list[list[float]]:
    """A vector for each text, of length one, always the same for the same text."""
    keep = keep_alive_seconds(body.get("keep_alive"))
    runner = app.scheduler.runner(model, None, keep, call.waiting)
    width = min(int(model.gguf.own("embedding_length") or 64), 8192)
    wanted = int(body.get("dimensions") or 0)
    with app.scheduler.slot(runner, call.waiting):
        return [_vector(text, min(wanted, width) if wanted > 0 else width) for text in texts]


def _vector(text: str, width: int) -> list[float]:
    content = hashlib.shake_256(text.encode()).digest(2 * width)
    numbers = [(value - 32768) / 32768 for value in struct.unpack(f"<{width}H", content)]
    length = math.sqrt(sum(number * number for number in numbers)) or 1.0
    return [number / length for number in numbers]


# --- calls ----------------------------------------------------------------------------------------------------------


class Call:
    """One request and its answer; no key is ever asked for: an Authorization header is not even read."""

    def __init__(self, handler: Handler, path: str, last: str) -> None:
        self.path = path
        self.last = last
        self.form: Callable[[int, str], dict[str, Any]] = native_error
        self.waiting = Waiting(handler.connection)
        self._handler = handler

    def json(self, *, empty: str = "missing request body") -> dict[str, Any]:
        """The body, which upstream takes for JSON whatever its type says."""
        content = b"".join(self._handler.body_pieces(JSON_BYTES))
        if not content.strip():
            raise Refused(400, empty)
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"invalid character: {error}") from error
        if not isinstance(body, dict):
            raise Refused(400, f"json: cannot unmarshal {type(body).__name__} into Go value")
        return body

    def body_pieces(self, most: int) -> Iterator[bytes]:
        """The body as it comes."""
        return self._handler.body_pieces(most)

    def answer(self, value: Any, status: int = 200, kind: str = "application/json; charset=utf-8") -> None:
        """Answer with one JSON value."""
        content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        self._handler.whole(status, content, kind)

    def text(self, status: int, text: str = "", kind: str = "text/plain") -> None:
        """Answer with a text, or with nothing."""
        self._handler.whole(status, text.encode(), kind)

    def lines(self, events: Iterable[dict[str, Any]]) -> None:
        """Answer with a line of JSON for each event.

        server/routes.go:2097, streamResponse: nothing is sent before the first event, so an error that is first has
        a status of its own; a later one is only a line of an answer that began with 200.
        """
        pieces = (json_line(event) for event in events)
        self.stream(pieces, "application/x-ndjson", lambda message: json_line({"error": message}))

    def progress(self, events: Progress, *, streamed: bool) -> None:
        """Answer with progress: all of it, or only the last of it (server/routes.go:2070, waitForStream)."""
        if streamed:
            self.lines(events)
            return
        latest: dict[str, Any] = {}
        for event in events:
            latest = event
        self.answer(latest, kind="application/json")

    def stream(self, pieces: Iterable[bytes], kind: str, failed: Callable[[str], bytes]) -> None:
        """Answer in pieces; their end is marked only if they end by themselves."""
        began = False
        try:
            for piece in pieces:
                if not began:
                    self._handler.begin_stream(kind)
                    began = True
                self._handler.piece(piece)
        except Refused as refused:
            if not began:
                raise
            self._handler.piece(failed(refused.message))
        self._handler.end_stream()

    def refuse(self, refused: Refused) -> None:
        """Answer with an error in the words of this route's protocol."""
        self.answer(self.form(refused.status, refused.message), refused.status)


def native_error(_status: int, message: str) -> dict[str, Any]:
    """An error as ``/api`` tells it."""
    return {"error": message}


def openai_error(status: int, message: str) -> dict[str, Any]:
    """An error as ``/v1`` tells it (openai/openai.go, NewError)."""
    kind = {400: "invalid_request_error", 404: "not_found_error"}.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def anthropic_error(status: int, message: str) -> dict[str, Any]:
    """An error as ``/v1/messages`` tells it (anthropic/anthropic.go, NewError)."""
    kinds = {400: "invalid_request_error", 403: "permission_error", 404: "not_found_error", 503: "overloaded_error"}
    error = {"type": kinds.get(status, "api_error"), "message": message}
    return {"type": "error", "error": error, "request_id": "req_stand_in"}


# --- routes of /api -------------------------------------------------------------------------------------------------


def get_root(_app: App, call: Call) -> None:
    """Say that it runs."""
    call.text(200, "Ollama is running", "text/plain; charset=utf-8")


def get_version(_app: App, call: Call) -> None:
    """Say the version."""
    call.answer({"version": VERSION})


def get_status(app: App, call: Call) -> None:
    """Say whether requests may go to the cloud."""
    disabled = app.settings.no_cloud
    call.answer({"cloud": {"disabled": disabled, "source": "env" if disabled else "none"}})


def listed(app: App) -> list[dict[str, Any]]:
    """The models that are there, the newest first (server/model_list_cache.go)."""
    entries = []
    for manifest in sorted(app.store.manifests().values(), key=lambda one: -int(one.modified)):
        model = app.models.of(manifest)
        if not model:
            continue
        details = model.details()
        for shown, key in (("context_length", "context_length"), ("embedding_length", "embedding_length")):
            if model.gguf.own(key):
                details[shown] = model.gguf.own(key)
        entry = {
            "name": model.name.shortest,
            "model": model.name.shortest,
            "modified_at": manifest.modified_at,
            "size": manifest.size,
            "digest": manifest.digest,
            "details": details,
            "capabilities": model.capabilities(),
        }
        entries.append(entry)
    return entries


def get_tags(app: App, call: Call) -> None:
    """List the models."""
    call.answer({"models": listed(app)})


def get_ps(app: App, call: Call) -> None:
    """List the loaded models."""
    call.answer({"models": app.scheduler.loaded()})


def post_show(app: App, call: Call) -> None:
    """Tell all of a model."""
    body = call.json()
    asked = str(body.get("model") or body.get("name") or "")
    call.answer(shown_model(app, asked))


def shown_model(app: App, asked: str) -> dict[str, Any]:
    """What ``/api/show`` tells (server/routes.go, GetModelInfo)."""
    name = app.store.existing(asked_name(asked, app.settings, Refused(400, "model is required")))
    model = app.models.get(name)
    if not model:
        raise Refused(404, f"model '{name.shortest}' not found")
    info = dict(model.gguf.values)
    for hidden in ("general.name", "tokenizer.chat_template"):
        info.pop(hidden, None)
    lines = [f"{key:<30} {json.dumps(value)}" for key, value in model.options.items()]
    blob = model.gguf.path
    modelfile = '# Modelfile generated by "ollama show"\n# To build a new Modelfile based on this, replace FROM with:\n'
    texts = {
        "license": "\n".join(model.licenses),
        "modelfile": f"{modelfile}# FROM {name.shortest}\n\nFROM {blob}\n",
        "parameters": "\n".join(lines),
        "template": model.chat_template if not model.template else model.template,
        "system": model.system,
    }
    return {key: text for key, text in texts.items() if text} | {
        "details": model.details(),
        "model_info": info,
        "capabilities": model.capabilities(),
        "modified_at": model.manifest.modified_at,
    }


def _streamed(body: dict[str, Any]) -> bool:
    return body.get("stream") is not False


def _asked_for_change(app: App, call: Call) -> tuple[dict[str, Any], Name]:
    body = call.json()
    text = str(body.get("model") or body.get("name") or "")
    name = parse_name(text)
    if not name.valid:
        raise Refused(400, "invalid model name")
    return body, app.store.existing(name)


def post_pull(app: App, call: Call) -> None:
    """Bring a model: whoever reaches the port can fill the disk."""
    body, name = _asked_for_change(app, call)
    call.progress(pull(app.store, app.settings, name), streamed=_streamed(body))


def post_push(app: App, call: Call) -> None:
    """Refuse to give a model away."""
    body, name = _asked_for_change(app, call)
    call.progress(push(app.store, name), streamed=_streamed(body))


def post_create(app: App, call: Call) -> None:
    """Make a model: whoever reaches the port can replace one."""
    body, name = _asked_for_change(app, call)
    for file, digest in (body.get("files") or {}).items():
        path = posixpath.normpath(file)
        if file != path or path.startswith(("/", "..")):
            raise Refused(400, "file path must be relative")
        if not digest:
            raise Refused(400, "invalid digest format")
    call.progress(create(app.store, app.settings, body, name), streamed=_streamed(body))


def post_copy(app: App, call: Call) -> None:
    """Give a model a second name."""
    body = call.json()
    names = []
    for kind in ("source", "destination"):
        name = parse_name(str(body.get(kind) or ""))
        if not name.valid:
            raise Refused(400, f'{kind} "{body.get(kind) or ""}" is invalid')
        names.append(app.store.existing(name))
    manifest = app.store.manifest(names[0])
    if not manifest:
        raise Refused(404, f'model "{body["source"]}" not found')
    if names[0] != names[1]:
        app.store.write_manifest(names[1], manifest.path.read_bytes())
    call.text(200)


def delete_delete(app: App, call: Call) -> None:
    """Remove a model: whoever reaches the port can. One that is loaded stays loaded."""
    body = call.json()
    asked = str(body.get("model") or body.get("name") or "")
    if not asked.strip():
        raise Refused(400, "model is required")
    name = parse_name(asked)
    if not name.valid:
        raise Refused(400, f'name "{asked}" is invalid')
    manifest = app.store.manifest(app.store.existing(name))
    if not manifest:
        raise Refused(404, f"model '{asked}' not found")
    app.store.remove(manifest)
    call.text(200)


def head_blob(app: App, call: Call) -> None:
    """Say whether a blob is there."""
    if not app.store.blob(call.last).exists():
        raise Refused(404, f'blob "{call.last}" not found')
    call.text(200)


def post_blob(app: App, call: Call) -> None:
    """Keep a blob whose content has the digest that the path names."""
    if app.store.blob(call.last).exists():
        call.text(200)  # server/routes.go:1703: the body is not read: what is there is there, whole or not
        return
    layer = app.store.add(call.body_pieces(app.settings.blob_bytes))
    if layer.digest != call.last:
        # server/routes.go:1748 refuses it, but NewLayer has kept the content under the digest that it has: whoever
        # uploads so fills the disk until a start prunes what is older than an hour.
        raise Refused(400, f'digest mismatch, expected "{call.last}", got "{layer.digest}"')
    call.text(201)


def post_generate(app: App, call: Call) -> None:
    """Complete a text."""
    body = call.json()
    turn = begin_generate(app, call, body)
    names = {"content": "response", "thinking": "thinking"}

    def event(**more: Any) -> dict[str, Any]:
        return {"model": turn.model, "created_at": now_text(), "response": "", "done": False} | more

    def last(**more: Any) -> dict[str, Any]:
        context = {} if turn.empty else {"context": list(range(1, turn.prompt_tokens + turn.spoken + 1))}
        return event(**more) | {"done": True, "done_reason": turn.reason} | context | turn.metrics()

    if turn.empty or not _streamed(body):
        thinking, content = app.answer(turn, call.waiting)
        call.answer(last(response=content, **({"thinking": thinking} if thinking else {})))
        return
    call.lines(_then((event(**{names[kind]: word}) for kind, word in app.pieces(turn, call.waiting)), last))


def post_chat(app: App, call: Call) -> None:
    """Answer in a conversation."""
    body = call.json()
    turn = begin_chat(app, call, body)

    def event(content: str = "", thinking: str = "") -> dict[str, Any]:
        message = {"role": "assistant", "content": content} | ({"thinking": thinking} if thinking else {})
        return {"model": turn.model, "created_at": now_text(), "message": message, "done": False}

    def last(content: str = "", thinking: str = "") -> dict[str, Any]:
        return event(content, thinking) | {"done": True, "done_reason": turn.reason} | turn.metrics()

    if turn.empty or not _streamed(body):
        thinking, content = app.answer(turn, call.waiting)
        call.answer(last(content, thinking))
        return
    call.lines(_then((event(**{kind: word}) for kind, word in app.pieces(turn, call.waiting)), last))


def _then(events: Iterable[dict[str, Any]], last: Callable[[], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from events
    yield last()


def _inputs(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Refused(400, "invalid input type")
    return value


def embedded(app: App, call: Call, body: dict[str, Any]) -> dict[str, Any]:
    """What ``/api/embed`` answers."""
    started = time.monotonic()
    asked = str(body.get("model") or "")
    unnamed = Refused(404, f"model '{asked}' not found")
    texts = _inputs(body.get("input"))
    model = app.model(asked, unnamed, f'model "{asked}" not found, try pulling it first')
    vectors = embed_texts(app, call, body, texts, model)
    answer: dict[str, Any] = {"model": asked, "embeddings": vectors}
    if not texts:
        return answer
    count = sum(max(len(text.split()), 1) for text in texts)
    return answer | {"total_duration": int((time.monotonic() - started) * 1e9) or 1, "prompt_eval_count": count}


def post_embed(app: App, call: Call) -> None:
    """Turn texts into vectors."""
    call.answer(embedded(app, call, call.json()))


def post_embeddings(app: App, call: Call) -> None:
    """Turn one text into a vector, as clients of old ask for it."""
    body = call.json()
    asked = str(body.get("model") or "")
    model = app.model(asked, Refused(400, "model is required"), f'model "{asked}" not found, try pulling it first')
    prompt = str(body.get("prompt") or "")
    vectors = embed_texts(app, call, body, [prompt] if prompt else [], model)
    call.answer({"embedding": vectors[0] if vectors else []})


# --- routes of /v1 --------------------------------------------------------------------------------------------------

_EFFORTS: dict[str, Any] = {"": None, "none": False, "minimal": "low", "xhigh": "max", "ultra": "max"}
_EFFORTS |= {level: level for level in ("low", "medium", "high", "max")}


def _effort(value: Any) -> Any:
    """What a reasoning effort means for ``think`` (openai/openai.go, thinkFromReasoningEffort)."""
    effort = str(value or "")
    if effort not in _EFFORTS:
        levels = '"minimal", "low", "medium", "high", "xhigh", "ultra", "max", or "none"'
        raise Refused(400, f'invalid reasoning value: "{effort}" (must be {levels})')
    return _EFFORTS[effort]


def _plain(content: Any) -> str:
    """The text of a message, whichever of its forms it has."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused(400, f"invalid message content type: {type(content).__name__}")
    texts = [str(part.get("text") or "") for part in content if isinstance(part, dict)]
    return " ".join(text for text in texts if text)


def _native_chat(body: dict[str, Any], limit: Any, effort: Any) -> dict[str, Any]:
    messages = body.get("messages") or []
    plain = []
    for message in messages:
        called = message.get("tool_calls") is not None and message.get("content") is None
        plain.append({"role": message.get("role"), "content": "" if called else _plain(message.get("content"))})
    options = {} if limit is None else {"num_predict": limit}
    tools = body.get("tools") or []
    return {"model": body.get("model"), "messages": plain, "options": options, "tools": tools, "think": effort}


def _data(value: Any) -> bytes:
    return b"data: " + json_line(value) + b"\n"


def _usage(turn: Turn) -> dict[str, int]:
    total = turn.prompt_tokens + turn.spoken
    return {"prompt_tokens": turn.prompt_tokens, "completion_tokens": turn.spoken, "total_tokens": total}


def post_v1_chat(app: App, call: Call) -> None:
    """Answer in a conversation, as OpenAI's clients ask (middleware/openai.go, ChatMiddleware)."""
    body = call.json(empty="EOF")
    if not body.get("messages"):
        raise Refused(400, "[] is too short - 'messages'")
    reasoning = body.get("reasoning")
    effort = _effort(reasoning.get("effort") if isinstance(reasoning, dict) else body.get("reasoning_effort"))
    turn = begin_chat(app, call, _native_chat(body, body.get("max_tokens"), effort))
    head = {"id": "chatcmpl-1", "created": int(time.time()), "model": turn.model, "system_fingerprint": "fp_ollama"}
    if body.get("stream"):
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        events = _chat_chunks(app, call, turn, head | {"object": "chat.completion.chunk"}, usage=usage)
        call.stream(events, "text/event-stream", lambda message: _data(openai_error(500, message)))
        return
    thinking, content = app.answer(turn, call.waiting)
    message = {"role": "assistant", "content": content} | ({"reasoning": thinking} if thinking else {})
    choice = {"index": 0, "message": message, "finish_reason": turn.reason}
    whole = head | {"object": "chat.completion", "choices": [choice], "usage": _usage(turn)}
    call.answer(whole, kind="application/json")


def _chat_chunks(app: App, call: Call, turn: Turn, head: dict[str, Any], *, usage: bool) -> Iterator[bytes]:
    role: dict[str, Any] = {"role": "assistant"}
    for kind, word in app.pieces(turn, call.waiting):
        said = {"content": word} if kind == "content" else {"content": "", "reasoning": word}
        yield _data(head | {"choices": [{"index": 0, "delta": role | said, "finish_reason": None}]})
        role = {}
    if role:
        yield _data(head | {"choices": [{"index": 0, "delta": role | {"content": ""}, "finish_reason": None}]})
    yield _data(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": turn.reason}]})
    if usage:
        yield _data(head | {"choices": [], "usage": _usage(turn)})
    yield b"data: [DONE]\n\n"


def post_v1_completions(app: App, call: Call) -> None:
    """Complete a text, as OpenAI's clients ask."""
    body = call.json(empty="EOF")
    limit = body.get("max_tokens")
    options = {} if limit is None else {"num_predict": limit}
    native = {"model": body.get("model"), "prompt": body.get("prompt"), "suffix": body.get("suffix")}
    turn = begin_generate(app, call, native | {"options": options})
    head = {"id": "cmpl-1", "object": "text_completion", "created": int(time.time()), "model": turn.model}
    head |= {"system_fingerprint": "fp_ollama"}

    def choice(text: str, reason: str | None = None) -> dict[str, Any]:
        return {"choices": [{"text": text, "index": 0, "finish_reason": reason}]}

    def chunks() -> Iterator[bytes]:
        for kind, word in app.pieces(turn, call.waiting):
            yield _data(head | choice(word if kind == "content" else ""))
        yield _data(head | choice("", turn.reason))
        if (body.get("stream_options") or {}).get("include_usage"):
            yield _data(head | {"choices": [], "usage": _usage(turn)})
        yield b"data: [DONE]\n\n"

    if body.get("stream"):
        call.stream(chunks(), "text/event-stream", lambda message: _data(openai_error(500, message)))
        return
    _, content = app.answer(turn, call.waiting)
    call.answer(head | choice(content, turn.reason) | {"usage": _usage(turn)}, kind="application/json")


def post_v1_embeddings(app: App, call: Call) -> None:
    """Turn texts into vectors, as OpenAI's clients ask."""
    body = call.json(empty="EOF")
    form = str(body.get("encoding_format") or "float").lower()
    if form not in {"float", "base64"}:
        given = body["encoding_format"]
        raise Refused(400, f"Invalid value for 'encoding_format' = {given}. Supported values: ['float', 'base64'].")
    if body.get("input") in (None, []):
        raise Refused(400, "invalid input")
    texts = [""] if body["input"] == "" else body["input"]
    answer = embedded(app, call, body | {"input": texts})
    data = []
    for index, vector in enumerate(answer["embeddings"]):
        packed = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if form == "base64" else vector
        data.append({"object": "embedding", "embedding": packed, "index": index})
    count = answer.get("prompt_eval_count", 0)
    usage = {"prompt_tokens": count, "total_tokens": count}
    call.answer({"object": "list", "data": data, "model": body.get("model"), "usage": usage}, kind="application/json")


def get_v1_models(app: App, call: Call) -> None:
    """List the models, as OpenAI's clients ask."""
    data = []
    for entry in listed(app):
        created = int(datetime.fromisoformat(entry["modified_at"]).timestamp())
        owner = parse_name(entry["model"]).namespace
        data.append({"id": entry["model"], "object": "model", "created": created, "owned_by": owner})
    # openai/openai.go, ToListCompletion: a slice that nothing was added to is written as null, not as an empty list.
    call.answer({"object": "list", "data": data or None}, kind="application/json")


def get_v1_model(app: App, call: Call) -> None:
    """Tell of one model, as OpenAI's clients ask."""
    shown = shown_model(app, call.last)
    created = int(datetime.fromisoformat(shown["modified_at"]).timestamp())
    owner = parse_name(call.last).namespace
    call.answer({"id": call.last, "object": "model", "created": created, "owned_by": owner}, kind="application/json")


def _named(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\n".encode() + _data(event)


def post_v1_messages(app: App, call: Call) -> None:
    """Answer in a conversation, as Anthropic's clients ask (middleware/anthropic.go:731)."""
    body = call.json(empty="EOF")
    if not body.get("model"):
        raise Refused(400, "model is required")
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] <= 0:
        raise Refused(400, "max_tokens is required and must be positive")
    if not body.get("messages"):
        raise Refused(400, "messages is required")
    kind = (body.get("thinking") or {}).get("type")
    think = {"enabled": True, "disabled": False}.get(str(kind))
    turn = begin_chat(app, call, _native_chat(body, body["max_tokens"], think), relaxed=True)
    head: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": turn.model}
    reason = {"stop": "end_turn", "length": "max_tokens"}[turn.reason]
    if body.get("stream"):
        events = (_named(event) for event in _message_events(app, call, turn, head, reason))
        call.stream(events, "text/event-stream", lambda message: _named(anthropic_error(500, message)))
        return
    thinking, content = app.answer(turn, call.waiting)
    blocks = [{"type": "thinking", "thinking": thinking}] if thinking else []
    blocks += [{"type": "text", "text": content}] if content else []
    usage = {"input_tokens": turn.prompt_tokens, "output_tokens": turn.spoken}
    call.answer(head | {"content": blocks, "stop_reason": reason, "usage": usage}, kind="application/json")


def _message_events(app: App, call: Call, turn: Turn, head: dict[str, Any], reason: str) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": turn.prompt_tokens, "output_tokens": 0}
    yield {"type": "message_start", "message": head | {"content": [], "usage": usage}}
    index, current = -1, ""
    for kind, word in app.pieces(turn, call.waiting):
        name = "text" if kind == "content" else "thinking"
        if name != current:
            if current:
                yield {"type": "content_block_stop", "index": index}
            index, current = index + 1, name
            yield {"type": "content_block_start", "index": index, "content_block": {"type": name, name: ""}}
        yield {"type": "content_block_delta", "index": index, "delta": {"type": f"{name}_delta", name: word}}
    if current:
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage | {"output_tokens": turn.spoken}}
    yield {"type": "message_stop"}


def post_v1_responses(app: App, call: Call) -> None:
    """Answer as OpenAI's newer clients ask; only texts, and the events that carry them."""
    body = call.json(empty="EOF")
    given = body.get("input")
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    effort = _effort((body.get("reasoning") or {}).get("effort"))
    native = _native_chat(body | {"messages": messages}, body.get("max_output_tokens"), effort)
    turn = begin_chat(app, call, native)
    if body.get("stream"):
        call.stream(_response_events(app, call, turn), "text/event-stream", lambda text: _data(openai_error(500, text)))
        return
    call.answer(_response(turn, *app.answer(turn, call.waiting)), kind="application/json")


def _response_head(turn: Turn) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "created_at": int(time.time()), "model": turn.model}


def _response(turn: Turn, thinking: str, content: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": thinking}]
    output: list[dict[str, Any]] = [{"id": "rs_resp_1", "type": "reasoning", "summary": summary}] if thinking else []
    text = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
    output.append({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [text]})
    usage = {"input_tokens": turn.prompt_tokens, "output_tokens": turn.spoken}
    usage["total_tokens"] = turn.prompt_tokens + turn.spoken
    return _response_head(turn) | {"status": "completed", "error": None, "output": output, "usage": usage}


def _response_events(app: App, call: Call, turn: Turn) -> Iterator[bytes]:
    begun = _response_head(turn) | {"status": "in_progress", "output": []}
    yield _named({"type": "response.created", "response": begun})
    said = {"thinking": "", "content": ""}
    for kind, word in app.pieces(turn, call.waiting):
        said[kind] += word
        part = "output_text" if kind == "content" else "reasoning_summary_text"
        yield _named({"type": f"response.{part}.delta", "item_id": "msg_1", "delta": word})
    yield _named({"type": "response.completed", "response": _response(turn, said["thinking"], said["content"])})


# --- HTTP -----------------------------------------------------------------------------------------------------------

Route = Callable[[App, Call], None]
ROUTES: dict[str, dict[str, Route]] = {
    "/": {"GET": get_root, "HEAD": get_root},
    "/api/version": {"GET": get_version, "HEAD": get_version},
    "/api/status": {"GET": get_status},
    "/api/tags": {"GET": get_tags, "HEAD": get_tags},
    "/api/ps": {"GET": get_ps},
    "/api/show": {"POST": post_show},
    "/api/pull": {"POST": post_pull},
    "/api/push": {"POST": post_push},
    "/api/create": {"POST": post_create},
    "/api/copy": {"POST": post_copy},
    "/api/delete": {"DELETE": delete_delete},
    "/api/blobs/:": {"HEAD": head_blob, "POST": post_blob},
    "/api/generate": {"POST": post_generate},
    "/api/chat": {"POST": post_chat},
    "/api/embed": {"POST": post_embed},
    "/api/embeddings": {"POST": post_embeddings},
    "/v1/chat/completions": {"POST": post_v1_chat},
    "/v1/completions": {"POST": post_v1_completions},
    "/v1/embeddings": {"POST": post_v1_embeddings},
    "/v1/models": {"GET": get_v1_models},
    "/v1/models/:": {"GET": get_v1_model},
    "/v1/messages": {"POST": post_v1_messages},
    "/v1/responses": {"POST": post_v1_responses},
}


def route_of(path: str) -> tuple[str, str]:
    """The route of a path and the last part of it, where that is free."""
    if path in ROUTES:
        return path, ""
    folder, _, last = path.rpartition("/")
    return (f"{folder}/:", last) if last and f"{folder}/:" in ROUTES else ("", "")


# Go's IsPrivate: less than Python's, which counts networks of examples and links too.
_PRIVATE = [ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")]


def host_allowed(header: str, listening: str) -> bool:
    """Whether a Host header is a local name (server/routes.go:1803, allowedHostsMiddleware)."""
    # Only a loopback address is guarded so: with OLLAMA_HOST=0.0.0.0 every name, and every rebound one, gets in.
    if not ipaddress.ip_address(listening).is_loopback:
        return True
    host = re.sub(r":\d*$", "", header) if re.fullmatch(r"(\[.*\]|[^:]*):\d*", header) else header
    host = host.strip("[]").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        own = {"", "localhost", socket.gethostname().lower()}
        return host in own or host.endswith((".localhost", ".local", ".internal"))
    private = any(address in network for network in _PRIVATE if network.version == address.version)
    return private or address.is_loopback or address.is_unspecified or _is_own(str(address))


def _is_own(address: str) -> bool:
    """Whether this machine has the address: only then can a socket be bound to it (server/routes.go:1755)."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.bind((address, 0))
        return True
    return False


class Handler(BaseHTTPRequestHandler):
    """Reads requests and sends answers in the way of Go's server and of gin."""

    protocol_version = "HTTP/1.1"
    timeout = 300
    server: Server
    _unread = False
    _status = 0

    def handle_one_request(self) -> None:
        """Answer one request; a client that went away is no error."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            super().handle_one_request()
            return
        self.close_connection = True

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._request
        raise AttributeError(name)

    def _request(self) -> None:
        started = time.monotonic()
        self._status = 0
        self._unread = bool(int(self.headers.get("Content-Length") or 0) or self.headers.get("Transfer-Encoding"))
        path = urllib.parse.unquote(self.path.partition("?")[0]) or "/"
        route, last = route_of(path)
        call = Call(self, path, last)
        try:
            if not self._turned_away(path):
                self._routed(call, route)
        except Refused as refused:
            call.refuse(refused)
        except (ClientGone, ConnectionError, TimeoutError):
            self.close_connection = True
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._mistyped(call, error)
        finally:
            call.waiting.end()
        took = f"{(time.monotonic() - started) * 1000:.3f}ms"
        client = self.client_address[0]
        stamp = time.strftime("%Y/%m/%d - %H:%M:%S")
        console(f'[GIN] {stamp} | {self._status} | {took} | {client} | {self.command} "{path}"')

    def _mistyped(self, call: Call, error: Exception) -> None:
        """A body whose parts are of other types than Go's structs is refused; the stand-in meets them as it goes."""
        log("recovery.go:40", "body of a wrong shape", "ERROR", error=repr(error))
        if self._status:
            self.close_connection = True
        else:
            call.refuse(Refused(400, f"json: cannot unmarshal the body: {error}"))

    def _turned_away(self, path: str) -> bool:
        """What is answered before any route is."""
        settings = self.server.app.settings
        clean = posixpath.normpath(re.sub("/+", "/", path)) + ("/" if path.endswith("/") and path != "/" else "")
        if clean != path:  # net/http's mux: an address with // or .. is sent to the plain one
            self._redirect(clean)
        elif settings.pprof and path.startswith("/debug/pprof"):
            # server/routes.go:2010 serves http.DefaultServeMux "so we get net/http/pprof for free", outside of every
            # check; but no file of this commit imports net/http/pprof, so it is a page only where a test wants one.
            self.whole(200, b"<html><head><title>/debug/pprof/</title></head></html>", "text/html; charset=utf-8")
        elif not (self._origin_allowed(settings) and self._host_allowed()):
            self.whole(403, b"", "")
        elif self.command == "OPTIONS":
            self.whole(204, b"", "")
        else:
            return False
        return True

    def _host_allowed(self) -> bool:
        return host_allowed(self.headers.get("Host") or "", str(self.server.server_address[0]))

    def _origin_allowed(self, settings: Settings) -> bool:
        """gin-contrib/cors: a page of another origin is refused, whatever it asks for."""
        origin, host = self.headers.get("Origin"), self.headers.get("Host")
        if not origin or origin in {f"http://{host}", f"https://{host}"}:
            return True
        return any(fnmatch.fnmatchcase(origin, pattern) for pattern in settings.origins())

    def _routed(self, call: Call, route: str) -> None:
        if call.path.startswith("/v1/"):
            call.form = anthropic_error if route == "/v1/messages" else openai_error
        methods = ROUTES.get(route, {})
        if self.command in methods:
            methods[self.command](self.server.app, call)
        elif methods:
            self._also = {"Allow": ", ".join(sorted(methods))}
            call.text(405, "405 method not allowed")
        elif route_of(call.path.rstrip("/"))[0]:
            self._redirect(call.path.rstrip("/"))
        else:
            call.text(404, "404 page not found")

    def _redirect(self, path: str) -> None:
        self._also = {"Location": urllib.parse.quote(path)}
        self.whole(301 if self.command == "GET" else 307, b"", "")

    def body_pieces(self, most: int) -> Iterator[bytes]:
        """The body, piece by piece, with or without a length."""
        self._unread = False
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            yield from self._chunks(most)
            return
        left = int(self.headers.get("Content-Length") or 0)
        if left > most:
            self.close_connection = True
            raise Refused(413, "http: request body too large")
        while left > 0:
            piece = self.rfile.read(min(left, PIECE))
            if not piece:
                raise ClientGone
            left -= len(piece)
            yield piece

    def _chunks(self, most: int) -> Iterator[bytes]:
        while size := int(self.rfile.readline(1024).split(b";")[0] or b"0", 16):
            most -= size
            if most < 0:
                self.close_connection = True
                raise Refused(413, "http: request body too large")
            for at in range(0, size, PIECE):
                yield self.rfile.read(min(PIECE, size - at))
            self.rfile.readline(1024)
        self.rfile.readline(1024)

    _also: Mapping[str, str] = {}

    def _drain(self) -> None:
        """Read a short body that nobody wanted, as net/http does; after a long one the connection ends."""
        if not self._unread:
            return
        if "Transfer-Encoding" in self.headers or int(self.headers.get("Content-Length") or 0) > 256 << 10:
            self.close_connection = True
            return
        for _ in self.body_pieces(256 << 10):
            pass

    def _head(self, status: int, kind: str, more: Mapping[str, str]) -> None:
        self._drain()
        self._status = status
        self.send_response(status)
        origin = self.headers.get("Origin")
        cross = {"Access-Control-Allow-Origin": origin} if origin and status != HTTPStatus.FORBIDDEN else {}
        closing = {"Connection": "close"} if self.close_connection else {}
        for name, value in {"Content-Type": kind, **more, **self._also, **cross, **closing}.items():
            if value:
                self.send_header(name, value)
        self._also = {}
        self.end_headers()

    def whole(self, status: int, content: bytes, kind: str) -> None:
        """Send an answer of known length."""
        bare = status == HTTPStatus.NO_CONTENT
        self._head(status, kind if content else "", {} if bare else {"Content-Length": str(len(content))})
        if self.command != "HEAD":
            self.wfile.write(content)

    def begin_stream(self, kind: str) -> None:
        """Send the head of an answer in chunks."""
        self._head(200, kind, {"Transfer-Encoding": "chunked"})

    def piece(self, content: bytes) -> None:
        """Send one chunk."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def end_stream(self) -> None:
        """Send the mark that the answer is whole."""
        self.wfile.write(b"0\r\n\r\n")

    def version_string(self) -> str:
        """Nothing that a client could know it by."""
        return "stand-in"

    def log_message(self, *_: Any) -> None:
        """Say nothing: the access log is written when the answer has ended."""


class Server(ThreadingHTTPServer):
    """The server, with what its requests share."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, app: App, address: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.app = app
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Bind without looking its own name up, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, *_: Any) -> None:
        """Write what went wrong into the journal, as gin's recovery does."""
        log("recovery.go:40", "panic recovered", "ERROR", error=sys.exception())


# --- the program ----------------------------------------------------------------------------------------------------


def make_key(home: Path) -> None:
    """Make the server's own key, which it has even where nothing asks for it (cmd/cmd.go, initializeKeypair)."""
    key = home / ".ollama" / "id_ed25519"
    if key.exists():
        return
    console(f"Couldn't find '{key}'. Generating new private key.")
    key.parent.mkdir(parents=True, exist_ok=True)
    key.touch(0o600)
    key.with_suffix(".pub").write_text("ssh-ed25519 stand-in\n")


def serve(settings: Settings) -> NoReturn:
    """Listen until a signal ends it."""
    make_key(Path(settings.home()))
    host, port = settings.address()
    log("routes.go:1951", "server config", env=settings.shown())
    log("routes.go:1953", f"Ollama cloud disabled: {str(settings.no_cloud).lower()}")
    app = App(settings)
    server = Server(app, (host, port))
    if not settings.no_prune:
        app.store.prune(settings.prune_grace_s)
    for number in (signal.SIGTERM, signal.SIGINT):
        # server/routes.go:2026, srvr.Close(): every connection ends at once, so running answers lack their end; a
        # graceful Shutdown is not what it does.
        signal.signal(number, lambda *_: os._exit(0))
    bound = server.server_address
    log("routes.go:2004", f"Listening on {bound[0]!s}:{bound[1]} (version {VERSION})")
    server.serve_forever()
    raise SystemExit(0)


def tell_version(settings: Settings) -> None:
    """Say the server's version, and one's own if it differs (cmd/cmd.go, versionHandler)."""
    host, port = settings.address()
    reached = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # looked up only
    connection = http.client.HTTPConnection(reached, port, timeout=5)
    version = ""
    try:
        connection.request("GET", "/api/version")
        version = str(json.loads(connection.getresponse().read(JSON_BYTES))["version"])
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        console("Warning: could not connect to a running Ollama instance")
    finally:
        connection.close()
    if version:
        console(f"ollama version is {version}")
    if version != VERSION:
        console(f"Warning: client version is {VERSION}")


def main(arguments: list[str]) -> int:
    """Do what the command line says; only what a service needs is there."""
    try:
        settings = Settings(os.environ)
        if arguments in (["--version"], ["-v"]):
            tell_version(settings)
            return 0
        if arguments == ["serve"]:
            serve(settings)
    except OSError as error:
        console(f"Error: {error}", sys.stderr)
        return 1
    console(f'Error: unknown command {json.dumps(" ".join(arguments))} for "ollama"', sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
