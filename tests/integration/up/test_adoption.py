"""A container that somebody made by hand with Incus' own client: printed, pasted, adopted, configured, then free."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus]

NAME, BOX = "adopt1", "adopt1-hand"
HEAD = f"""
name: {NAME}
hosts:
  box: {{ incus: local }}
models:
  adopted: {{ source: "builtin:tiny", context: 512 }}
containers:
"""
SERVICES = "    services: { llama_cpp: { model: adopted, api_key: !secret engine_key } }\n"
NOBODY = HEAD + "  adopt1-other: {}\n"


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of nothing, beside a running container that somebody made."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.incus("delete", "--force", BOX, check=False)
    lab.incus("launch", "debian/12", BOX, "-c", "limits.cpu=1", "-c", "limits.memory=1GB", "-c", "user.mine=yes")
    lab.incus("exec", BOX, "--", "sh", "-c", "echo precious > /root/kept")
    lab.write(NOBODY)
    yield lab
    lab.write(NOBODY)
    ended = lab.provision("destroy", "--prune", "--yes", "--lab", NAME)
    lab.incus("delete", "--force", BOX, check=False)
    assert ended.code == 0, ended.out + ended.err


def config(lab: Lab) -> dict[str, str]:
    (found,) = yaml.safe_load(lab.incus("list", "--format", "yaml", f"^{BOX}$"))
    return {key: value for key, value in found["config"].items() if not key.startswith(("volatile.", "image."))}


def planned(lab: Lab) -> list[tuple[str, str]]:
    ran = lab.succeeded("plan", "--json")
    return [(line["target"], line["action"]) for line in ran.lines if line["type"] == "planned_change"]


def test_the_printed_block_only_adopts(lab: Lab) -> None:
    printed = lab.succeeded("import", f"box/{BOX}")
    written = yaml.safe_load(printed.out)[BOX]
    assert written == {"host": "box", "image": "debian/12", "cpu": 1, "memory": "976562.5KiB", "adopt": True}
    lab.write(HEAD + printed.out)
    assert planned(lab) == [(BOX, "adopt")]
    assert "user.provisioner.lab" not in config(lab), "nothing was touched"


def test_without_the_word_it_is_a_stranger_s(lab: Lab) -> None:
    lab.write(f"{HEAD}  {BOX}: {{}}\n")
    refused = lab.provision("up", "--yes")
    assert refused.code == 4
    assert "the name is taken" in refused.err


def test_one_of_another_lab_is_never_adopted(lab: Lab) -> None:
    lab.incus("config", "set", BOX, "user.provisioner.lab=adopt2")
    try:
        lab.write(f"{HEAD}  {BOX}: {{ adopt: true }}\n")
        refused = lab.provision("up", "--yes")
        assert refused.code == 4
        assert "the name is taken" in refused.err
        assert lab.provision("import", f"box/{BOX}").code == 4
        assert config(lab)["user.provisioner.lab"] == "adopt2"
    finally:
        lab.incus("config", "unset", BOX, "user.provisioner.lab")


def test_an_ephemeral_one_is_refused_before_anything_is_touched(lab: Lab) -> None:
    name = f"{BOX}-gone"
    lab.incus("init", "debian/12", name, "--ephemeral")
    try:
        lab.write(f"{HEAD}  {name}: {{ adopt: true }}\n")
        refused = lab.provision("up", "--yes")
        assert refused.code == 4, refused.out
        assert "Incus deletes it when it stops" in refused.err
        assert "user.provisioner.lab" not in lab.incus("config", "show", name)
    finally:
        lab.incus("delete", "--force", name)


def test_it_is_marked_kept_and_configured_and_the_second_run_is_free(lab: Lab) -> None:
    made = lab.incus("list", "--format", "csv", "--columns", "c", f"^{BOX}$")
    lab.write(f"{HEAD}  {BOX}:\n    adopt: true\n    cpu: 2\n{SERVICES}")
    changes = planned(lab)
    assert (BOX, "adopt") in changes
    assert (BOX, "update") in changes
    ran = lab.succeeded("up", "--yes")
    now = config(lab)
    assert (now["user.provisioner.lab"], now["limits.cpu"], now["user.mine"]) == (NAME, "2", "yes")
    assert lab.incus("exec", BOX, "--", "cat", "/root/kept") == "precious\n"
    assert lab.incus("list", "--format", "csv", "--columns", "c", f"^{BOX}$") == made, "it is the same container"
    (kept,) = yaml.safe_load(lab.incus("list", "--format", "yaml", f"^{BOX}$"))[0]["snapshots"]
    assert (kept["name"], kept["config"]["limits.cpu"]) == ("provision-1-unproved", "1")
    assert kept["config"]["user.provisioner.lab"] == NAME, "so that one can go back to it"
    assert f"{BOX}/llama_cpp: works" in ran.out
    again = lab.succeeded("up", "--json")
    assert {line["type"] for line in again.lines} - {"endpoint"} == {"version", "check", "summary"}


def test_where_there_is_none_it_is_created(lab: Lab) -> None:
    lab.write(f"{HEAD}  adopt1-new: {{ adopt: true, cpu: 1 }}\n")
    ran = lab.succeeded("up", "--yes", "--json")
    assert ("adopt1-new", "create") in [
        (line["target"], line["action"]) for line in ran.lines if line["type"] == "planned_change"
    ]
