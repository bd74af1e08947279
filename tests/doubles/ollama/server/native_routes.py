"""The routes below ``/api``."""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.doubles.ollama.server.answering import App, begin_chat, begin_generate, embed_texts
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
        for key in ("context_length", "embedding_length"):
            if model.gguf.own(key):
                details[key] = model.gguf.own(key)
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
    """Tell all of a model (server/routes.go, GetModelInfo)."""
    body = call.json()
    asked = str(body.get("model") or body.get("name") or "")
    name = app.store.existing(asked_name(asked, app.settings, Refused(400, "model is required")))
    model = app.models.get(name)
    if not model:
        raise Refused(404, f"model '{name.shortest}' not found")
    info = dict(model.gguf.values)
    for hidden in ("general.name", "tokenizer.chat_template"):
        info.pop(hidden, None)
    lines = [f"{key:<30} {json.dumps(value)}" for key, value in model.options.items()]
    texts = {
        "modelfile": f"# FROM {name.shortest}\n\nFROM {model.gguf.path}\n",
        "parameters": "\n".join(lines),
        "template": model.chat_template,
    }
    more = {
        "details": model.details(),
        "model_info": info,
        "capabilities": model.capabilities(),
        "modified_at": model.manifest.modified_at,
    }
    call.answer({key: text for key, text in texts.items() if text} | more)


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
    """Complete a text."""
    body = call.json()
    turn = begin_generate(app, call.waiting, body)
    names = {"content": "response", "thinking": "thinking"}

    def event(**more: Any) -> dict[str, Any]:
        return {"model": turn.model, "created_at": now_text(), "response": "", "done": False} | more

    def last(**more: Any) -> dict[str, Any]:
        return event(**more) | {"done": True, "done_reason": turn.reason} | turn.metrics()

    if turn.empty or not _streamed(body):
        thinking, content = app.answer(turn, call.waiting)
        call.answer(last(response=content, **({"thinking": thinking} if thinking else {})))
        return
    call.lines(_then((event(**{names[kind]: word}) for kind, word in app.pieces(turn, call.waiting)), last))


def post_chat(app: App, call: Call) -> None:
    """Answer in a conversation."""
    body = call.json()
    turn = begin_chat(app, call.waiting, body)

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
    vectors = embed_texts(app, call.waiting, body, texts, model)
    answer: dict[str, Any] = {"model": asked, "embeddings": vectors}
    if not texts:
        return answer
    count = sum(max(len(text.split()), 1) for text in texts)
    return answer | {"total_duration": int((time.monotonic() - started) * 1e9) or 1, "prompt_eval_count": count}


def post_embed(app: App, call: Call) -> None:
    """Turn texts into vectors."""
    call.answer(embedded(app, call, call.json()))
