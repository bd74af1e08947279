"""Runs the playbooks of a scenario from its tests, with other variables, and asks the service over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testinfra.host import Host

LONGEST_S = 300


@dataclass(frozen=True)
class Scenario:
    """A scenario's folder, the key of its service, which nothing may show, and the port on which that answers."""

    folder: Path
    key: str
    port: int

    def run(self, name: str, *arguments: str, **values: Any) -> subprocess.CompletedProcess[str]:
        """Run a playbook with other variables; both streams are in ``stdout``, without folds."""
        inventory = os.environ["MOLECULE_INVENTORY_FILE"]
        command = ["ansible-playbook", "--inventory", inventory, str(self.folder / name), *arguments]
        done = subprocess.run(
            [*command, "--extra-vars", json.dumps(values)],
            env=os.environ | {"ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LONGEST_S,
        )
        assert self.key not in done.stdout
        done.stdout = " ".join(done.stdout.split())
        return done

    def passes(self, name: str, *arguments: str, **values: Any) -> str:
        """The playbook ends well; what it said."""
        done = self.run(name, *arguments, **values)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def refuses(self, name: str, *words: str, **values: Any) -> None:
        """The playbook fails and says all these words."""
        done = self.run(name, **values)
        assert done.returncode != 0, done.stdout
        assert [word for word in words if word not in done.stdout] == [], done.stdout

    def http(
        self, host: Host, path: str, body: dict[str, Any] | None = None, *, key: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Status and content of one request with ``key``; an answer that is an error, or no JSON, is an answer."""
        # A container may have further networks of its own, as Podman's is.
        address = host.check_output("ip -4 -brief address show eth0").split()[2].partition("/")[0]
        words = {"content-type": "application/json"} | headers | ({"authorization": f"Bearer {key}"} if key else {})
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"http://{address}:{self.port}{path}", data=data, headers=words)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
                return answer.status, _content(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _content(error.read())


def _content(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
