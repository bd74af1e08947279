"""What modules give is the same, whether a server runs them or a Python of their own."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.case_files import read_cases
from tests.module_payloads import payload, written
from tests.module_servers import Box, Result

CASES = read_cases("module_server/results")

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="a server is root's")

TEMPORARY = re.compile(rb"ansible_(\w+)_payload_\w+|ansible-moduletmp-[^\"]*")
TIMES = re.compile(rb'"(start|end|delta|atime|version)": ("[^"]*"|[0-9.]+)')
TWO_LINES = "one\ntwo\n"


def comparable(result: Result) -> Result:
    """The result without what differs between any two runs."""
    code, output, errors = result
    output = TIMES.sub(rb'"\1": 0', TEMPORARY.sub(b"temporary", output))
    return code, output, TEMPORARY.sub(b"temporary", errors)


def both(box: Box, content: bytes) -> Result:
    """The result of both ways, which must be the same."""
    usual = comparable(box.usual(content))
    served = comparable(box.served(content))
    assert served == usual
    return served


MODULES: list[tuple[str, dict[str, Any]]] = CASES["modules"]


@pytest.mark.parametrize(("module", "arguments"), MODULES)
def test_modules_of_many_kinds(shared: Box, module: str, arguments: dict[str, Any]) -> None:
    both(shared, payload(module, arguments, check_mode=module == "get_url"))


@pytest.mark.parametrize("check_mode", [True, False])
def test_check_mode_and_diff(shared: Box, tmp_path: Path, check_mode: bool) -> None:
    page = tmp_path / "page"
    content = payload("lineinfile", {"path": str(page), "line": "three"}, check_mode=check_mode, diff=True)
    results = []
    for run in (shared.usual, shared.served):
        page.write_text(TWO_LINES)
        results.append(comparable(run(content)))
        assert page.read_text() == (TWO_LINES if check_mode else TWO_LINES + "three\n")
    assert results[0] == results[1]
    assert "three" in json.loads(results[0][1])["diff"][0]["after"]


def test_facts(shared: Box) -> None:
    content = payload("setup", {"gather_subset": ["!all", "!min", "python", "user", "platform", "date_time"]})
    usual, served = json.loads(shared.usual(content)[1]), json.loads(shared.served(content)[1])
    assert served["ansible_facts"].keys() == usual["ansible_facts"].keys()
    for name in ("ansible_python", "ansible_user_id", "ansible_machine"):
        assert served["ansible_facts"][name] == usual["ansible_facts"][name]


END = "AnsibleModule(argument_spec={}).exit_json(changed=False)\n"
ODD_MODULES = CASES["odd modules"]


@pytest.mark.parametrize("name", sorted(ODD_MODULES))
def test_modules_that_do_odd_things(shared: Box, tmp_path: Path, name: str) -> None:
    both(shared, payload(written(tmp_path, f"odd_{name}", ODD_MODULES[name])))


def test_what_one_module_changes_of_its_process_the_next_one_does_not_see(shared: Box, tmp_path: Path) -> None:
    changes = (
        "import locale, os, sys, resource\nfrom ansible.module_utils import basic\nsys.path.insert(0, '/changed')\n"
        "os.chdir('/proc')\nos.environ['CHANGED'] = '1'\nos.umask(0o777)\nlocale.setlocale(locale.LC_ALL, 'C')\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))\nbasic.CHANGED = 1\n{END}"
    )
    looks = (
        "import locale, os, sys, resource\nfrom ansible.module_utils import basic\n"
        "print('/changed' in sys.path, os.getcwd(), os.environ.get('CHANGED'), os.umask(0), locale.setlocale(0),"
        f"resource.getrlimit(resource.RLIMIT_NOFILE), hasattr(basic, 'CHANGED'))\n{END}"
    )
    look = payload(written(tmp_path, "looks", looks))
    before = shared.served(look)
    shared.served(payload(written(tmp_path, "changes", changes)))
    assert shared.served(look) == before
    assert before[1].startswith(b"False / None")


def test_a_process_that_a_module_leaves_behind_goes_on(shared: Box, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    lines = (
        "import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    null = os.open('/dev/null', os.O_RDWR)\n"
        "    [os.dup2(null, n) for n in (0, 1, 2)]\n    if os.fork() == 0:\n        time.sleep(0.5)\n"
        f"        open({str(mark)!r}, 'a').write('x')\n    os._exit(0)\n{END}"
    )
    content = payload(written(tmp_path, "daemon", lines))
    both(shared, content)
    deadline = time.monotonic() + 60
    while not (mark.exists() and mark.read_text() == "xx"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def set_up_process() -> None:
    """What a process may have inherited."""
    os.umask(0o027)
    resource.setrlimit(resource.RLIMIT_NOFILE, (333, 444))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])


def test_circumstances_are_those_of_the_task_and_not_of_the_server(shared: Box, tmp_path: Path) -> None:
    options = {"cwd": tmp_path, "preexec_fn": set_up_process}
    elsewhere = replace(shared, environment={"SOME": "thing", "TZ": "Asia/Tokyo"}, options=options)
    lines = (
        "import os, resource, signal, time\nstatus = open('/proc/self/status').read().splitlines()\n"
        "print(os.getcwd(), oct(os.umask(0)), sorted(os.environ.items()), time.tzname, time.timezone)\n"
        "kinds = 'Sig', 'Uid', 'Gid', 'Groups', 'Cap'\n"
        # how many signals wait for all of the user's processes is no circumstance of this one
        "print([line for line in status if line.startswith(kinds) and not line.startswith('SigQ')])\n"
        f"print([resource.getrlimit(number) for number in range(16)])\n{END}"
    )
    code, output, _ = both(elsewhere, payload(written(tmp_path, "circumstances", lines)))
    assert code == 0
    assert b"(333, 444)" in output
    assert b"0o27" in output
    assert b"JST" in output


def test_temporary_files_of_a_payload_are_removed(shared: Box, tmp_path: Path) -> None:
    here = replace(shared, environment={"TMPDIR": str(tmp_path)})
    here.served(payload("ping"))
    assert list(tmp_path.iterdir()) == []


def test_a_module_killed_by_its_own_signal_ends_the_command_as_before(shared: Box, tmp_path: Path) -> None:
    code, _, errors = both(shared, payload(written(tmp_path, "killed", ODD_MODULES["by_kill"])))
    assert (code, errors) == (137, b"Killed\n")
