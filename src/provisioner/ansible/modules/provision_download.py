# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: downloads one large file whose sha256 is known; goes on where a connection was cut."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_download
short_description: Download one large file whose sha256 is known
description:
  - Streams into C(.NAME.part) beside the file and goes on there after a cut, also in a later run. The file gets its
    name when its sha256 is right; a part with a wrong one is removed, or put aside.
  - Follows redirects, but never from https to http. A token goes only to the server that it is for.
options:
  url: {type: str, required: true, description: [Where the file is, http or https.]}
  path: {type: path, required: true, description: [Where it shall be, in a folder that is there.]}
  sha256: {type: str, required: true, description: [What it must hash to.]}
  size: {type: int, description: [How many bytes it must have.]}
  aside: {type: path, description: ["Folder in which a file with another sha256 is kept, under its name."]}
  access: {type: path, description: ["File of JSON: C(token) for the url's own server, C(proxies) by scheme."]}
  slice: {type: int, default: 0, description: ["Seconds after which it ends, I(finished) or not, to be called again."]}
  stall: {type: int, default: 30, description: [Seconds in which something has to come.]}
  patience: {type: int, default: 300, description: [Seconds without anything to give up after; 15 at the beginning.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: build | Download the model
  provision_download:
    url: https://models.example/tiny.gguf
    path: /srv/models/tiny/tiny.gguf
    sha256: 6113584e2b24f1c91e7fab0b3be8f7f24be2fdf8833a2cc96e2910a2d1e53edb
    slice: 15
  register: download
  until: download is failed or download.finished
  retries: 100000
  delay: 0
"""
RETURN = r"""
finished: {type: bool, returned: always, description: Whether the file is there.}
received: {type: int, returned: always, description: How many bytes of it are there.}
size: {type: int, returned: when it is known, description: How many it has.}
"""

import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule

CHUNK = 1 << 20
ALIVE = 1 << 16  # fewer bytes than ALIVE in one stall time are no sign of life
KEPT_FREE = 1 << 24  # bytes of the disk
FIRST_PATIENCE_S = 15
LONGEST_WAIT_S = 30.0
MODE = 0o644
PARTIAL = 206
DENIED = (401, 403)
UNSATISFIABLE = 416
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
PORTS = {"http": 80, "https": 443}
HOW_TO_ASK = (
    "Only some may read it: for a model of a hub, accept its terms on its page, "
    "and set HF_TOKEN to a token of that account"
)


class RefusedError(Exception):
    """What no further attempt can change."""


class CutError(Exception):
    """A connection that could not be made, ended early or stood still; the next one may go better, after a while."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows, with the token only where it belongs, and never to a connection that others can read."""

    def redirect_request(self, req: urllib.request.Request, *rest: Any) -> urllib.request.Request | None:
        """The request for the new place."""
        there = super().redirect_request(req, *rest)
        if there is not None and there.type not in {"https", req.type}:
            raise RefusedError(f"{req.host} leads to {there.type}://{there.host}, where nothing is encrypted")
        if there is not None and origin(there.full_url) == origin(req.full_url):
            there.unredirected_hdrs.update(req.unredirected_hdrs)
        return there


@dataclass
class Download:
    """One file on its way."""

    url: str
    path: Path
    sha256: str
    size: int | None = None
    aside: Path | None = None
    token: str | None = None
    slice_s: float = 0.0
    stall_s: float = 30.0
    patience_s: float = 300.0
    began: float = field(default_factory=time.monotonic)
    alive: float = field(default_factory=time.monotonic)
    """When there was last more of it than ever before."""
    most: int = 0
    has_begun: bool = False

    @property
    def part(self) -> Path:
        """What has been received."""
        return self.path.with_name(f".{self.path.name}.part")

    @property
    def note(self) -> Path:
        """What the part is a part of, as the server said it."""
        return self.path.with_name(f".{self.path.name}.part.json")

    @property
    def received(self) -> int:
        """How many bytes there are."""
        return self.part.stat().st_size if self.part.exists() else 0

    def run(self) -> bool:
        """Have the file; False when the slice is over before. Raises ``RefusedError``."""
        wait_s = 0.5
        self._known()
        self.most = self.received
        while True:
            before = self.alive
            try:
                if self._attempt():
                    self._finish()
                    return True
            except CutError as cut:
                wait_s = 0.5 if self.alive > before else min(wait_s * 2, LONGEST_WAIT_S)
                self._pause(cut, wait_s)
            else:
                return False

    def _pause(self, cut: CutError, wait_s: float) -> None:
        """Wait before the next attempt; ``RefusedError`` when nothing more has come for too long."""
        limit_s = self.patience_s if self.has_begun else min(FIRST_PATIENCE_S, self.patience_s)
        left_s = self.alive + limit_s - time.monotonic()
        if left_s <= 0:
            raise RefusedError(f"{cut}; nothing more has come for {limit_s:g} seconds") from cut
        time.sleep(min(max(wait_s, cut.wait_s), left_s))  # a server in need is not asked without a pause

    def _attempt(self) -> bool:
        known = self._known()
        if known["size"] is not None and self.received == known["size"]:
            return True
        request = self._request(known)
        try:
            with urllib.request.build_opener(Redirects).open(request, timeout=self.stall_s) as answer:
                return self._receive(answer, known)
        except urllib.error.HTTPError as error:
            raise self._judged(error) from error
        except (OSError, UnicodeError, http.client.HTTPException) as error:  # UnicodeError: no name of a host
            raise without_answer(error) from error

    def _request(self, known: Mapping[str, Any]) -> urllib.request.Request:
        """What asks for the rest of the file, and for all of it where it is another one by now."""
        request = urllib.request.Request(self.url, headers={"Accept-Encoding": "identity"})  # noqa: S310  # main asks
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        if self.received:
            request.add_header("Range", f"bytes={self.received}-")
            if known["etag"].startswith('"'):
                request.add_header("If-Range", known["etag"])
        return request

    def _judged(self, error: urllib.error.HTTPError) -> Exception:
        said = f"the server answers {error.code} {error.headers.get('X-Error-Message') or error.reason}"
        if error.code == UNSATISFIABLE and self.received:
            self.drop()
            return CutError("the server has less of it than has come already")
        if error.code in TRANSIENT:
            later = error.headers.get("Retry-After", "")
            wait_s = float(later) if later.isdigit() else 0.0
            return CutError(said, min(wait_s, LONGEST_WAIT_S))
        if error.code in DENIED:
            told = "the token (HF_TOKEN) was sent along" if self.token else "no token was sent along"
            return RefusedError(f"{said}; {told}. {HOW_TO_ASK}")
        return RefusedError(said)

    def _known(self) -> dict[str, Any]:
        """What the part is a part of; one of which that is not known, or that is of another file, is dropped."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(self.note.read_text(encoding="utf-8"))
            if known["sha256"] == self.sha256 and (known["size"] is None or self.received <= known["size"]):
                return {"etag": str(known["etag"]), "size": known["size"]}
        self.drop()
        return {"etag": "", "size": None}

    def _receive(self, answer: Any, known: Mapping[str, Any]) -> bool:
        start, total = span(answer)
        etag = answer.headers.get("ETag", "")
        if None not in (self.size, total) and total != self.size:
            raise RefusedError(f"it has {total} bytes there and should have {self.size}: it is another file")
        is_rest = start == self.received and (etag, total) == (known["etag"], known["size"])
        self._keep_or_drop(start, is_rest=is_rest)
        self._check_room((total or self.size or 0) - self.received)
        self.note.write_text(json.dumps({"sha256": self.sha256, "etag": etag, "size": total}), encoding="utf-8")
        can_go_on = answer.status == PARTIAL or answer.headers.get("Accept-Ranges") == "bytes"
        if not self._stream(answer, self.slice_s if can_go_on else 0.0):
            return False
        if total is not None and self.received != total:
            raise CutError(f"the connection was cut after {self.received} of {total} bytes")
        return True

    def _keep_or_drop(self, start: int, *, is_rest: bool) -> None:
        """Drop what is here where the server gives all of it, or has another file: then ``CutError``."""
        if start == 0:
            if self.received:
                self.drop()
        elif not is_rest:
            self.drop()
            raise CutError("the server has another file than before")

    def _check_room(self, missing: int) -> None:
        room = max(0, shutil.disk_usage(self.path.parent).free - KEPT_FREE)
        if missing > room:
            raise RefusedError(f"{missing} bytes are to come, and {self.path.parent} has room for {room}")

    def _stream(self, answer: Any, slice_s: float) -> bool:
        mark, since = self.received, time.monotonic()
        count, first = mark, mark
        with self.part.open("ab", buffering=0) as file:
            while content := answer.read1(CHUNK):
                write(file, content)
                count, now, self.has_begun = count + len(content), time.monotonic(), True
                if count >= self.most + ALIVE:
                    self.most, self.alive = count, now
                if count >= mark + ALIVE:
                    mark, since = count, now
                elif now - since > self.stall_s:
                    raise CutError(f"no more than {count - mark} bytes came in {self.stall_s:g} seconds")
                if slice_s and count >= first + ALIVE and now - self.began > slice_s:
                    return False
        return True

    def _finish(self) -> None:
        found = sha256_of(self.part)
        if found != self.sha256:
            size, fate = self.received, self._refuse()
            raise RefusedError(f"the sha256 of its {size} bytes is {found} and should be {self.sha256}; {fate}")
        with self.part.open("rb") as file:
            os.fsync(file.fileno())
        self.part.chmod(MODE)
        self.part.replace(self.path)
        self.note.unlink()

    def _refuse(self) -> str:
        """Put what is another file out of the way; what was done with it, in words."""
        if self.aside is None:
            self.drop()
            return "they were removed"
        kept = self.aside / self.path.name
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        self.part.replace(kept)
        self.drop()
        return f"they are kept as {kept}"

    def drop(self) -> None:
        """Forget what was received."""
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def without_answer(error: Exception) -> Exception:
    """What it means that no answer came, or none to its end: only a certificate stays as it is."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return RefusedError(f"its certificate is not trusted: {reason.verify_message}")
    return CutError(f"no connection, or a cut one: {str(reason) or type(reason).__name__}")


def write(file: Any, content: bytes) -> None:
    """Write it all, or say why that cannot be: no further attempt finds more room."""
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        raise RefusedError(f"it cannot be written: {error.strerror}; what has come is kept") from error


def span(answer: Any) -> tuple[int, int | None]:
    """The first byte that an answer gives, and how many the whole file has, where that is said."""
    if answer.status != PARTIAL:
        length = answer.headers.get("Content-Length")
        return 0, None if length is None else int(length)
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
    if match is None:
        raise RefusedError(f"the server answers 206 without a range: {answer.headers.get('Content-Range')}")
    start, size = match[1], match[2]
    return int(start), None if size == "*" else int(size)


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port: what a token is for."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or PORTS.get(parts.scheme)


def sha256_of(path: Path) -> str | None:
    """The file's sha256, None without a file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_access(file: str | None) -> str | None:
    """The token; the proxies become the environment's, where it has none of its own."""
    if not file:
        return None
    access = json.loads(Path(file).read_text(encoding="utf-8"))
    for scheme, proxy in access["proxies"].items():
        os.environ.setdefault(f"{scheme}_proxy", proxy)
    return access.get("token") or None


def main() -> None:
    """Have the file, or say how far it is."""
    spec = {
        "url": {"type": "str", "required": True},
        "path": {"type": "path", "required": True},
        "sha256": {"type": "str", "required": True},
        "size": {"type": "int"},
        "access": {"type": "path"},
        "aside": {"type": "path"},
        "slice": {"type": "int", "default": 0},
        "stall": {"type": "int", "default": 30},
        "patience": {"type": "int", "default": 300},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    wanted = module.params
    url, path = urlsplit(wanted["url"]), Path(wanted["path"])
    what = f"{url.scheme}://{url.hostname}{url.path}"  # a query may hold what is not for a log
    if url.scheme not in PORTS or not url.hostname:
        module.fail_json(msg=f"Unable to download {what}: it is not an address of http or https")
    before, after = sha256_of(path), wanted["sha256"].lower()
    diff = {"before": f"{before}\n" if before else "", "after": f"{after}\n"}
    if before == after:
        module.exit_json(changed=False, finished=True, received=path.stat().st_size)
    if module.check_mode:
        module.exit_json(changed=True, finished=True, received=0, diff=diff)
    download = Download(wanted["url"], path, after, wanted["size"])
    download.aside = Path(wanted["aside"]) if wanted["aside"] else None
    download.slice_s, download.stall_s, download.patience_s = wanted["slice"], wanted["stall"], wanted["patience"]
    try:
        download.token = read_access(wanted["access"])
        finished = download.run()
        size = download.size if finished else json.loads(download.note.read_text(encoding="utf-8"))["size"]
    except (RefusedError, OSError) as error:
        module.fail_json(msg=f"Unable to download {what}: {error}")
    received = path.stat().st_size if finished else download.received
    text = progress_text(received, size)
    module.exit_json(changed=True, finished=finished, received=received, size=size, diff=diff, msg=text)


def progress_text(received: int, size: int | None) -> str:
    """How much has come, of how much where that is known."""
    if size:
        return f"{received / 1e9:.2f} of {size / 1e9:.2f} GB have come"
    return f"{received / 1e9:.2f} GB have come"


if __name__ == "__main__":
    main()
