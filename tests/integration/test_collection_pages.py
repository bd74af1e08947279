"""The collection's pages by antsibull-docs and Sphinx: one of each module, plugin and role, with all of its options."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.scenario_programs import module_at

pytestmark = [pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"modules": "module", "lookup": "lookup", "connection": "connection", "inventory": "inventory"}


@pytest.fixture(scope="module")
def maker() -> Iterator[ModuleType]:
    """The program of ``make collection-pages``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / ".ci"))
        yield module_at(ROOT / ".ci/collection_pages.py")


@pytest.fixture(scope="module")
def programs(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tools' programs."""
    found: Path = maker.tools(tmp_path_factory.mktemp("tools") / "venv")
    return found


@pytest.fixture
def collections(maker: ModuleType, tmp_path: Path) -> Path:
    """A folder with the collection as it is built."""
    maker.write(tmp_path / maker.TREE)
    return tmp_path


def _pages(tree: Path) -> dict[str, set[str]]:
    """By page, the names that its options have there."""
    pages = {}
    for folder, kind in KINDS.items():
        for file in (tree / "plugins" / folder).glob("*.py"):
            found = re.search(r'DOCUMENTATION = r"""(.*?)"""', file.read_text(encoding="utf-8"), re.DOTALL)
            assert found is not None, file.name
            pages[f"{file.stem}_{kind}"] = set(yaml.safe_load(found[1]).get("options") or ())
    for file in tree.glob("roles/*/meta/argument_specs.yml"):
        entries = yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]
        names = {f"{entry}--{name}" for entry, page in entries.items() for name in page.get("options") or ()}
        pages[f"{file.parents[1].name}_role"] = names
    return pages


def test_each_module_plugin_and_role_has_a_page_with_its_options(
    maker: ModuleType, programs: Path, collections: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "pages"
    maker.lint(programs, collections)
    maker.render(programs, collections, output)
    said = "".join(capfd.readouterr())
    assert "warning" not in said.lower(), said
    pages = _pages(collections / maker.TREE)
    roles = {path.parent.name for path in (ROOT / "roles").glob("*/tasks")}
    assert {name.removesuffix("_role") for name in pages if name.endswith("_role")} == roles
    assert sum(name.endswith("_module") for name in pages) >= 20
    assert {name for name, options in pages.items() if not options} == {"provision_gpu_facts_module"}
    index = (output / "index.html").read_text(encoding="utf-8")
    for name, options in pages.items():
        text = (output / f"{name}.html").read_text(encoding="utf-8")
        missing = {option for option in options if f'id="parameter-{option}"' not in text}
        assert not missing, f"{name}: {missing}"
        assert f"{name}.html" in index


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("plugins/modules/provision_paths.py", "DOCUMENTATION = "),
        ("roles/door/meta/argument_specs.yml", "    short_description: The door of a lab"),
    ],
)
def test_what_lacks_its_documentation_is_refused(
    maker: ModuleType, programs: Path, collections: Path, file: str, words: str
) -> None:
    broken = collections / maker.TREE / file
    whole = broken.read_text(encoding="utf-8")
    assert whole.count(words) == 1
    name = words.split(maxsplit=1)[0]
    broken.write_text(whole.replace(words, words.replace(name, f"no_{name}")), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"lint-collection-docs --plugin-docs \. ended with"):
        maker.lint(programs, collections)


def test_a_warning_of_sphinx_is_an_error(maker: ModuleType, programs: Path, collections: Path, tmp_path: Path) -> None:
    module = collections / maker.TREE / "plugins/modules/provision_paths.py"
    text = module.read_text(encoding="utf-8")
    old = "Links are followed."
    assert text.count(old) == 1
    module.write_text(text.replace(old, "It is said R(elsewhere, nobody_knows_where)."), encoding="utf-8")
    shutil.rmtree(collections / maker.TREE / "roles")  # one page is enough
    for other in module.parent.iterdir():
        if other != module:
            other.unlink()
    with pytest.raises(SystemExit, match=r"sphinx-build .* ended with"):
        maker.render(programs, collections, tmp_path / "pages")
