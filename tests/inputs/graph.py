"""Which files of the checkout a test reaches: by imports, programs that it starts, roles and data that it names.

Files are followed: what a reached file reaches is reached, too. Some are only contents (data, the pages of roles that a
catalog reads): what they say leads to nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import PurePosixPath

from tests.inputs.kept_pages import KeptPages
from tests.inputs.pages import PythonPage, values_of, words_of
from tests.inputs.tree import Tree

PRODUCT = "src/provisioner"
PLUGINS = f"{PRODUCT}/ansible"
PROGRAM = f"{PRODUCT}/__main__.py"
CATALOG = f"{PRODUCT}/catalog/__init__.py"
LAB_CHOOSES = frozenset({"playbooks/site.yml", "playbooks/verify.yml"})
"""They name every role; a lab's file says which of them are run."""
EVERY_RUN_USES_ROLES = ("base", "model_store")
"""What ``up`` runs without being told by the lab's file."""
CALLBACKS = f"{PLUGINS}/callback"
"""Every play calls them; other plugins and modules are called by their names."""
CONNECTIONS = f"{PLUGINS}/connection"
"""Every play loads them for their options."""
ALWAYS = ("tests/requirements.txt", "pyproject.toml")
NO_INPUT = frozenset({"README.md"})
"""Files of roles and scenarios that nothing reads but people."""
DATA = ("tests/data/", "tests/cases/", "tests/unit/fixtures/", "src/provisioner/data/", "playbooks/repair/files/")
FOLDERS_OF_NAMES = ("tests/data/", "tests/cases/", "tests/unit/fixtures/", "tests/lab/corosync/")
"""A word of a test may be the name of a folder below these."""
USUAL_WORDS = frozenset({"base", "container"})
"""Roles whose names are words that tests use for other things: they are meant where a path ends with them."""
ONLY_IMPORTS = (
    "roles/",
    "tests/conftest.py",
    "tests/scheduling.py",
    "tests/inputs/",
    "tests/molecule/scenarios.py",
    "tests/ansible_environment.py",
)
"""What they name they do not read: they put tests into an order, or say where Ansible finds what others name."""
FEW = 5
"""A name that more files have than these says nothing; with its folder before it, it does."""
READ_BY_THE_PRODUCT = {"data": "src/provisioner/data", "playbooks": "playbooks", "inventory_templates": "inventory"}
"""Functions of ``provisioner.values.paths``, and the folders that they give."""
LOADED = "?"
"""Behind a file's name: the package is loaded for something in it, and its own functions are not called."""
OWN_PLUGIN = re.compile(r"\bprovision_\w+")


