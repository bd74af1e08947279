"""The calls that are made where there is no room (tests/integration/test_no_room.py) are of every verb."""

from __future__ import annotations

from provisioner.cli.app import VERBS

CALLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "init": (("init", "new/homelab.yml"),),
    "validate": (("validate",),),
    "schema": (("schema",),),
    "show": (("show", "client"),),
    "graph": (("graph",), ("graph", "--svg", "{place}/graph.svg")),
    "import": (("import", "llama"),),
    "eject": (("eject", "{place}/out"),),
    "lock": (("lock",),),
    "fit": (("fit",),),
    "suggest": (("suggest", "tiny", "--gpu", "8GiB"),),
    "plan": (("plan",),),
    "up": (("up", "--yes"), ("up", "--yes", "--full")),
    "status": (("status",),),
    "top": (("top", "--once"),),
    "report": (("report", "{place}/lab.html"),),
    "verify": (("verify",),),
    "audit": (("audit",),),
    "probe": (("probe", "llama", "--yes"),),
    "bench": (("bench",),),
    "down": (("down",),),
    "snapshot": (("snapshot", "--name", "kept"),),
    "rollback": (("rollback", "--yes"),),
    "clone": (
        ("clone", "llama", "twin"),
        ("clone", "llama", "trial", "--set", "services.llama_cpp.parallel=2", "--yes"),
    ),
    "logs": (("logs",), ("logs", "--run")),
    "open": (("open",),),
    "exec": (("exec", "llama", "true"),),
    "host": (("host", "--help"),),
    "cuda": (("cuda", "check"),),
    "stacks": (("stacks", "list"),),
    "cluster": (("cluster", "--help"),),
    "runbook": (("runbook", "list"),),
    "doctor": (("doctor",),),
    "destroy": (("destroy", "--yes"),),
}
CODES = {"init": (64,), "graph": (4, 64), "report": (4, 64), "eject": (1, 4), "lock": (1, 4)}
"""What is written for a user, where the user said: the words are wrong, or what was begun was taken back."""


def test_every_verb_is_called() -> None:
    assert CALLS.keys() == VERBS.keys()
