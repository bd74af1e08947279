"""The routes below ``/api``."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from tests.doubles.ollama.server.answering import App, begin_chat, load
from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.golang import now_text
from tests.doubles.ollama.server.http_server import Call
from tests.doubles.ollama.server.limits import BLOB_BYTES
from tests.doubles.ollama.server.making import create
from tests.doubles.ollama.server.names import Name, asked_name, parse_name
from tests.doubles.ollama.server.registry import pull
from tests.doubles.ollama.server.settings import VERSION


def get_root(_app: App, call: Call) -> None:
    """Say that it runs."""
    call.text(200, "Ollama is running", "text/plain; charset=utf-8")


def get_version(_app: App, call: Call) -> None:
    """Say the version."""
    call.answer({"version": VERSION})


def listed(app: App) -> list[dict[str, Any]]:
    """The models that are there, the newest first (server/model_list_cache.go)."""
    entries = []
    for manifest in sorted(app.store.manifests().values(), key=lambda one: -int(one.modified)):
        model = app.models.of(manifest)
        if not model:
            continue
        entry = {
            "name": model.name.shortest,
            "model": model.name.shortest,
            "modified_at": manifest.modified_at,
            "size": manifest.size,
            "digest": manifest.digest,
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
    """Tell all of a model (server/routes.go, GetModelInfo)."""
    body = call.json()
    asked = str(body.get("model") or body.get("name") or "")
    name = app.store.existing(asked_name(asked, app.settings, Refused(400, "model is required")))
    model = app.models.get(name)
    if not model:
        raise Refused(404, f"model '{name.shortest}' not found")
    lines = [f"{key:<30} {json.dumps(value)}" for key, value in model.options.items()]
    parameters = {"parameters": "\n".join(lines)} if lines else {}
    more = {"capabilities": model.capabilities(), "modified_at": model.manifest.modified_at}
    call.answer(parameters | more)


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
    layer = app.store.add(call.body_pieces(BLOB_BYTES))
    if layer.digest != call.last:
        # server/routes.go:1748 refuses it, but NewLayer has kept the content under the digest that it has: whoever
        # uploads so fills the disk until a start prunes what is older than an hour.
        raise Refused(400, f'digest mismatch, expected "{call.last}", got "{layer.digest}"')
    call.text(201)


def post_generate(app: App, call: Call) -> None:
    """Load a model or let it go; texts are not completed."""
    turn = load(app, call.waiting, call.json())
    said = {"model": turn.model, "created_at": now_text(), "response": ""}
    call.answer(said | {"done": True, "done_reason": turn.reason})


def post_chat(app: App, call: Call) -> None:
    """Answer in a conversation, whole."""
    body = call.json()
    if _streamed(body) and body.get("messages"):
        raise Refused(501, "the stand-in streams no answer of /api/chat")
    turn = begin_chat(app, call.waiting, body)
    message = {"role": "assistant", "content": app.answer(turn, call.waiting)}
    said = {"model": turn.model, "created_at": now_text(), "message": message}
    call.answer(said | {"done": True, "done_reason": turn.reason} | turn.metrics())
