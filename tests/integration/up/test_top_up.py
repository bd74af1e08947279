"""``provision top`` on a real host: what a real llama-server does is seen, and nobody hears of a look.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.up.measured_lab import brought_up
from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab, asked_meanwhile, sh
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME = "top"
ENGINE, IDLE = f"{NAME}-engine", f"{NAME}-idle"
FILE = lab_text("top")
SOCKET = "/run/switch-llama-server/control.sock"
ASKED = f"""python3 - <<'EOF'
import csv, socket
with socket.socket(socket.AF_UNIX) as link:
    link.connect("{SOCKET}")
    link.sendall(b"show stat -1 2 -1\\n")
    said = b"".join(iter(lambda: link.recv(65536), b"")).decode()
for row in csv.DictReader(said.lstrip("# ").splitlines()):
    if row["pxname"] == "answers":
        print(row["stot"])
EOF"""
STARTS = "journalctl --quiet --output cat --unit llama-server | grep -c '^Started '"


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up."""
    with brought_up(incus_lab, tmp_path_factory.mktemp(NAME), NAME, FILE) as lab:
        yield lab


def seen(lab: Lab) -> dict[str, dict[str, Any]]:
    """What ``top`` says of each service, by its container."""
    found = lab.succeeded("top", "--once", "--json")
    result = found.result
    return {one["target"].partition("/")[0]: one for one in result["services"]}


def test_what_an_engine_computes_is_seen_while_it_computes(lab: Lab) -> None:
    with asked_meanwhile(lab, ENGINE, "small"):
        looks = [seen(lab)[ENGINE] for _ in range(5)]
    assert {one["state"] for one in looks} == {"answers"}
    assert {tuple(one["models"]) for one in looks} == {("small",)}
    assert {one["problem"] for one in looks} == {""}
    assert max(one["written_per_s"] or 0 for one in looks) > 0
    assert max(one["read_per_s"] or 0 for one in looks) > 0


def test_a_look_is_no_request_of_a_client(lab: Lab) -> None:
    before = sh(lab, ENGINE, ASKED)
    for _ in range(3):
        assert seen(lab)[ENGINE]["running"] == 0
    assert sh(lab, ENGINE, ASKED) == before


def test_an_engine_falls_asleep_while_it_is_looked_at_and_stays_so(lab: Lab) -> None:
    assert lab.ask(IDLE, 8080, "small", ENGINE_KEY).status == 200
    states = [seen(lab)[IDLE]["state"] for _ in range(15)]  # each takes two seconds and more
    assert states[-1] == "asleep", states
    starts = sh(lab, IDLE, STARTS)
    for _ in range(3):
        assert seen(lab)[IDLE]["state"] == "asleep"
    assert sh(lab, IDLE, STARTS) == starts


def test_what_is_stopped_is_told_and_stops_no_other(lab: Lab) -> None:
    lab.incus("stop", ENGINE)
    states = {name: one["state"] for name, one in seen(lab).items()}
    assert states == {ENGINE: "stopped", IDLE: "asleep"}


def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of(ENGINE_KEY)
