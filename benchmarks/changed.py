"""``up`` after a change of the file, and after a change inside, beside ``ansible-playbook`` by hand for the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.by_hand import ByHand
from benchmarks.labs import BenchLab, Labs
from benchmarks.measuring import Cost, Row, Way, cost_row, in_turns, ratio_row
from benchmarks.pyinfra_peer import UNIT

CHANGED_SIZES = (1, 5)
DRIFTED_SIZE = 5


def rows(labs: Labs, rounds: int, sizes: Sequence[int] = CHANGED_SIZES) -> list[Row]:
    """A changed option in labs of 1 and 5, and one drifted container of 5."""
    found = [row for size in sizes for row in _changed(labs.of(size), rounds)]
    return [*found, *_drifted(labs.of(max(sizes)), rounds)]


def _changed(lab: BenchLab, rounds: int) -> list[Row]:
    hand = ByHand(lab)

    def up() -> Cost:
        lab.write(parallel=2)
        return lab.provision("up", "--yes")

    def play() -> Cost:
        # From 2 back to 1: the same change of the same files, and what the next `up` finds has changed again.
        lab.write(parallel=1)
        hand.render()
        return hand.play()

    ours, theirs = f"changed, {lab.size}: up", f"changed, {lab.size}: ansible-playbook"
    taken = in_turns([Way(ours, up, rounds), Way(theirs, play, rounds)])
    ratio = ratio_row(f"{ours} / ansible-playbook", taken[ours], taken[theirs])
    return [cost_row(ours, taken[ours]), cost_row(theirs, taken[theirs]), ratio]


@dataclass
class _Drift:
    """A lab in which somebody edits a file in the first container."""

    lab: BenchLab
    counts: list[float] = field(default_factory=list)
    """In how many containers each `up` ran Ansible."""

    def edit(self) -> str:
        name = self.lab.containers[0]
        self.lab.settle()
        self.lab.inside(name, f"echo '# edited' >> {UNIT}")
        return name

    def up(self) -> Cost:
        name = self.edit()
        done = self.lab.provision("up", "--yes", "--json")
        events = [json.loads(line) for line in done.output.splitlines()]
        configured = {one["target"] for one in events if one["type"] == "apply_start" and one["action"] == "configure"}
        if name not in configured:
            raise RuntimeError(f"Unable to measure a drift: up has not seen that {UNIT} was edited in {name}")
        self.counts.append(float(len(configured)))
        return done

    def play(self) -> Cost:
        name = self.edit()
        hand = ByHand(self.lab)
        hand.render()
        return hand.play("--limit", name)


def _drifted(lab: BenchLab, rounds: int) -> list[Row]:
    drift = _Drift(lab)
    what = f"one drifted of {lab.size}"
    ours, theirs = f"{what}: up", f"{what}: ansible-playbook, that one only"
    taken = in_turns([Way(ours, drift.up, rounds), Way(theirs, drift.play, rounds)])
    return [
        cost_row(ours, taken[ours]),
        cost_row(theirs, taken[theirs]),
        ratio_row(f"{what}: up / ansible-playbook", taken[ours], taken[theirs]),
        Row(f"{what}: containers that Ansible ran in", drift.counts, ""),
    ]
