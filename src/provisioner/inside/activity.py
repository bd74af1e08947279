"""What the services of a container do at this moment: asked in the container, in one run, and nothing is changed.

Reads JSON: ``do`` (what is asked, as of every program there), ``card`` (whether the container has one), and
``services``: of each ``address``, ``unit``, ``socket`` (of the switch before it, empty where there is none), ``port``
(of the unit's own process), ``health`` (its page) and ``metrics`` (``services.base.Metrics``, None where it has none).

Nobody is woken: a unit that does not run is asked nothing, a server that sleeps nothing but whether it does, and of
several models those alone that are in memory. Engines are asked behind their switch, so that a look is no request.

The answer: ``services``, by addresses: ``unit`` (its state), ``start`` (another one after each start), ``status`` (the
switch's words for the slot that serves), ``check`` (its words for the last look at its health), ``running`` and
``waiting`` (requests, by the switch; -1 where there is none), ``sleeps``, ``at_s`` (when the engine was asked, by a
clock of the host), ``models``, ``vram`` (bytes; -1 where nobody tells) and ``problem`` (why it did not say more); and
``cards``: name, used and all bytes of each. Python alone is enough, with ``agent``.
"""

from __future__ import annotations

import csv
import http.client
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from provisioner.inside.agent import System

BACKEND, HOLD = "answers", "hold"
"""The part of role ``switch``'s configuration that leads requests to a service, and where they wait in it."""
STATISTICS, PORTS = "show stat -1 6 -1\n", f"show servers state {BACKEND}\n"
ANSWER_S = 3.0
"""So long a server may take for a page, all of it."""
LARGEST_ANSWER = 4 * 2**20
MOST_MODELS = 32
TRIES = 3
NOBODY_TELLS = -1
RUNS = "active"
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})? +(\S+)")
"""A line of Prometheus' text format, its labels left out."""
MIB = 2**20
HTTP_OK = 200
PROCESSES = ("nvidia-smi", "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits")
CARDS = ("nvidia-smi", "--query-gpu=name,memory.used,memory.total", "--format=csv,noheader,nounits")
CARDS_SAY = ("memory.used", "memory.total")
CARD_S = 5.0


class UnansweredError(Exception):
    """A server does not say what it is asked."""


def page(port: int, path: str, key: str) -> bytes:
    """What the server on that port of this container says there; ``UnansweredError`` where it says no page."""
    deadline = time.monotonic() + ANSWER_S
    there = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    try:
        there.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = there.getresponse()
        said = bytearray()
        while part := answer.read1(65536):
            said += part
            if len(said) > LARGEST_ANSWER or time.monotonic() > deadline:
                raise UnansweredError(f"{path.partition('?')[0]} has no end")
    except (OSError, http.client.HTTPException) as error:
        raise UnansweredError(f"no answer: {error}") from None
    finally:
        there.close()
    if answer.status != HTTP_OK:
        raise UnansweredError(f"{path.partition('?')[0]} answered {answer.status}")
    return bytes(said)


def value(port: int, path: str, key: str) -> Any:
    """The JSON that it says there; ``UnansweredError`` where it says none."""
    try:
        return json.loads(page(port, path, key))
    except (ValueError, RecursionError):
        raise UnansweredError(f"{path.partition('?')[0]} is no JSON") from None


def samples(text: str, names: Sequence[str]) -> list[list[Any]]:
    """Name and number of each line of these series, whatever its labels; what is no number is left out."""
    found = []
    for line in text.splitlines():
        read = SAMPLE.match(line)
        if read and read[1] in names:
            with suppress(ValueError):
                number = float(read[2])
                if 0 <= number < LARGEST:
                    found.append([read[1], number])
    return found


LARGEST = 10.0**18
"""A counter that says more, or no number, counts nothing."""


def slots_in(said: Any) -> list[list[int]]:
    """Of each slot: tokens that it has room for, that its request holds, that it has read, and that it has written."""
    found = []
    for slot in said:
        held = read = written = 0
        if slot["is_processing"]:
            held, read = int(slot.get("n_prompt_tokens", 0)), int(slot.get("n_prompt_tokens_processed", 0))
            written = sum(int(one["n_decoded"]) for one in slot.get("next_token", []))
        found.append([int(slot["n_ctx"]), held, read, written])
    return found


