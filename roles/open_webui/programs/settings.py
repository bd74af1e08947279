"""Writes what the lab's file says of Open WebUI through its own API, and leaves all else to its database.

Reads JSON: ``url``, ``unit``, ``within_s`` (until it has to be ready), ``admin`` and ``password`` of its first user,
and ``connections``, the services that it asks. Prints JSON: ``changed``, what was another one before, and ``told``,
what is not as the file says and is left so.
"""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path
from typing import Any

from client import (
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
"""The addresses of the connections that were written last: one that the file names no more is taken out again."""
UPSTREAM = "https://api.openai.com/v1"
"""What it would ask by itself."""
BYTES = 32
ADMINISTRATOR = "admin"
"""Its word for who may do everything."""


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
    own = {*_own(), *(one["url"] for one in wanted)}
    ours = [(one["url"], one.get("api_key") or "", {**_config_of(one["url"], there), "enable": True}) for one in wanted]
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
    OWN.write_text(json.dumps([one["url"] for one in wanted]), encoding="utf-8")
    return ["connections"] if is_other else []


def _entries(found: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Its connections: address, key, and what is said of each."""
    urls, keys = found.get("OPENAI_API_BASE_URLS") or [], found.get("OPENAI_API_KEYS") or []
    configs = found.get("OPENAI_API_CONFIGS") or {}
    keys = [*keys, *([""] * (len(urls) - len(keys)))]
    return [(url, keys[place], configs.get(str(place)) or {}) for place, url in enumerate(urls)]


def _config_of(url: str, entries: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    return next((config for there, _, config in entries if there == url), {})


def _own() -> list[str]:
    try:
        found = json.loads(OWN.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return [UPSTREAM]
    return [one for one in found if isinstance(one, str)]


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
    return {"changed": changed, "told": told}


def main() -> int:
    """The exit code; 1 with the reason where it does not do what is asked."""
    wanted = json.load(sys.stdin)
    try:
        json.dump(write(wanted), sys.stdout)
    except (AnswerError, OSError) as error:
        known = [wanted["password"], *(one.get("api_key") or "" for one in wanted["connections"]), *passwords()]
        sys.stderr.write(f"{masked(str(error), known)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
