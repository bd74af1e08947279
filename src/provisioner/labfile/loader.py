"""A lab's file → ``Loaded``: YAML with line numbers, secrets looked up, everything wrong with it told at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from provisioner.catalog import Catalog
from provisioner.labfile.document import MAX_BYTES, Document, DocumentError, Place, SecretUse, parse_document
from provisioner.labfile.fields import LABEL
from provisioner.labfile.hosts import SHARE, SHARE_KEY
from provisioner.labfile.parsing import Parsed, parse_spec
from provisioner.labfile.spec import Model, Spec
from provisioner.models.folders import CONFIG, SMALL_BYTES, FolderError, format_by_name, format_of, method_of
from provisioner.values.declared import Problem, Secret
from provisioner.values.errors import InputError, with_hint
from provisioner.values.refusals import path_text
from provisioner.values.regular_files import open_file

__all__ = [
    "Loaded",
    "Needs",
    "SecretUse",
    "environment_name",
    "load",
    "looked_up",
    "missing_secrets",
    "named_secret",
    "place_of_secret",
    "secrets_file",
]

# Values of `!secret name`: of the environment, of `secrets.env` beside the file, or of a command. None is ever part of
# an error. A value is what stands on one line, or a PEM text in quotes, over several.

ENVIRONMENT_PREFIX = "PROVISION_SECRET_"
SECRETS_FILE = "secrets.env"
COMMAND_TIMEOUT_S = 120.0  # long enough to type a passphrase
SECRETS_BYTES = 1_000_000
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_-]*)\s*=(.*)", re.ASCII | re.DOTALL)
_PEM = "-----BEGIN "
_QUOTES = ("'", '"')
_SHORTEST_QUOTED = 2


class SecretError(Exception):
    """A source of secrets that cannot be used; ``hint`` is what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def environment_name(name: str) -> str:
    """The variable of the environment that gives a secret: ``pve1-token`` → ``PROVISION_SECRET_PVE1_TOKEN``."""
    return ENVIRONMENT_PREFIX + name.upper().replace("-", "_").removeprefix(ENVIRONMENT_PREFIX)


def secrets_file(file: Path) -> Path:
    """The ``secrets.env`` beside a lab's file."""
    return file.parent / SECRETS_FILE


def from_environment(names: Iterable[str]) -> dict[str, str]:
    """The values that the environment has; an empty one is none."""
    found = {name: os.environ.get(environment_name(name), "") for name in names}
    return {name: value for name, value in found.items() if value}


