"""A model comes from a server into a volume of a real host, through a cut connection, and is proved by its role."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.hosts.incus import IncusProvider
from provisioner.lab.artifacts import given_path, stored
from provisioner.lab.opening.model_files import folder_file, hashed
from provisioner.labfile.spec import Model
from provisioner.reconcile.artifacts import ensure_artifacts
from provisioner.reconcile.inventory import render_builders
from provisioner.reconcile.runner import run_playbook
from provisioner.values.errors import PlaybookError
from provisioner.values.events import ApplyProgress, Event
from provisioner.values.paths import inventory_templates
from provisioner.values.state import Artifact, Device, Instance, InstanceKind, Secret, Status
from tests.file_server import FileServer, Page, Seen, serving
from tests.folder_files import CONFIG, config, taken, write_folder
from tests.lab.incus import Lab

CONTENT = os.urandom(24 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TOKEN = "hf_CANARY93ce"
PLAY = Path(__file__).resolve().parents[2] / "molecule/model_store/part.yml"
CUT = 5 << 20


@pytest.fixture
def server(provider: IncusProvider) -> Iterator[FileServer]:
    """A server that the lab's containers reach, slow enough that a download has several slices."""
    assert provider
    host = Lab().subnet.partition("/")[0]
    with serving(FileServer(CONTENT, cuts=[CUT], pace_s=0.008), host) as running:
        yield running


def artifact_of(server: FileServer, sha256: str) -> Artifact:
    access = Secret("hub:access", json.dumps({"token": TOKEN, "proxies": {}}))
    variables = {
        "model_store_source": server.address,
        "model_store_sha256": sha256,
        "model_store_path": "/srv/models/tiny",
        "model_store_filename": "tiny.gguf",
        "model_store_size": len(CONTENT),
        "model_store_access": access,
    }
    name = f"model-h7{secrets.token_hex(3)}"
    path = "/srv/models/tiny"
    return Artifact(name, "box", sha256, "model_store", path, "debian/12", variables, cacheable=False, mounted_at=path)


def texts_of(folder: Path) -> str:
    return "".join(one.read_text(errors="replace") for one in folder.rglob("*") if one.is_file())


def test_it_is_downloaded_through_a_cut_and_proved(provider: IncusProvider, server: FileServer, tmp_path: Path) -> None:
    artifact = artifact_of(server, SHA256)
    lab = f"h7{secrets.token_hex(3)}"
    events: list[Event] = []
    run = partial(run_playbook, folder=tmp_path / "lab")
    one = Instance(f"{lab}-one", "box", lab, "debian/12", devices=(mounted(artifact),))
    with ExitStack() as undo:
        undo.callback(provider.volumes.delete, artifact.volume)
        ensure_artifacts([artifact], {"box": provider}, lab, run_playbook=run, emit=events.append, cache=tmp_path)
        assert next(filter(None, server.ranges_asked())) == f"bytes={CUT}-"
        assert len(server.seen) > 2, "one slice did for all"
        assert {one.headers["Authorization"] for one in server.seen} == {f"Bearer {TOKEN}"}
        said = [one.message for one in events if isinstance(one, ApplyProgress)]
        assert any("GB have come" in message for message in said), said
        assert TOKEN not in texts_of(tmp_path / "lab")
        undo.callback(provider.delete, one)
        provider.create(one)
        provider.start(one)
        provider.wait_until_ready(one)
        for part in ("main", "verify"):
            result = run(str(PLAY), inventory_of(artifact, one, provider, part))
            result.raise_for_failure(f"run {part}")


