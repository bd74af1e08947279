"""What ``make generate`` writes: the same pages give the same bytes, and a check finds what was edited by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner import generate
from provisioner.catalog import Opens, load_catalog
from provisioner.generate import BEGIN, END, defaults_text, options_table, readme_text, stale_files
from provisioner.gpus.bandwidth import known_cards
from provisioner.values import paths
from provisioner.values.errors import InputError

OPTIONS: dict[str, Any] = {
    "engine_port": {"type": "int", "default": 8080, "description": "Port."},
    "engine_model": {"type": "path", "required": True, "description": ["A file.", "Or | none."]},
    "engine_api_key": {"type": "str", "no_log": True, "description": "Key."},
    "engine_cache": {
        "type": "dict",
        "default": {"k": "f16"},
        "description": "Cache.",
        "options": {"k": {"type": "str", "choices": ["f16", "q8_0"], "default": "f16", "description": "Keys."}},
    },
    "engine_peers": {
        "type": "list",
        "elements": "dict",
        "default": [{"name": "a"}],
        "description": "Peers.",
        "options": {"name": {"type": "str", "required": True, "description": "Name."}},
    },
    "engine_listen": {"type": "str", "default": "127.0.0.1", "description": "Address."},
}


def test_defaults_hold_what_has_a_default_in_the_order_of_the_specs() -> None:
    text = defaults_text(OPTIONS)
    assert yaml.safe_load(text) == {
        "engine_port": 8080,
        "engine_cache": {"k": "f16"},
        "engine_peers": [{"name": "a"}],
        "engine_listen": "127.0.0.1",
    }
    assert text.index("engine_port") < text.index("engine_cache") < text.index("engine_listen")
    assert text.startswith("---\n# Generated from meta/argument_specs.yml")


def test_defaults_without_any_are_an_empty_mapping() -> None:
    assert yaml.safe_load(defaults_text({"engine_model": {"required": True}})) == {}


def test_the_table_shows_options_as_the_file_writes_them() -> None:
    limits: dict[str, Any] = {
        "port": {"min": 1, "max": 65535},
        "model": {"pattern": "/.+", "says": "be an absolute path"},
    }
    assert options_table("engine", OPTIONS, frozenset({"listen"}), limits).splitlines()[2:] == [
        "| `port` | int, 1 to 65535 | `8080` | Port. |",
        "| `model` | path | **required** | A file. Or \\| none. |",
        "| `api_key` | secret |  | Key. |",
        "| `cache` | dict | `{k: f16}` | Cache. |",
        "| `cache.k` | str: `f16`, `q8_0` | `f16` | Keys. |",
        "| `peers` | list of dict | `[{name: a}]` | Peers. |",
        "| `peers[].name` | str | **required** | Name. |",
        "| `listen` | str | (filled in) | Address. |",
    ]


@pytest.mark.parametrize(
    ("limit", "words"), [({"min": 0}, "int, 0 or more"), ({"max": 9}, "int, 9 or less"), ({}, "int")]
)
def test_the_table_says_in_which_range_a_number_is(limit: dict[str, int], words: str) -> None:
    options = {"engine_port": OPTIONS["engine_port"]}
    row = options_table("engine", options, limits={"port": limit}).splitlines()[-1]
    assert row == f"| `port` | {words} | `8080` | Port. |"


def test_a_role_without_options_says_so() -> None:
    assert options_table("base", {}) == "It has no options.\n"


def test_only_the_table_of_a_readme_changes(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# Engine\n\n{BEGIN}\nold\n{END}\n\nLast words.\n")
    text = readme_text(readme, "| new |\n")
    assert text == f"# Engine\n\n{BEGIN}\n\n| new |\n\n{END}\n\nLast words.\n"
    readme.write_text(text)
    assert readme_text(readme, "| new |\n") == text


@pytest.mark.parametrize("text", ["# Engine\n", f"{BEGIN}\n", f"{END}\n"])
def test_a_readme_without_a_place_is_refused(tmp_path: Path, text: str) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(InputError, match="generate a table") as caught:
        readme_text(readme, "")
    assert BEGIN in caught.value.resolution


def test_a_missing_readme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        readme_text(tmp_path / "README.md", "")


@pytest.mark.parametrize("text", ["", "argument_specs: {}", "argument_specs: {main: []}"])
def test_specs_without_an_entry_point_are_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "roles/engine/meta/argument_specs.yml"
    page.parent.mkdir(parents=True)
    page.write_text(text)
    with pytest.raises(InputError, match=r"engine/meta/argument_specs\.yml"):
        generate.generated_files(tmp_path, [])


SWITCH = """\
argument_specs:
  main:
    options:
      gate_port: {type: int, required: true, description: Port.}
      gate_queue: {type: str, default: 2m, description: How long a request waits.}
      gate_idle: {type: str, default: 0s, description: When it ends.}