def from_file(names: Iterable[str], file: Path) -> dict[str, str]:
    """The values that ``file`` has, nothing when it is missing; raise ``SecretError`` when others could read it."""
    try:
        content = _read_private(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SecretError(f"{file.name} cannot be read: {error.strerror}") from error
    values = _parse(content, file.name)
    found = {name: values.get(environment_name(name), "") for name in names}
    return {name: value for name, value in found.items() if value}


def without_secret(content: str, name: str) -> str:
    """The text of a ``secrets.env`` without the line that gives this secret."""
    key = environment_name(name)
    kept = []
    for _, line in _lines(content):
        match = _LINE.fullmatch(line)
        if match is None or environment_name(match[1]) != key:
            kept.append(line)
    return "\n".join(kept)


def from_command(name: str, command: Sequence[str]) -> str:
    """What the user's command prints for one secret, without the final newline; raise ``SecretError`` when it fails."""
    import subprocess  # most files name no command

    words = [word.replace("{name}", name) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=COMMAND_TIMEOUT_S)
        value = done.stdout.decode().rstrip("\r\n")
    except OSError as error:
        raise SecretError(f"{words[0]} cannot be run for secret {name}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SecretError(f"{words[0]} gave no answer for secret {name} in {COMMAND_TIMEOUT_S:.0f} s") from error
    except UnicodeDecodeError as error:
        raise SecretError(f"{words[0]} printed no UTF-8 text for secret {name}") from error
    if done.returncode or not value:
        told = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        why = f"exit status {done.returncode}" if done.returncode else "it printed nothing"
        raise SecretError(f"{words[0]} gave no secret {name} ({why})", f"it said: {told[0][:200]}" if told else "")
    return value


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """Plain data with each ``Secret`` made anew with its value."""
    if isinstance(value, Secret):
        return Secret(value.name, values.get(value.name))
    if isinstance(value, dict):
        return {key: filled(one, values) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, values) for one in value]
    return value


def _read_private(file: Path) -> bytes:
    with open_file(file) as stream:
        mode = os.fstat(stream.fileno()).st_mode & 0o777
        if mode & 0o077:
            raise SecretError(f"{file.name} can be read by others (mode {mode:04o})", f"chmod 600 {file}")
        content = stream.read(SECRETS_BYTES + 1)
    if len(content) > SECRETS_BYTES:
        raise SecretError(f"{file.name} is larger than {SECRETS_BYTES} bytes")
    return content


def _parse(content: bytes, name: str) -> dict[str, str]:
    values: dict[str, str] = {}
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SecretError(f"{name} is not UTF-8", "save it as UTF-8") from error
    for number, line in _lines(text):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.rstrip("\r"))
        if not match:
            raise SecretError(f"line {number} of {name} is not NAME=VALUE", "begin comments with #")
        if _is_open(line):
            raise SecretError(f"line {number} of {name} begins a text in quotes that does not end", "close the quotes")
        key = environment_name(match[1])
        if key in values:
            raise SecretError(f"line {number} of {name} gives {match[1]} a second time", "keep one of them")
        values[key] = _unquoted(match[2].strip())
    return values


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with its number; a PEM text in quotes is one of them, with all that it has."""
    pending: list[str] = []
    quote = ""
    for number, line in enumerate(text.split("\n"), 1):
        if not pending:
            quote = _open_quote(line)
        pending.append(line)
        if not quote or (len(pending) > 1 and line.rstrip().endswith(quote)):
            yield number - len(pending) + 1, "\n".join(pending)
            pending = []
    if pending:
        yield number - len(pending) + 1, "\n".join(pending)


def _open_quote(line: str) -> str:
    """The quote with which a PEM text begins that goes on in the next line; empty where none does."""
    match = _LINE.fullmatch(line)
    value = match[2].strip() if match else ""
    is_pem = value[:1] in _QUOTES and value.startswith(_PEM, 1)
    return value[0] if is_pem and value[-1] != value[0] else ""


def _is_open(line: str) -> bool:
    """Whether a PEM text begins in it that does not end."""
    quote = _open_quote(line.partition("\n")[0])
    return bool(quote) and not ("\n" in line and line.rstrip().endswith(quote))


def _unquoted(value: str) -> str:
    # Nothing else is special: `#`, `%`, `=` and backslashes are part of a value.
    if len(value) >= _SHORTEST_QUOTED and value[0] == value[-1] and value[0] in _QUOTES:
        return value[1:-1]
    return value


# A file that was loaded, and the error that tells what is wrong with one.


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid file. ``path`` is as the user wrote it; ``warnings`` are problems that stop nothing."""

    path: Path
    spec: Spec
    warnings: tuple[Problem, ...]
    document: Document = field(repr=False)

    def error(self, problems: Iterable[Problem]) -> InputError:
        """The one error that tells every problem, each with file, line and path."""
        return file_error(self.path, problem_lines(self.path, self.document, problems))

    def rendered(self, problem: Problem) -> str:
        """One problem as ``homelab.yml:12:5: containers.llama.memory: not a size; write "16GiB"``."""
        return problem_lines(self.path, self.document, [problem])[0]

    @property
    def secrets(self) -> Mapping[str, Secret]:
        """Every secret of the file by its name; one in clear is named by its path."""
        found: dict[str, Secret] = {}
        _collect(self.spec, found)
        return found


def problem_lines(file: Path, document: Document, problems: Iterable[Problem]) -> list[str]:
    """The problems as lines of text, in the order of the file, each once."""
    placed = dict.fromkeys(
        sorted((document.place(one.path), path_text(one.path), one.message, one.hint) for one in problems)
    )
    return [problem_line(file, *one) for one in placed]


