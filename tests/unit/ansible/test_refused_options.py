"""Which options roles with a table of checks refuse, as Ansible judges them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plays import refusals
from tests.signed_pairs import signed

ROOT = Path(__file__).resolve().parents[3]
KEYS = {"api_key": "0123456789abcdef", "admin_key": "fedcba9876543210"}
TABBY = {"model": "maker/model", **KEYS}
TABBYAPI: dict[str, tuple[dict[str, Any], str]] = {
    "usual": ({}, ""),
    "all of it": (
        {
            "cache_size": 8192,
            "max_seq_len": 8192,
            "cache_mode": "6,5",
            "draft_mode": "model",
            "draft_model": "maker/small",
            "environment": {"TABBY_LOG_LEVEL": "a \\Z b"},
        },
        "",
    ),
    "the same key twice": ({"admin_key": KEYS["api_key"]}, "tabbyAPI's keys (their values are not shown)"),
    "a short key": ({"api_key": "short"}, "tabbyAPI's keys"),
    "a key that ends a line": ({"admin_key": "fedcba9876543210\n"}, "tabbyAPI's keys"),
    "a cache that no page holds": ({"cache_size": 100}, "Write 256, or 0 for as many"),
    "a cache between two pages": ({"cache_size": 300}, "Write 256 or 512, or 0 for as many"),
    "a request without length": ({"max_seq_len": 0}, "a `max_seq_len` of 0"),
    "a request longer than the cache": ({"cache_size": 256, "max_seq_len": 512}, "with a `cache_size` of 256"),
    "an unknown cache": ({"cache_mode": "Q5"}, "the `cache_mode` Q5"),
    "bits that the backend lacks": ({"cache_mode": "6,5", "backend": "exllamav2"}, "write FP16, Q8, Q6 or Q4."),
    "an odd chunk": ({"chunk_size": 300}, "`chunk_size` (300)"),
    "more requests than a chunk": ({"backend": "exllamav2", "max_batch_size": 257}, "write 256 or less"),
    "as many requests as a chunk": ({"backend": "exllamav2", "max_batch_size": 256}, ""),
    "many requests of the newer backend": ({"max_batch_size": 257}, ""),
    "a draft model without its mode": ({"draft_model": "small"}, "Unable to draft"),
    "a draft mode without its model": ({"draft_mode": "model"}, "Unable to draft"),
    "a draft model elsewhere": ({"draft_mode": "model", "draft_model": "../small"}, "Unable to draft"),
    "n-grams of the older backend": ({"draft_mode": "ngram", "backend": "exllamav2"}, "mtp and ngram need"),
    "a variable of tabbyAPI": ({"environment": {"TABBY_NETWORK_HOST": "x"}}, "one of tabbyAPI's own"),
    "a variable of two words": ({"environment": {"A B": "x"}}, "a name is none"),
    "a variable that ends a line": ({"environment": {"A\n": "x"}}, "a name is none"),
    "a value of two lines": ({"environment": {"A": "x\ny"}}, "a value holds a control"),
    "a model elsewhere": ({"model": "../model"}, "Unable to use ../model as the model"),
    "a model that ends a line": ({"model": "model\n"}, "as the model"),
}
SITE = {"chat.home.example": "http://127.0.0.1:9001/health"}
DOOR: dict[str, tuple[dict[str, Any], str]] = {
    "usual": ({}, ""),
    "several sites": ({"sites": {**SITE, "api": "http://a.incus:8080/health/readiness"}}, ""),
    "no site": ({"sites": {}}, "it has no sites"),
    "a capital letter": ({"sites": {"Chat.home": "http://a:1/"}}, "Chat.home cannot be the name of a site"),
    "an address as a name": ({"sites": {"192.168.1.5": "http://a:1/"}}, "cannot be the name of a site"),
    "a name that ends a line": ({"sites": {"a\n": "http://a:1/"}}, "cannot be the name of a site"),
    "a name with a configuration": ({"sites": {"a }\nbind *:1": "http://a:1/"}}, "cannot be the name of a site"),
    "a long name": ({"sites": {"a." * 127: "http://a:1/"}}, "cannot be the name of a site"),
    "a service by TLS": ({"sites": {"a": "https://a:1/"}}, "Write addresses such as"),
    "a service without port": ({"sites": {"a": "http://a/"}}, "Write addresses such as"),
    "a service with a configuration": ({"sites": {"a": "http://a:1/ check"}}, "Write addresses such as"),
    "one port for both": ({"port": 80}, "`port` and `plain_port` are both 80"),
    "a short secret": ({"authority": "short-canary"}, "at least 20 printable ASCII characters"),
    "by ACME": ({"authority": "", "acme_email": "penny@home.example", "acme_agree": True}, ""),
    "terms that nobody agreed to": ({"authority": "", "acme_email": "penny@home.example"}, "set `acme_agree`"),
    "ACME and an authority": ({"acme_email": "penny@home.example", "acme_agree": True}, "set either `authority` or"),
    "a secret of two lines": ({"authority": "canary-that-is-long-enough\n"}, "at least 20 printable ASCII characters"),
}
PAIR, WILD = signed("own", None, *SITE), signed("wild", None, "*.home.example")
CERTIFIED: dict[str, tuple[dict[str, Any], str]] = {
    "a pair": ({}, ""),
    "remarks around it": ({"certificate": f"subject=\u00e4\n{PAIR.own}\nend"}, ""),
    "a wildcard": ({"certificate": WILD.own, "certificate_key": WILD.key}, ""),
    "another key": ({"certificate_key": WILD.key}, "Unable to use the certificate that is given"),
    "another name": ({"sites": {"a.example": "http://a:1/"}}, "it is not for a.example, but for chat.home.example"),
    "no certificate": ({"certificate": "canary"}, "Unable to use the certificate that is given"),
    "an authority as well": (
        {"authority": "an-authority-of-its-own"},
        "set either `authority` or `certificate` or `acme_email`",
    ),
    "no key": ({"certificate_key": None}, "`certificate` and `certificate_key` belong together"),
    "neither": (
        {"certificate": None, "certificate_key": None},
        "set either `authority` or `certificate` or `acme_email`",
    ),
}
GATEWAY = {
    "name": "gateway/litellm",
    "protocol": "openai",
    "url": "http://gateway.incus:4000/v1",
    "model": "fast",
    "api_key": "sk-canary",
}
VOICE = {
    "name": "voice/kokoro",
    "protocol": "speech",
    "url": "http://voice.incus:8880/v1",
    "model": "kokoro",
    "voice": "af_sky",
}
OPEN_WEBUI: dict[str, tuple[dict[str, Any], str]] = {
    "usual": ({}, ""),
    "a voice alone": ({"connect": [VOICE]}, ""),
    "nothing to ask": ({"connect": []}, "name at least one service in `connect`"),
    "one twice": ({"connect": [GATEWAY, GATEWAY]}, "each once"),
    "two voices": ({"connect": [VOICE, {**VOICE, "url": "http://other:8880/v1"}]}, "name one service that speaks"),
    "a voice without a voice": (
        {"connect": [{**VOICE, "voice": None}]},
        "name one service that speaks, which has a voice",
    ),
    "a key of two lines": (
        {"connect": [{**GATEWAY, "api_key": "canary\nx"}]},
        "printable ASCII characters without spaces",
    ),
    "documents": ({"embeddings": "http://e.incus:8080", "embeddings_model": "e"}, ""),
    "documents by nobody": ({"embeddings_model": "e"}, "Unable to have documents made searchable"),
    "documents by no model": ({"embeddings": "http://e.incus:8080"}, "Unable to have documents made searchable"),
    "a key of two lines for documents": (
        {"embeddings": "http://e.incus:8080", "embeddings_model": "e", "embeddings_key": "canary\nx"},
        "printable ASCII characters without spaces",
    ),
    "a short password": ({"password": "canary"}, "it must have 8 to 72 printable ASCII"),
    "a long password": ({"password": "canary" * 13}, "it must have 8 to 72 printable ASCII"),
    "a password that ends a line": ({"password": "canary-long\n"}, "it must have 8 to 72 printable ASCII"),
}
WHEEL = {
    "name": "numpy",
    "version": "1.0",
    "url": "https://example.org/numpy-1.0-py3-none-any.whl",
    "sha256": "a" * 64,
}


def stack(mirror: str = "", **wheel: str) -> dict[str, Any]:
    """The options of a stack of one package, which differs so much from the usual one."""
    return {"packages": [{**WHEEL, **wheel}], "mirror": mirror}


TORCH_STACK: dict[str, tuple[dict[str, Any], str]] = {
    "usual": ({"packages": [WHEEL]}, ""),
    "nothing": ({"packages": []}, ""),
    "of any Python from one on": (stack(url="https://example.org/numpy-1.0-cp39-abi3-any.whl"), ""),
    "another name": ({"packages": [WHEEL], "name": "../x"}, "Unable to make the stack ../x"),
    "a name that ends a line": ({"packages": [WHEEL], "name": "x\n"}, "Unable to make the stack x"),
    "a package twice": ({"packages": [WHEEL, WHEEL]}, "each package is to be named once"),
    "no wheel": (stack(url="https://example.org/numpy.tar.gz"), "it has to be a wheel with a sha256"),
    "an address that ends a line": (stack(url=WHEEL["url"] + "\n"), "it has to be a wheel with a sha256"),
    "no hash": (stack(sha256="a" * 63), "Unable to install numpy 1.0: it has to be a wheel"),
    "a folder of another machine": (stack(url="file:///x/numpy-1.0-py3-none-any.whl"), "`mirror` says where"),
    "a folder with a mirror": (stack("http://127.0.0.1", url="file:///x/numpy-1.0-py3-none-any.whl"), ""),
    "another Python": (
        stack(url="https://example.org/numpy-1.0-cp27-cp27m-any.whl"),
        "Unable to use numpy-1.0-cp27-cp27m-any.whl",
    ),
}


@pytest.fixture(scope="module")
def told_by_tabbyapi(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What role tabbyapi says to each case, nothing where it takes it."""
    cases = {name: {**TABBY, **options} for name, (options, _) in TABBYAPI.items()}
    return refusals(ROOT, tmp_path_factory.mktemp("tabbyapi"), "tabbyapi", "preflight_options", cases)


