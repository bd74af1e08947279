"""A service is its folder of ``roles/`` and its module of ``services/``: under another name it is the same service."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner import services
from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card, Node
from provisioner.lab import resolve
from provisioner.lab.stacks import Pinned, stack_uses, wheel_options
from provisioner.labfile.parsing import parse_spec
from provisioner.services import base, knowledge_of
from provisioner.values import paths
from provisioner.values.state import Secret
from provisioner.wheels.known import known_stacks
from tests.case_files import read_cases
from tests.folder_files import folder_files, write_folder
from tests.graphics_cards import RTX_3060
from tests.scratch_roles import linked_roles
from tests.unit.cli.conftest import World

CASES = read_cases("copied_roles")

COPIES = {"llama_cpp": "kites_cpp", "litellm": "jackdaw", "kokoro": "hoopoe", "tabbyapi": "tortoise"}
"""Names as long as the others, so that tables are as wide, and in the same order among all names."""
DIGEST = re.compile(r"\b[0-9a-f]{8,64}\b")
TIME = re.compile(r'\b[0-9.]+ ?s\b|"(elapsed_s|at|started)": [^,}]+')
KEYS = {
    "ENGINE_KEY": "an-engine-key-of-its-own",
    "GATEWAY_KEY": "sk-a-gateway-key-of-its-own",
    "ADMIN_KEY": "an-admin-key-of-its-own",
}
FILE: str = CASES["file"]
BROKEN: str = CASES["broken"]
UNFIT = """\
name: homelab
hosts: { box: { incus: local } }
models: { tiny: { source: "builtin:tiny" } }
containers:
  llama: { gpu: any, services: { llama_cpp: { model: tiny, backend: cuda } } }
  tabby: { gpu: any, services: { kokoro: { device: nvidia } } }
"""
AMD = Card("0000:03:00.0", "amd", "Radeon", driver="amdgpu", memory=8 * 2**30, nodes=(Node("/dev/kfd", 510, 0),))
BEFORE = (
    ("validate",),
    ("plan",),
    ("fit",),
    ("fit", "--memory", "8GiB"),
    ("fit", "--memory", "1MiB"),
    ("show",),
    ("show", "--expanded"),
    ("graph",),
    ("graph", "--dot"),
)
UP = ("up", "--yes")
AFTER = (
    ("status",),
    ("plan", "--detailed-exitcode"),
    ("show", "--client", "opencode"),
    ("show", "--client", "openai"),
    ("show", "--client", "openwebui"),
)


def renamed(text: str) -> str:
    """The text with the names of the copies in it."""
    for name, copy in COPIES.items():
        text = text.replace(name, copy)
    return text


def named_back(text: str) -> str:
    """What a copy said, with the names of the originals; digests, which names are part of, and times left out."""
    for name, copy in COPIES.items():
        text = text.replace(copy, name).replace(copy.replace("_", "-"), name.replace("_", "-"))
    return TIME.sub("TIME", DIGEST.sub("DIGEST", text))


def copy_renamed(source: Path, target: Path) -> None:
    """A copy of a folder or file with the other names in the names of its files and in their contents."""
    files = [source] if source.is_file() else [one for one in source.rglob("*") if one.is_file()]
    for file in files:
        if "__pycache__" in file.parts:
            continue
        copied = target if source.is_file() else target / renamed(str(file.relative_to(source)))
        copied.parent.mkdir(parents=True, exist_ok=True)
        try:
            copied.write_text(renamed(file.read_text(encoding="utf-8")), encoding="utf-8")
        except UnicodeDecodeError:
            shutil.copy(file, copied)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with copies of the services' modules, in which they are found as well."""
    folder = tmp_path_factory.mktemp("services")
    own = Path(services.__path__[0])
    for name, copy in COPIES.items():
        package, module = own / name, own / f"{name}.py"
        copy_renamed(package if package.is_dir() else module, folder / (copy if package.is_dir() else f"{copy}.py"))
    services.__path__.append(str(folder))
    importlib.invalidate_caches()
    knowledge_of.cache_clear()
    yield folder
    services.__path__.remove(str(folder))
    knowledge_of.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[:2] == ["provisioner", "services"]]:
        if name.split(".")[2:3] and name.split(".")[2] in COPIES.values():
            del sys.modules[name]