def test_another_hash_leaves_nothing_and_names_both(
    provider: IncusProvider, server: FileServer, tmp_path: Path
) -> None:
    server.cuts, server.pace_s = [], 0.0
    artifact = artifact_of(server, "0" * 64)
    run = partial(run_playbook, folder=tmp_path / "lab")
    with pytest.raises(PlaybookError) as caught:
        ensure_artifacts([artifact], {"box": provider}, "h7lab", run_playbook=run, emit=lambda _: None, cache=tmp_path)
    assert f"is {SHA256} and should be {'0' * 64}" in caught.value.details
    assert TOKEN not in texts_of(tmp_path / "lab") + str(caught.value)
    assert artifact.volume not in provider.observe("h7lab").hosts["box"].volumes


def test_the_next_run_asks_only_for_the_rest(provider: IncusProvider, server: FileServer, tmp_path: Path) -> None:
    server.cuts = []
    artifact = replace(artifact_of(server, SHA256), resumable=True)
    lab = f"h7{secrets.token_hex(3)}"
    run = partial(run_playbook, folder=tmp_path / "lab")

    def refuse_after_a_slice(event: Event) -> None:
        if isinstance(event, ApplyProgress) and "GB have come" in event.message:
            server.answers = [(404, {})]

    def ensure(emit: Callable[[Event], None]) -> None:
        ensure_artifacts([artifact], {"box": provider}, lab, run_playbook=run, emit=emit, cache=tmp_path)

    def seen() -> tuple[list[Status | None], bool]:
        fleet = provider.observe(lab)
        return [one.status for one in fleet.instances], artifact.volume in fleet.hosts["box"].volumes

    builder = Instance(artifact.builder, "box", lab, "debian/12", kind=InstanceKind.BUILDER)
    with ExitStack() as undo:
        undo.callback(provider.volumes.delete, artifact.volume)
        undo.callback(provider.delete, builder)
        with pytest.raises(PlaybookError, match="answers 404"):
            ensure(refuse_after_a_slice)
        assert seen() == ([Status.STOPPED], False)
        asked = len(server.seen)
        ensure(lambda _: None)
        first = server.ranges_asked()[asked]
        assert first, "it asked for all of it again"
        assert int(first.removeprefix("bytes=").rstrip("-")) > CUT
        assert seen() == ([], True)


