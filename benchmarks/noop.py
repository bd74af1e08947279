"""``up`` of labs of 1, 5 and 20 containers in which nothing is to be done, beside what others need for the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.by_hand import ByHand
from benchmarks.goals import SIZES
from benchmarks.labs import BenchLab, Labs
from benchmarks.measuring import Cost, Row, Way, cost, cost_row, in_turns, ratio_row
from benchmarks.peers import MissingPeerError
from benchmarks.pyinfra_peer import Pyinfra

LARGE_ROUNDS = 2
"""Of ``ansible-playbook`` in the largest lab, where it takes minutes."""
UP, ANSIBLE, PYINFRA, TRUE, START = "up", "ansible-playbook", "pyinfra", "true", "start"
BYTES_PER_KB = 1000


@dataclass
class _Bench:
    """One lab and the ways to find that nothing is to be done in it."""

    lab: BenchLab
    why_no_pyinfra: str = ""

    def ways(self, rounds: int) -> list[Way]:
        hand = ByHand(self.lab)
        hand.render()
        large = min(rounds, LARGE_ROUNDS) if self.lab.size == max(SIZES) else rounds
        ways = [
            # Without --yes: it would be refused if there were anything to be done.
            Way(self._key(UP), lambda: self.lab.provision("up"), rounds),
            Way(self._key(ANSIBLE), hand.play_unchanged, large),
            Way(self._key(TRUE), self._true, rounds),
            Way(self._key(START), lambda: self.lab.provision("validate"), rounds),
        ]
        peer = Pyinfra(self.lab)
        try:
            peer.prepare()
        except MissingPeerError as error:
            self.why_no_pyinfra = str(error)
            return ways
        return [*ways, Way(self._key(PYINFRA), peer.deploy, rounds)]

    def _key(self, way: str) -> str:
        return f"no-op, {self.lab.size}: {way}"

    def _true(self) -> Cost:
        return self.lab.watched(lambda: cost([*_python("true_everywhere"), *self.lab.containers], {}))

    def rows(self, taken: Mapping[str, Sequence[Cost]]) -> list[Row]:
        up, true, start = (taken[self._key(way)] for way in (UP, TRUE, START))
        least = [_sum(two, one) for two, one in zip(true, start, strict=True)]
        return [
            *(cost_row(self._key(way), taken[self._key(way)]) for way in (UP, ANSIBLE, TRUE, START)),
            Row(self._key("true, without its start"), [float(one.output) for one in true], "s"),
            ratio_row(self._key("up / ansible-playbook"), up, taken[self._key(ANSIBLE)]),
            ratio_row(self._key("up / (2 x true + start)"), up, least),
            *self._pyinfra_rows(taken),
            self._sent(),
        ]

    def _pyinfra_rows(self, taken: Mapping[str, Sequence[Cost]]) -> list[Row]:
        alone, ratio = self._key(PYINFRA), self._key("up / pyinfra")
        if self.why_no_pyinfra:
            return [Row(what, (), "", why_not=self.why_no_pyinfra) for what in (alone, ratio)]
        return [cost_row(alone, taken[alone]), ratio_row(ratio, taken[self._key(UP)], taken[alone])]

    def _sent(self) -> Row:
        """All that ``up`` sends, its questions about the host and its lock included."""
        done = cost([*_python("sent"), "up", str(self.lab.file)], {})
        total = int(done.output.splitlines()[-1])
        return Row(self._key("sent per container"), [total / BYTES_PER_KB / self.lab.size], "kB")


def _python(program: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"benchmarks.{program}"


def _sum(true: Cost, start: Cost) -> Cost:
    """The least that ``up`` can take: looking into the containers and asking the host, and the command's own start."""
    return Cost(
        2 * true.wall_s + start.wall_s, 2 * true.cpu_s + start.cpu_s, inside_s=2 * true.inside_s + start.inside_s
    )


def rows(labs: Labs, rounds: int, sizes: Sequence[int] = SIZES) -> list[Row]:
    """Every way's cost for every size, their ratios, and how the largest compares with one."""
    benches = [_Bench(labs.of(size)) for size in sizes]
    taken = in_turns(way for bench in benches for way in bench.ways(rounds))
    found = [row for bench in benches for row in bench.rows(taken)]
    smallest, largest = (taken[f"no-op, {size}: {UP}"] for size in (min(sizes), max(sizes)))
    return [*found, ratio_row(f"no-op: {max(sizes)} / {min(sizes)}", largest, smallest)]
