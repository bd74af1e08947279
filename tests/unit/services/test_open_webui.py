"""What Open WebUI's role holds against its process: only what that has to be started anew for."""

from __future__ import annotations

import yaml

from provisioner.values import paths

ROLE = paths.roles() / "open_webui"


def test_what_restarts_nothing_makes_no_process_stale() -> None:
    """A changed password of the file counts at the first start alone: else its proof would fail until the next run."""
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    tasks = yaml.safe_load((ROLE / "tasks/configure.yml").read_text(encoding="utf-8"))
    writers = [task for task in tasks if "provision_files" in task]
    quiet = [task for task in writers if "notify" not in task]
    written = {entry["path"] for task in quiet for entry in task["provision_files"]["files"]}
    assert written == {"{{ __open_webui_secrets }}", "{{ __open_webui_closed_file }}"}
    assert written.isdisjoint(variables["__open_webui_read"])
