"""Pipelines: what a file may not say of one, which files are none, and what a server's source has to be."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from provisioner.lab.connections import connection
from provisioner.lab.opening import Lab, open_lab
from provisioner.services import knowledge_of
from provisioner.services.pipelines import Said, flaws, said_of
from provisioner.values.address import Address
from provisioner.values.errors import InputError
from tests import documented
from tests.case_files import read_cases
from tests.lab_files import wanted_fleet
from tests.pipelines_source import FETCH, STANDIN, standin_in
from tests.processes import completed
from tests.scenario_programs import module_at

CASES = read_cases("services/pipelines")

PIPELINE = "class Pipeline:\n    def pipe(self, user_message, model_id, messages, body):\n        return 'hello'\n"
FILE: str = CASES["file"]
LIST = "pipelines: [agents/team.py]"
WRONG = CASES["wrong"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "agents/team.py": PIPELINE,
        "agents/same.py": f"{PIPELINE}    id = 'team'\n",
        "agents/syntax.py": "class Pipeline:\n    def pipe(self):\n        return (\n",
        "agents/installs.py": f'"""\ntitle: A pipeline\nrequirements: langchain, crewai\n"""\n{PIPELINE}',
        "agents/filter.py": "class Pipeline:\n    def __init__(self):\n        self.type = 'filter'\n",
        "agents/large.py": f"{PIPELINE}#{'x' * 200_000}\n",
        "agents/notes.txt": PIPELINE,
        "agents/a b.py": PIPELINE,
        "other/team.py": PIPELINE,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "agents/binary.py").write_bytes(b"\xff\xfe\x00")
    return tmp_path


SECRETS = {"KEY": "key-of-it", "MASTER": "sk-master", "PIPES": "0123456789abcdef", "KNOWN": "0p3n-w3bu!"}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(f"PROVISION_SECRET_{name}", value)


def opened(folder: Path, text: str) -> Lab:
    """The lab of a file of that text."""
    file = folder / "homelab.yml"
    file.write_text(text, encoding="utf-8")
    return open_lab(file)


def test_pipelines_behind_a_gateway_and_a_chat_are_valid_and_upstream_is_said_to_be_dormant(folder: Path) -> None:
    (folder / "homelab.yml").write_text(FILE, encoding="utf-8")
    done = completed([sys.executable, "-m", "provisioner", "validate"], cwd=folder, timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert "upstream has had no commit since July 2025" in done.stderr
    assert "see agent_team" in done.stderr


@pytest.mark.parametrize(("right", "wrong", "line", "words"), WRONG)
def test_what_no_pipelines_server_could_be_is_refused_with_its_line(
    folder: Path, right: str, wrong: str, line: int, words: str
) -> None:
    assert right in FILE
    with pytest.raises(InputError) as refused:
        opened(folder, FILE.replace(right, wrong))
    told = str(refused.value)
    assert f"homelab.yml:{line}:" in told
    assert words in told
    assert "0p3n-w3bu!" not in told


def test_what_is_in_a_file_is_part_of_what_the_service_is(folder: Path) -> None:
    def variables(text: str) -> dict[str, object]:
        (folder / "agents/team.py").write_text(text, encoding="utf-8")
        fleet = wanted_fleet(opened(folder, FILE))
        (pipes,) = (one for one in fleet.instances if one.name == "pipes")
        return next(dict(service.variables) for service in pipes.services if service.role == "pipelines")

    first, second = variables(PIPELINE), variables(PIPELINE.replace("hello", "{{ 7 * 7 }}"))
    assert first["pipelines_pipelines"] == [{"name": "team.py", "text": PIPELINE}]
    assert first != second
    assert {**first, "pipelines_pipelines": 0} == {**second, "pipelines_pipelines": 0}


def test_a_gateway_and_a_chat_ask_for_the_pipeline_that_the_file_names(folder: Path) -> None:
    text = FILE.replace(LIST, "pipelines: [agents/other.py, agents/team.py]")
    (folder / "agents/other.py").write_text(f"{PIPELINE}    id = 'other-one'\n", encoding="utf-8")
    for model, asked in (("    model: team\n", "team"), ("", "other-one")):
        lab = opened(folder, text.replace("        model: team\n", f"    {model}" if model else ""))
        service = lab.resolved.services[Address("pipes/pipelines")]
        assert connection(lab.resolved, "chat", service.address)["model"] == asked
        assert knowledge_of("pipelines").offers(service)[0] == asked


def test_the_page_shows_a_valid_file_and_the_pipeline_that_a_scenario_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, team = (block.text for block in documented.blocks() if block.page == "pipelines.md")
    assert team == (STANDIN.parent / "pipelines/team.py").read_text(encoding="utf-8")
    (folder / "agents/team.py").write_text(team, encoding="utf-8")
    for name in ("pipes_key", "engine_key", "litellm_key", "webui_password"):
        monkeypatch.setenv(f"PROVISION_SECRET_{name.upper()}", f"sk-0123456789-{name}")
    assert knowledge_of("pipelines").offers(opened(folder, lab).resolved.services[Address("pipes/pipelines")]) == (
        "team",
    )


INIT = "class Pipeline:\n    def __init__(self):\n        {}\n    def pipe(self):\n        return ''\n"
FILES: Mapping[str, tuple[str, str, int, str]] = {
    "no name of a module": ("my pipeline.py", PIPELINE, 0, "cannot be the name of a pipeline"),
    "the folder of upstream": ("failed.py", PIPELINE, 0, "failed.py cannot be the name"),
    "no end": ("team", PIPELINE, 0, "cannot be the name of a pipeline"),
    "no class": ("team.py", "def pipe():\n    pass\n", 0, "it has no class Pipeline"),
    "no method": ("team.py", "\nclass Pipeline:\n    name = 'Team'\n", 2, "class Pipeline has no method pipe"),
    "an async method": ("team.py", "class Pipeline:\n    async def pipe(self):\n        return ''\n", 2, "async pipe"),
    "a type of nobody": ("team.py", INIT.format("self.type = 'pipe'"), 3, 'nothing of the type "pipe"'),
    "a manifold with a dot": (
        *("team.py", INIT.format("self.type = 'manifold'; self.id = 'a.b'")),
        *(3, 'does not find the models of "a.b"'),
    ),
    "requirements in the first line": ("team.py", f'"""requirements: torch"""\n{PIPELINE}', 1, "install torch"),
    "requirements in capitals": ("team.py", f'"""\n  Requirements : torch\n"""\n{PIPELINE}', 2, "install torch"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_upstream_would_not_serve_is_known_without_running_it(case: str) -> None:
    name, text, line, words = FILES[case]
    (found,) = flaws(name, text)
    assert words in found.message
    # Where no line is expected, some Pythons name one of what they cannot read.
    assert line in (0, found.line)
    assert found.hint.endswith(".")


GOOD = {
    "an imported one": "from somewhere import Pipeline\n",
    "one of a factory": "Pipeline = made()\n",
    "one with a base": "class Pipeline(Base):\n    pass\n",
    "a text that begins later": f'# a note\n"""\nrequirements: torch\n"""\n{PIPELINE}',
    "no requirements": f'"""\nrequirements:\n"""\n{PIPELINE}',
    "a text without an end": f"x = 1\n{PIPELINE}",
    "a colon elsewhere": f'"""title: requirements: torch"""\n{PIPELINE}',
    "a doubtful escape": f"{PIPELINE}x = '\\d'\n",
}


@pytest.mark.parametrize("case", GOOD)
def test_a_file_that_upstream_serves_has_no_flaw(case: str) -> None:
    assert list(flaws("team-2_b.py", GOOD[case])) == []


def test_what_a_file_says_of_itself_is_read_where_it_says_it_plainly() -> None:
    assert said_of(INIT.format("self.id = 'own'; self.type = 'manifold'")) == Said("own", "manifold", 3)
    assert said_of("class Pipeline:\n    id = 'own'\n") == Said("own")
    assert said_of(INIT.format("self.id = made()")) == Said()
    assert said_of(INIT.format("other.id = 'own'")) == Said()


def test_nothing_of_a_file_is_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    assert list(flaws("team.py", f"open({str(touched)!r}, 'w')\n{PIPELINE}")) == []
    assert not touched.exists()


def packed(files: Mapping[str, bytes], *, link: str = "") -> bytes:
    """An archive with a folder around its files, one of which is a link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"pipelines-1/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        if link:
            member = tarfile.TarInfo(f"pipelines-1/{link}")
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    return gzip.compress(stream.getvalue())