def problem_line(file: Path, place: Place, path: str, message: str, hint: str) -> str:
    """``file:line:column: path: message; hint``, without what is empty; a hint that is a sentence follows a stop."""
    line, column = place
    where = f"{file}:{line}:{column}: {path}: " if path else f"{file}:{line}:{column}: "
    return f"{where}{with_hint(message, hint)}"


def file_error(file: Path, lines: list[str], resolution: str = "") -> InputError:
    """The error of a file that is wrong in each of ``lines``."""
    return InputError(
        f"Unable to use {file}",
        details="\n".join(lines),
        resolution=resolution or "Correct the file; nothing was touched.",
    )


def _collect(value: object, found: dict[str, Secret]) -> None:
    if isinstance(value, Secret):
        found[value.name] = value
    elif isinstance(value, BaseModel):
        _collect(dict(value), found)
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            _collect(one, found)


# Models of this machine: their paths and formats, which follow from the place of the lab's file.


def anchored(spec: Spec, path: Path) -> Spec:
    """The spec with each ``file:`` and ``dir:`` absolute: they were written relative to the lab's file.

    The format of a folder, where the file does not say it, is the one that its config.json or its name tells.
    """
    folder = path.resolve().parent
    models = {
        name: _anchored(model, folder)
        for name, model in spec.models.items()
        if model.source.startswith(("file:", "dir:"))
    }
    return spec.model_copy(update={"models": {**spec.models, **models}}) if models else spec


def _anchored(model: Model, folder: Path) -> Model:
    kind, _, written = model.source.partition(":")
    place = folder / Path(written).expanduser()
    form = model.format or _format_in(place)
    return model.model_copy(update={"source": f"{kind}:{place}", "format": form})


def _format_in(place: Path) -> str | None:
    """None where nothing tells it; what is wrong with the folder is told by those who need its files."""
    try:
        with open_file(place / CONFIG) as stream:
            return format_of(method_of(stream.read(SMALL_BYTES)), place.name)
    except (OSError, FolderError):
        return format_by_name(place.name)


# Loading: reading, looking secrets up, and checking, with all problems told at once.

Rules = Callable[[Spec], Iterable[Problem]]
Needs = Literal["all", "hosts", "none", "unread"]
"""Which secrets must have a value: all of the file, those that its hosts are logged in to with, or none.

With ``unread`` none is even looked up: the file is judged as it is written, wherever that is done.
"""


def load(
    path: Path,
    catalog: Catalog,
    *,
    run_secret_command: bool,
    needs: Needs = "all",
    rules: Rules = lambda _: (),
    content: bytes | None = None,
) -> Loaded:
    """Read and check a lab's file; raise ``InputError`` with all of its problems, those of ``rules`` included.

    ``content``: what the file is to hold, where that is asked before it is written.

    A secret that only the file's command can give has no value unless ``run_secret_command``; the command is run
    only for a file in which nothing is wrong, and only for what ``needs`` says.
    """
    document = _read(path) if content is None else _document(content, path)
    values, problems = ({}, []) if needs == "unread" else _values(document, path)
    spec, parsed = _parsed(document, values, catalog, path)
    missing = [] if problems else _missing(document, values, needs)
    problems += [*document.problems, *parsed.problems]
    if spec:
        problems += rules(spec)
    else:
        from provisioner.labfile.parsing import remainder  # nothing that a good file needs

        left = remainder(filled(document.data, values), parsed.problems, catalog)
        if left is not None:
            said = rules(anchored(left.spec, path))
            problems += [problem for problem in said if not left.is_about(problem)]
    if "secrets" not in document.data and missing:
        raise _missing_error(path, document, missing, problems)
    if missing and not problems and spec and spec.secrets and run_secret_command:
        asked, problems = _asked(missing, spec.secrets.command)
        spec, parsed = _parsed(document, values | asked, catalog, path)
        problems += rules(spec) if spec and not problems else ()
    if problems or spec is None:
        raise file_error(path, problem_lines(path, document, problems))
    return Loaded(path, spec, parsed.warnings, document)


