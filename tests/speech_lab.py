"""A lab that speaks: role ``kokoro`` with a server and weights of ours, perhaps behind a gateway.

It takes what Molecule's scenario has in its caches: the same wheels, and with them the same built artifact.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.processes import completed
from tests.scenario_programs import module_at

SCENARIO = Path(__file__).resolve().parents[1] / "molecule/kokoro"
MASTER_KEY = "sk-canary-speech-0123456789"
PLACE = "/srv/kokoro"
TIMEOUT_S = 1200


@dataclass
class SpeechLab:
    """The lab in a folder; its containers are named after it."""

    folder: Path
    name: str
    kokoro: dict[str, Any] = field(default_factory=dict)
    """Options of the service."""

    @property
    def voice(self) -> str:
        """The container that speaks."""
        return f"{self.name}-voice"

    @property
    def gateway(self) -> str:
        """The one in front of it."""
        return f"{self.name}-gateway"

    @property
    def file(self) -> Path:
        """The lab's file."""
        return self.folder / "homelab.yml"

    def write(self, services: Mapping[str, Any], *, gateway: bool = False) -> None:
        """Write the file: these services where it speaks, and the gateway."""
        lines = [f"name: {self.name}", "containers:"]
        lines.append(f"  {self.voice}: {{ image: debian/12, cpu: 2, services: {json.dumps(services)} }}")
        if gateway:
            service = "litellm: { master_key: !secret master_key, aliases: {} }"
            lines.append(f"  {self.gateway}: {{ image: debian/12, services: {{ {service} }} }}")
        self.file.write_text("\n".join([*lines, ""]), encoding="utf-8")

    def provision(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command there."""
        return completed(
            [str(Path(sys.executable).parent / "provision"), *arguments],
            cwd=self.folder,
            env=os.environ | {"PROVISION_SECRET_MASTER_KEY": MASTER_KEY},
            timeout_s=TIMEOUT_S,
        )

    def well(self, *arguments: str) -> str:
        """What a run that has to end well said."""
        done = self.provision(*arguments)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def inside(self, command: str) -> str:
        """What a shell command says where it speaks."""
        run = ["incus", "exec", self.voice, "--", "sh", "-c", command]
        return subprocess.run(run, check=True, capture_output=True, text=True, timeout=120).stdout


@contextmanager
def speech_lab(folder: Path, name: str, *, gateway: bool = False) -> Iterator[SpeechLab]:
    """A lab whose container has upstream's repository already, and whose file says what ``up`` makes of it next."""
    lab = SpeechLab(folder, name)
    made = folder / "made"
    with module_at(SCENARIO / "artifact.py").offered(made) as options:
        module_at(SCENARIO / "repository.py").main(SCENARIO / "files", made / "voices", made)
        commit = json.loads((made / "commits.json").read_text(encoding="utf-8"))["newer"]
        lab.kokoro = {**options, "source": f"file://{PLACE}/standin.git", "commit": commit}
        lab.write({})
        try:
            lab.well("up", "--yes")
            push = ["incus", "file", "push", "--quiet", "--recursive", "--create-dirs", str(made / "standin.git")]
            subprocess.run([*push, f"{lab.voice}{PLACE}/"], check=True, timeout=120)
            lab.write({"kokoro": lab.kokoro}, gateway=gateway)
            yield lab
        finally:
            lab.write({})
            lab.well("destroy", "--prune", "--yes", "--lab", name)
