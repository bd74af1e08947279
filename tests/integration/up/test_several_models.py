"""One engine with two models behind a gateway, on a real Incus: each is loaded when its name is asked for.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.models import tiny as tiny_model
from tests.integration.up.drift_lab import DriftLab
from tests.integration.up.quickstart_lab import CANARIES, ENGINE_KEY, MASTER_KEY
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME = "several"
ENGINE, GATEWAY = f"{NAME}-engine", f"{NAME}-gateway"
LIST = "/etc/llama-server.models.ini"
SMALL = f"grep -o '/[^ ]*/small.gguf' {LIST}"
"""Where the smaller model lies."""
FILE = lab_text("several_models")


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """The lab, up: two files that nobody else serves, one with a layer more."""
    folder = tmp_path_factory.mktemp(NAME)
    (folder / "small.gguf").write_bytes(tiny_model.tiny_model())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tiny_model, "LAYERS", tiny_model.LAYERS + 1)
        (folder / "large.gguf").write_bytes(tiny_model.tiny_model())
    lab = DriftLab(folder, incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with lab.brought_up():
        yield lab


def status_of(lab: DriftLab, path: str, key: str | None) -> int:
    """What the engine answers to a GET."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"http://{lab.address(ENGINE)}:8080{path}", headers=headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def commands(lab: DriftLab) -> list[list[str]]:
    """The arguments of every process of the server: the one of the unit first, then one for each model in memory."""
    script = """
    for pid in $(systemctl show --property MainPID --value llama-server.service) $(pgrep -P "$(
      systemctl show --property MainPID --value llama-server.service)"); do
      tr '\\0' '\\n' < /proc/$pid/cmdline; echo; done
    """
    return [one.split("\n") for one in lab.sh(ENGINE, script).strip().split("\n\n")]


@pytest.mark.parametrize("model", ["small", "large"])
def test_each_model_answers_under_its_name_though_one_fits_at_a_time(lab: DriftLab, model: str) -> None:
    answer = lab.ask(ENGINE, 8080, model, ENGINE_KEY)
    assert answer.status == 200, answer.body
    assert answer.body["model"] == model
    assert answer.text
    router, *children = commands(lab)
    assert router[router.index("--models-max") + 1] == "1"
    (child,) = children
    assert re.fullmatch(f"/srv/models/[0-9a-f]{{16}}/{model}/{model}.gguf", child[child.index("--model") + 1])
    assert child[child.index("--ctx-size") + 1] == {"small": "512", "large": "1024"}[model]
    assert child[child.index("--host") + 1] == "127.0.0.1"
    assert not [one for one in (router, child) for word in one if any(canary in word for canary in CANARIES)]


@pytest.mark.parametrize("alias", ["fast", "slow"])
def test_the_gateways_names_reach_them(lab: DriftLab, alias: str) -> None:
    answer = lab.ask(GATEWAY, 4000, alias, MASTER_KEY)
    assert answer.status == 200, answer.body
    assert answer.text


def test_another_name_is_refused(lab: DriftLab) -> None:
    refused = lab.ask(ENGINE, 8080, "tiny", ENGINE_KEY)
    assert refused.status == 400
    assert "model 'tiny' not found" in refused.body["error"]


@pytest.mark.parametrize("key", [None, "wrong"])
def test_nothing_but_the_health_page_is_told_without_the_key(lab: DriftLab, key: str | None) -> None:
    assert lab.ask(ENGINE, 8080, "small", key).status == 401
    for path in ("/v1/models", "/metrics?model=small", "/props?model=small"):
        assert status_of(lab, path, key) == 401, path
    assert status_of(lab, "/health", key) == 200


def test_metrics_are_those_of_one_model(lab: DriftLab) -> None:
    assert status_of(lab, "/metrics", ENGINE_KEY) == 400
    assert status_of(lab, "/metrics?model=small", ENGINE_KEY) == 200


def test_clients_are_told_what_each_can_hold(lab: DriftLab) -> None:
    shown = lab.provision("show", "--client", "opencode")
    (provider,) = json.loads(shown.out)["provider"].values()
    assert {name: one["limit"]["context"] for name, one in provider["models"].items()} == {"fast": 512, "slow": 512}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("/large/d", r"small = /srv/models/[0-9a-f]{16}/small/small.gguf \(HTTP 200\)"),
        (f"s#/[^ ]*/large.gguf#'\"$({SMALL})\"'#", "large = /[^ ]*/small/small.gguf"),
    ],
    ids=["a model less", "another file under a name"],
)
def test_the_proof_fails_where_the_server_has_another_list(lab: DriftLab, change: str, told: str) -> None:
    lab.sh(ENGINE, f"cp -a {LIST} {LIST}.kept; sed -i '{change}' {LIST}; systemctl restart llama-server")
    ran = lab.provision("verify")
    lab.sh(ENGINE, f"mv {LIST}.kept {LIST}; systemctl restart llama-server")
    assert ran.code != 0
    said = re.sub(r"\s+", " ", ran.out + ran.err)
    assert "Unable to prove that exactly these models can be had" in said
    assert re.search(told, said)


def test_a_hand_edited_list_is_found_and_mended(lab: DriftLab) -> None:
    before = lab.sh(ENGINE, f"cat {LIST}")
    assert lab.look() == {}
    lab.sh(ENGINE, f"sed -i 's/^ctx-size = 512$/ctx-size = 64/' {LIST}")
    (reasons,) = lab.look().values()
    assert f"{LIST}: edited" in reasons
    ran = lab.up()
    assert ran.code == 0, ran.out + ran.err
    assert lab.sh(ENGINE, f"cat {LIST}") == before
    assert lab.look() == {}


def test_one_model_in_place_of_the_list_leaves_nothing_of_it(lab: DriftLab) -> None:
    lab.write(FILE.replace("models: [small, large]", "model: small").replace("[large, small]", "[small]"))
    ran = lab.up()
    assert ran.code == 0, ran.out + ran.err
    (command,) = commands(lab)
    assert command[command.index("--alias") + 1] == "small"
    assert lab.sh(ENGINE, f"ls {LIST} 2>/dev/null || true") == ""
    assert lab.ask(ENGINE, 8080, "small", ENGINE_KEY).status == 200
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_no_key_is_in_what_ansible_said(lab: DriftLab) -> None:
    files = [file for file in Path(lab.folder).rglob("*") if file.is_file() and file.name != "secrets.env"]
    assert [file for file in files for canary in CANARIES if canary.encode() in file.read_bytes()] == []
    assert not [canary for ran in lab.runs for canary in CANARIES if canary in ran.out + ran.err]
