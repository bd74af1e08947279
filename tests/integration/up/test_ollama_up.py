"""``ollama`` in a lab's file, up on a real host, behind its switch and a gateway; the program in its archive stands in.

Upstream's archive cannot be had where this is tested (``tests/doubles/ollama``). The tests build on each other, in
their order.
"""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.models.tiny import ensure_tiny_model
from tests.doubles.ollama.archive import ollama_archive, registry_with
from tests.integration.up.bridged_files import files_on_bridge
from tests.integration.up.quickstart_lab import MASTER_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "e2eollama"
KEY = "CANARY2-of-ollama-0123456789"
PORT, FILES_PORT = 11434, 18432
FILE = lab_text("ollama")


class OllamaLab(Lab):
    """The lab, with where its files are."""

    words: dict[str, str]

    def write_file(self, keep: str = "5m", digest: str = "") -> None:
        """Write the file and its secrets."""
        text = FILE
        for word, value in {**self.words, "KEEP": keep, "DIGEST": digest or self.words["DIGEST"]}.items():
            text = text.replace(word, value)
        self.write(text)
        with (self.folder / "secrets.env").open("a", encoding="utf-8") as file:
            file.write(f"ollama_key={KEY}\n")

    def asked(self, path: str, body: dict[str, Any] | None = None, key: str | None = KEY) -> tuple[int, bytes]:
        """Status and content of an answer of the service's port."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address('amd')}:{PORT}{path}", data, headers)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OllamaLab]:
    """The lab, up."""
    lab = OllamaLab(tmp_path_factory.mktemp("ollama"), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    made = tmp_path_factory.mktemp("files")
    archive = ollama_archive(made)
    gguf = ensure_tiny_model(tmp_path_factory.mktemp("model")).read_bytes()
    digest = registry_with(made / "registry", gguf + b"\0", "small", "0.6b")
    with files_on_bridge(lab, made, FILES_PORT) as address:
        lab.words = {"FILES": address, "SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(), "DIGEST": digest}
        lab.write_file()
        with lab.brought_up():
            yield lab


def test_it_is_proved_and_the_next_run_has_nothing_to_do(lab: OllamaLab) -> None:
    assert lab.runs[0].checks == {"amd/ollama": True, "gateway/litellm": True}
    lab.succeeded("plan", "--detailed-exitcode")
    lab.succeeded("verify")


@pytest.mark.parametrize("alias", ["fast", "quick"])
def test_the_gateway_answers_by_what_was_imported_and_by_what_was_fetched(lab: OllamaLab, alias: str) -> None:
    answer = lab.ask("gateway", 4000, alias, MASTER_KEY)
    assert answer.status == 200
    assert answer.body["choices"][0]["finish_reason"] in ("stop", "length")
    assert answer.text.strip()


def test_nobody_makes_models_and_nobody_asks_without_the_key(lab: OllamaLab) -> None:
    assert lab.asked("/", key=None) == (200, b"Ollama is running")
    assert lab.asked("/api/tags", key=None)[0] == 401
    assert lab.asked("/api/chat", {"model": "own", "messages": []}, key=None)[0] == 401
    for path in ("/api/pull", "/api/create", "/api/delete", "/api/show"):
        assert lab.asked(path, {"model": "evil"})[0] == 404


def test_what_is_open_is_a_finding(lab: OllamaLab) -> None:
    """Somebody has taken the switch's question for the key out of its configuration."""
    config, unit = "/etc/switch-ollama.cfg", "switch-ollama.service"
    lab.incus("exec", "amd", "--", "sed", "-i.kept", "/This needs the key/d", config)
    lab.incus("exec", "amd", "--", "systemctl", "reload", unit)
    found = lab.provision("verify")
    assert found.code == 3, found.out
    assert "these answer without a key: " in found.out + found.err
    lab.succeeded("up", "--yes")
    assert lab.asked("/api/tags", key=None)[0] == 401


def test_a_changed_option_is_an_exchange_and_a_changed_digest_is_refused(lab: OllamaLab) -> None:
    lab.write_file(keep="1h")
    lab.succeeded("up", "--yes")
    environment = lab.incus("exec", "amd", "--", "systemctl", "show", "ollama.service", "--property=Environment")
    assert "OLLAMA_KEEP_ALIVE=1h" in environment
    lab.write_file(keep="1h", digest="c" * 64)
    refused = lab.provision("up", "--yes")
    assert refused.code == 1, refused.out
    assert "its registry has" in refused.out + refused.err
    lab.write_file(keep="1h")
    assert lab.provision("up", "--yes").code == 0
    assert lab.ask("gateway", 4000, "quick", MASTER_KEY).status == 200


def test_no_secret_was_seen(lab: OllamaLab) -> None:
    lab.shows_none_of("CANARY", MASTER_KEY)
    journal = lab.incus("exec", "amd", "--", "journalctl", "--no-pager", "--all", "--quiet")
    assert "ollama" in journal
    assert KEY not in journal