def fetched(folder: Path, archive: bytes, sha256: str) -> subprocess.CompletedProcess[str]:
    """What the builder's program says of an archive."""
    (folder / "archive.tar.gz").write_bytes(archive)
    command = [sys.executable, str(FETCH), (folder / "archive.tar.gz").as_uri(), sha256, str(folder / "source")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_source_is_known_by_its_files_whichever_way_they_are_packed(tmp_path: Path) -> None:
    source = standin_in(tmp_path)
    archive = (tmp_path / "archive" / f"{source.commit}.tar.gz").read_bytes()
    again = gzip.compress(gzip.decompress(archive), compresslevel=1)
    assert again != archive
    for one in (archive, again):
        done = fetched(tmp_path, one, source.source_sha256)
        assert done.returncode == 0, done.stderr
    found = sorted(path.relative_to(tmp_path / "source").as_posix() for path in (tmp_path / "source").rglob("*.py"))
    assert found == ["config.py", "main.py", "schemas.py", "utils/pipelines/auth.py"]


BAD = {
    "another content": (packed({"main.py": b"1"}), "its files hash to"),
    "no server": (packed({"setup.py": b"1"}), "it has no main.py"),
    "a link": (packed({"main.py": b"1"}, link="config.py"), "config.py in it is no file"),
    "no archive": (b"<html>", "not a gzip file"),
    "half an archive": (packed({"main.py": os.urandom(100_000)})[:50_000], "Unable to use"),
    "a bomb": (packed({"main.py": bytes(65 * 2**20)}), "it unpacks to more than"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_source_that_is_another_one_is_refused(tmp_path: Path, case: str) -> None:
    archive, words = BAD[case]
    done = fetched(tmp_path, archive, "a" * 64)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "source").exists()


def test_only_what_runs_is_taken_from_an_archive(tmp_path: Path) -> None:
    files = {"main.py": b"1", "start.sh": b"2", "pipelines/evil.py": b"3", "../main.py": b"4", "utils/../../x.py": b"5"}
    digest: str = module_at(FETCH).digest({"main.py": b"1"})
    assert fetched(tmp_path, packed(files), digest).returncode == 0
    assert [path.name for path in (tmp_path / "source").rglob("*")] == ["main.py"]
    assert not (tmp_path / "x.py").exists()
