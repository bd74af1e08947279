"""The verb ``doctor``: whether what is still to be downloaded can be had, from where the file says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError

import pytest

from provisioner.doctor import downloads
from provisioner.models.remote import NoHeadError
from tests.file_server import FileServer, serving
from tests.unit.cli.conftest import World
from tests.unit.models.test_hub import PAGE, REPOSITORY, page_of, sibling

TOKEN = "hf_CANARY5c1d2e"
COMMIT = "c" * 40
HEAD = "name: homelab\nhosts: { box: { incus: local } }\n"
BUILT = """\
models: { tiny: { source: "builtin:tiny" } }
containers:
  llama:
    services:
      llama_cpp: { model: tiny, source: "SOURCE" }
"""
ARCHIVE = BUILT.replace('"SOURCE"', f'"https://host.example/llama.tar.gz", source_sha256: "{"b" * 64}"')
PULLED = """\
containers:
  pulls:
    services:
      ollama: { api_key: !secret engine_key, pull: [{ name: small, model: "qwen3:0.6b" }] }
"""
IMAGE = f"""\
containers:
  search:
    image: debian/13
    services:
      oci: {{ image: "docker.io/searxng/searxng@sha256:{"a" * 64}", image_port: 8080, pages: ["/"] }}
"""


@pytest.fixture
def hub(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A hub on this machine, and a file that takes a model from it."""
    lab.write_text(
        f'{HEAD}models: {{ small: {{ source: "hf:{REPOSITORY}:Q4_K_M" }} }}\n'
        "containers: { llama: { services: { llama_cpp: { model: small } } } }\n"
    )
    with serving(FileServer(b"GGUF")) as server:
        body = json.dumps(page_of(sibling("Small-Q4_K_M.gguf", 1))).encode()
        server.pages[PAGE] = lambda _seen: (200, {}, body)
        monkeypatch.setenv("HF_ENDPOINT", server.address.rpartition("/models")[0])
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("no_proxy", "*")
        yield server


def test_a_model_that_its_hub_has(world: World, hub: FileServer) -> None:
    answer = world.done("doctor")
    assert f"/{REPOSITORY}/resolve/" in answer.out
    assert "Small-Q4_K_M.gguf is there" in answer.out
    assert hub.ranges_asked()[-1] == "bytes=0-0"
    assert hub.seen[-1].headers["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in answer.printed
    world.command("up", "--yes")
    asked = len(hub.seen)
    assert "download" not in world.command("doctor").out
    assert len(hub.seen) == asked


@pytest.mark.parametrize(("status", "code", "words"), [(404, 3, "is not given: 404"), (500, 0, "no answer")])
def test_a_model_that_its_hub_does_not_give(world: World, hub: FileServer, status: int, code: int, words: str) -> None:
    hub.answers.append((status, {}))
    answer = world.command("doctor")
    assert answer.code == code, answer.printed
    assert words in answer.out


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses that are asked for, at which everybody has to log in first."""
    urls: list[str] = []

    def refuse(url: str, token: str | None, headers: dict[str, str], deadline_s: float) -> None:
        assert (token, bool(headers), deadline_s) == (None, True, downloads.DEADLINE_S)
        urls.append(url)
        raise NoHeadError("Unauthorized") from HTTPError(url, 401, "Unauthorized", Message(), None)

    monkeypatch.setattr(downloads, "reach", refuse)
    return urls


@pytest.mark.parametrize(
    ("text", "url", "code"),
    [
        (BUILT.replace("SOURCE", f"git+https://git.example/llama.cpp@{COMMIT}"), "git.example/llama.cpp/info/refs", 3),
        (ARCHIVE, "host.example/llama.tar.gz", 3),
        (PULLED, "registry.ollama.ai/v2/library/qwen3/manifests/0.6b", 3),
        (IMAGE, "registry-1.docker.io/v2/", 0),
    ],
    ids=["git", "archive", "model", "image"],
)
def test_sources_and_registries_are_asked(
    world: World, lab: Path, asked: list[str], *, text: str, url: str, code: int
) -> None:
    lab.write_text(HEAD + text)
    answer = world.command("doctor")
    assert answer.code == code, answer.printed
    assert f"https://{url}" in [address.partition("?")[0] for address in asked]
    assert (f"https://{url} is there" in answer.out) == (code == 0)


def test_nobody_is_asked_for_what_a_mirror_has(world: World, lab: Path, asked: list[str]) -> None:
    kokoro = "containers: { voice: { services: { kokoro: { mirror: MIRROR } } } }\n"
    lab.write_text(HEAD + kokoro.replace("MIRROR", '"https://mirror.example/"'))
    world.done("doctor")
    assert asked == []
    lab.write_text(HEAD + kokoro.replace("MIRROR", '""'))
    assert world.command("doctor").code == 3
    assert len(asked) > 1
