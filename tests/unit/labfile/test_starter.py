"""What ``provision init`` writes: a first file that loads, and secrets that nobody else can read."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from provisioner.catalog import Catalog, load_catalog
from provisioner.labfile import starter
from provisioner.labfile.loader import load
from provisioner.labfile.starter import write_ignored, write_missing_secrets, write_starter
from provisioner.values.errors import InputError
from tests.case_files import read_cases
from tests.raising import raising

CASES = read_cases("starter")

FILE = Path("homelab.yml")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(Path(__file__).parent.parent / "fixtures" / "catalog")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("own_roles", [False, True], ids=["fixtures", "roles"])
def test_a_first_file_loads_when_its_secrets_are_written(own_roles: bool, catalog: Catalog) -> None:
    catalog = load_catalog() if own_roles else catalog
    file, schema = write_starter(FILE, catalog)
    with pytest.raises(InputError, match="litellm_key"):
        load(file, catalog, run_secret_command=False)
    assert write_missing_secrets(file, catalog).generated == ("llama_key", "litellm_key")
    loaded = load(file, catalog, run_secret_command=False)
    assert (loaded.spec.name, loaded.warnings) == ("homelab", ())
    assert list(loaded.spec.containers) == ["homelab-llama", "homelab-gateway"]
    assert "llama_cpp" in schema.read_text()


def test_the_file_names_its_schema(folder: Path, catalog: Catalog) -> None:
    _, schema = write_starter(folder / "new" / "lab.yml", catalog)
    first = (folder / "new" / "lab.yml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=.provision/homelab.schema.json"
    assert schema == folder / "new" / ".provision" / "homelab.schema.json"
    assert json.loads(schema.read_text())["required"] == ["name", "containers"]


def test_a_file_that_is_there_is_never_overwritten(catalog: Catalog) -> None:
    FILE.write_text("mine\n")
    with pytest.raises(InputError, match=r"Unable to write homelab\.yml"):
        write_starter(FILE, catalog)
    assert FILE.read_text() == "mine\n"


def test_a_file_whose_schema_cannot_be_written_does_not_stay(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(file: Path, _catalog: Catalog) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    monkeypatch.setattr(starter, "write_schema", no_room)
    with pytest.raises(InputError, match="No space left"):
        write_starter(FILE, catalog, "containers: {}")
    assert not FILE.exists()


LAB: str = CASES["lab"]


def test_only_secrets_of_this_lab_are_generated(catalog: Catalog) -> None:
    FILE.write_text(LAB)
    Path("secrets.env").write_text("# kept\nmine=kept")
    Path("secrets.env").chmod(0o600)
    written = write_missing_secrets(FILE, catalog)
    assert written.file == Path("secrets.env")
    assert written.generated == ("shared", "own")
    assert written.needed == ("pve-token", "cloud", "nas")
    lines = written.file.read_text().splitlines()
    assert lines[:2] == ["# kept", "mine=kept"]
    values = dict(line.split("=", 1) for line in lines[2:])
    assert values.keys() == {"shared", "own"}
    assert values["shared"].startswith("sk-"), "the prefix of the one use that wants one"
    assert len(values["own"]) == 48
    assert written.file.stat().st_mode & 0o777 == 0o600
    assert not list(Path().glob(".secrets*"))


DESKTOPS = """\
name: lab
containers:
  desk:
    services:
      desktop: { user: penny, password: !secret penny, users: [{ name: ann, password: !secret ann }] }
