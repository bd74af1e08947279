"""The node's ``pvesh``: the API as root@pam has it, by its words on the command line, on the same state.

``get``, ``create``, ``set`` and ``delete`` of a path; an answer is printed as JSON, an error is a line on stderr and
exit code 255, as measured on a real node.
"""

from __future__ import annotations

import json

from tests.doubles.proxmox.client import root
from tests.doubles.proxmox.double import Double
from tests.doubles.proxmox.programs import FAILED, Answer, Asked, PctError, options_of

VERBS = {"get": "GET", "create": "POST", "set": "PUT", "delete": "DELETE"}


def answer(double: Double, asked: Asked) -> Answer:
    """What one call of ``pvesh`` does."""
    try:
        verb, path, *rest = asked.argv
        given = options_of(rest)
        given.pop("output-format", None)
        reply = root(double).ask(VERBS[verb], path, **given)
    except (PctError, KeyError, ValueError) as error:
        return Answer(FAILED, err=f"{error}\n")
    if reply.status != 200:
        errors = (reply.json.get("errors") or {}) if reply.body else {}
        return Answer(
            FAILED, err="".join([f"{reply.reason}\n", *(f"{name}: {said}\n" for name, said in errors.items())])
        )
    data = reply.json["data"]
    return Answer(out="" if data is None else f"{json.dumps(data)}\n")
