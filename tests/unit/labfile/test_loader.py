"""``load`` over data cases (``tests/cases/loader``: a lab's file and what is said), then what no case can hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.catalog import Catalog, load_catalog
from provisioner.labfile.loader import Loaded, load
from provisioner.values.errors import ExitCode, InputError
from provisioner.values.state import Problem

CASES = sorted((Path(__file__).parents[2] / "cases" / "loader").glob("*.yml"))
FILE = Path("homelab.yml")
CANARY = "canary"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(Path(__file__).parent.parent / "fixtures" / "catalog")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    FILE.write_text(case["file"], encoding="utf-8")
    if "secrets_env" in case:
        Path("secrets.env").write_text(case["secrets_env"], encoding="utf-8")
        Path("secrets.env").chmod(int(case.get("mode", "0600"), 8))
    for name, value in case.get("environment", {}).items():
        monkeypatch.setenv(name, value)


def at(loaded: Loaded, dotted: str) -> Any:
    value: Any = loaded.spec
    for step in dotted.split("."):
        value = value[step] if isinstance(value, dict) else getattr(value, step)
    return value


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_case(file: Path, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert case.keys() & {"errors", "spec", "secrets", "warnings"}, "a case says what it expects"
    write(case, monkeypatch)
    if "errors" in case:
        with pytest.raises(InputError) as caught:
            load(FILE, catalog, run_secret_command=False)
        assert caught.value.details.splitlines() == case["errors"]
        assert CANARY not in str(caught.value)
        return
    loaded = load(FILE, catalog, run_secret_command=False)
    for dotted, expected in case.get("spec", {}).items():
        wanted = expected.replace("{folder}", str(tmp_path)) if isinstance(expected, str) else expected
        assert at(loaded, dotted) == wanted, dotted
    assert [loaded.rendered(one) for one in loaded.warnings] == case.get("warnings", [])
    known = {name: secret.reveal() for name, secret in loaded.secrets.items() if secret.is_known}
    assert known == case.get("secrets", {})
    assert sorted(loaded.secrets.keys() - known.keys()) == case.get("unknown", [])
    assert CANARY not in f"{loaded!r} {loaded.spec!r} {loaded.spec.model_dump()}"


def refused(content: bytes, catalog: Catalog) -> str:
    FILE.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(FILE, catalog, run_secret_command=True)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value.details


NO_UTF_8 = "not UTF-8; save the file as UTF-8, or turn it into that: iconv -f"
TOO_DEEP = "nested too deeply; close the brackets where they end; a lab needs seven levels"
LAUGHS = b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10)
)
MERGES = b"a0: &a0 {}\n" + b"".join(b"a%d: &a%d { <<: [*a%d, *a%d] }\n" % (n, n, n - 1, n - 1) for n in range(1, 40))
CHAIN = b"a0: &a0 {}\n" + b"".join(b"a%d: &a%d { <<: *a%d }\n" % (n, n, n - 1) for n in range(1, 400))


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (
            b"name: lab\nhosts: \0\n",
            (2, 8),
            "a control character; remove it, or write it as an escape in double quotes",
        ),
        (
            b"name: lab\n\n\x1b[31m: x\n",
            (3, 1),
            "a control character; remove it, or write it as an escape in double quotes",
        ),
        (b"name: lab\nhosts: \xff\n", (2, 8), f"{NO_UTF_8} LATIN1 -t UTF-8 FILE"),
        ("name: lab\n".encode("utf-16"), (1, 1), f"{NO_UTF_8} UTF-16 -t UTF-8 FILE"),
        (b"name: lab\nmodels: " + b"[" * 1_000, (2, 58), TOO_DEEP),
        (b"name: lab\nmodels: " + b"[" * 80 + b"]" * 80, (2, 59), TOO_DEEP),
        (b"models:\n" + b"".join(b"%s- \n" % (b" " * n) for n in range(900)), (51, 50), TOO_DEEP),
        (LAUGHS, (1, 34), "more than 20000 values, aliases expanded; write less"),
        (MERGES, (1, 5), "an alias that contains itself, or too many of them"),
        (CHAIN, (100, 6), "an alias that contains itself, or too many of them"),
        (b"name: lab\nmodels: [" + b"1, " * 300_000 + b"]", (2, 59995), "more than 20000 values; write less"),
        (b"#" * 10_000_000, (1, 1), "the file is larger than 1000000 bytes; is this the right file?"),
    ],
    ids=["nul", "escape", "latin-1", "utf-16", "open", "deep", "steps", "laughs", "merges", "chain", "many", "10 MB"],
)
def test_hostile_content_is_refused(content: bytes, place: tuple[int, int], message: str, catalog: Catalog) -> None:
    line, column = place
    assert refused(content, catalog).splitlines() == [f"homelab.yml:{line}:{column}: {message}"]


def test_a_long_number_is_text(catalog: Catalog) -> None:
    content = b"name: lab\ncontainers: { a: { cpu: %s } }\n" % (b"9" * 5000)
    assert refused(content, catalog) == "homelab.yml:2:20: containers.a.cpu: expected a whole number, got a string"


def test_windows_files_are_read(catalog: Catalog) -> None:
    FILE.write_bytes(
        b"\xef\xbb\xbfname: lab\r\ncontainers:\r\n  a: { services: { desktop: { user: u, password: !secret p } } }\r\n"
    )
    Path("secrets.env").write_bytes(b"\xef\xbb\xbfp = 'a b' \r\n")
    Path("secrets.env").chmod(0o600)
    loaded = load(FILE, catalog, run_secret_command=False)
    assert (loaded.spec.name, loaded.secrets["p"].reveal()) == ("lab", "a b")


def test_a_control_character_in_a_key_is_shown_escaped(catalog: Catalog) -> None:
    details = refused(b'name: lab\ncontainers: {}\n"\\e[31m\\n": 1\n', catalog)
    assert details.startswith('homelab.yml:3:1: "\\u001b[31m\\n": unknown key')


def test_a_missing_file_says_how_to_write_one(catalog: Catalog) -> None:
    with pytest.raises(InputError, match=r"Unable to read homelab\.yml") as caught:
        load(FILE, catalog, run_secret_command=False)
    assert "provision init homelab.yml" in caught.value.resolution


def test_all_errors_come_at_once_rules_included(catalog: Catalog) -> None:
    FILE.write_text("name: lab\ncontainers:\n  a: { services: { desktop: { user: u, password: !secret p } } }\n")
    with pytest.raises(InputError) as caught:
        load(
            FILE,
            catalog,
            run_secret_command=False,
            rules=lambda spec: [Problem(("containers", name, "host"), "no host") for name in spec.containers],
        )
    assert caught.value.details.splitlines() == [
        "homelab.yml:3:3: containers.a.host: no host",
        'homelab.yml:3:40: containers.a.services.desktop.password: secret "p" has no value; set PROVISION_SECRET_P',
    ]


def test_problems_found_later_are_told_with_their_lines(catalog: Catalog) -> None:
    FILE.write_text("name: lab\ncontainers:\n  a:\n    cpu: 1\n    memory: 1GiB\n")
    error = load(FILE, catalog, run_secret_command=False).error(
        [
            Problem(("containers", "a", "memory"), "too small", "take more"),
            Problem(("containers", "a", "host"), "needs one"),
            Problem((), "odd"),
        ]
    )
    assert error.details.splitlines() == [
        "homelab.yml:1:1: odd",
        "homelab.yml:3:3: containers.a.host: needs one",
        "homelab.yml:5:5: containers.a.memory: too small; take more",
    ]
    assert error.exit_code is ExitCode.USAGE


def with_command(*command: str) -> None:
    words = ", ".join(f'"{word}"' for word in command)
    FILE.write_text(
        f"name: lab\nsecrets: {{ command: [{words}] }}\ncontainers:\n"
        "  a: { services: { desktop: { user: u, password: !secret first } } }\n"
        "  b: { services: { desktop: { user: u, password: !secret second-one } } }\n"
    )


def test_the_command_gives_what_is_found_nowhere_else(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_FIRST", "of environment")
    with_command("printf", "%s\\\\n", "lab/{name}")
    secrets = load(FILE, catalog, run_secret_command=True).secrets
    assert {name: secret.reveal() for name, secret in secrets.items()} == {
        "first": "of environment",
        "second-one": "lab/second-one",
    }


def test_a_failing_command_is_told_for_every_secret(catalog: Catalog) -> None:
    program = "import sys; print('canary'); sys.exit('locked store for ' + sys.argv[1])"
    with_command(sys.executable, "-c", program, "{name}")
    with pytest.raises(InputError) as caught:
        load(FILE, catalog, run_secret_command=True)
    assert caught.value.details.splitlines() == [
        f"homelab.yml:{line}:40: containers.{container}.services.desktop.password: {sys.executable} "
        f"gave no secret {name} (exit status 1); it said: locked store for {name}"
        for line, container, name in ((4, "a", "first"), (5, "b", "second-one"))
    ]
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("no-such-program", "{name}"), "no-such-program cannot be run for secret first: No such file or directory"),
        (("true", "{name}"), "true gave no secret first (it printed nothing)"),
        (("printf", "\\\\377{name}"), "printf printed no UTF-8 text for secret first"),
    ],
    ids=["missing", "silent", "binary"],
)
def test_a_command_that_gives_nothing_usable(command: tuple[str, ...], told: str, catalog: Catalog) -> None:
    with_command(*command)
    with pytest.raises(InputError) as caught:
        load(FILE, catalog, run_secret_command=True)
    assert told in caught.value.details


def test_the_command_is_not_run_for_a_file_that_is_wrong(catalog: Catalog) -> None:
    with_command("touch", "ran-{name}")
    FILE.write_text(FILE.read_text() + "oops: 1\n")
    with pytest.raises(InputError, match="oops"):
        load(FILE, catalog, run_secret_command=True)
    assert not list(Path().glob("ran-*"))


def test_what_uses_no_secret_needs_none(tmp_path: Path) -> None:
    file = tmp_path / "homelab.yml"
    file.write_text(
        'name: a\nmodels: { m: { source: "builtin:tiny" } }\n'
        "containers: { c: { services: { llama_cpp: { model: m, api_key: !secret absent } } } }\n",
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="absent"):
        load(file, load_catalog(), run_secret_command=False)
    assert load(file, load_catalog(), run_secret_command=False, needs="none").spec.name == "a"


def test_no_host_is_logged_in_to_with_the_key_of_those_who_take_turns(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    FILE.write_text(
        "name: lab\nhosts:\n  pve: { proxmox: 'https://pve:8006', user: root@pam, password: !secret root,\n"
        "    share: [[a/llama_cpp, b/llama_cpp]] }\ncontainers: {}\n"
    )
    with pytest.raises(InputError) as caught:
        load(FILE, catalog, run_secret_command=False, needs="hosts")
    assert [line.partition(" has no")[0] for line in caught.value.details.splitlines()] == [
        'homelab.yml:3:55: hosts.pve.password: secret "root"'
    ]
    monkeypatch.setenv("PROVISION_SECRET_ROOT", CANARY)
    assert load(FILE, catalog, run_secret_command=False, needs="hosts").spec.hosts["pve"].share_key is not None
    with pytest.raises(InputError) as caught:
        load(FILE, catalog, run_secret_command=False)
    assert caught.value.details == (
        'homelab.yml:4:5: hosts.pve.share_key: secret "share-pve" has no value; set PROVISION_SECRET_SHARE_PVE'
    )


def test_a_command_is_asked_for_the_key_of_those_who_take_turns(catalog: Catalog) -> None:
    FILE.write_text(
        f"name: lab\nhosts: {{ box: {{ incus: local, share: [[a/llama_cpp, b/llama_cpp]] }} }}\ncontainers: {{}}\n"
        f'secrets: {{ command: ["{sys.executable}", "-c", "print(\'of-{{name}}\')"] }}\n'
    )
    assert load(FILE, catalog, run_secret_command=True).secrets["share-box"].reveal() == "of-share-box"
