"""What follows from the roles' own pages and from the verbs, written by ``make generate``.

Defaults, README tables (options, and what is open), the two playbooks, and the options that a role passes on to the
services that it stands before. Besides, the table of known cards in ``docs/suggest.md``, the lines of ``--json`` in
``docs/json.md``, and the manual page and the files of shells in ``docs/share/``.

``python -m provisioner.generate`` writes; with ``--check`` it writes nothing, shows what differs and exits 1. The same
pages always give the same bytes.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, get_args

import click
import yaml

from provisioner import __version__
from provisioner.catalog import (
    BASE,
    STAGES,
    ServiceType,
    Socket,
    helpers_of,
    internal_passed_on,
    load_catalog,
    passed_on,
)
from provisioner.cli.app import app
from provisioner.cli.gateways import Shown
from provisioner.gpus.bandwidth import GB, GIB, known_cards
from provisioner.report.messages import event_type
from provisioner.values import paths
from provisioner.values.errors import ExitCode, InputError
from provisioner.values.events import Event
from provisioner.values.plain_data import yaml_value
from provisioner.values.state import ContainerStatus, ServiceStatus, port_behind

BEGIN = "<!-- options: generated from meta/argument_specs.yml by `make generate` -->"
END = "<!-- /options -->"
OPENS_BEGIN = "<!-- opens: generated from meta/opens.yml by `make generate` -->"
OPENS_END = "<!-- /opens -->"
SOCKETS_HEADER = ("| Socket | Of | For |", "|---|---|---|")
CARDS_BEGIN = "<!-- cards: generated from src/provisioner/data/cards.yml by `make generate` -->"
CARDS_END = "<!-- /cards -->"
LINES_BEGIN = "<!-- lines: generated from the types of events by `make generate` -->"
LINES_END = "<!-- /lines -->"
STREAMED: Mapping[str, type] = {
    **{event_type(event): event for event in get_args(Event)},
    "container": ContainerStatus,
    "services of a container": ServiceStatus,
    "endpoint": Shown,
}
"""What stands in a line of the stream of ``--json``, by the line's type."""
_VALUES = {
    "str": "text",
    "Address": "text",
    "int": "number",
    "float": "number",
    "bool": "true or false",
    "float | None": "number or null",
    "bool | None": "true, false or null",
    "str | None": "text or null",
    "int | None": "number or null",
    "Status | None": "text or null",
    "tuple[str, ...]": "list of texts",
    "tuple[Screen, ...]": "list of objects",
    "tuple[ServiceStatus, ...]": "list of objects",
    "Mapping[str, int]": "object of numbers",
    "Mapping[str, tuple[Any, Any]]": "object of lists: before, after",
}
"""What JSON has of a value, by its annotation."""
PASSED_ON_END = "# End of what role {role} passes on."
PASSED_ON_BEGIN = "# Passed on by role {role}, written by `make generate`."
OPTIONS_INDENT = " " * 6
"""Of an option of an entry point."""
PAGE_WIDTH = 140
DEFAULTS_HEADER = '---\n# Generated from meta/argument_specs.yml by "make generate"; do not edit.\n'
PLAYBOOK_HEADER = '---\n# Generated from the roles\' pages by "make generate"; do not edit.\n'


