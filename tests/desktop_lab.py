"""A lab of one desktop with six users, and visits to it: a real client in the container does what a user does."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.integration.up.quickstart_lab import CANARIES, Lab
from tests.processes import completed

ROOT = Path(__file__).resolve().parents[1]
VISIT = ROOT / "tests/desktop_visit.py"
PROGRAMS = "/usr/local/lib/desktop"
PROVED = "/var/lib/provisioner/desktop/proof.json"
CERTIFICATE = "/etc/xrdp/tls/own.crt"
PORT = 3389
USERS = ("penny", "ann", "bob", "cat", "dan", "eve")
PASSWORDS = {user: f"{CANARIES[0]}-{user}-\"$'{{{{7*7}}}}" for user in USERS}
FILE = """\
name: {lab}
containers:
  {desk}:
    image: {image}
    cpu: 2
    memory: 4GiB
    services:
      desktop:
        user: penny
        password: !secret penny
        users: [{users}]
"""
LIMIT_S = 60


class DesktopLab(Lab):
    """The lab in a folder; ``image`` is what its container is made of."""

    def __init__(self, folder: Path, environment: Mapping[str, str], image: str, name: str) -> None:
        secrets = {f"PROVISION_SECRET_{user.upper()}": word for user, word in PASSWORDS.items()}
        super().__init__(folder, {**environment, **secrets}, image, image, name)
        self.options: dict[str, Any] = {}
        """Of the service, in every file that is written."""

    @property
    def desk(self) -> str:
        """The container."""
        return f"{self.name}-desk"

    def describe(self, **options: Any) -> None:
        """Write the file: a desktop with the lab's options and these."""
        more = ", ".join(f"{{ name: {user}, password: !secret {user} }}" for user in USERS[1:])
        text = FILE.format(lab=self.name, desk=self.desk, image=self.image, users=more)
        text += "".join(f"        {key}: {_value(value)}\n" for key, value in (self.options | options).items())
        (self.folder / "homelab.yml").write_text(text, encoding="utf-8")

    def well(self, *arguments: str) -> str:
        """What a run that has to end well said."""
        ran = self.provision(*arguments)
        assert ran.code == 0, f"{' '.join(arguments)}: {ran.code}\n{ran.out[-4000:]}{ran.err[-4000:]}"
        return ran.out

    def inside(self, *command: str, stdin: str = "", of: str = "") -> str:
        """What a command that has to end well says in the container, or in another one."""
        done = completed(
            ["incus", "exec", of or self.desk, "--", *command],
            given=stdin,
            env={**os.environ, **self.environment},
            timeout_s=300,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def push(self, file: Path, place: str) -> None:
        """Copy a file into the container."""
        self.incus("file", "push", "--quiet", "--create-dirs", str(file), f"{self.desk}{place}")

    def visit(self, user: str, *, of: str = "", **asked: Any) -> Any:
        """What ``desktop_visit.py`` answers; the session stays."""
        request = {
            "user": user,
            "password": PASSWORDS[user],
            "port": PORT,
            "certificate": CERTIFICATE,
            "limit": LIMIT_S,
        }
        program = VISIT.read_text(encoding="utf-8")
        # By its text: a restart of the container empties /run.
        return json.loads(self.inside("python3", "-c", program, stdin=json.dumps(request | asked), of=of))

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions that there are."""
        found: list[dict[str, Any]] = json.loads(self.inside("python3", f"{PROGRAMS}/sessions.py"))
        return found

    def end_sessions(self) -> None:
        """End all of them."""
        ending = f"import sys; sys.path.insert(0, '{PROGRAMS}'); import sessions as s; [*map(s.end, s.sessions())]"
        self.inside("python3", "-c", ending)
        assert self.sessions() == []


def _value(value: Any) -> str:
    """As YAML; what begins with ``!`` is a tag."""
    return value if isinstance(value, str) and value.startswith("!") else json.dumps(value)
