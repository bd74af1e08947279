"""What role ``llama_cpp`` can write into the unit, held against the ``--help`` of the program that it builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from provisioner.values import paths
from provisioner.values.plain_data import yaml_value

ROLE = paths.roles() / "llama_cpp"
CHOICES = {
    "--cache-type-k": ("kv_cache", "k"),
    "--cache-type-v": ("kv_cache", "v"),
    "--flash-attn": ("flash_attention",),
    "--load-mode": ("load_mode",),
    "--reasoning": ("reasoning",),
}
"""Arguments whose values are one of a list, and the option that has the same list."""
UNTRUSTED = "do not enable in untrusted environments"
"""What the program's help says of all that gives whoever asks it a shell, files, or requests to other addresses."""
MAY_BE_SAID_AGAIN = {"--no-ui"}
"""Whoever wants the user interface can switch it on again by ``extra_arguments``."""


@cache
def variables() -> dict[str, Any]:
    """The role's own variables, as they are written."""
    found: dict[str, Any] = yaml_value((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    return found


def written_arguments() -> set[str]:
    """Every argument that a unit can get from an option."""
    unit = (ROLE / "templates/llama-server.service.j2").read_text(encoding="utf-8")
    texts = variables()["__llama_cpp_arguments"] + "".join(re.findall(r"^ExecStart=.*$", unit, re.MULTILINE))
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", texts))


def known_arguments(help_text: str) -> list[set[str]]:
    """The arguments that the help names, all spellings of one together; read as the role's preflight reads it."""
    return [set(re.split(r", +", one)) for one in re.findall(variables()["__llama_cpp_help_arguments"], help_text)]


def objections(help_text: str) -> list[str]:
    """What the role can write and the program does not take; nothing when all is well."""
    known = known_arguments(help_text)
    own = set(yaml_value((ROLE / "meta/service.yml").read_text(encoding="utf-8"))["own_arguments"])
    wrong = [f"{one} is gone" for one in sorted(written_arguments()) if not any(one in each for each in known)]
    for one in sorted(written_arguments() - MAY_BE_SAID_AGAIN):
        spellings = {name for each in known if one in each for name in each}
        wrong += [f"{name} is a spelling of {one} that extra_arguments could hold" for name in sorted(spellings - own)]
    for argument, option in CHOICES.items():
        gone = _choices(option) - values_of(help_text, argument)
        wrong += [f"{argument} does not take {value}" for value in sorted(gone)]
    wrong += [f"{one} opens the machine, and the page takes it" for one in sorted(opening(help_text)) if is_taken(one)]
    return wrong


def opening(help_text: str) -> set[str]:
    """The arguments of which the help says that they are for trusted environments alone, all that switch them on."""
    entries = re.split(r"^(?=-)", help_text, flags=re.MULTILINE)
    named = [known_arguments(entry) for entry in entries if UNTRUSTED in " ".join(entry.split())]
    return {name for each in named for names in each for name in names if not name.startswith(("--no-", "-no-"))}


def is_taken(argument: str) -> bool:
    """Whether the role's page takes it among ``extra_arguments``."""
    page = yaml_value((ROLE / "meta/service.yml").read_text(encoding="utf-8"))
    return bool(re.fullmatch(page["limits"]["extra_arguments"]["pattern"], argument))


def values_of(help_text: str, argument: str) -> set[str]:
    """The values that the help lists for an argument, in any of the three forms that it has for lists."""
    entries = re.split(r"^(?=-)", help_text, flags=re.MULTILINE)
    entry = next((one for one in entries if any(argument in each for each in known_arguments(one))), "")
    bar = re.search(r"^\S.*?\[([\w|]+)\]", entry)
    comma = re.search(r"allowed values: ([\w, ]+)", entry)
    bullets = re.findall(r"^\s+- ([\w+]+):", entry, re.MULTILINE)
    return set(bar[1].split("|") if bar else comma[1].split(", ") if comma else bullets)


def _choices(option: tuple[str, ...]) -> set[str]:
    specs = yaml_value((ROLE / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    found: Mapping[str, Any] = specs["argument_specs"]["main"]["options"][f"llama_cpp_{option[0]}"]
    for part in option[1:]:
        found = found["options"][part]
    return set(found["choices"])