def model_of(port: int, how: Mapping[str, Any], key: str, name: str) -> dict[str, Any]:
    """What one model does: ``samples``, and ``slots`` where something runs in them; None where they are not told.

    Some engines count a request when it has ended, and say in their slots how far it is: both are of one moment where
    nothing was counted in between.
    """
    which = f"?model={quote(name, safe='')}&autoload=false" if name else ""
    slots: list[list[int]] = []
    names = list(how["series"].values())
    said = samples(page(port, how["page"] + which, key).decode(errors="replace"), names)
    for _ in range(TRIES):
        runs = any(number for series, number in said if series == how["series"]["running"])
        if not how["slots"] or not runs:  # to look at slots wakes a server that sleeps; one that computes does not
            return {"name": name, "samples": said, "slots": []}
        try:
            slots = slots_in(value(port, how["slots"] + which, key))
        except (UnansweredError, KeyError, TypeError, ValueError, AttributeError):
            return {"name": name, "samples": said, "slots": None}
        before, said = said, samples(page(port, how["page"] + which, key).decode(errors="replace"), names)
        if before == said:
            break
    return {"name": name, "samples": said, "slots": slots}


def loaded(said: Any) -> list[str]:
    """The names of the models that are in memory, of a server of several."""
    return [str(one["id"]) for one in said["data"] if one["status"]["value"] == "loaded"][:MOST_MODELS]


