"""The node's own programs for the double's containers: ``pct``, ``lxc-usernsexec`` and others, on the API's state.

``pct`` asks a small service in the double's process. What it says and how it ends was read in PVE's ``CLI/pct.pm``: an
error is one line on stderr and exit code 255; ``exec`` becomes ``lxc-attach``, whose exit code is its own, and hands
the environment of the node on. A lock does not keep it from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.doubles.proxmox import pvesh
from tests.doubles.proxmox.client import root
from tests.doubles.proxmox.double import Double
from tests.doubles.proxmox.incus_containers import IncusContainers
from tests.doubles.proxmox.programs import FAILED, Answer, Asked, PctError, Program, data_of, options_of, write

NODE = "pve1"
MODULE = """\
__PACKAGE__->register_method({
    name => 'enter',
    code => sub {
        my @lxc_attach_cmd = ('lxc-attach', '-n', $vmid);
        push @lxc_attach_cmd, $keep_env ? '--keep-env' : '--clear-env';
        exec(@lxc_attach_cmd);
    },
});

__PACKAGE__->register_method({
    name => 'exec',
    code => sub {
        my @lxc_attach_cmd = ('lxc-attach', '-n', $vmid);
        push @lxc_attach_cmd, $keep_env ? '--keep-env' : '--clear-env';
        push @lxc_attach_cmd, '--', @{ $param->{'extra-args'} };
        exec(@lxc_attach_cmd);
    },
});
"""
"""How ``pct`` of pve-container 6.1 enters a container: the lines of its module ``PVE::CLI::pct`` that say so."""
RUNS_MODULE = "\nPVE::CLI::pct->run_cli_handler();\n"
"""All that ``/usr/sbin/pct`` does."""
LXC = Path("/var/lib/lxc")
ROOT = Path(__file__).resolve().parents[3]

USERNSEXEC = """#!{python} -IS
import ctypes, os, shutil, sys
end = sys.argv.index("--")
program = shutil.which(sys.argv[end + 1])  # later on this file's own python may be out of reach
maps = [one.split(":") for one in sys.argv[1:end] if one != "-m"]
ready, done = os.pipe(), os.pipe()
child = os.fork()
if not child:
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000):
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(ready[1], b"x")
    os.read(done[0], 1)
    os.setgroups([])
    os.setgid(0)
    os.setuid(0)
    os.execv(program, sys.argv[end + 1:])
os.read(ready[0], 1)
for kind, name in (("u", "uid_map"), ("g", "gid_map")):
    with open(f"/proc/{{child}}/{{name}}", "w") as file:
        file.write("".join(" ".join(one[1:]) + "\\n" for one in maps if one[0] == kind))
os.write(done[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Pct:
    """The service. ``bin`` is for the node's PATH, ``asked`` holds each call's words, for tests."""

    def __init__(self, double: Double, containers: IncusContainers, folder: Path) -> None:
        self.bin = folder / "bin"
        self.asked: list[list[str]] = []
        self.cost_s = 0.0
        """Processor time that each call takes before it does anything: 0.9 s of 1.1 s on a node, where it is Perl."""
        self._double, self._containers = double, containers
        self.bin.mkdir()
        self._programs = [
            Program(self.bin / name, folder / f"{name}.socket", partial(self._priced, answer), shown)
            for name, answer, shown in (
                ("pct", self._answer, RUNS_MODULE),
                ("pvesh", partial(pvesh.answer, double), ""),
            )
        ]
        write(self.bin / "lxc-usernsexec", USERNSEXEC)

    def close(self) -> None:
        """Answer no longer."""
        for program in self._programs:
            program.close()

    def _priced(self, answer: Callable[[Asked], Answer], asked: Asked) -> Answer:
        return replace(answer(asked), cost_s=self.cost_s)

    def _answer(self, asked: Asked) -> Answer:
        argv = asked.argv
        self.asked.append(list(argv))
        verbs: Mapping[str, Callable[[int, Sequence[str], Asked], Answer]] = {
            "config": self._config,
            "exec": self._exec,
            "mount": self._mount,
            "set": self._set,
            "unmount": self._unmount,
        }
        if not argv or argv[0] not in verbs:
            return Answer(FAILED, err=f"ERROR: unknown command 'pct {' '.join(argv[:1])}'\n")
        try:
            vmid = int(argv[1])
            self._require(vmid)
            return verbs[argv[0]](vmid, argv[2:], asked)
        except (PctError, IndexError, ValueError) as error:
            return Answer(FAILED, err=f"{error}\n")

    def _exec(self, vmid: int, rest: Sequence[str], asked: Asked) -> Answer:
        del asked
        self._require_running(vmid)
        words = list(rest)
        keep = "--keep-env"
        while words and words[0] != "--" and words[0].startswith("-"):
            option = words.pop(0)
            if option in ("--keep-env", "-keep-env") and words.pop(0) == "0":
                keep = "--clear-env"
        if words and words[0] == "--":
            words.pop(0)
        if not words:
            raise PctError("missing command")
        return Answer(becomes=["lxc-attach", "-n", str(vmid), keep, "--", *words])

    def _config(self, vmid: int, rest: Sequence[str], asked: Asked) -> Answer:
        del rest, asked
        shown = self._ask("GET", vmid, "/config")
        lines = [f"{name}: {value}" for name, value in sorted(shown.items()) if name != "digest"]
        lines += [f"lxc.idmap: {one}" for one in self._containers.idmap(vmid)]
        return Answer(out="".join(f"{line.rstrip()}\n" for line in lines))

    def _set(self, vmid: int, rest: Sequence[str], asked: Asked) -> Answer:
        del asked
        self._ask("PUT", vmid, "/config", **options_of(rest))
        return Answer()

    def _mount(self, vmid: int, rest: Sequence[str], asked: Asked) -> Answer:
        del rest, asked
        guest = self._double.world.guests[vmid]
        with self._double.world.locks.config(vmid):
            if guest.config.get("lock"):
                raise PctError(f"CT is locked ({guest.config['lock']})")
            guest.config["lock"] = "mounted"
        place = LXC / str(vmid) / "rootfs"
        said = f"mounted CT {vmid} in '{place}'\n"
        return Answer(out=said, links={str(place): str(self._containers.root(vmid))})

    def _unmount(self, vmid: int, rest: Sequence[str], asked: Asked) -> Answer:
        del rest, asked
        with self._double.world.locks.config(vmid):
            if self._double.world.guests[vmid].config.pop("lock", "") != "mounted":
                raise PctError("no lock found trying to remove 'mounted'  lock")
        return Answer(links={str(LXC / str(vmid) / "rootfs"): ""})

    def _require(self, vmid: int) -> None:
        guest = self._double.world.guests.get(vmid)
        if guest is None or guest.node != NODE:
            raise PctError(f"Configuration file 'nodes/{NODE}/lxc/{vmid}.conf' does not exist")

    def _require_running(self, vmid: int) -> None:
        if self._containers.running_s(vmid) is None:
            raise PctError(f"container '{vmid}' not running!")

    def _ask(self, verb: str, vmid: int, path: str, **given: str) -> Any:
        """The API as root@pam with a ticket, which is what ``pct`` is."""
        return data_of(root(self._double).ask(verb, f"/nodes/{NODE}/lxc/{vmid}{path}", **given))
