"""What module `provision_tabby_checkout` says of checkouts: of real ones of git, and of sources in many shapes."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from provisioner.ansible.modules import provision_tabby_checkout as module
from provisioner.values.plain_data import yaml_value
from tests.case_files import read_cases
from tests.plays import rendered, run_cases

CASES = read_cases("ansible/provision_tabby_checkout")

MODELS = """
class BaseConfigModel: ...
class NetworkConfig(BaseConfigModel):
    host: Optional[str] = Field("127.0.0.1")
    _metadata: Metadata = PrivateAttr()
class DraftModelConfig(BaseConfigModel):
    draft_model_name: Optional[str] = None{more}
class TabbyConfigModel(BaseModel):
    network: Optional[NetworkConfig] = Field(default_factory=NetworkConfig.model_construct)
    draft_model: DraftModelConfig = None
    model_config = ConfigDict()
"""
CALL = """
class ExllamaV3Container:
    generator: Optional[AsyncGenerator] = None
    async def create_generator(self):
        self.generator = {call}
"""
SHAPES: dict[str, tuple[str, bool, str]] = CASES["shapes"]


@pytest.mark.parametrize("shape", SHAPES)
def test_who_asks_for_ngrams_is_told_from_the_syntax(shape: str) -> None:
    call, asked, verdict = SHAPES[shape]
    said, reason = module.ngram_drafts(ast.parse(CALL.format(call=call)), asked=asked)
    assert said == verdict
    assert bool(reason) == (verdict == "unknown")


def test_the_keys_are_those_of_the_sections_classes() -> None:
    known = module.known_keys(ast.parse(MODELS.format(more="\n    ngram_match_min: int = 2")))
    assert known == {"network": ["host"], "draft_model": ["draft_model_name", "ngram_match_min"]}


def test_an_unknown_shape_has_no_keys() -> None:
    assert module.known_keys(ast.parse("TabbyConfigModel = dict")) == {}


def test_what_the_role_writes_is_known_to_the_commit_that_its_scenario_has(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    sources = root / "molecule/tabbyapi/files/standin/common/config_models.py"
    known = module.known_keys(ast.parse(sources.read_text(encoding="utf-8")))
    options = {"max_seq_len": 4096, "cache_size": 8192, "max_batch_size": 3, "cpu_moe_offload_layers": 12}
    case: dict[str, object] = {f"tabbyapi_{name}": value for name, value in options.items()}
    case |= {"tabbyapi_model": "folder", "__tabbyapi_own_port": 15000, "__tabbyapi_checkout": {"config": known}}
    text = rendered(root / "roles/tabbyapi/templates/config.yml.j2")
    tasks = [{"set_fact": {"text": text, "unknown": "{{ __tabbyapi_unknown }}"}}]
    found = run_cases(root, tmp_path, "tabbyapi", {"case": case}, tasks)["case"]
    assert found["unknown"] == []
    assert options.items() <= yaml_value(found["text"])["model"].items()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A commit with a configuration and a backend."""
    (tmp_path / "common").mkdir()
    (tmp_path / "backends/exllamav3").mkdir(parents=True)
    (tmp_path / "common/config_models.py").write_text(MODELS.format(more=""), encoding="utf-8")
    (tmp_path / "backends/exllamav3/model.py").write_text(CALL.format(call="AsyncGenerator(model=1)"), encoding="utf-8")
    (tmp_path / ".gitignore").write_text("*.log\n", encoding="utf-8")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    for command in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message=a"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, timeout=60)
    return tmp_path


def test_a_checkout_is_described(checkout: Path) -> None:
    found = module.look(checkout)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, check=True, capture_output=True, text=True, timeout=60
    )
    assert found["commit"] == head.stdout.strip()
    assert found["clean"]
    assert found["backends"] == ["exllamav3"]
    assert (found["ngram"], found["reason"]) == ("needed", "")


@pytest.mark.parametrize("file", ["common/config_models.py", "new.py", "ignored.log"])
def test_whatever_is_not_the_commit_s_is_seen(checkout: Path, file: str) -> None:
    with (checkout / file).open("a", encoding="utf-8") as opened:
        opened.write("# by hand\n")
    assert not module.look(checkout)["clean"]


def test_a_folder_that_git_refuses_is_no_checkout(checkout: Path) -> None:
    (checkout / ".git/HEAD").write_text("nonsense", encoding="utf-8")
    found = module.look(checkout)
    assert (found["commit"], found["clean"]) == ("?", False)


def test_where_nothing_is_there_is_no_commit_not_even_that_of_a_folder_above(checkout: Path) -> None:
    (checkout / "below").mkdir()
    for folder in (checkout / "below", checkout / "missing"):
        found = module.look(folder)
        assert (found["commit"], found["config"], found["backends"], found["ngram"]) == ("", {}, [], "unknown")
