"""The digest of what a part of the tests depends on: files of the checkout that it reaches, and this machine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from tests.inputs.graph import Graph
from tests.inputs.kept_pages import KeptPages
from tests.inputs.machine import Machine, this_machine
from tests.inputs.parts import FOLLOWED, scenario_of
from tests.inputs.tree import Tree
from tests.molecule import scenarios


class Digests:
    """The inputs of each part as they are now."""

    def __init__(self, root: Path, cache: Path | None = None, machine: Machine | None = None) -> None:
        self.tree = Tree(root)
        self._kept = KeptPages(cache / "pages.json" if cache else None)
        self.graph = Graph(self.tree, self._kept)
        self.machine = machine or this_machine(root)
        self._machine_names = self.machine.packages.keys() | self.machine.environment.keys()
        self._machine_words: dict[str, frozenset[str]] = {}
        self._of_parts: dict[str, str] = {}

    def inputs(self, part: str) -> frozenset[str]:
        """The files of the checkout on which a part depends; for what always runs in ``make test``, all of them."""
        if scenario_of(part):
            return scenarios.inputs(self.graph, scenario_of(part))
        if part.startswith(FOLLOWED):
            return self.graph.reached_by_test(part)
        return self.tree.files

    def digest(self, part: str) -> str:
        """One digest over all of it."""
        if part not in self._of_parts:
            files = self.inputs(part)
            self._of_parts[part] = self._whole if files is self.tree.files else self._digest_of(files)
        return self._of_parts[part]

    def _digest_of(self, files: Iterable[str]) -> str:
        words: set[str] = set()
        for file in files:
            words |= self._words_for_machine(file)
        return self.tree.digest_of(files, *self.machine.seen_by(words))

    def _words_for_machine(self, file: str) -> frozenset[str]:
        """The words of a file that the machine has something to say about: a few of thousands."""
        if file not in self._machine_words:
            self._machine_words[file] = self.graph.words(file) & self._machine_names
        return self._machine_words[file]

    def save(self) -> None:
        """Keep what was read for the next run."""
        self._kept.save()

    @cached_property
    def _whole(self) -> str:
        return self.tree.digest_of(self.tree.files, *self.machine.seen_by(self.machine.environment))