@pytest.mark.parametrize("name", TABBYAPI)
def test_tabbyapi_refuses_what_it_cannot_serve_with_and_nothing_else(
    told_by_tabbyapi: dict[str, str], name: str
) -> None:
    _, words = TABBYAPI[name]
    said = told_by_tabbyapi.get(name, "")
    assert words in said
    assert (name in told_by_tabbyapi) == bool(words), said
    assert not any(key in said for key in KEYS.values())


@pytest.mark.parametrize("name", TORCH_STACK)
def test_torch_stack_refuses_what_it_cannot_install_and_nothing_else(tmp_path: Path, name: str) -> None:
    options, words = TORCH_STACK[name]
    told = refusals(ROOT, tmp_path, "torch_stack", "preflight", {name: {"name": "stack", **options}})
    said = told.get(name, "")
    assert words in said
    assert (name in told) == bool(words), said


@pytest.fixture(scope="module")
def told_by_door(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What role door says to each case, nothing where it takes it."""
    usual = {"sites": SITE, "authority": "an-authority-of-its-own"}
    cases = {name: {**usual, **options} for name, (options, _) in DOOR.items()}
    return refusals(ROOT, tmp_path_factory.mktemp("door"), "door", "preflight_options", cases)


@pytest.fixture(scope="module")
def told_by_certified_door(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same of a door with a certificate that is given; what is None in a case is not set."""
    usual = {"sites": SITE, "certificate": PAIR.own, "certificate_key": PAIR.key}
    cases = {}
    for name, (options, _) in CERTIFIED.items():
        cases[name] = {option: value for option, value in {**usual, **options}.items() if value is not None}
    return refusals(ROOT, tmp_path_factory.mktemp("certified"), "door", "preflight_options", cases)


@pytest.mark.parametrize("name", CERTIFIED)
def test_door_refuses_a_certificate_that_it_cannot_show(told_by_certified_door: dict[str, str], name: str) -> None:
    words = CERTIFIED[name][1]
    said = told_by_certified_door.get(name, "")
    assert words in said
    assert (name in told_by_certified_door) == bool(words), said
    assert "canary" not in said
    assert PAIR.key.splitlines()[1] not in said


@pytest.mark.parametrize("name", DOOR)
def test_door_refuses_what_it_cannot_serve_with_and_nothing_else(told_by_door: dict[str, str], name: str) -> None:
    words = DOOR[name][1]
    said = told_by_door.get(name, "")
    assert words in said
    assert (name in told_by_door) == bool(words), said
    assert "canary" not in said


@pytest.fixture(scope="module")
def told_by_open_webui(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What role open_webui says to each case, nothing where it takes it."""
    usual = {"admin": "penny@home.example", "password": "canary-long-enough", "connect": [GATEWAY, VOICE]}
    cases = {name: {**usual, **options} for name, (options, _) in OPEN_WEBUI.items()}
    return refusals(ROOT, tmp_path_factory.mktemp("open_webui"), "open_webui", "preflight_options", cases)


@pytest.mark.parametrize("name", OPEN_WEBUI)
def test_open_webui_refuses_what_it_cannot_be_connected_with(told_by_open_webui: dict[str, str], name: str) -> None:
    words = OPEN_WEBUI[name][1]
    said = told_by_open_webui.get(name, "")
    assert words in said
    assert (name in told_by_open_webui) == bool(words), said
    assert "canary" not in said
