"""Writes what the lab's file says of Open WebUI through its own API, and leaves all else to its database.

Reads JSON: ``url``, ``unit``, ``within_s`` (until it has to be ready), ``admin`` and ``password`` of its first user,
``connections``, the services that it asks, and ``embeddings``, the one that makes documents searchable (``url``,
``model`` and ``key``; empty: how documents are read is left alone). Prints JSON: ``changed``, what was another one
before, and ``told``, what is not as the file says and is left so, and what people have to do now.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documents
from client import (
    ADMINISTRATOR,
    REFUSED,
    TECHNICAL,
    AnswerError,
    Client,
    keep,
    masked,
    passwords,
    technical_signed_in,
    wait_until_ready,
)

ANSWER_S = 60.0
OWN = Path("/etc/open-webui/connections.json")
"""The addresses of the connections that were written last, with the models that people were offered of each.

One that the file names no more is taken out again; so is a list of models.
"""
UPSTREAM = "https://api.openai.com/v1"
"""What it would ask by itself."""
BYTES = 32
RETRIEVAL = "/api/v1/retrieval/config"
READS_WHOLE = "BYPASS_EMBEDDING_AND_RETRIEVAL"
BATCHES = ("RAG_EMBEDDING_BATCH_SIZE", "ENABLE_ASYNC_EMBEDDING", "RAG_EMBEDDING_CONCURRENT_REQUESTS")


def take_account(client: Client, admin: str, password: str) -> list[str]:
    """Sign in as the technical user, and give it a new password.

    Where there is none, or people have taken its rights, the administrator of the file makes it.
    """
    current = technical_signed_in(client)
    made = secrets.token_urlsafe(BYTES)
    if current is not None and client.role == ADMINISTRATOR:
        keep([made, current])
        client.ask("POST", "/api/v1/auths/update/password", {"password": current, "new_password": made})
    else:
        try:
            client.sign_in(admin, password)
        except AnswerError as error:
            if error.status not in REFUSED:
                raise
            raise AnswerError(
                f"neither {TECHNICAL} nor {admin} can sign in: give the file the administrator's address and password "
                "of now, and run up again"
            ) from None
        keep([made, *passwords()])
        _make_technical(client, made)
    keep([made])
    client.sign_in(TECHNICAL, made)
    return _told_of_admin(client, admin)


def _make_technical(client: Client, password: str) -> None:
    """Add the user, or give the one of this address the password and the role."""
    found = client.mapping("GET", f"/api/v1/users/search?query={TECHNICAL}").get("users") or []
    mine = [one for one in found if isinstance(one, dict) and one.get("email") == TECHNICAL]
    if mine:
        client.ask("POST", f"/api/v1/users/{mine[0]['id']}/update", {"role": ADMINISTRATOR, "password": password})
        return
    wanted = {"name": "Provisioner", "email": TECHNICAL, "password": password, "role": ADMINISTRATOR}
    client.ask("POST", "/api/v1/auths/add", wanted)


def _told_of_admin(client: Client, admin: str) -> list[str]:
    """Whether the file's administrator is one of its database; the password is that of the first start, or later."""
    found = client.mapping("GET", f"/api/v1/users/search?query={admin}").get("users") or []
    roles = [one.get("role") for one in found if isinstance(one, dict) and one.get("email") == admin.lower()]
    if roles == [ADMINISTRATOR]:
        return []
    has = f"{admin} is {roles[0]} in its database" if roles else f"its database has no user {admin}"
    return [f"{has}, where the file has the administrator: that counts at the first start alone."]


def close_sign_up(client: Client) -> list[str]:
    """Nobody gets an account by themselves."""
    found = client.mapping("GET", "/api/v1/auths/admin/config")
    if found.get("ENABLE_SIGNUP") is False:
        return []
    client.ask("POST", "/api/v1/auths/admin/config", {**found, "ENABLE_SIGNUP": False})
    return ["sign-up"]


def connect(client: Client, wanted: list[dict[str, Any]]) -> list[str]:
    """Have it ask these engines and gateways first; connections that people have added stay behind them."""
    found = client.mapping("GET", "/openai/config")
    there = _entries(found)
    before = _own()
    own = {*before, *(one["url"] for one in wanted)}
    ours = [(one["url"], one.get("api_key") or "", _our_config(one, there, before)) for one in wanted]
    entries = ours + [one for one in there if one[0] not in own]
    body = {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": [url for url, _, _ in entries],
        "OPENAI_API_KEYS": [key for _, key, _ in entries],
        "OPENAI_API_CONFIGS": {str(place): config for place, (_, _, config) in enumerate(entries)},
    }
    is_other = found.get("ENABLE_OPENAI_API") is not True or entries != there
    if is_other:
        client.ask("POST", "/openai/config/update", body)
    OWN.write_text(json.dumps({one["url"]: one.get("models") or [] for one in wanted}), encoding="utf-8")
    return ["connections"] if is_other else []