"""


def test_passwords_of_a_desktop_are_generated() -> None:
    FILE.write_text(DESKTOPS)
    catalog = load_catalog()
    written = write_missing_secrets(FILE, catalog)
    assert (written.generated, written.needed) == (("penny", "ann"), ())
    assert load(FILE, catalog, run_secret_command=False).spec.name == "lab"


@pytest.mark.parametrize(
    ("before", "after", "added"),
    [
        (None, "secrets.env\n.provision/\n", ("secrets.env", ".provision/")),
        ("", "secrets.env\n.provision/\n", ("secrets.env", ".provision/")),
        ("*.log", "*.log\nsecrets.env\n.provision/\n", ("secrets.env", ".provision/")),
        ("/secrets.env\r\n", "/secrets.env\r\n.provision/\n", (".provision/",)),
        ("\xff\n.provision\n", "\xff\n.provision\nsecrets.env\n", ("secrets.env",)),
        (".provision/\n secrets.env\n", ".provision/\n secrets.env\n", ()),
    ],
)
def test_git_is_told_what_it_has_to_leave_out(before: str | None, after: str, added: tuple[str, ...]) -> None:
    ignore = Path(".gitignore")
    if before is not None:
        ignore.write_bytes(before.encode("latin-1"))
    assert write_ignored(FILE) == (ignore, added)
    assert ignore.read_bytes() == after.encode("latin-1")
    assert write_ignored(FILE) == (ignore, ())


def test_a_gitignore_that_lacks_nothing_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".gitignore").write_text("secrets.env\n.provision/\n")
    monkeypatch.setattr(Path, "touch", raising(PermissionError(errno.EACCES, "Permission denied")))
    assert write_ignored(FILE) == (Path(".gitignore"), ())


def test_a_gitignore_that_cannot_be_written_is_named() -> None:
    Path(".gitignore").mkdir()
    with pytest.raises(InputError, match=r"Unable to write \.gitignore"):
        write_ignored(FILE)


def test_a_second_time_nothing_is_written(catalog: Catalog) -> None:
    FILE.write_text(LAB)
    write_missing_secrets(FILE, catalog)
    before = Path("secrets.env").read_bytes()
    again = write_missing_secrets(FILE, catalog)
    assert (again.generated, again.needed) == ((), ("pve-token", "cloud", "nas"))
    assert Path("secrets.env").read_bytes() == before


def test_every_secret_is_another_one_each_time(catalog: Catalog) -> None:
    values: list[str] = []
    for _ in range(2):
        FILE.write_text(LAB)
        write_missing_secrets(FILE, catalog)
        lines = Path("secrets.env").read_text().splitlines()[1:]
        values += [line.split("=")[1].removeprefix("sk-") for line in lines]
        Path("secrets.env").unlink()
    assert len(values) == len(set(values)) == 6


def test_a_secret_of_the_environment_is_not_written(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    FILE.write_text(LAB)
    monkeypatch.setenv("PROVISION_SECRET_SHARED", "sk-x")
    monkeypatch.setenv("PROVISION_SECRET_PVE_TOKEN", "x")
    written = write_missing_secrets(FILE, catalog)
    assert (written.generated, written.needed) == (("mine", "own"), ("cloud", "nas"))


def test_a_file_with_a_command_lacks_nothing(catalog: Catalog) -> None:
    FILE.write_text(f'{LAB}secrets: {{ command: ["pass", "{{name}}"] }}\n')
    assert write_missing_secrets(FILE, catalog).generated == ()
    assert not Path("secrets.env").exists()


def test_a_wrong_file_gets_no_secrets(catalog: Catalog) -> None:
    FILE.write_text(f"{LAB}oops: 1\n")
    with pytest.raises(InputError, match="oops"):
        write_missing_secrets(FILE, catalog)
    assert not Path("secrets.env").exists()


def test_a_secrets_file_for_others_to_read_is_refused_untouched(catalog: Catalog) -> None:
    FILE.write_text(LAB)
    Path("secrets.env").write_text("mine=kept\n")
    Path("secrets.env").chmod(0o644)
    with pytest.raises(InputError, match=r"chmod 600 secrets\.env"):
        write_missing_secrets(FILE, catalog)
    assert Path("secrets.env").read_text() == "mine=kept\n"


TURNS = """\
name: lab
hosts: { box: { incus: local, share: [[a/llama_cpp, b/llama_cpp]] } }
containers: {}
"""


def test_the_key_of_those_who_take_turns_is_generated_once(catalog: Catalog) -> None:
    FILE.write_text(TURNS)
    written = write_missing_secrets(FILE, catalog)
    assert (written.generated, written.needed) == (("share-box",), ())
    key = load(FILE, catalog, run_secret_command=False).secrets["share-box"]
    assert len(key.reveal()) == 48
    assert f"share-box={key.reveal()}" in Path("secrets.env").read_text()
    assert write_missing_secrets(FILE, catalog).generated == ()
    FILE.write_text(TURNS.replace("b/llama_cpp]]", "b/llama_cpp]], share_key: !secret mine"))
    assert write_missing_secrets(FILE, catalog).generated == ("mine",)
