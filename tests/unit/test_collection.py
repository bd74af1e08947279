"""The collection is this tree: the same roles, modules and plugins, but for what a collection says in another way."""

from __future__ import annotations

import ast
import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
import yaml

from provisioner import __version__
from provisioner.values import one_version
from provisioner.values.paths import PACKAGE
from tests.checkout import tracked_files
from tests.scenario_programs import module_at

ROOT = Path(__file__).resolve().parents[2]
OTHER_LINES = (
    r"\s*from provisioner\.[a-z._]+ import .+",
    r"\s*from ansible_collections\.provisioner\.inference\.plugins\.(?:module|plugin)_utils\.[a-z._]+ import .+",
    r".*\blookup\('(?:provisioner\.inference\.)?provision_\w+'.*",
    r"version: .+",
    r'COLLECTION = ".*"',
)
"""What a line may be that is another one in the collection, on either side."""
REFUSAL = "provisioner.inference.plugins.module_utils.values.one_version import refusal"


builder = module_at(ROOT / ".ci/collection.py")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection's files, as they are packed."""
    folder: Path = tmp_path_factory.mktemp("collection")
    builder.write(folder)
    return folder


def _changed(old: str, new: str) -> list[str]:
    """The lines that only one of both texts has, but for the block by which a module finds the package elsewhere."""
    without = old.replace(builder.WITHOUT_THE_PACKAGE, "")
    compared = difflib.ndiff(without.splitlines(), new.splitlines())
    return [line[2:] for line in compared if line.startswith(("- ", "+ "))]


def test_no_line_differs_from_this_tree_but_imports_and_names(tree: Path) -> None:
    compared = 0
    for path, place in builder.files():
        old, new = (ROOT / path).read_bytes(), (tree / place).read_bytes()
        if old == new:
            continue
        compared += 1
        other = [line for line in _changed(old.decode(), new.decode()) if not _may_differ(line)]
        assert not other, f"{place}: {other}"
    assert compared >= 5


def _may_differ(line: str) -> bool:
    return any(re.fullmatch(form, line) for form in OTHER_LINES)


def test_a_line_that_differs_in_another_way_is_told() -> None:
    assert _changed(
        "a = 1\nfrom provisioner.gpus.look import seen\n", "a = 2\nfrom provisioner.gpus.look import seen\n"
    )
    assert not _may_differ("a = 2")


def test_every_role_module_and_lookup_is_in_it(tree: Path) -> None:
    roles = {name for name in tracked_files(ROOT, "roles") if "/module_utils/" not in name}
    there = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    assert roles <= there
    for kind in ("modules", "lookup", "connection"):
        ours = {Path(name).name for name in tracked_files(ROOT, f"src/provisioner/ansible/{kind}")}
        assert ours == {path.name for path in (tree / "plugins" / kind).iterdir()}


def test_nothing_in_it_is_a_link_or_a_cache(tree: Path) -> None:
    assert [path for path in tree.rglob("*") if path.is_symlink() or path.name == "__pycache__"] == []
    guards = [tree / f"roles/{role}/programs/guard.py" for role in ("kokoro", "litellm", "tabbyapi")]
    assert {path.read_bytes() for path in guards} == {(ROOT / "src/provisioner/inside/request_limits.py").read_bytes()}


def test_what_is_imported_of_the_collection_is_in_it(tree: Path) -> None:
    imported = set()
    for path in tree.glob("plugins/**/*.py"):
        imported |= set(re.findall(r"from ansible_collections\.provisioner\.inference\.(\S+) import", path.read_text()))
    assert len(imported) >= 10
    for name in imported:
        place = tree / name.replace(".", "/")
        assert place.with_suffix(".py").is_file() or (place / "__init__.py").is_file(), name


def test_what_needs_the_package_says_so_on_its_page(tree: Path) -> None:
    compares = tree / "plugins/module_utils" / builder.COMPARED
    needing = [path for path in tree.glob("plugins/**/*.py") if builder.OF_THE_PACKAGE.search(path.read_text())]
    needing.remove(compares)
    assert {path.name for path in needing} == set(builder.NEED_THE_PACKAGE)
    for path in needing:
        page = path.read_text().split('DOCUMENTATION = r"""')[1].split('"""')[0]
        assert "package" in page
        assert "provisioner" in page
        # An error that the package raises is caught by the package's own class alone.
        of_the_collection = re.findall(r"from ansible_collections\.provisioner\S+ import .+", path.read_text())
        assert of_the_collection == [f"from ansible_collections.{REFUSAL}"], path.name