class _Dumper(yaml.SafeDumper):
    """Block style with indented lists, as ansible-lint and yamllint want them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # PyYAML's signature
        super().increase_indent(flow, indentless=False)


def generated_files(
    root: Path, services: Iterable[ServiceType], base_sockets: Sequence[Socket] = ()
) -> dict[Path, str]:
    """Every generated file below ``root`` with the text it should have; ``InputError`` when a page is unusable."""
    files: dict[Path, str] = {}
    for page in sorted((root / "roles").glob("*/meta/argument_specs.yml")):
        role = page.parents[1]
        service = _service_page(role)
        text = page.read_text(encoding="utf-8")
        internal = frozenset(service.get("internal", ()))
        for helper in helpers_of(role, service):
            text = files[page] = specs_text(page, text, helper, service["stage"])
        internal |= {*internal_passed_on(role, service)}
        options = _options(page, text)
        table = options_table(role.name, options, internal, service.get("limits", {}))
        files[role / "defaults/main.yml"] = defaults_text(options)
        files[role / "README.md"] = readme_text(role / "README.md", table)
    ordered = sorted(services, key=lambda service: (STAGES.index(service.stage), service.role))
    for one in ordered:
        readme = root / "roles" / one.role / "README.md"
        if one.opens.is_told:
            files[readme] = _with_block(readme, files[readme], (OPENS_BEGIN, OPENS_END), opens_table(one))
    if base_sockets:
        readme = root / "roles" / BASE / "README.md"
        table = "\n".join((*SOCKETS_HEADER, *map(_socket_row, base_sockets), ""))
        files[readme] = _with_block(readme, files[readme], (OPENS_BEGIN, OPENS_END), table)
    for name, marks, block in (
        ("suggest.md", (CARDS_BEGIN, CARDS_END), cards_table()),
        ("json.md", (LINES_BEGIN, LINES_END), lines_text()),
    ):
        page = root / "docs" / name
        if page.is_file():  # a wheel has no docs
            files[page] = _with_block(page, page.read_text(encoding="utf-8"), marks, block)
    if (root / "docs/share").is_dir():  # what a wheel has installed lies elsewhere
        files |= {root / "docs" / path: text for path, text in installed_files().items()}
    files[root / "playbooks/site.yml"] = site_text(ordered)
    files[root / "playbooks/verify.yml"] = verify_text(ordered)
    return files


def defaults_text(options: Mapping[str, Any]) -> str:
    """``defaults/main.yml``: each option that has a default, in the order of the specs."""
    values = {name: option["default"] for name, option in options.items() if "default" in option}
    return DEFAULTS_HEADER + (_yaml(values) if values else "{}\n")


def specs_text(page: Path, text: str, helper: Path, stage: str) -> str:
    """``argument_specs.yml`` of a service of that stage with what a role passes on, in both of its entry points."""
    role = page.parents[1]
    begin, end = (OPTIONS_INDENT + words.format(role=helper.name) for words in (PASSED_ON_BEGIN, PASSED_ON_END))
    specs = _options(helper / "meta/argument_specs.yml")
    options = {}
    for name in passed_on(helper, stage):
        options[f"{role.name}_{name}"] = specs[f"{helper.name}_{name}"]
    lines = _yaml(options, PAGE_WIDTH).splitlines(keepends=True) if options else []
    block = "".join(OPTIONS_INDENT + line for line in lines)
    first, *others = text.split(f"{begin}\n")
    if len(others) != len(("main", "verify")) or not all(f"{end}\n" in other for other in others):
        raise InputError(
            f"Unable to generate what role {helper.name} passes on in {page}",
            details="One of its entry points, main and verify, has no place for it.",
            resolution=f"Write these two lines among the options of each:\n{begin}\n{end}",
        )
    return first + "".join(f"{begin}\n{block}{end}\n{other.partition(end)[2][1:]}" for other in others)


def options_table(
    role: str,
    options: Mapping[str, Any],
    internal: frozenset[str] = frozenset(),
    limits: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> str:
    """A Markdown table of the options as the file writes them: without the role's prefix, nested ones with dots."""
    if not options:
        return "It has no options.\n"
    lines = ["| Option | Type | Default | Meaning |", "|---|---|---|---|"]
    for name, option in _rows(options):
        short = name.removeprefix(f"{role}_")
        default = "(filled in)" if short.partition(".")[0].partition("[")[0] in internal else _default(option)
        kind = _type(option) + _range(limits.get(short, {}))
        lines.append(f"| `{short}` | {kind} | {default} | {_meaning(option)} |")
    return "\n".join(lines) + "\n"


def opens_table(service: ServiceType) -> str:
    """Markdown: the sockets that a service has, and the routes that answer without a key."""
    before = f"{service.behind}-{service.unit}" if service.behind else service.unit
    lines = [*SOCKETS_HEADER]
    lines.append(f"| `port` ({service.port}), any address | `{before}` | clients |")
    lines += [f"| `{option}`, any address | `{service.unit}` | clients |" for option in service.also_listens]
    if service.behind and service.port is not None:
        lines.append(f"| {port_behind(service.port)}, loopback | `{service.unit}` | the switch |")
    lines += [_socket_row(one) for one in service.opens.sockets]
    if service.opens.routes:
        lines += ["", "| Answers without a key | |", "|---|---|"]
        lines += [f"| `{route}` | {tells} |" for route, tells in service.opens.routes.items()]
    return "\n".join(lines) + "\n"