def missing_secrets(path: Path, catalog: Catalog) -> tuple[SecretUse, ...]:
    """Each use of a secret that has no value yet; raise ``InputError`` when anything else is wrong with the file."""
    document = _read(path)
    values, problems = _values(document, path)
    _, parsed = _parsed(document, values, catalog, path)
    problems += [*document.problems, *parsed.problems]
    if problems:
        raise file_error(path, problem_lines(path, document, problems))
    if "secrets" in document.data:
        return ()
    return tuple(use for use in document.uses if use.name not in values)


def looked_up(loaded: Loaded, use: SecretUse) -> Secret:
    """One secret of a file that was loaded without its command, which gives it now; else ``InputError``."""
    if loaded.spec.secrets is None:
        raise _missing_error(loaded.path, loaded.document, [use])
    values, problems = _asked([use], loaded.spec.secrets.command)
    if problems:
        raise loaded.error(problems)
    return Secret(use.name, values[use.name])


def named_secret(loaded: Loaded, name: str) -> Secret:
    """A secret that the file itself does not use: of the environment, of ``secrets.env``, else of the file's command.

    Raises ``InputError`` where none of them has it.
    """
    try:
        values = from_environment([name]) or from_file([name], secrets_file(loaded.path))
    except SecretError as error:
        raise InputError(f"Unable to read secret {name}: {error.message}", resolution=error.hint) from error
    if name in values:
        return Secret(name, values[name])
    if loaded.spec.secrets is None:
        raise InputError(
            f"Unable to read secret {name}: it has no value",
            resolution=f"Set {environment_name(name)}, or write it into {secrets_file(loaded.path)}.",
        )
    return looked_up(loaded, SecretUse(name, ()))


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """The place of a secret's value, in words, and a shell's command that prints it ("" where none is needed)."""

    words: str
    command: str = ""


def place_of_secret(loaded: Loaded, name: str) -> SecretPlace:
    """Say where the value of a secret of the file lies, nothing for no name; the value is not in the answer.

    Raises ``InputError`` where ``secrets.env`` cannot be read.
    """
    import shlex  # nothing that a file needs to be understood

    if not name:
        return SecretPlace("")
    if "." in name:  # it stands in clear in the file, and has its path for a name
        return SecretPlace(f"{loaded.path}: {name}")
    if from_environment([name]):
        return SecretPlace(f"${environment_name(name)}")
    file = secrets_file(loaded.path)
    written = _names_in(file).get(environment_name(name))
    if written is not None:
        words = ["sed", "-n", _PRINTED.format(written), str(file.resolve())]
        return SecretPlace(f"{written} in {file}", shlex.join(words))
    if loaded.spec.secrets is None:
        return SecretPlace(f"secret {name}, which has no value")
    command = shlex.join(word.replace("{name}", name) for word in loaded.spec.secrets.command)
    return SecretPlace(f"what this prints: {command}", command)


_PRINTED = (
    r"1s/^\xEF\xBB\xBF//;/^[[:space:]]*\(export[[:space:]]\{{1,\}}\)\{{0,1\}}{}[[:space:]]*=/"
    r"{{s/^[^=]*=[[:space:]]*//;s/[[:space:]]*$//;s/^\([\"']\)\(.*\)\1$/\2/;p;}}"
)
"""The program for sed that prints the value of one line of a ``secrets.env`` as it is read here."""


def _names_in(file: Path) -> dict[str, str]:
    """The names as a ``secrets.env`` writes them, by their variables; nothing where the file is missing."""
    try:
        text = _read_private(file).decode("utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Unable to read {file}", details=str(error)) from error
    names: dict[str, str] = {}
    for _, line in _lines(text):
        match = _LINE.fullmatch(line)
        if match and match[2].strip():
            names[environment_name(match[1])] = match[1]
    return names


def _read(path: Path) -> Document:
    try:
        with open_file(path) as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    return _document(content, path)


def _document(content: bytes, path: Path) -> Document:
    try:
        return with_share_keys(parse_document(content))
    except DocumentError as error:
        raise file_error(path, [problem_line(path, error.place, "", error.message, error.hint)]) from error