def _entries(found: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Its connections: address, key, and what is said of each."""
    urls, keys = found.get("OPENAI_API_BASE_URLS") or [], found.get("OPENAI_API_KEYS") or []
    configs = found.get("OPENAI_API_CONFIGS") or {}
    keys = [*keys, *([""] * (len(urls) - len(keys)))]
    return [(url, keys[place], configs.get(str(place)) or {}) for place, url in enumerate(urls)]


def _our_config(
    service: dict[str, Any], entries: list[tuple[str, str, dict[str, Any]]], before: dict[str, list[str]]
) -> dict[str, Any]:
    """What people said of the connection, and which models the file has them offered; without a list it shows all."""
    url, models = service["url"], service.get("models") or []
    said = next((config for there, _, config in entries if there == url), {})
    if models or (before.get(url) and said.get("model_ids") == before[url]):
        said = {**said, "model_ids": models}
    return {**said, "enable": True}


def _own() -> dict[str, list[str]]:
    """What was written last; earlier versions kept the addresses alone."""
    try:
        found = json.loads(OWN.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {UPSTREAM: []}
    return found if isinstance(found, dict) else {one: [] for one in found if isinstance(one, str)}


def speak(client: Client, wanted: list[dict[str, Any]]) -> list[str]:
    """Have it read aloud by the first service that speaks; without one, how it speaks is left alone."""
    if not wanted:
        return []
    found = client.mapping("GET", "/api/v1/audio/config")
    before = found.get("tts") or {}
    service = wanted[0]
    after = {
        **before,
        "ENGINE": "openai",
        "OPENAI_API_BASE_URL": service["url"],
        "OPENAI_API_KEY": service.get("api_key") or "",
        "MODEL": service["model"],
        "VOICE": service["voice"],
    }
    if after == before:
        return []
    client.ask("POST", "/api/v1/audio/config/update", {"tts": after, "stt": found.get("stt") or {}})
    return ["speech"]


def search(client: Client, wanted: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Have documents made searchable by this service; what was changed, and what becomes of those that are there."""
    if not wanted:
        return [], []
    found = client.mapping("GET", documents.PATH)
    before = documents.service_in(found)
    after = {**wanted, "engine": documents.ENGINE}
    if before != after:
        client.ask("POST", documents.PATH + "/update", {**_kept(found), **_embedding_words(after)})
    was_whole = client.mapping("GET", RETRIEVAL).get(READS_WHOLE) is not False
    if was_whole:  # written alone: what else stands there is people's
        client.ask("POST", RETRIEVAL + "/update", {READS_WHOLE: False})
    told = list(_told_of_documents(before, after, was_whole))
    if told:
        told += _names_indexed(client)
    return ["embeddings"] if was_whole or before != after else [], told


def _names_indexed(client: Client) -> list[str]:
    """Have the names of knowledge searchable again: new vectors of another length are refused beside the old ones."""
    try:
        client.ask("POST", "/api/v1/knowledge/metadata/reindex")
    except AnswerError as error:
        return [f"Names of knowledge cannot be searched before it is indexed again: {error}."]
    return []


def _kept(found: dict[str, Any]) -> dict[str, Any]:
    """What people said of how many texts are sent at once: what is not sent with the rest becomes its own again."""
    return {name: found[name] for name in BATCHES if found.get(name) is not None}


def _embedding_words(service: dict[str, Any]) -> dict[str, Any]:
    return {
        "RAG_EMBEDDING_ENGINE": service["engine"],
        "RAG_EMBEDDING_MODEL": service["model"],
        "openai_config": {"url": service["url"], "key": service["key"]},
    }


def _told_of_documents(before: dict[str, Any], after: dict[str, Any], was_whole: bool) -> Iterator[str]:
    """What nobody finds any more, or not yet."""
    if was_whole:
        yield "Documents that people added before were read whole: to be searched they have to be added again."
    elif [before[name] for name in ("engine", "model")] != [after[name] for name in ("engine", "model")]:
        yield (
            f"Documents were made searchable by {before['model'] or 'its own model'}, and now are by {after['model']}: "
            "if that is another model, files have to be added again, and knowledge has to be indexed again "
            "(Admin Panel, Settings, Documents, Reindex Knowledge and Memory Vectors)."
        )


def write(wanted: dict[str, Any]) -> dict[str, list[str]]:
    """All of it; what was changed, and what is told."""
    client = Client(wanted["url"], ANSWER_S)
    wait_until_ready(client, wanted["unit"], wanted["within_s"])
    told = take_account(client, wanted["admin"], wanted["password"])
    by_protocol: dict[str, list[dict[str, Any]]] = {"openai": [], "speech": []}
    for one in wanted["connections"]:
        by_protocol[one["protocol"]].append(one)
    changed = close_sign_up(client)
    changed += connect(client, by_protocol["openai"])
    changed += speak(client, by_protocol["speech"])
    searching, told_of_documents = search(client, wanted["embeddings"])
    return {"changed": changed + searching, "told": told + told_of_documents}


def main() -> int:
    """The exit code; 1 with the reason where it does not do what is asked."""
    wanted = json.load(sys.stdin)
    try:
        json.dump(write(wanted), sys.stdout)
    except (AnswerError, OSError) as error:
        keys = [wanted["embeddings"].get("key"), *(one.get("api_key") for one in wanted["connections"])]
        known = [wanted["password"], *(key or "" for key in keys), *passwords()]
        sys.stderr.write(f"{masked(str(error), known)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