def cards_table() -> str:
    """Markdown: the cards whose memory's speed is known, and the pages that tell it."""
    lines = ["| Card | Memory | GB/s | Source |", "|---|---|---|---|"]
    for card in known_cards():
        host = card.source.split("/")[2].removeprefix("www.")
        speed = f"{card.speed / GB:,.1f}".removesuffix(".0")
        note = f" ({card.note})" if card.note else ""
        lines.append(f"| {card.name}{note} | {card.memory // GIB} GB | {speed} | [{host}]({card.source}) |")
    return "\n".join(lines) + "\n"


def lines_text() -> str:
    """Markdown: each type of line of ``--json`` with its fields, as the types of events say them."""
    parts = list[str]()
    for title, kind in STREAMED.items():
        about = inspect.cleandoc(kind.__doc__ or "").replace("``", "`").replace("None", "null")
        rows = [f"| `{name}` | {_VALUES[annotation]} |" for name, annotation in kind.__annotations__.items()]
        parts.append("\n".join((f"### {title}", "", about, "", "| Field | Value |", "|---|---|", *rows, "")))
    return "\n".join(parts)


def _socket_row(socket: Socket) -> str:
    """One socket of a page, where it is and what it is for."""
    port = "any port" if socket.port is None else str(socket.port)
    if socket.protocol != "tcp":
        port += f" ({socket.protocol})"
    place = "any address"
    if socket.reach == "loopback":
        place = "loopback"
    return f"| {port}, {place} | `{socket.unit}` | {socket.why} |"


def readme_text(readme: Path, table: str) -> str:
    """The README with its table renewed; ``InputError`` when the place for it is missing."""
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    return _with_block(readme, text, (BEGIN, END), table)


def _with_block(readme: Path, text: str, marks: tuple[str, str], table: str) -> str:
    first, last = marks
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise InputError(
            f"Unable to generate a table of {readme}",
            details="The file is missing or has no place for the table.",
            resolution=f"Write it, with these two lines where the table belongs:\n{first}\n{last}",
        )
    return f"{before}{first}\n\n{table}\n{last}{after}"


def site_text(services: Sequence[ServiceType]) -> str:
    """``playbooks/site.yml``: what every container needs, then one play per service, engines before what asks them."""
    base = {"name": "Prepare every container", "hosts": "containers", "gather_facts": False, "roles": ["base"]}
    plays = [
        {"name": f"Configure {one.title}", "hosts": f"service_{one.role}", "gather_facts": False, "roles": [one.role]}
        for one in services
    ]
    return _playbook([base, *plays])


def verify_text(services: Sequence[ServiceType]) -> str:
    """``playbooks/verify.yml``: one play per service that runs its role's own proof and nothing else."""
    return _playbook([_verify_play(service) for service in services])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what differs, or with ``--check`` show it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m provisioner.generate", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing, show what differs, exit 1 when anything does"
    )
    check = parser.parse_args(arguments).check
    catalog = load_catalog()
    stale = stale_files(generated_files(paths.share(), catalog.services.values(), catalog.base_sockets))
    for path, (present, wanted) in stale.items():
        if check:
            sys.stdout.writelines(_diff(path, present, wanted))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
            sys.stdout.write(f"wrote {path}\n")
    return 1 if check and stale else 0


def stale_files(files: Mapping[Path, str]) -> dict[Path, tuple[str, str]]:
    """Those of ``files`` that differ on disk, with the present text ("" when missing) and the wanted one."""
    present = {path: path.read_text(encoding="utf-8") if path.is_file() else "" for path in files}
    return {path: (present[path], wanted) for path, wanted in files.items() if present[path] != wanted}


def _verify_play(service: ServiceType) -> dict[str, Any]:
    task = {
        "name": "Prove that it works",
        "ansible.builtin.include_role": {"name": service.role, "tasks_from": "verify"},
    }
    name = f"Verify {service.title}"
    return {"name": name, "hosts": f"service_{service.role}", "gather_facts": False, "tasks": [task]}


def _options(page: Path, text: str = "") -> dict[str, Any]:
    """The options of the entry point main; ``text`` is the page as it will be, where that is not yet written."""
    specs = yaml_value(text or page.read_text(encoding="utf-8"))
    try:
        return dict(specs["argument_specs"]["main"].get("options") or {})
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"Unable to read the options of {page}",
            details=f"It has no argument_specs.main.options ({error!r}).",
            resolution="Describe the entry point main as Ansible's role argument specs are written.",
        ) from error