class Graph:
    """What leads to what in a checkout."""

    def __init__(self, tree: Tree, kept: KeptPages | None = None) -> None:
        self.tree = tree
        self._kept = kept or KeptPages(None)
        self.roles = frozenset(PurePosixPath(folder).name for folder in tree.folders_in("roles"))
        self._pages: dict[str, PythonPage] = {}
        self._words: dict[str, frozenset[str]] = {}
        self._modules: dict[str, list[str]] = {}
        self._followed: dict[str, frozenset[str]] = {}
        self._asked: dict[str, frozenset[str]] = {}

    def reached_by_test(self, file: str) -> frozenset[str]:
        """What a test file reaches, with the fixtures of the ``conftest.py`` files above it that are asked for."""
        if "." in self.page(file).reaches:
            return self.tree.files
        conftests = [str(folder / "conftest.py") for folder in PurePosixPath(file).parents]
        conftests = [conftest for conftest in conftests if conftest in self.tree.files]
        seeds = {file, *conftests, *ALWAYS}
        while True:
            reached = self.reached(seeds)
            fixtures = self._fixtures(conftests, reached)
            if fixtures <= seeds:
                return reached
            seeds |= fixtures

    def reached(self, seeds: Iterable[str]) -> frozenset[str]:
        """All files that are reached from ``seeds``, with these; names that there are not are left out."""
        waiting = [seed for seed in seeds if seed.removesuffix(LOADED) in self.tree.files]
        reached = set(waiting)
        while waiting:
            for target in self._led_to(waiting.pop()):
                if target not in reached:
                    reached.add(target)
                    waiting.append(target)
        return frozenset(target.removesuffix(LOADED) for target in reached)

    def page(self, file: str) -> PythonPage:
        """What a Python file says; nothing where it is for another Python, or wrong on purpose."""
        if file not in self._pages:
            folder = PurePosixPath(file).parent
            package = ".".join(folder.parts[1:] if folder.parts[:1] == ("src",) else folder.parts)
            try:
                self._pages[file] = self._kept.page(self.tree.digest(file), self.tree.text(file), package)
            except SyntaxError:
                self._pages[file] = PythonPage()
        return self._pages[file]

    def words(self, file: str) -> frozenset[str]:
        """All words of a file that may be names of something."""
        if file not in self._words:
            self._words[file] = frozenset(self._words_of_file(file))
        return self._words[file]

    def _words_of_file(self, file: str) -> set[str]:
        if file.startswith(DATA):
            return set()
        return self.page(file).words if file.endswith(".py") else words_of(self.tree.text(file))

    def role_files(self, role: str) -> list[str]:
        """What a role consists of; nothing reads its README."""
        return [file for file in self.tree.below(f"roles/{role}") if PurePosixPath(file).name not in NO_INPUT]

    def _led_to(self, file: str) -> frozenset[str]:
        if file not in self._followed:
            targets = self._leads_when_loaded(file) if file.endswith(LOADED) else self._leads(file)
            there = {target for target in targets if target.removesuffix(LOADED) in self.tree.files}
            self._followed[file] = frozenset(there)
        return self._followed[file]

    def _leads_when_loaded(self, loaded: str) -> Iterator[str]:
        for module in self.page(loaded.removesuffix(LOADED)).modules_at_once:
            yield from self._module_files(module)

    def _leads(self, file: str) -> Iterator[str]:
        if file.startswith(DATA):
            return
        if not file.endswith(".py"):
            yield from self._of_yaml(file)
            return
        page = self.page(file)
        yield from self._of_imports(file, page)
        if file.startswith(ONLY_IMPORTS):
            return
        if file.startswith("src/"):
            yield from self._of_product(file, page)
        else:
            yield from self._of_test(file, page)

    def _of_imports(self, file: str, page: PythonPage) -> Iterator[str]:
        # what a fixture for everybody imports when it is called, it imports for those who ask for it
        shared = PurePosixPath(file).name == "conftest.py"
        for module in page.modules_outside_fixtures if shared else page.modules:
            yield from self._module_files(module)
        if file.startswith("roles/"):
            yield from _beside(file, page.modules)
        if page.imports_by_name and file.endswith("/__init__.py"):
            yield from self._modules_of_package(file)
        if page.lists_modules:
            for imported in {target for module in page.modules for target in self._module_files(module)}:
                if imported.endswith("/__init__.py"):
                    yield from self._modules_of_package(imported)

    def _modules_of_package(self, package: str) -> list[str]:
        return [file for file in self.tree.below(str(PurePosixPath(package).parent)) if file.endswith(".py")]

    def _of_product(self, file: str, page: PythonPage) -> Iterator[str]:
        if file == CATALOG:
            # reached, but not followed: the pages of roles that no lab names lead nowhere (see _of_yaml)
            yield from (one for one in self.tree.by_folder["roles"] if "/meta/" in one) if self.roles else ()
        yield from self._of_folders_asked_for(page)
        if page.reads_its_folder:
            yield from self.tree.below(str(PurePosixPath(file).parent))
        if "plugins" in page.folders_asked_for and file != CATALOG:
            yield from self._of_every_play()
        # the runner is told a playbook by its name, and it alone knows the folder
        yield from (f"playbooks/{word}" for word in page.words if word.endswith(".yml"))
        yield from self._plugins(" ".join(page.words))

    def _of_folders_asked_for(self, page: PythonPage) -> Iterator[str]:
        for function in page.folders_asked_for & set(READ_BY_THE_PRODUCT):
            folder = READ_BY_THE_PRODUCT[function]
            named = [one for one in self.tree.below(folder) if page.words & set(_parts_below(one, folder))]
            yield from named or (self.tree.below(folder) if function == "inventory_templates" else ())

    def _of_test(self, file: str, page: PythonPage) -> Iterator[str]:
        if page.starts_the_program:
            yield PROGRAM
            for role in EVERY_RUN_USES_ROLES:
                yield from self.role_files(role)
        yield from self._plugins(" ".join(page.words))
        if "ansible-playbook" in page.words:
            yield from self._of_every_play()
        yield from self._of_folders_asked_for(page)
        for path in page.reaches:
            yield from self._path(path)
        for role in (page.words - USUAL_WORDS | page.path_ends) & self.roles:
            yield from self.role_files(role)
        yield from self._of_words(file, page.words)

    def _of_words(self, speaker: str, words: Iterable[str]) -> Iterator[str]:
        for word in words:
            for folder in self.tree.folders_by_name.get(word, ()):
                if folder.startswith(FOLDERS_OF_NAMES):
                    yield from self.tree.below(folder)
            if "/" in word:
                yield from self._path(word)
                continue
            same_name = [file for file in self.tree.by_name.get(word, ()) if not _is_elsewhere(file, speaker)]
            yield from same_name if len(same_name) <= FEW else ()

    def _path(self, path: str) -> Iterator[str]:
        """The files that a path means, or that are below it: it may begin at the root or at any folder below."""
        wanted = PurePosixPath(path.lstrip("./"))
        for file in self.tree.by_name.get(wanted.name, ()):
            if _ends_with(file, wanted):
                yield file
        for folder in self.tree.folders_by_name.get(wanted.name, ()):
            if _ends_with(folder, wanted):
                yield from self.tree.below(folder)

    def _of_yaml(self, file: str) -> Iterator[str]:
        """What a page of a role, a play, a scenario or a lab leads to."""
        top = file.partition("/")[0]
        if top not in {"roles", "playbooks", "molecule", "examples", ".config"} or "/meta/" in file:
            return
        if PurePosixPath(file).name in NO_INPUT:
            return
        text = self.tree.text(file)
        named = words_of(text) if top in {"examples", "molecule"} else values_of(text)
        for role in (self.roles & named) if file not in LAB_CHOOSES else {"base"} & self.roles:
            yield from self.role_files(role)
        yield from self._plugins(text)
        if top == "playbooks":
            yield from self.tree.below(f"{PurePosixPath(file).parent}/files")
        if top == "molecule":
            yield from (found for word in named if "/" in word for found in self._path(word))

    def _of_every_play(self) -> Iterator[str]:
        yield from self.tree.below(CALLBACKS)
        for file in self.tree.below(CONNECTIONS):
            yield f"{file}{LOADED}"

    def _plugins(self, text: str) -> Iterator[str]:
        """Our modules and other plugins of Ansible that a text names."""
        for plugin in set(OWN_PLUGIN.findall(text)):
            yield from (file for file in self.tree.by_name.get(f"{plugin}.py", ()) if file.startswith(PLUGINS))

    def _module_files(self, name: str) -> list[str]:
        """The file of the module that has the name, or in which it stands; the packages around it are only loaded."""
        if name not in self._modules:
            parts = name.split(".")
            base = ["src", *parts] if parts[0] == "provisioner" else parts
            found = []
            for length in range(1, len(base) + 1):
                place = "/".join(base[:length])
                found += [file for file in (f"{place}.py", f"{place}/__init__.py") if file in self.tree.files]
            packages = [f"{file}{LOADED}" for file in found[:-1]]
            self._modules[name] = [*packages, *found[-1:]]
        return self._modules[name]

    def _fixtures(self, conftests: Iterable[str], reached: Iterable[str]) -> set[str]:
        """What is imported by the functions of ``conftests`` that somebody among ``reached`` asks for."""
        pages = [self.page(conftest) for conftest in conftests]
        asked: set[str] = set()
        for file in reached:
            is_shared = file.endswith("/conftest.py") or file.startswith(ONLY_IMPORTS)
            if file.endswith(".py") and file.startswith("tests/") and not is_shared:
                asked |= self._fixtures_named(file)
        found: set[str] = set()
        waiting = set(asked)
        while waiting:
            name = waiting.pop()
            for fixture in [page.fixtures[name] for page in pages if name in page.fixtures]:
                for module in fixture.modules:
                    found.update(self._module_files(module))
                waiting |= fixture.parameters - asked
                asked |= fixture.parameters
        return found

    def _fixtures_named(self, file: str) -> frozenset[str]:
        """The fixtures of any ``conftest.py`` whose names stand in a file."""
        if file not in self._asked:
            page = self.page(file)
            self._asked[file] = self._all_fixtures & (page.parameters | page.words)
        return self._asked[file]

    @cached_property
    def _all_fixtures(self) -> frozenset[str]:
        conftests = self.tree.by_name.get("conftest.py", ())
        return frozenset(name for conftest in conftests for name in self.page(conftest).fixtures)


def _beside(program: str, modules: Iterable[str]) -> Iterator[str]:
    """Files of those names in the program's own folder: programs of a role lie in one, on the host as here."""
    for module in modules:
        yield f"{PurePosixPath(program).parent}/{module.partition('.')[0]}.py"


def _parts_below(file: str, folder: str) -> tuple[str, ...]:
    return PurePosixPath(file).relative_to(folder).parts


def _ends_with(path: str, wanted: PurePosixPath) -> bool:
    """Whether it does, and what of a role or scenario is meant by it is named with that role or scenario."""
    if path == str(wanted):
        return True
    home = _home(path)
    return path.endswith(f"/{wanted}") and (not home or home.rpartition("/")[2] in wanted.parts)


def _is_elsewhere(file: str, speaker: str) -> bool:
    """Whether a file belongs to a role or scenario, and who speaks does not: there, its mere name means another one."""
    home = _home(file)
    return bool(home) and home != _home(speaker)


def _home(path: str) -> str:
    """The folder of the role or scenario to which a path belongs."""
    parts = PurePosixPath(path).parts
    return "/".join(parts[:2]) if parts[0] in {"roles", "molecule"} else ""
