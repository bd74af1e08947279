"""All routes, by path and method."""

from __future__ import annotations

from tests.doubles.ollama.server import native_routes as native
from tests.doubles.ollama.server import openai_routes as openai
from tests.doubles.ollama.server.answering import App
from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.http_server import Call, Routes


def unplayed(_app: App, call: Call) -> None:
    """Answer that the route is there; what it would do is not played."""
    raise Refused(501, f"the stand-in does not play {call.path}")


ROUTES: Routes = {
    "/": {"GET": native.get_root, "HEAD": native.get_root},
    "/api/version": {"GET": native.get_version, "HEAD": native.get_version},
    "/api/status": {"GET": unplayed},
    "/api/tags": {"GET": native.get_tags, "HEAD": native.get_tags},
    "/api/ps": {"GET": native.get_ps},
    "/api/show": {"POST": native.post_show},
    "/api/pull": {"POST": native.post_pull},
    "/api/push": {"POST": unplayed},
    "/api/create": {"POST": native.post_create},
    "/api/copy": {"POST": native.post_copy},
    "/api/delete": {"DELETE": native.delete_delete},
    "/api/blobs/:": {"HEAD": native.head_blob, "POST": native.post_blob},
    "/api/generate": {"POST": native.post_generate},
    "/api/chat": {"POST": native.post_chat},
    "/api/embed": {"POST": unplayed},
    "/api/embeddings": {"POST": unplayed},
    "/v1/chat/completions": {"POST": openai.post_v1_chat},
    "/v1/completions": {"POST": unplayed},
    "/v1/embeddings": {"POST": openai.post_v1_embeddings},
    "/v1/models": {"GET": openai.get_v1_models},
    "/v1/models/:": {"GET": unplayed},
    "/v1/messages": {"POST": unplayed},
    "/v1/responses": {"POST": unplayed},
}