def _service_page(role: Path) -> dict[str, Any]:
    page = role / "meta/service.yml"
    return dict(yaml_value(page.read_text(encoding="utf-8"))) if page.is_file() else {}


def _rows(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, option in options.items():
        yield prefix + name, option
        step = "[]." if option.get("type") == "list" else "."
        yield from _rows(option.get("options") or {}, prefix + name + step)


def _type(option: Mapping[str, Any]) -> str:
    if option.get("no_log"):
        return "secret"
    name = str(option.get("type", "str"))
    if "elements" in option:
        name = f"{name} of {option['elements']}"
    return f"{name}: {', '.join(f'`{choice}`' for choice in option['choices'])}" if "choices" in option else name


def _range(limit: Mapping[str, Any]) -> str:
    if "min" in limit and "max" in limit:
        return f", {limit['min']} to {limit['max']}"
    if "min" in limit:
        return f", {limit['min']} or more"
    return f", {limit['max']} or less" if "max" in limit else ""


def _default(option: Mapping[str, Any]) -> str:
    if option.get("required"):
        return "**required**"
    if "default" not in option:
        return ""
    return f"`{yaml.safe_dump(option['default'], default_flow_style=True, width=10_000).partition(chr(10))[0]}`"


def _meaning(option: Mapping[str, Any]) -> str:
    words = option.get("description", "")
    text = words if isinstance(words, str) else " ".join(words)
    return " ".join(text.split()).replace("|", "\\|")


def _yaml(content: Any, width: int = 10_000) -> str:
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width))


def _playbook(plays: Sequence[Mapping[str, Any]]) -> str:
    return PLAYBOOK_HEADER + ("\n".join(_yaml([play]) for play in plays) or "[]\n")


def _diff(path: Path, present: str, wanted: str) -> Iterator[str]:
    lines = present.splitlines(keepends=True), wanted.splitlines(keepends=True)
    return difflib.unified_diff(*lines, fromfile=str(path), tofile=f"{path} (generated)")


# The manual page and the files of shells, made of the command line and installed by the wheel.
#
# The page asks click for each verb, so that lazily loaded ones are on it, too. The files for shells hold no list of
# verbs: they ask the installed ``provision`` for click's own script, as what that script and click exchange changes
# from one click to another.

PROGRAM = "provision"
COMMON_OPTIONS = frozenset({"--json", "--no-color", "--verbose", "--help"})
"""What every verb has; the page says it once."""
_DESCRIPTION = "An argument that ends in .yml or .yaml is the file; without one it is homelab.yml."
_ROFF = {
    "\\": r"\e",
    "-": r"\-",
    "'": r"\(aq",
    '"': r"\(dq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
}
_HEAD = '.\\" Generated from the command line by "make generate"; do not edit.\n'
_EXIT_CODES = {
    ExitCode.DONE: "Done.",
    ExitCode.FAILED: "Failed.",
    ExitCode.CHANGES_PENDING: "Changes are pending (--detailed-exitcode).",
    ExitCode.VERIFICATION_FAILED: "A verification failed.",
    ExitCode.REFUSED: "Refused before anything was touched.",
    ExitCode.LOCKED: "Another run holds the lab.",
    ExitCode.USAGE: "Wrong usage, or a file that is not valid.",
    ExitCode.INTERRUPTED: "Interrupted; the same command resumes.",
}
_FILES = {
    "homelab.yml": "The file of a lab, where none is named.",
    "homelab.lock": "The files and wheels that the lab's models and stacks are (provision lock).",
    "secrets.env": "Values of secrets, for the user alone; PROVISION_SECRET_NAME in the environment comes first.",
    ".provision/": "What can be made again, such as the schema for editors.",
}
_BASH = """\
# Completion of provision for bash: what the installed one says, asked at the first use of the tab key.
eval "$(_PROVISION_COMPLETE=bash_source provision 2>/dev/null)"
"""
# While zsh loads a function, what is evaluated in it only registers itself: the first completion is asked for by name.
_ZSH = """\
#compdef provision
# Completion of provision for zsh: what the installed one says, asked at the first use of the tab key.
eval "$(_PROVISION_COMPLETE=zsh_source provision 2>/dev/null)"
(( $+functions[_provision_completion] )) && _provision_completion "$@"
"""
_FISH = """\
# Completion of provision for fish: what the installed one says, asked at the first use of the tab key.
_PROVISION_COMPLETE=fish_source provision 2>/dev/null | source
"""


