"""What a registry says of a model that Ollama fetches: asked over https, believed only as far as it is whole."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.lab.opening import remote_models
from provisioner.lab.opening.remote_models import cached_pulled, fetch_pulled
from provisioner.models import remote
from provisioner.models.pulled import ManifestError, ModelName, Pulled, Wanted, model_name, read_manifest
from provisioner.models.remote import LIMIT, NoHeadError, read_pulled
from tests.doubles.ollama.model_registry import KIND, Registry, model_registry
from tests.gguf_bytes import gguf_bytes, model_bytes, projector_bytes

MODEL = model_bytes()
PLACE = "library/small:1b"
CONFIG = {"model_format": "gguf", "model_family": "llama"}
PARAMETERS = json.dumps({"num_ctx": 8192, "temperature": 0.6, "stop": ["<|im_end|>"], "num_batch": 256.0}).encode()
LAYERS = {"model": MODEL, "params": PARAMETERS, "template": b"{{ .Prompt }}"}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "pve-root-ca.pem"))
    monkeypatch.setenv("no_proxy", "*")
    with model_registry(tmp_path) as running:
        yield running


def wanted(registry: Registry, digest: str = "") -> Wanted:
    """The model of the tests in this registry."""
    return Wanted(f"{registry.host}/{PLACE}", digest)


def name_in(registry: Registry) -> ModelName:
    """The same, taken apart."""
    name = model_name(wanted(registry).model)
    assert name is not None
    return name


def told(registry: Registry, digest: str = "") -> Pulled:
    """What is known of it after its registry was asked, where nothing is to be said of that."""
    model = wanted(registry, digest)
    found, notes = fetch_pulled([model])
    assert notes == []
    return found[model]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("qwen3", ("registry.ollama.ai", "library", "qwen3", "latest")),
        ("qwen3:0.6b", ("registry.ollama.ai", "library", "qwen3", "0.6b")),
        ("penny/mine:v1", ("registry.ollama.ai", "penny", "mine", "v1")),
        ("hf.co/org/Repo-GGUF:Q4_K_M", ("hf.co", "org", "Repo-GGUF", "Q4_K_M")),
        ("hf.co/org/Repo-GGUF", ("hf.co", "org", "Repo-GGUF", "latest")),
        ("10.0.0.1:5000/library/a:b", ("10.0.0.1:5000", "library", "a", "b")),
        ("10.0.0.1:5000/library/a", ("10.0.0.1:5000", "library", "a", "latest")),
    ],
)
def test_a_name_means_what_it_means_to_ollama(text: str, parts: tuple[str, ...]) -> None:
    assert model_name(text) == ModelName(*parts)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "a:", ":a", "/a", "a/", "a//b", "a/b/c/d", "hf.co/model", "../a", "a b", "https://h/a/b", "ä"),
        *("a\n", "x@h/a/b", "h/a/" + "b" * 81, "h/a/b:" + "c" * 81),
    ],
)
def test_what_no_registry_calls_a_model_is_asked_of_none(text: str) -> None:
    assert model_name(text) is None
    found, _ = fetch_pulled([Wanted(text)])
    assert found[Wanted(text)].unknown == f"no registry calls a model {text}"


def test_addresses_are_those_that_ollama_asks() -> None:
    name = ModelName("registry.ollama.ai", "library", "qwen3", "0.6b")
    assert name.manifest == "https://registry.ollama.ai/v2/library/qwen3/manifests/0.6b"
    assert name.blob("sha256:7f") == "https://registry.ollama.ai/v2/library/qwen3/blobs/sha256:7f"


def test_head_size_and_options_of_a_model_are_told_and_its_files_are_elsewhere(registry: Registry) -> None:
    digest = registry.publish(PLACE, LAYERS, CONFIG)
    pulled = told(registry)
    assert pulled.header is not None
    assert (pulled.unknown, pulled.digest, pulled.size, pulled.family) == ("", digest, len(MODEL), "llama")
    assert (pulled.header.architecture, pulled.header.context) == ("llama", 4096)
    assert pulled.numbers == {"num_ctx": 8192, "num_batch": 256}
    assert pulled.parts == ("model", "params", "template")
    assert registry.server.seen[0].headers["Accept"] == "application/vnd.docker.distribution.manifest.v2+json"
    assert registry.asked() == ["manifests", "blobs", "blobs", "blobs"]
    assert registry.files.ranges_asked() == [None, None, f"bytes=0-{LIMIT - 1}"]
    assert not any("Authorization" in seen.headers for seen in registry.server.seen + registry.files.seen)


def test_a_projector_is_read_as_the_model_is(registry: Registry) -> None:
    eye = projector_bytes(64)
    registry.publish(PLACE, {"model": MODEL, "projector": eye}, CONFIG)
    pulled = told(registry)
    assert pulled.projector is not None
    assert pulled.projector.is_projector
    assert pulled.projector_size == len(eye)


def test_of_several_files_of_a_kind_the_last_counts_as_it_does_for_ollama() -> None:
    layers = [{"mediaType": f"{KIND}model", "digest": f"sha256:{one * 64}", "size": 1} for one in "ab"]
    assert read_manifest(json.dumps({"layers": layers}).encode()).layers["model"].digest == f"sha256:{'b' * 64}"


def test_a_server_that_knows_no_ranges_is_left_when_the_head_is_over(registry: Registry) -> None:
    registry.ranges = False
    registry.publish(PLACE, LAYERS, CONFIG)
    assert told(registry).unknown == ""


def test_a_name_is_believed_for_a_day_and_its_files_are_read_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.publish(PLACE, LAYERS, CONFIG)
    first = told(registry)
    assert told(registry) == first
    assert cached_pulled([wanted(registry)]) == {wanted(registry): first}
    assert len(registry.server.seen) == 4
    monkeypatch.setattr(remote_models, "FRESH_S", 0.0)
    assert told(registry) == first
    assert registry.asked()[4:] == ["manifests"]


def test_a_name_that_means_something_else_by_now_is_read_anew(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.publish(PLACE, LAYERS, CONFIG)
    told(registry)
    digest = registry.publish(PLACE, {"model": model_bytes(context_length=2048)}, CONFIG)
    monkeypatch.setattr(remote_models, "FRESH_S", 0.0)
    pulled = told(registry)
    assert pulled.header is not None
    assert (pulled.digest, pulled.header.context, pulled.numbers) == (digest, 2048, {})


def test_what_a_registry_said_last_counts_while_it_gives_no_answer(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.publish(PLACE, LAYERS, CONFIG)
    first = told(registry)
    registry.server.pages["/v2/library/small/manifests/1b"] = lambda _seen: (503, {}, b"")
    monkeypatch.setattr(remote_models, "FRESH_S", 0.0)
    found, (note,) = fetch_pulled([wanted(registry)])
    assert found == {wanted(registry): first}
    assert note.endswith(f"counts as its registry said last: {registry.host} answers 503: Service Unavailable")


def test_the_version_that_a_file_names_is_asked_for_once_and_another_one_is_unknown(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = registry.publish(PLACE, LAYERS, CONFIG)
    other = told(registry, "c" * 64)
    assert other.unknown == f"{registry.host} has {digest} by now, and digest says {'c' * 64}"
    assert cached_pulled([wanted(registry, "c" * 64)]) == {}
    monkeypatch.setattr(remote_models, "FRESH_S", 0.0)
    assert told(registry, digest).unknown == ""
    count = len(registry.server.seen)
    assert told(registry, digest).unknown == ""
    assert len(registry.server.seen) == count


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ((404, {}, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'), "404: manifest unknown"),
        ((401, {"WWW-Authenticate": 'Bearer realm="https://x/token"'}, b"{}"), "401: Unauthorized"),
        ((400, {}, b'{"error":"The specified tag\\nis not valid"}'), "400: The specified tag is not valid"),
        ((502, {}, b"<html>" + b"x" * 100_000), "502: Bad Gateway"),
        ((404, {}, b'{"errors":[7]}'), "404: Not Found"),
        ((404, {}, b'{"errors":{}}'), "404: Not Found"),
        ((200, {}, b"<html>a hotel's page</html>"), "answers what is no manifest: it is no JSON"),
        ((200, {}, b"[" * 100_000), "answers what is no manifest"),
        ((200, {}, b"[]"), "answers what is no manifest: it lists no layers"),
        ((200, {}, b'{"manifests": []}'), "it lists no layers"),
        ((200, {}, b'{"layers": [7]}'), "a layer is no object"),
        ((200, {}, b'{"layers": [{"digest": "sha256:../../x", "size": 1}]}'), "a layer has no sha256"),
        ((200, {}, b'{"layers": [{"digest": "sha256:%s", "size": true}]}' % (b"a" * 64)), "a layer has no size"),
        ((200, {}, b'{"layers": [{"digest": "sha256:%s", "size": -1}]}' % (b"a" * 64)), "a layer has no size"),
        ((200, {}, b" " * (5 << 20)), "what comes has more than 4,194,304 bytes"),
        ((302, {"Location": "http://127.0.0.1:1/x"}, b""), "leads to http://127.0.0.1:1, where nothing is encrypted"),
        ((302, {"Location": "file:///etc/passwd"}, b""), "302"),
        ((302, {"Location": "https://a..b/x"}, b""), "label empty or too long"),
    ],
)
def test_what_is_no_answer_is_said_and_asked_again_another_time(registry: Registry, page: Any, why: str) -> None:
    registry.server.pages["/v2/library/small/manifests/1b"] = lambda _seen: page
    assert why in told(registry).unknown
    registry.publish(PLACE, LAYERS, CONFIG)
    assert told(registry).unknown == ""


def test_files_never_come_from_where_nothing_is_encrypted(registry: Registry) -> None:
    registry.publish(PLACE, {"model": MODEL})
    (path,) = (path for path in registry.server.pages if "/blobs/" in path)
    registry.server.pages[path] = lambda _seen: (307, {"Location": "http://127.0.0.1:1/x"}, b"")
    assert "leads to http://127.0.0.1:1, where nothing is encrypted" in told(registry).unknown


def test_a_registry_that_nobody_vouches_for_is_not_believed(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    registry.publish(PLACE, LAYERS, CONFIG)
    assert "certificate verify failed" in told(registry).unknown
    assert registry.server.seen == []


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_file_of_another_size_than_its_manifest_says_is_not_believed(registry: Registry, has_ranges: bool) -> None:
    registry.ranges = has_ranges
    registry.publish(PLACE, LAYERS, CONFIG, model=5_000_000)
    assert told(registry).unknown == (f"{registry.host} lists a file of 5,000,000 bytes, and has one of {len(MODEL):,}")


def test_what_is_not_the_beginning_of_a_file_is_not_read(registry: Registry) -> None:
    registry.publish(PLACE, {"model": MODEL})
    for path in registry.files.pages:
        registry.files.pages[path] = lambda _seen: (206, {"Content-Range": "bytes 5-9/10"}, MODEL)
    assert told(registry).unknown == "what comes is not the beginning of the file"


def test_options_with_another_content_than_their_digest_says_are_not_believed(registry: Registry) -> None:
    registry.publish(PLACE, LAYERS, CONFIG)
    (digest,) = (digest for digest, content in registry.contents.items() if content == PARAMETERS)
    registry.contents[digest] = b'{"num_ctx": 1}'
    assert told(registry).unknown == f"{registry.host} gives another file than its manifest lists"


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"num_ctx": "many", "num_batch": 0.5, "num_gpu": true}'])
def test_options_that_are_none_are_no_numbers(registry: Registry, content: bytes) -> None:
    registry.publish(PLACE, {"model": MODEL, "params": content})
    pulled = told(registry)
    assert pulled.numbers == {}
    assert ("no JSON" in pulled.unknown) == (content == b"<html>")


@pytest.mark.parametrize(
    ("layers", "config", "why"),
    [
        ({"model": b"<html>not a model</html>"}, CONFIG, "it begins with b'<htm', a GGUF with b'GGUF'"),
        ({"model": gguf_bytes({"general.architecture": 7})}, CONFIG, "it does not name its architecture"),
        ({"template": b"x"}, CONFIG, "its manifest lists no file of a model"),
        ({"tensor": b"x"}, {"model_format": "safetensors"}, "its weights are no GGUF but safetensors"),
        ({}, {"remote_host": "https://ollama.com"}, "it is computed elsewhere, and has no weights"),
    ],
)
def test_what_is_no_model_is_said_and_not_read_again(
    registry: Registry, layers: dict[str, bytes], config: dict[str, str], why: str
) -> None:
    registry.publish(PLACE, layers, config)
    assert why in told(registry).unknown
    count = len(registry.server.seen)
    assert why in told(registry).unknown
    assert len(registry.server.seen) == count


def test_a_registry_that_stands_still_holds_nobody_up(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "TIMEOUT_S", 0.2)
    registry.server.pages = {}
    registry.server.content, registry.server.stalls = b"{" * 100, [1]
    assert "gives no answer: " in told(registry).unknown


def test_a_registry_that_drips_holds_nobody_up(registry: Registry) -> None:
    registry.server.pages = {}
    registry.server.content, registry.server.pace_s = b" " * (1 << 20), 0.1
    begun = time.monotonic()
    with pytest.raises(NoHeadError, match=r"does not come within 0\.3 seconds"):
        read_pulled(name_in(registry), deadline_s=0.3)
    assert time.monotonic() - begun < 5


def test_a_host_that_is_not_there_is_said() -> None:
    wanted = Wanted("127.0.0.1:1/library/small")
    found, _ = fetch_pulled([wanted])
    assert found[wanted].unknown == "127.0.0.1:1 gives no answer: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"at": 1}', '{"at": "x", "pulled": {}}', '{"at": 1, "pulled": {"x": 1}}']
)
def test_a_damaged_note_is_read_again(registry: Registry, tmp_path: Path, content: str) -> None:
    registry.publish(PLACE, LAYERS, CONFIG)
    first = told(registry)
    (note,) = (tmp_path / "cache").rglob("heads/*")
    note.write_text(content)
    assert cached_pulled([wanted(registry)]) == {}
    assert told(registry) == first


def test_damaged_manifests_are_refused_or_read() -> None:
    whole = json.dumps({"layers": [{"mediaType": f"{KIND}model", "digest": f"sha256:{'a' * 64}", "size": 1}]}).encode()
    refused = 0
    for at in range(len(whole)):
        damaged = whole[:at] + b"\xff" + whole[at + 1 :]
        try:
            kinds = read_manifest(damaged).layers.keys()
        except ManifestError:
            refused += 1
        else:
            assert kinds <= {"model"}
    assert refused > len(whole) / 2
