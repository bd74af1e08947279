"""What a role's checks say to many sets of options, asked by one playbook: for scenarios of services."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testinfra.host import Host

Case = tuple[dict[str, Any], str]
"""Options of the role, without its prefix, and words that it says to them; none where it takes them."""
TOLD = "/root/told.json"
SAID = "ansible_failed_result.results | default([ansible_failed_result]) | map(attribute='msg', default='') | join(' ')"
"""What failed, of a loop what its items said."""
LONGEST_S = 600


def told_to(host: Host, role: str, scenario: Path, cases: Mapping[str, Case], folder: Path) -> dict[str, str]:
    """What the role says to each case, by its name; nothing where it takes it. Nothing that is shown holds a canary."""
    playbook = folder / "play.yml"
    tasks = list(_tasks(role, cases))
    play = {"hosts": "all", "gather_facts": False, "vars_files": [str(scenario / "vars.yml")], "tasks": tasks}
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(playbook)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "canary" not in done.stdout
    said: dict[str, str] = json.loads(host.file(TOLD).content_string)
    return said


def _tasks(role: str, cases: Mapping[str, Case]) -> Iterator[dict[str, Any]]:
    """Each case as a run of the role's checks, and a file of what was said."""
    yield {"set_fact": {"told": {}}}
    for name, (options, _) in cases.items():
        include = {"name": role, "tasks_from": "preflight"}
        variables = {f"{role}_{key}": value for key, value in options.items()}
        said = {"told": f"{{{{ told | combine({{case: {SAID}}}) }}}}"}
        yield {
            "block": [{"include_role": include, "vars": variables}],
            "rescue": [{"set_fact": said, "vars": {"case": name}}],
        }
    yield {"copy": {"content": "{{ told | to_json }}", "dest": TOLD, "mode": "0600"}}
