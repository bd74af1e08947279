"""What a llama.cpp server is for: which options and models go with embeddings and with an order of documents."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import ResolvedLab, resolve
from provisioner.lab.filling import Place, filled_in
from provisioner.lab.rules import model_option_problems, warnings
from provisioner.models.header import Header
from provisioner.models.tiny_bert import TINY_BERTS
from provisioner.page.clients import entrance_of
from provisioner.services import Knowledge, knowledge_of
from provisioner.services.gateway_routes import CHAT, EMBEDDING, RERANK
from provisioner.services.llama_cpp.options import ENCODERS, LONGEST_TEXT
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.state import Secret
from tests.lab_files import spec_of
from tests.unit.services.llama_cpp.servers import resolved, spec_with, told

VARIABLES: dict[str, Any] = yaml.safe_load((paths.roles() / "llama_cpp" / "vars" / "main.yml").read_text("utf-8"))
NO_POOLING, MEAN, LAST, RANK = 0, 1, 3, 4


def header(architecture: str, pooling: int | None = None, context: int = 4096) -> Header:
    values = {} if pooling is None else {f"{architecture}.pooling_type": pooling}
    return Header(architecture, layers=1, context=context, key_size=32, value_size=32, values=values)


TEXT, EMBEDS, RANKS = header("llama"), header("nomic-bert", MEAN), header("bert", RANK)
DECODER_EMBEDS, DECODER_RANKS = header("qwen3", LAST), header("qwen3", RANK)


def lab_of(of_model: Header | None, **options: Any) -> ResolvedLab:
    return resolved(spec_with(options), {"m": of_model} if of_model else {})


def refused(of_model: Header | None, **options: Any) -> list[tuple[str, str]]:
    return told(model_option_problems(lab_of(of_model, **options)))


def warned(of_model: Header | None, **options: Any) -> list[tuple[str, str]]:
    return told(warnings(lab_of(of_model, **options)))


@pytest.mark.parametrize(
    ("of_model", "options"),
    [
        (TEXT, {}),
        (EMBEDS, {"embedding": True}),
        (DECODER_EMBEDS, {"embedding": True, "context": 1024, "parallel": 2}),
        (TEXT, {"embedding": True, "extra_arguments": ["--pooling", "last"]}),
        (RANKS, {"rerank": True}),
        (DECODER_RANKS, {"rerank": True, "ubatch": 4096}),
        (None, {"rerank": True}),
        (None, {"embedding": True}),
    ],
)
def test_what_is_made_for_it_is_taken(of_model: Header | None, options: dict[str, Any]) -> None:
    assert refused(of_model, **options) == []
    assert warned(of_model, **options) == []


@pytest.mark.parametrize(
    ("of_model", "options", "place", "words"),
    [
        (EMBEDS, {}, "model", "it makes embeddings and answers no chat (architecture nomic-bert)"),
        (header("bert"), {}, "model", "it makes embeddings and answers no chat (architecture bert)"),
        (RANKS, {}, "model", "it orders documents and answers no chat, as its file says"),
        (DECODER_RANKS, {}, "model", "it orders documents and answers no chat, as its file says"),
        (
            EMBEDS,
            {"models": ["n", "m"]},
            "models.1",
            "it makes embeddings and answers no chat (architecture nomic-bert)",
        ),
        (TEXT, {"embedding": True}, "model", "its file does not say how the vectors of a text's tokens become one"),
        (header("llama", NO_POOLING), {"embedding": True}, "model", "its file does not say how"),
        (DECODER_RANKS, {"embedding": True}, "model", "it orders documents and makes no embeddings"),
        (EMBEDS, {"rerank": True}, "model", "its file says pooling mean, and that of a reranker says rank"),
        (
            RANKS,
            {"rerank": True, "embedding": True},
            "rerank",
            "embedding is written, too, and a server does one thing",
        ),
        (None, {"rerank": True, "models": ["n", "m"]}, "rerank", "it is for one model, and this server has several"),
        (
            None,
            {"embedding": True, "mmproj": "eye"},
            "mmproj",
            "it looks at images for a chat, and embedding is written",
        ),
    ],
)
def test_what_is_not_made_for_it_is_refused(
    of_model: Header | None, options: dict[str, Any], place: str, words: str
) -> None:
    assert any(path == place and message.startswith(words) for path, message in refused(of_model, **options))


@pytest.mark.parametrize(
    ("of_model", "options", "place", "words"),
    [
        (DECODER_EMBEDS, {}, "model", "its file says that it is made for embeddings"),
        (TEXT, {"rerank": True}, "model", "its file does not say that it is a reranker"),
        (EMBEDS, {"embedding": True, "ubatch": 512}, "ubatch", "texts of more than 512 tokens are refused"),
        (RANKS, {"rerank": True, "batch": 1024}, "batch", "texts of more than 1024 tokens are refused"),
        (
            header("bert", MEAN, 8192),
            {"embedding": True, "context": 0},
            "context",
            "texts of more than 2048 tokens are refused, though the context has room for 8192",
        ),
    ],
)
def test_what_does_less_than_its_user_expects_is_told(
    of_model: Header, options: dict[str, Any], place: str, words: str
) -> None:
    found = warned(of_model, **options)
    assert [path for path, _ in found] == [place]
    assert found[0][1].startswith(words)


def test_a_server_answers_what_its_options_say() -> None:
    def kind(**options: Any) -> str:
        service = lab_of(None, **options).services[Address.of("a", "llama_cpp")]
        return knowledge_of("llama_cpp").answers(service)

    assert [kind(), kind(embedding=True), kind(rerank=True)] == [CHAT, EMBEDDING, RERANK]
    assert Knowledge().answers(lab_of(None).services[Address.of("a", "llama_cpp")]) == CHAT


def test_a_client_is_told_of_no_longer_texts_than_are_taken() -> None:
    service = lab_of(EMBEDS, embedding=True, ubatch=512).services[Address.of("a", "llama_cpp")]
    assert knowledge_of("llama_cpp").limits(service, "m").context == 512


def test_the_role_has_the_same_longest_text() -> None:
    assert f"or {LONGEST_TEXT} " in VARIABLES["__llama_cpp_longest_text"]


@pytest.mark.parametrize(("source", "option"), [("builtin:tiny-embedding", EMBEDDING), ("builtin:tiny-rerank", RERANK)])
def test_the_built_in_models_are_made_for_it(source: str, option: str) -> None:
    made = TINY_BERTS[source].header
    assert made.architecture in ENCODERS
    assert refused(made, **{option: True}) == []
    assert refused(made) != []


def _behind_a_gateway(**aliases: list[str]) -> ResolvedLab:
    file: dict[str, Any] = {
        "name": "lab",
        "models": {"e": {"source": "builtin:tiny-embedding"}, "m": {"source": "builtin:tiny"}},
        "containers": {
            "embeds": {"services": {"llama_cpp": {"model": "e", "embedding": True}}},
            "chats": {"services": {"llama_cpp": {"model": "m"}}},
        },
    }
    if aliases:
        gateway = {"master_key": Secret("k", "sk-1"), "aliases": aliases}
        file["containers"]["gateway"] = {"services": {"litellm": gateway}}
    return resolve(spec_of(file), load_catalog())


def test_clients_are_told_of_chats_alone() -> None:
    entrance = entrance_of(_behind_a_gateway(find=["e"], fast=["m"]))
    assert entrance is not None
    assert list(entrance.models) == ["fast"]


def test_clients_of_a_lab_without_a_gateway_talk_to_the_engine_that_chats() -> None:
    entrance = entrance_of(_behind_a_gateway())
    assert entrance is not None
    assert (entrance.container, list(entrance.models)) == ("chats", ["m"])


def test_a_gateway_is_told_what_each_engine_is_asked_for() -> None:
    lab = _behind_a_gateway(find=["e"], fast=["m"])
    service = lab.services[Address.of("gateway", "litellm")]
    routes = filled_in(Place(lab, service, {}), "aliases")["routes"]
    modes = {one["model_name"]: one.get("mode") for one in routes["deployments"]}
    assert modes == {"find": "embedding", "fast": None, "e": "embedding", "m": None}