@pytest.mark.parametrize("is_download", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_model_of_several_files_is_stored_and_proved(
    provider: IncusProvider, server: FileServer, tmp_path: Path, *, is_download: bool
) -> None:
    server.cuts, server.pace_s = [], 0.0
    names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    contents = [CONTENT[: 1 << 20], CONTENT[1 << 20 : 3 << 20]]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_bytes(content)
        server.pages[f"/models/{name}"] = partial(whole, content)
    place = server.address.rpartition("/")[0] if is_download else str(tmp_path)
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    artifact = split_artifact(place, names, digests)
    wrong = split_artifact(place, names, [digests[0], "0" * 64])
    less = split_artifact(place, names[:1], digests)
    lab = f"h7{secrets.token_hex(3)}"
    run = partial(run_playbook, folder=tmp_path / "lab")
    one = Instance(f"{lab}-one", "box", lab, "debian/12", devices=(mounted(artifact),))
    with ExitStack() as undo:
        undo.callback(provider.volumes.delete, artifact.volume)
        with pytest.raises(PlaybookError, match=f"is {digests[1]} and should be {'0' * 64}"):
            ensure_artifacts([wrong], {"box": provider}, lab, run_playbook=run, emit=lambda _: None, cache=tmp_path)
        ensure_artifacts([artifact], {"box": provider}, lab, run_playbook=run, emit=lambda _: None, cache=tmp_path)
        undo.callback(provider.delete, one)
        provider.create(one)
        provider.start(one)
        provider.wait_until_ready(one)
        there = provider.execute(one.name, ["sh", "-c", "cd /srv/models/m && cat MANIFEST.sha256 && ls -A"]).stdout
        lines = [f"{digest}  {name}" for digest, name in zip(digests, names, strict=True)]
        assert there.decode().splitlines() == [*lines, "MANIFEST.sha256", *names]
        for part in ("main", "verify"):
            run(str(PLAY), inventory_of(artifact, one, provider, part)).raise_for_failure(part)
        with pytest.raises(PlaybookError, match="expected the manifest"):
            run(str(PLAY), inventory_of(less, one, provider, "main")).raise_for_failure("main")


@pytest.mark.parametrize("is_download", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_folder_is_stored_and_proved(
    provider: IncusProvider, server: FileServer, tmp_path: Path, *, is_download: bool
) -> None:
    files = {CONFIG: config("exl3"), "chat_template.jinja": b"", "model.safetensors": CONTENT[: 1 << 20]}
    folder = write_folder(tmp_path / "small", {**files, "README.md": b"left"})
    server.cuts, server.pace_s = [], 0.0
    file = hashed(folder_file(Model(source=f"dir:{folder}", format="exl3")), lambda _event: None)
    if is_download:
        place = server.address.rpartition("/")[0]
        server.pages |= {f"/models/{name}": partial(whole, content) for name, content in files.items()}
        there = tuple(replace(one, file=f"{place}/{one.filename}") for one in file.rest)
        file = replace(file, path=f"{place}/{CONFIG}", rest=there)
    artifact = stored(f"h7{secrets.token_hex(3)}", file, "box", "debian/12")
    lab = f"h7{secrets.token_hex(3)}"
    run = partial(run_playbook, folder=tmp_path / "lab")
    one = Instance(f"{lab}-one", "box", lab, "debian/12", devices=(mounted(artifact),))
    with ExitStack() as undo:
        undo.callback(provider.volumes.delete, artifact.volume)
        ensure_artifacts([artifact], {"box": provider}, lab, run_playbook=run, emit=lambda _: None, cache=tmp_path)
        undo.callback(provider.delete, one)
        provider.create(one)
        provider.start(one)
        provider.wait_until_ready(one)
        seen = provider.execute(one.name, ["sh", "-c", f"cd {artifact.path} && cat MANIFEST.sha256 && ls -A"])
        lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}" for name in taken(files)]
        names = ["MANIFEST.sha256", "chat_template.jinja", CONFIG, "model.safetensors"]
        assert seen.stdout.decode().splitlines() == [*lines, *names]
        assert given_path(artifact.name.removeprefix("model-"), file) == artifact.mounted_at
        for part in ("main", "verify"):
            run(str(PLAY), inventory_of(artifact, one, provider, part)).raise_for_failure(part)


def split_artifact(place: str, names: list[str], digests: list[str]) -> Artifact:
    """A model of these files, all in one place."""
    parts = [
        {"source": f"{place}/{name}", "filename": name, "sha256": digest}
        for name, digest in zip(names, digests, strict=False)
    ]
    variables = {f"model_store_{key}": value for key, value in parts[0].items()}
    more: dict[str, Any] = {"model_store_path": "/srv/models/m", "model_store_rest": parts[1:]}
    name, path = f"model-h7{secrets.token_hex(3)}", "/srv/models/m"
    variables |= more
    return Artifact(
        name, "box", digests[0], "model_store", path, "debian/12", variables, cacheable=False, mounted_at=path
    )


def whole(content: bytes, _seen: Seen) -> Page:
    return 200, {}, content


def mounted(artifact: Artifact) -> Device:
    return Device("model", "volume", {"volume": artifact.volume, "path": artifact.path, "readonly": "true"})


def inventory_of(artifact: Artifact, one: Instance, provider: IncusProvider, part: str) -> str:
    """The role's variables for the container that mounts the model, and which part of the role is to be run."""
    text = render_builders(
        [artifact], {artifact.builder: provider.connection_variables(one.name)}, inventory_templates()
    )
    page = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  # plain strings only
    variables = page["all"]["children"]["builders"]["hosts"][artifact.builder]
    return yaml.safe_dump({"all": {"hosts": {one.name: variables | {"part": part}}}})