def installed_files() -> dict[PurePosixPath, str]:
    """By its path below the prefix of an installation: each file with its text."""
    return {
        PurePosixPath("share/man/man1/provision.1"): manual_page(app),
        PurePosixPath("share/bash-completion/completions/provision"): _BASH,
        PurePosixPath("share/zsh/site-functions/_provision"): _ZSH,
        PurePosixPath("share/fish/vendor_completions.d/provision.fish"): _FISH,
    }


def manual_page(program: click.Group) -> str:
    """The page in the language of ``man``: every verb with its options, exit codes, files and variables."""
    top = click.Context(program, info_name=PROGRAM, resilient_parsing=True, **program.context_settings)
    summary = inspect.cleandoc(program.help or "").splitlines()[0]
    parts = [
        # No date: the same command line always gives the same bytes. No hyphens: names of variables stay whole.
        f'{_HEAD}.TH PROVISION 1 "" "provision {roff(__version__)}" "User Commands"\n.nh\n.ad l\n',
        f".SH NAME\nprovision \\- {roff(summary)}\n",
        f".SH SYNOPSIS\n.B provision\n{roff('VERB [OPTIONS] [FILE] [ARGUMENTS]...')}\n.br\n",
        f".B provision\n{roff('--version [--json]')}\n",
        f".SH DESCRIPTION\n{roff(_DESCRIPTION)}\n",
        f".SH OPTIONS\n{_definitions(_records(top))}",
        f".SH OPTIONS OF EVERY VERB\n{_definitions(_records(_below(top, 'validate'), common=True))}",
        ".SH VERBS\n",
        *_verbs(top),
        f".SH EXIT STATUS\n{_definitions((str(int(code)), words) for code, words in _EXIT_CODES.items())}",
        f".SH ENVIRONMENT\n{roff('Every option has a variable, which stands behind its text above.')}\n",
        f".SH FILES\n{_definitions(_FILES.items())}",
    ]
    return "".join(parts)


def roff(text: str) -> str:
    """One line that ``man`` shows as it is: nothing in it is a request, and hyphens can be copied."""
    line = " ".join(text.split())
    shown = "".join(_ROFF.get(letter, letter if letter.isascii() else f"\\[u{ord(letter):04X}]") for letter in line)
    return rf"\&{shown}" if shown.startswith(".") else shown


def _verbs(parent: click.Context) -> Iterator[str]:
    """The part of each verb below ``parent``, each followed by those below itself; none where it is no group."""
    group = parent.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(parent):
        verb = _below(parent, name)
        yield _verb(verb)
        yield from _verbs(verb)


def _verb(verb: click.Context) -> str:
    usage = " ".join((verb.command_path, *verb.command.collect_usage_pieces(verb)))
    return f'.SS "{roff(usage)}"\n{_paragraphs(verb.command.help or "")}{_definitions(_records(verb))}'


def _below(parent: click.Context, name: str) -> click.Context:
    """The verb of that name below ``parent``; ``LookupError`` where there is none."""
    command = parent.command.get_command(parent, name) if isinstance(parent.command, click.Group) else None
    if command is None:
        raise LookupError(f"{parent.command_path} has no verb {name}")
    return click.Context(command, parent=parent, info_name=name, resilient_parsing=True)


def _records(context: click.Context, *, common: bool = False) -> Iterator[tuple[str, str]]:
    """What the options are called and what they do: those that every verb has, or the others; the program's are all."""
    for parameter in context.command.get_params(context):
        if not isinstance(parameter, click.Option):
            continue  # the usage shows it
        is_common = context.parent is not None and not COMMON_OPTIONS.isdisjoint(parameter.opts)
        record = parameter.get_help_record(context)
        if record is not None and is_common == common:
            yield record


def _paragraphs(text: str) -> str:
    """The words of a verb: click's paragraphs, of which those that begin with its mark keep their lines."""
    parts = []
    for paragraph in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        if paragraph.startswith("\b"):
            lines = "\n".join(map(roff, paragraph.splitlines()[1:]))
            parts.append(f".nf\n{lines}\n.fi\n")
        else:
            parts.append(f"{roff(paragraph)}\n")
    return ".PP\n".join(parts)


def _definitions(records: Iterable[tuple[str, str]]) -> str:
    return "".join(f".TP\n.B {roff(name)}\n{roff(meaning)}\n" for name, meaning in records)


if __name__ == "__main__":
    sys.exit(main())
