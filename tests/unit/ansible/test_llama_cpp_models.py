"""What role ``llama_cpp`` refuses of several models, and the list that it writes, as Ansible judges it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plays import refusals, rendered, run_tasks

ROOT = Path(__file__).resolve().parents[3]
SMALL = {"alias": "small", "path": "/srv/models/small/small.gguf", "context": 512}
LARGE = {"alias": "org/large-2.5_Q4", "path": "/srv/models/large/large model.gguf"}
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "a list": ({"models": [SMALL, LARGE], "context": 1024}, ""),
    "one": ({"model": "/m.gguf", "alias": "m"}, ""),
    "neither": ({}, "Unable to serve nothing"),
    "both": ({"model": "/m.gguf", "alias": "m", "models": [SMALL]}, "`models` without any of the three"),
    "no alias": ({"model": "/m.gguf"}, "`model` with `alias`"),
    "a projector": ({"models": [SMALL], "mmproj": "/eye.gguf"}, "`models` without any of the three"),
    "named twice": ({"models": [SMALL, {**LARGE, "alias": "small"}]}, "names one twice"),
    "a bracket": ({"models": [{**SMALL, "alias": "a]"}]}, "an alias holds more than letters"),
    "all models": ({"models": [{**SMALL, "alias": "*"}]}, "an alias holds more than letters"),
    "a line": ({"models": [{**SMALL, "path": "/a\nctx-size = 9"}]}, "a control character"),
    "a comment": ({"models": [{**SMALL, "path": "/a #b.gguf"}]}, "a hash"),
    "a relative path": ({"models": [{**SMALL, "path": "a.gguf"}]}, "is not absolute"),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role says to each case, nothing where it takes it."""
    cases = {name: options for name, (options, _) in CASES.items()}
    return refusals(ROOT, tmp_path_factory.mktemp("play"), "llama_cpp", "preflight_models", cases)


@pytest.mark.parametrize("name", CASES)
def test_the_role_takes_one_model_or_a_list_that_can_be_written(told: dict[str, str], name: str) -> None:
    _, words = CASES[name]
    assert words in told.get(name, "")
    assert (name in told) == bool(words)


def test_each_model_gets_a_section_with_its_own_context(tmp_path: Path) -> None:
    options, _ = CASES["a list"]
    mounted = {
        "/srv/models/small/MANIFEST.sha256": {"sha256": "0123"},
        "/srv/models/large/MANIFEST.sha256": {"sha256": ""},
    }
    variables = {f"llama_cpp_{key}": value for key, value in options.items()} | {"__llama_cpp_seen": {"paths": mounted}}
    written = {"text": rendered(ROOT / "roles/llama_cpp/templates/models.ini.j2")}
    text = run_tasks(ROOT, tmp_path, [{"set_fact": written, "vars": variables}])["text"]
    lines = [line for line in text.splitlines() if line and not line.startswith(";")]
    assert lines == [
        "version = 1",
        "[small]",
        "model = /srv/models/small/small.gguf",
        "ctx-size = 512",
        "[org/large-2.5_Q4]",
        "model = /srv/models/large/large model.gguf",
        "ctx-size = 1024",
    ]
    mounted_lines = [line.rpartition(": ")[2] for line in text.splitlines() if line.startswith("; Another file")]
    assert mounted_lines == ["0123", "without a manifest"]