@pytest.fixture
def copied(tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's roles, with the copies instead of their originals; they are not the services yet."""
    assert modules.is_dir()
    with monkeypatch.context() as patch:
        roles = linked_roles(tmp_path, patch)
    for name, copy in COPIES.items():
        (roles / name).unlink()
        copy_renamed(paths.roles() / name, roles / copy)
    return roles


def answers(
    folder: Path, text: str, verbs: tuple[tuple[str, ...], ...], monkeypatch: pytest.MonkeyPatch, *cards: Card
) -> dict[str, tuple[int, str, str]]:
    """What each verb says of that file in a world of its own: exit code, output, messages."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    for name, key in KEYS.items():
        monkeypatch.setenv(f"PROVISION_SECRET_{name}", key)
    write_folder(folder / "small", folder_files("exl3"))
    (folder / "homelab.yml").write_text(text, encoding="utf-8")
    world = World(monkeypatch)
    world.host.cards.there = cards
    found = {}
    for verb in verbs:
        for words in (verb, (*verb, "--json")) if verb != UP else (verb,):
            answer = world.command(*words)
            told = [named_back(one.replace(str(folder), "FOLDER")) for one in (answer.out, answer.err)]
            if verb == UP:  # containers are made at the same time
                told = ["\n".join(sorted(one.splitlines())) for one in told]
            found[" ".join(words)] = (answer.code, told[0], told[1])
    return found


def both(
    tmp_path: Path, copied: Path, text: str, verbs: tuple[tuple[str, ...], ...], *cards: Card
) -> Iterator[dict[str, tuple[int, str, str]]]:
    """What is said of the originals, and then of the copies."""
    with pytest.MonkeyPatch.context() as patch:
        yield answers(tmp_path / "originals", text, verbs, patch, *cards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "roles", lambda: copied)
        yield answers(tmp_path / "copies", renamed(text), verbs, patch, *cards)


def require_same(originals: dict[str, tuple[int, str, str]], copies: dict[str, tuple[int, str, str]]) -> None:
    for verb, (code, out, err) in originals.items():
        assert copies[verb][0] == code, verb
        assert copies[verb][1].splitlines() == out.splitlines(), verb
        assert copies[verb][2].splitlines() == err.splitlines(), verb


@pytest.mark.parametrize("gpu", ["none", "any"], ids=["without cards", "with cards"])
def test_copies_say_what_the_originals_say(tmp_path: Path, copied: Path, gpu: str) -> None:
    verbs = (*BEFORE, UP, *AFTER)
    text = FILE.replace("GPU", gpu)
    originals, copies = both(tmp_path, copied, text, verbs, RTX_3060)
    assert originals["up --yes"][0] == 0, originals["up --yes"]
    assert ("on RTX 3060" in originals["fit"][1]) == (gpu == "any")
    require_same(originals, copies)


def test_copies_are_refused_for_what_the_originals_are_refused_for(tmp_path: Path, copied: Path) -> None:
    originals, copies = both(tmp_path, copied, BROKEN, (("validate",),))
    code, _, told = originals["validate"]
    assert code == 64
    for where in ("llama_cpp.ubatch", "kokoro.default_voice", "litellm.aliases.fast", "tabbyapi.api_key"):
        assert where in told
    require_same(originals, copies)


@pytest.mark.parametrize("cards", [(), (AMD,)], ids=["no card", "a card of AMD"])
def test_copies_get_no_card_where_the_originals_get_none(tmp_path: Path, copied: Path, cards: tuple[Card, ...]) -> None:
    originals, copies = both(tmp_path, copied, UNFIT, (("plan",), ("status",), ("fit",)), *cards)
    assert originals["plan"][0] == 4
    require_same(originals, copies)


def test_a_copy_gets_of_a_stack_what_the_original_gets(copied: Path) -> None:
    def options(roles: Path, role: str) -> dict[str, object]:
        written = {
            "model": "m",
            "stack": "tabbyapi-cu13",
            "api_key": Secret("one", None),
            "admin_key": Secret("other", None),
        }
        content = {
            "name": "lab",
            "models": {"m": {"source": "dir:m"}},
            "containers": {"a": {"services": {role: written}}},
        }
        catalog = load_catalog(roles)
        parsed = parse_spec(content, catalog)
        spec = parsed.spec
        assert spec is not None, parsed.problems
        lab = resolve(spec, catalog)
        pinned = {use.key: Pinned("", ()) for use in stack_uses(lab)}
        ((address, found),) = wheel_options(lab, known_stacks(), pinned).items()
        assert address == f"a/{role}"
        return found

    told = options(paths.roles(), "tabbyapi")
    assert {"commit", "backend", "packages"} == told.keys()
    assert options(copied, COPIES["tabbyapi"]) == told


def test_each_copy_has_a_module_of_its_own(modules: Path) -> None:
    for name, copy in COPIES.items():
        knowledge = type(knowledge_of(copy))
        assert knowledge.__module__ == f"provisioner.services.{copy}"
        assert str(sys.modules[knowledge.__module__].__file__).startswith(str(modules))
        assert knowledge is not type(knowledge_of(name))
    assert type(knowledge_of("nobody")) is base.Knowledge