def figures(port: int, how: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What the engine says: whether it ``sleeps``, its ``models``, and ``vram`` where it tells that itself."""
    told: dict[str, Any] = {"sleeps": False, "models": [], "vram": NOBODY_TELLS}
    try:
        if how["sleeping"] and value(port, how["sleeping"], key).get("is_sleeping"):
            return {**told, "sleeps": True}
        if how["held"]:
            held = value(port, how["held"], key)["models"][:MOST_MODELS]
            told["models"] = [{"name": str(one["name"]), "samples": [], "slots": []} for one in held]
            told["vram"] = sum(int(one["size_vram"]) for one in held)
            return told
        names = loaded(value(port, how["models"], key)) if how["models"] else [""]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UnansweredError("what it says of its models has another form") from None
    told["models"] = [model_of(port, how, key, name) for name in names]
    return told


def key_in(file: str) -> str:
    """The first line of a file with keys; empty where there is none."""
    with suppress(OSError, IndexError):
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()[0].strip() if file else ""
    return ""


def switch_said(path: str, command: str) -> str:
    """What a switch answers to a command that only looks; empty where it does not."""
    said = b""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(path)
        connection.sendall(command.encode("ascii"))
        while len(said) <= LARGEST_ANSWER and (part := connection.recv(65536)):
            said += part
    return said.decode("utf-8", errors="replace")


def switched(path: str) -> dict[str, Any]:
    """What a switch says of its service: the slot that serves, its port, and how many requests run and wait."""
    told: dict[str, Any] = {"slot": "", "status": "", "check": "", "running": NOBODY_TELLS, "waiting": NOBODY_TELLS}
    rows = {}
    for row in csv.DictReader(switch_said(path, STATISTICS).lstrip("# ").splitlines()):
        if row.get("pxname") == BACKEND:
            rows[row.get("svname") or ""] = row
    whole = rows.pop("BACKEND", None)
    rows.pop(HOLD, None)
    if whole is None:
        return told
    with suppress(ValueError, KeyError, TypeError):
        running = sum(int(row["scur"]) for row in rows.values())
        told |= {"running": running, "waiting": max(int(whole["scur"]) - running, 0)}
    serving = sorted(rows.values(), key=lambda row: not str(row.get("status")).startswith("UP"))
    for row in serving[:1]:
        told |= {"slot": row["svname"], "status": row.get("status") or "", "check": row.get("check_status") or ""}
    return told


def port_of(path: str, slot: str, usual: int) -> int:
    """The port at which the switch finds what serves: one that is exchanged has another one meanwhile."""
    lines = switch_said(path, PORTS).strip().splitlines()
    for row in csv.DictReader([line.lstrip("# ") for line in lines[1:]], delimiter=" "):
        if row.get("srv_name") == slot and str(row.get("srv_port")).isdigit():
            return int(row["srv_port"])
    return usual


def health(port: int, path: str) -> str:
    """The switch's words for how a service is that has none before it."""
    try:
        page(port, path, "")
    except UnansweredError:
        return "DOWN"
    return "UP"


def service_of(asked: Mapping[str, Any], unit: Mapping[str, str]) -> dict[str, Any]:
    """What one service does; ``unit``: what systemd says of its unit."""
    told: dict[str, Any] = {
        "unit": unit.get("ActiveState", "not there"),
        "start": unit.get("InvocationID", ""),
        "problem": "",
    }
    told |= {"sleeps": False, "models": [], "vram": NOBODY_TELLS, "at_s": time.monotonic()}
    seen = switched(asked["socket"])
    slot, port = seen.pop("slot"), asked["port"]
    told |= seen
    if told["unit"] != RUNS or not port:
        return told
    if asked["socket"]:
        if not told["status"]:
            told["problem"] = "the switch before it does not answer"
        port = port_of(asked["socket"], slot, port)
    elif asked["health"]:
        told["status"] = health(port, asked["health"])
    told["start"] += f" {port}"
    if asked["metrics"] and told["status"].startswith("UP"):
        try:
            told |= figures(port, asked["metrics"], key_in(asked["metrics"]["key_file"]))
        except UnansweredError as error:
            told["problem"] = str(error)
        told["at_s"] = time.monotonic()
    return told


def said_by_card(command: Sequence[str]) -> list[list[str]]:
    """The rows that nvidia-smi says; none where it cannot be asked."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CARD_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return list(csv.reader(done.stdout.splitlines(), skipinitialspace=True)) if done.returncode == 0 else []


def used_by(rows: Sequence[Sequence[str]], processes: Sequence[int]) -> int:
    """Bytes of cards that these processes hold; ``NOBODY_TELLS`` where none of them is named with a number."""
    own = set(map(str, processes))
    known = []
    for process, *used in rows:
        if process in own and used and used[0].isdigit():
            known.append(int(used[0]))
    return sum(known) * MIB if known else NOBODY_TELLS


def processes_of(unit: str) -> list[int]:
    """The processes of a unit."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                groups = (folder / "cgroup").read_text(encoding="utf-8", errors="replace")
                if unit in re.split(r"[/\n]", groups):
                    found.append(int(folder.name))
    return found


def cards_in(rows: Sequence[Sequence[str]]) -> list[list[Any]]:
    """Name, used and all bytes of each card that says both."""
    found = []
    for name, *sizes in rows:
        used_and_all = [int(size) * MIB for size in sizes if size.isdigit()]
        if len(used_and_all) == len(CARDS_SAY):
            found.append([name, *used_and_all])
    return found


def look(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked for; nobody keeps another one from being asked."""
    services = asked["services"]
    units = System([], [one["unit"] for one in services]).units()
    runs = [one for one in services if units.get(one["unit"], {}).get("ActiveState") == RUNS]
    with ThreadPoolExecutor(len(services) + 2) as pool:
        # Where nothing runs the card is let rest, too.
        rows = [pool.submit(said_by_card, command) for command in (PROCESSES, CARDS) if asked["card"] and runs]
        told = list(pool.map(lambda one: service_of(one, units.get(one["unit"], {})), services))
        by_process, cards = (one.result() for one in rows) if rows else ([], [])
    found = {one["address"]: said for one, said in zip(services, told, strict=True)}
    for one in runs:
        said = found[one["address"]]
        if by_process and said["vram"] == NOBODY_TELLS:
            said["vram"] = used_by(by_process, processes_of(one["unit"]))
    return {"services": found, "cards": cards_in(cards)}


def main(request: bytes) -> None:
    """Answer one request, given as it is sent."""
    json.dump(look(json.loads(request)), sys.stdout)


if __name__ == "__main__":
    main(sys.stdin.buffer.read())
