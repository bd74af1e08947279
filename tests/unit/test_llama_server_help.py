"""The options of role ``llama_cpp`` are those of the built program, and the gate fails where one of them is gone.

Molecule's scenario asks the program in its container; here the one in the cache, where this machine can run it.
"""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest

from provisioner.hosts.incus.observe import flags_here
from provisioner.lab.opening import open_lab
from provisioner.reconcile.artifacts import cached_file, is_intact
from provisioner.values import paths
from provisioner.values.state import HostState
from tests.case_files import read_cases
from tests.lab_files import wanted_fleet
from tests.llama_server_help import (
    ROLE,
    is_taken,
    known_arguments,
    objections,
    opening,
    values_of,
    variables,
    written_arguments,
)

CASES = read_cases("llama_server_help")

LAB = paths.roles().parent / "molecule/llama_cpp/lab.yml"
PROGRAM = "backup/volume/bin/llama-server"
HELP: str = CASES["help"]
OPENING = {"--ui-mcp-proxy", "--webui-mcp-proxy", "--tools", "--mcp-servers-json", "-ag", "--agent"}


def whole_help() -> str:
    """A help text to which the gate has no objection, made of what the role writes."""
    own = {"--model": "-m, ", "--flash-attn": "-fa, "}
    lines = [f"{own.get(name, '')}{name} X" for name in sorted(written_arguments())]
    lists = {
        "--cache-type-[kv] X": "\n  allowed values: f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1",
        "--flash-attn X|--reasoning X": " [on|off|auto]",
        "--load-mode X": "".join(f"\n  - {one}: x" for one in ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")),
    }
    text = "\n".join(lines)
    for name, values in lists.items():
        text = re.sub(rf"({name})$", rf"\1{values}", text, flags=re.MULTILINE)
    return text + "\n"


def test_arguments_and_their_values_are_read_from_the_help() -> None:
    assert {"-hf", "-hfr", "--hf-repo"} in known_arguments(HELP)
    assert {name for each in known_arguments(HELP) for name in each}.isdisjoint({"--no-such", "--no-mmproj"})
    assert values_of(HELP, "--flash-attn") == {"on", "off", "auto"}
    assert values_of(HELP, "--cache-type-k") == {"f32", "f16", "iq4_nl"}
    assert values_of(HELP, "--load-mode") == {"auto", "mmap+mlock"}
    assert values_of(HELP, "--metrics") == values_of(HELP, "--absent") == set()


def test_what_the_help_calls_dangerous_is_refused_by_the_page_however_it_is_spelled() -> None:
    assert opening(HELP) == OPENING
    assert not [
        one
        for one in OPENING | {"--ui_mcp_proxy", "--mcp_servers_json", "--tools=all", "--tools-runtime"}
        if is_taken(one)
    ]
    taken = ["--lora", "a.gguf", "--seed", "1", "-agx", "toolbox", "--chat-template", "{{ tools }}", "--no-ui", ""]
    assert all(map(is_taken, taken))
    assert not is_taken("a\nb")


def test_what_opens_the_machine_and_is_not_refused_yet_fails_the_gate() -> None:
    news = "--shell PROGRAM  whether to enable it - do not enable in untrusted environments\n"
    assert objections(whole_help() + news) == ["--shell opens the machine, and the page takes it"]


def test_the_unit_gets_what_every_option_says() -> None:
    assert {"--threads", "--mmproj", "--n-cpu-moe", "--no-kv-offload", "--no-jinja"} <= written_arguments()


def test_what_stands_in_the_list_of_models_is_asked_of_the_program_and_is_no_argument_beside_it() -> None:
    template = (ROLE / "templates/models.ini.j2").read_text(encoding="utf-8")
    keys = {f"--{key}" for key in re.findall(r"^([a-z-]+) = ", template, re.MULTILINE)} - {"--version"}
    assert keys == set(variables()["__llama_cpp_own_arguments_of_model"])
    assert keys <= written_arguments()
    assert {"--models-preset", "--models-max", "--models-autoload"} <= written_arguments()


def test_a_whole_help_is_not_objected_to() -> None:
    assert objections(whole_help()) == []


@pytest.mark.parametrize("argument", sorted(written_arguments()))
def test_an_argument_that_is_gone_fails_the_gate(argument: str) -> None:
    shorter = re.sub(rf"^(-\w+, )?{argument} ", "--renamed ", whole_help(), flags=re.MULTILINE)
    assert f"{argument} is gone" in objections(shorter)


@pytest.mark.parametrize(
    ("before", "after", "objection"),
    [
        ("q4_1, iq4_nl", "q4_1", "--cache-type-k does not take iq4_nl"),
        ("[on|off|auto]", "", "--flash-attn does not take auto"),
        ("- mlock: x", "", "--load-mode does not take mlock"),
        ("-m, --model", "-m, --model, --weights", "--weights is a spelling of --model that extra_arguments could hold"),
    ],
)
def test_a_value_or_a_spelling_that_changed_fails_the_gate(before: str, after: str, objection: str) -> None:
    assert objection in objections(whole_help().replace(before, after))


def test_the_built_program_takes_all_that_the_role_writes(tmp_path: Path) -> None:
    lab = open_lab(LAB)
    here = {name: HostState(name, platform.machine(), flags_here()) for name in lab.used_hosts()}
    artifact = next(one for one in wanted_fleet(lab, here).artifacts if one.name == "llama_cpp")
    file = cached_file(paths.cache() / "artifacts", artifact, "tar")
    if not is_intact(file):
        pytest.skip(f"no built llama-server in the cache ({file.name}); Molecule's scenario llama_cpp makes it")
    subprocess.run(["tar", "--extract", "--file", file, "--directory", tmp_path, PROGRAM], check=True, timeout=60)
    answer = subprocess.run([tmp_path / PROGRAM, "--help"], capture_output=True, text=True, check=False, timeout=60)
    if answer.returncode:
        pytest.skip(f"this machine cannot run it: {answer.stderr or answer.returncode}")
    assert objections(answer.stdout) == []