"""
BEGIN_PASSED_ON = "      # Passed on by role gate, written by `make generate`."
END_PASSED_ON = "      # End of what role gate passes on."
PLACE = f"""\
    options:
      engine_model: {{type: str, description: Model.}}
{BEGIN_PASSED_ON}
      engine_old: {{type: str, description: Gone since.}}
{END_PASSED_ON}
      engine_alias: {{type: str, description: Name.}}
"""
ENGINE = f"argument_specs:\n  main:\n{PLACE}  verify:\n{PLACE}"


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """The folder of a role behind another one, which passes on one option to engines and another one to all."""
    pages = {
        "gate/meta/argument_specs.yml": SWITCH,
        "gate/meta/service.yml": "passed_on: {queue: [engine, gateway], idle: [engine]}\n",
        "gate/README.md": f"{BEGIN}\n{END}\n",
        "engine/meta/argument_specs.yml": ENGINE,
        "engine/meta/service.yml": "{stage: engine, behind: gate}\n",
        "engine/README.md": f"{BEGIN}\n{END}\n",
    }
    for name, text in pages.items():
        page = tmp_path / "roles" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    return tmp_path / "roles/engine"


def generated(engine: Path) -> dict[Path, str]:
    """All that is generated of the two roles."""
    return generate.generated_files(engine.parents[1], [])


@pytest.mark.parametrize(("stage", "names"), [("engine", ["queue", "idle"]), ("gateway", ["queue"])])
def test_what_a_role_passes_on_stands_in_both_entry_points_and_nothing_else_changes(
    engine: Path, stage: str, names: list[str]
) -> None:
    (engine / "meta/service.yml").write_text(f"{{stage: {stage}, behind: gate}}\n")
    files = generated(engine)
    specs = yaml.safe_load(files[engine / "meta/argument_specs.yml"])["argument_specs"]
    for entry in ("main", "verify"):
        options = specs[entry]["options"]
        assert list(options) == ["engine_model", *(f"engine_{name}" for name in names), "engine_alias"]
        assert options["engine_queue"] == {"type": "str", "default": "2m", "description": "How long a request waits."}
    assert "engine_queue: 2m" in files[engine / "defaults/main.yml"]
    assert "| `queue` | str | `2m` | How long a request waits. |" in files[engine / "README.md"]


def test_what_is_passed_on_is_written_the_same_again(engine: Path) -> None:
    page = engine / "meta/argument_specs.yml"
    page.write_text(generated(engine)[page])
    assert generated(engine)[page] == page.read_text()
    page.write_text(page.read_text().replace("default: 2m", "default: 3m"))
    assert generated(engine)[page] != page.read_text(), "what was edited by hand is found"


@pytest.mark.parametrize(
    "text",
    [
        ENGINE.replace(BEGIN_PASSED_ON, "", 1),
        ENGINE.replace(END_PASSED_ON, "", 1),
        ENGINE.replace(BEGIN_PASSED_ON, "").replace(END_PASSED_ON, ""),
    ],
)
def test_an_entry_point_without_a_place_for_what_is_passed_on_is_refused(engine: Path, text: str) -> None:
    (engine / "meta/argument_specs.yml").write_text(text)
    with pytest.raises(InputError, match="what role gate passes on") as caught:
        generated(engine)
    assert BEGIN_PASSED_ON in caught.value.resolution


def test_the_site_play_prepares_containers_then_serves_in_the_order_of_stages() -> None:
    services = sorted(load_catalog().services.values(), key=lambda one: one.role, reverse=True)
    plays = yaml.safe_load(generate.generated_files(paths.share(), services)[paths.playbooks() / "site.yml"])
    groups = [play["hosts"] for play in plays]
    assert groups[0] == "containers"
    assert groups.index("service_llama_cpp") < groups.index("service_litellm")
    assert sorted(groups[1:]) == sorted(f"service_{one.role}" for one in services)
    assert {play["gather_facts"] for play in plays} == {False}


def test_verify_runs_every_role_s_own_proof_and_nothing_else() -> None:
    services = list(load_catalog().services.values())
    plays = yaml.safe_load(generate.generated_files(paths.share(), services)[paths.playbooks() / "verify.yml"])
    included = [task["ansible.builtin.include_role"] for play in plays for task in play["tasks"]]
    assert sorted(one["name"] for one in included) == sorted(one.role for one in services)
    assert {one["tasks_from"] for one in included} == {"verify"}


def test_the_same_pages_give_the_same_bytes() -> None:
    services = list(load_catalog().services.values())
    first = generate.generated_files(paths.share(), services)
    assert first == generate.generated_files(paths.share(), services[::-1])


def test_what_was_edited_by_hand_or_is_missing_is_stale(tmp_path: Path) -> None:
    kept, edited, missing = (tmp_path / name for name in ("kept", "edited", "missing"))
    kept.write_text("wanted")
    edited.write_text("by hand")
    found = stale_files(dict.fromkeys((kept, edited, missing), "wanted"))
    assert found == {edited: ("by hand", "wanted"), missing: ("", "wanted")}


def test_check_shows_what_differs_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "site.yml"
    target.write_text("by hand\n")
    monkeypatch.setattr(generate, "generated_files", lambda *_: {target: "wanted\n"})
    assert generate.main(["--check"]) == 1
    assert target.read_text() == "by hand\n"
    assert "-by hand\n+wanted\n" in capsys.readouterr().out
    assert generate.main([]) == 0
    assert target.read_text() == "wanted\n"
    assert generate.main(["--check"]) == 0


def test_the_table_of_what_is_open_names_sockets_and_routes() -> None:
    services = load_catalog().services
    lines = generate.opens_table(services["llama_cpp"]).splitlines()
    assert "| `port` (8080), any address | `switch-llama-server.service` | clients |" in lines
    assert "| 18080, loopback | `llama-server.service` | the switch |" in lines
    assert "| `GET /health` | whether it serves |" in lines
    assert "| `plain_port`, any address | `door.service` | clients |" in generate.opens_table(services["door"])


def test_a_role_that_says_nothing_of_what_it_opens_needs_no_place_for_it(tmp_path: Path) -> None:
    """As a role of somebody else's, which has no such page."""
    kokoro = load_catalog().services["kokoro"]
    for page in ("meta/argument_specs.yml", "meta/service.yml"):
        (tmp_path / "roles/kokoro/meta").mkdir(parents=True, exist_ok=True)
        text = (paths.roles() / "kokoro" / page).read_text(encoding="utf-8").replace("behind: switch", "# alone")
        (tmp_path / "roles/kokoro" / page).write_text(text, encoding="utf-8")
    (tmp_path / "roles/kokoro/README.md").write_text(f"# kokoro\n{BEGIN}\n{END}\n", encoding="utf-8")
    without = replace(kokoro, opens=Opens())
    assert generate.generated_files(tmp_path, [without])
    with pytest.raises(InputError, match="generate a table"):
        generate.generated_files(tmp_path, [kokoro])


def test_the_page_on_suggestions_has_the_table_of_all_cards() -> None:
    page = paths.share() / "docs/suggest.md"
    wanted = generate.generated_files(paths.share(), [])[page]
    assert page.read_text(encoding="utf-8") == wanted, "run make generate"
    rows = generate.cards_table().splitlines()
    assert len(rows) == 2 + len(known_cards())
    (row,) = [row for row in rows if row.startswith("| GeForce RTX 4090 |")]
    assert row.startswith("| GeForce RTX 4090 | 24 GB | 1,008.4 | [techpowerup.com](https://")