def with_share_keys(document: Document) -> Document:
    """The document as if each host whose services take turns named their key, where it names none itself.

    The key is the secret ``share-HOST``, and stands on the line of ``share``.
    """
    hosts = document.data.get("hosts")
    if not isinstance(hosts, dict):
        return document
    keyed: dict[str, Any] = {}
    places, uses = dict(document.places), list(document.uses)
    for name, host in hosts.items():
        if not _lacks_share_key(name, host):
            continue
        use = SecretUse(f"share-{name}", ("hosts", name, SHARE_KEY))
        keyed[name] = {**host, SHARE_KEY: Secret(use.name, None)}
        places[use.path] = document.place(("hosts", name, SHARE))
        uses.append(use)
    if not keyed:
        return document
    data = {**document.data, "hosts": {**hosts, **keyed}}
    return replace(document, data=data, places=places, uses=tuple(uses))


def _lacks_share_key(name: str, host: Any) -> bool:
    """Whether the host's services take turns, and it names no key; a name that hosts cannot have is refused anyway."""
    if not isinstance(host, dict) or not re.fullmatch(LABEL, name, re.ASCII):
        return False
    return bool(host.get(SHARE)) and host.get(SHARE_KEY) is None


def _unreadable(path: Path, error: OSError) -> InputError:
    write_one = isinstance(error, FileNotFoundError)
    return InputError(
        f"Unable to read {path}",
        details=error.strerror or str(error),
        resolution=f"Name the lab's file, or write one with: provision init {path}" if write_one else "",
    )


def _values(document: Document, path: Path) -> tuple[dict[str, str], list[Problem]]:
    names = {use.name for use in document.uses}
    values = from_environment(names)
    absent = names - values.keys()
    try:
        return (values | from_file(absent, secrets_file(path)) if absent else values), []
    except SecretError as error:
        first = next(use for use in document.uses if use.name in absent)
        return values, [Problem(first.path, error.message, error.hint)]


def _missing(document: Document, values: Mapping[str, str], needs: Needs) -> list[SecretUse]:
    uses = (use for use in reversed(document.uses) if use.name not in values and _is_needed(use, needs))
    return list({use.name: use for use in uses}.values())


def _is_needed(use: SecretUse, needs: Needs) -> bool:
    if needs == "hosts":  # nobody logs in to a host with the key of its services
        return use.path[:1] == ("hosts",) and use.path[2:] != (SHARE_KEY,)
    return needs == "all"


def _missing_error(
    path: Path, document: Document, missing: Iterable[SecretUse], others: Iterable[Problem] = ()
) -> InputError:
    lines = problem_lines(path, document, [*others, *(_missing_problem(path, use) for use in missing)])
    return file_error(path, lines, _missing_resolution(path))


def _missing_problem(path: Path, use: SecretUse) -> Problem:
    hint = f"set {environment_name(use.name)}"
    match use.path:
        case ("hosts", str(host), "token", "secret"):
            hint += f", or have the token made: provision host prepare {path} {host}"
    return Problem(use.path, f'secret "{use.name}" has no value', hint)


def _missing_resolution(path: Path) -> str:
    return (
        f"Write the missing secrets into {secrets_file(path)} (mode 0600) as NAME=VALUE; "
        f"those of this lab's own services are generated by: provision init --secrets {path}"
    )


def _asked(missing: Iterable[SecretUse], command: list[str]) -> tuple[dict[str, str], list[Problem]]:
    values: dict[str, str] = {}
    problems: list[Problem] = []
    for use in missing:
        try:
            values[use.name] = from_command(use.name, command)
        except SecretError as error:
            problems.append(Problem(use.path, error.message, error.hint))
    return values, problems


def _parsed(document: Document, values: Mapping[str, str], catalog: Catalog, path: Path) -> tuple[Spec | None, Parsed]:
    data: dict[str, Any] = filled(document.data, values)
    parsed = parse_spec(data, catalog)
    return (anchored(parsed.spec, path) if parsed.spec else None), parsed