def test_a_module_that_imports_what_is_not_sent_along_is_refused() -> None:
    place = PurePosixPath("plugins/modules/provision_paths.py")
    with pytest.raises(SystemExit, match=r"provision_paths\.py.*lacks.*from provisioner\.values\.plan import Change"):
        builder.text_of(place, "import os\nfrom provisioner.values.plan import Change\n", "1.0.0")


def test_a_lookup_of_ours_is_named_in_full_in_roles() -> None:
    place = PurePosixPath("roles/door/tasks/verify.yml")
    text = "root: \"{{ lookup('provision_authority', 'root') if x else lookup('ansible.builtin.file', 'a') }}\"\n"
    assert builder.text_of(place, text, "1.0.0") == text.replace("'provision_", "'provisioner.inference.provision_")


def test_its_version_is_that_of_the_package(tree: Path) -> None:
    assert yaml.safe_load((tree / "galaxy.yml").read_text())["version"] == __version__


def test_what_compares_versions_knows_the_collection_s_and_in_the_package_none(tree: Path) -> None:
    compares = (tree / "plugins/module_utils" / builder.COMPARED).read_text()
    assert f'COLLECTION = "{__version__}"\n' in compares
    assert one_version.COLLECTION == ""
    with pytest.raises(SystemExit, match="has 0 lines"):
        builder.text_of(PurePosixPath("plugins/module_utils", builder.COMPARED), "NAME = 1\n", "1.0.0")


@pytest.mark.parametrize(("collection", "refused"), [("", False), (__version__, False), ("99.0.1", True)])
def test_only_another_version_of_a_collection_is_refused(
    collection: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_version, "COLLECTION", collection)
    said = one_version.refusal("lab")
    assert bool(said) == refused
    assert not refused or f"is of version 99.0.1, and the Python package provisioner ({PACKAGE}) of" in said


def test_without_the_package_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_version, "COLLECTION", "99.0.1")
    monkeypatch.setitem(sys.modules, "provisioner", None)
    assert one_version.refusal("lab") == ""


def lists_of_what_is_left_out(tree: Path) -> dict[str, set[str]]:
    """By line of ansible-core: what its tests of the collection leave out, each with its reason."""
    files = {path.stem.removeprefix("ignore-"): path for path in (tree / "tests/sanity").iterdir()}
    return {line: set(path.read_text(encoding="utf-8").splitlines()) for line, path in files.items()}


def test_every_ansible_core_that_is_named_leaves_the_same_out(tree: Path) -> None:
    lists = lists_of_what_is_left_out(tree)
    assert set(lists) == {"2.19", "2.20", "2.21"}
    assert lists["2.19"] == lists["2.20"]
    # The same calls have another name by newer tests.
    differ = lists["2.19"] ^ lists["2.21"]
    assert {line.split()[1] for line in differ} == {
        "pylint:ansible-bad-function",
        "validate-modules:use-run-command-not-popen",
    }
    for line in set().union(*lists.values()):
        assert (tree / line.split()[0]).is_file(), line
        assert "#" in line or line.endswith(" pylint:disallowed-name"), f"without a reason: {line}"


def test_what_sanity_would_say_of_a_name_is_known_before(tree: Path) -> None:
    named = {line.split()[0] for line in lists_of_what_is_left_out(tree)["2.21"] if "disallowed-name" in line}
    assert named == {path for path, syntax in programs(tree) if assigns(syntax, "_")}


def test_no_plugin_assigns_several_names_at_once_beside_its_page(tree: Path) -> None:
    """Newer lines of ansible-core read a page from its module's syntax, and stumble there."""
    plugins = [
        (path, syntax) for path, syntax in programs(tree) if re.match(r"plugins/(?!module_utils|plugin_utils)", path)
    ]
    assert len(plugins) > 20
    several = [
        path
        for path, syntax in plugins
        for one in syntax.body
        if isinstance(one, ast.Assign) and not isinstance(one.targets[0], ast.Name)
    ]
    assert several == []


def programs(tree: Path) -> Iterator[tuple[str, ast.Module]]:
    """Each Python file of the collection by its path, with its syntax."""
    for path in sorted(tree.rglob("*.py")):
        yield str(path.relative_to(tree)), ast.parse(path.read_text(encoding="utf-8"))


def assigns(syntax: ast.Module, name: str) -> bool:
    """Whether something in it is bound to that name, an argument among them."""
    for one in ast.walk(syntax):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and one.id == name:
            return True
        if isinstance(one, ast.arguments) and name in {each.arg for each in (*one.posonlyargs, *one.args)}:
            return True
    return False
