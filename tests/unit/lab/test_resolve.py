"""Cross-rules and the desired fleet over data cases in ``tests/cases/resolve``, with the real roles' pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import ModelFile, desired_fleet, problems, resolve
from provisioner.lab.artifacts import distribution_of
from provisioner.labfile.spec import Spec
from provisioner.values.state import Artifact, Fleet, HostState, Secret, port_behind
from tests.case_files import read_case
from tests.lab_files import spec_of

CASES = Path(__file__).parents[2] / "cases" / "resolve"
PROBLEMS = sorted((CASES / "problems").glob("*.yml"))
FLEETS = sorted((CASES / "fleets").glob("*.yml"))


def _spec(written: Mapping[str, Any]) -> Spec:
    return spec_of({"name": "lab", **written})


def _fleet(spec: Spec, *hosts: HostState) -> Fleet:
    models = {name: ModelFile(f"/models/{name}.gguf", f"{name}.gguf", "a" * 64) for name in spec.models}
    return desired_fleet(resolve(spec, load_catalog()), models, {host.name: host for host in hosts})


@pytest.mark.parametrize("file", PROBLEMS, ids=lambda file: file.stem)
def test_problems(file: Path) -> None:
    case = read_case(file)
    found = problems(resolve(_spec(case["file"]), load_catalog()))
    assert [".".join(map(str, one.path)) for one in found] == [one["path"] for one in case["problems"]]
    for one, expected in zip(found, case["problems"], strict=True):
        assert expected["says"] in f"{one.message} {one.hint}"


@pytest.mark.parametrize("file", FLEETS, ids=lambda file: file.stem)
def test_fleet(file: Path) -> None:
    case = read_case(file)
    spec = _spec(case["file"])
    assert problems(resolve(spec, load_catalog())) == []
    fleet = asdict(_fleet(spec))
    for address, expected in case["expected"].items():
        container, _, role = address.partition("/")
        one = next(one for one in fleet["instances"] if one["name"] == container)
        seen = next(each for each in one["services"] if each["role"] == role) if role else one
        seen = {**seen, **(seen.get("variables") or {}), "needs": list(seen.get("needs", []))}
        assert seen | expected == seen


def _digests(written: Mapping[str, Any], *hosts: HostState) -> dict[str, str]:
    return {one.name: one.digest for one in _fleet(_spec(written), *hosts).artifacts}


ENGINE: dict[str, Any] = {
    "models": {"m": {"source": "builtin:tiny"}},
    "containers": {"a": {"services": {"llama_cpp": {"model": "m"}}}},
}


def test_an_artifact_is_another_one_when_what_it_is_made_of_changes() -> None:
    first = _digests(ENGINE)
    other_source = {"llama_cpp": {"model": "m", "source_sha256": "b" * 64}}
    changed = [
        _digests({**ENGINE, "containers": {"a": {"services": other_source}}}),
        _digests({**ENGINE, "containers": {"a": {"image": "debian/13", **ENGINE["containers"]["a"]}}}),
        _digests(ENGINE, HostState("local", "aarch64")),
    ]
    assert len({one["llama_cpp"] for one in [first, *changed]}) == 4
    assert {one["model-m"] for one in [first, *changed]} == {first["model-m"]}


def test_a_build_for_cuda_is_another_one_for_each_toolkit_and_card() -> None:
    options: tuple[dict[str, Any], ...] = (
        {},
        {"backend": "vulkan"},
        {"backend": "cuda", "cuda_architectures": ["86"]},
        {"backend": "cuda", "cuda_architectures": ["86", "89"]},
        {"backend": "cuda", "cuda_architectures": ["86"], "cuda_version": "13.0"},
    )
    made = [
        _digests({**ENGINE, "containers": {"a": {"services": {"llama_cpp": {"model": "m", **one}}}}}) for one in options
    ]
    assert len({one["llama_cpp"] for one in made}) == len(options)


def test_an_artifact_stays_when_only_the_service_changes() -> None:
    other_port = {"llama_cpp": {"model": "m", "port": 9999}}
    assert _digests({**ENGINE, "containers": {"a": {"services": other_port}}}) == _digests(ENGINE)


def test_an_artifact_is_the_same_on_every_variant_of_a_distribution() -> None:
    variant = {"image": "debian/12-bare", **ENGINE["containers"]["a"]}
    assert _digests({**ENGINE, "containers": {"a": variant}}) == _digests(ENGINE)
    assert distribution_of("debian/13/cloud") == "debian/13"
    assert distribution_of("mine") == "mine"


def test_an_artifact_is_the_same_wherever_its_build_tells_how_far_it_is() -> None:
    catalog, spec = load_catalog(), _spec(ENGINE)
    page = catalog.services["llama_cpp"]
    assert page.artifact is not None
    made: list[Artifact] = []
    for log in ("", "/var/log/build.log"):
        told = replace(page, artifact=replace(page.artifact, log=log))
        services = {**catalog.services, "llama_cpp": told}
        models = {"m": ModelFile("/models/m.gguf", "m.gguf", "a" * 64)}
        made += desired_fleet(resolve(spec, replace(catalog, services=services)), models).artifacts[:1]
    assert [one.log for one in made] == ["", "/var/log/build.log"]
    assert made[0] == made[1]
    assert made[0].volume == made[1].volume


def test_two_containers_share_an_artifact() -> None:
    fleet = _fleet(_spec({**ENGINE, "containers": dict.fromkeys(("a", "b"), ENGINE["containers"]["a"])}))
    assert [one.name for one in fleet.artifacts] == ["llama_cpp", "model-m"]
    assert fleet.instances[0].devices == fleet.instances[1].devices


def test_lan_publishes_the_port_on_the_host() -> None:
    service = {"llama_cpp": {"model": "m", "api_key": Secret("k", "v"), "expose": "lan"}}
    fleet = _fleet(_spec({**ENGINE, "containers": {"a": {"services": service}}}))
    published = [one for one in fleet.instances[0].devices if one.kind == "publish"]
    assert [one.properties for one in published] == [
        {"listen": "0.0.0.0:8080", "connect": "127.0.0.2:8080", "proxy_protocol": "true"}
    ]
    assert [one.kind for one in _fleet(_spec(ENGINE)).instances[0].devices] == ["volume", "volume"]


def test_what_stands_before_a_service_is_managed_with_it_and_starts_it_not_anew() -> None:
    (one,) = _fleet(_spec(ENGINE)).instances
    managed = one.services[0].managed
    helpers = ("switch-llama-server.service",)
    assert (managed.units, managed.helpers) == (("llama-server.service",), helpers)
    assert managed.reloaded[:2] == ("/etc/switch-llama-server.cfg", "/etc/systemd/system/switch-llama-server.service")
    assert not set(managed.reloaded) & set(managed.paths)
    assert not any("keeper.service" in path for path in managed.reloaded), "it never ends"
    assert (one.services[0].port, one.services[0].own_port) == (8080, 18080)


def test_what_ends_an_idle_service_is_managed_only_where_it_ends() -> None:
    services = {"llama_cpp": {"model": "m", "idle": "20s"}}
    (one,) = _fleet(_spec({**ENGINE, "containers": {"a": {"services": services}}})).instances
    managed = one.services[0].managed
    assert managed.helpers == ("switch-llama-server.service", "switch-llama-server-keeper.service")
    assert "/etc/systemd/system/switch-llama-server-keeper.service" in managed.reloaded
    gateway = {"litellm": {"master_key": Secret("k", "v"), "aliases": {"fast": ["m"]}}}
    (one,) = _fleet(_spec({**ENGINE, "containers": {"a": {"services": services | gateway}}})).instances
    of_gateway = next(service.managed for service in one.services if service.role == "litellm")
    assert of_gateway.helpers == ("switch-litellm.service",), "a gateway has no such option"


@pytest.mark.parametrize(
    ("port", "behind"), [(1, 10001), (8080, 18080), (55535, 65535), (55536, 45536), (65535, 55535)]
)
def test_a_port_behind_another_is_one(port: int, behind: int) -> None:
    assert port_behind(port) == behind


@pytest.mark.parametrize(("backend", "packages"), [("cpu", ()), ("vulkan", ("libvulkan1", "mesa-vulkan-drivers"))])
def test_what_only_one_backend_needs_is_managed_with_it_alone(backend: str, packages: tuple[str, ...]) -> None:
    services = {"llama_cpp": {"model": "m", "backend": backend}}
    (one,) = _fleet(_spec({**ENGINE, "containers": {"a": {"services": services}}})).instances
    assert one.services[0].managed.packages == (*packages, "haproxy")


def test_the_list_of_several_models_is_managed_and_so_is_each_of_their_files() -> None:
    file = read_case(CASES / "fleets/several-models-on-one-server.yml")["file"]
    fleet = _fleet(_spec(file))
    paths = {one.name: one.services[0].managed.paths for one in fleet.instances}
    program, large, small, spare = (one.mounted_at for one in fleet.artifacts[1:5])
    both = {f"{program}/MANIFEST.sha256", "/etc/llama-server.api-key", "/var/lib/llama-server"}
    both |= {"/etc/systemd/system/llama-server.service", "/usr/local/lib/llama-server"}
    both |= {"/usr/local/lib/llama-server/drain.py"}
    listed = {f"{large}/large.gguf", f"{small}/small.gguf", "/etc/llama-server.models.ini"}
    assert set(paths["a"]) == both | listed
    assert set(paths["b"]) == both | {f"{spare}/spare.gguf"}


def test_each_of_several_models_is_mounted_and_made_once() -> None:
    file = read_case(CASES / "fleets/several-models-on-one-server.yml")["file"]
    fleet = _fleet(_spec(file))
    mounts = {one.name: {each.name: each.properties.get("path") for each in one.devices} for one in fleet.instances}
    assert mounts["a"] == {
        "llama-cpp-7bee91fff966892d": "/opt/llama_cpp/7bee91fff966892d",
        "model-large-131f2e229eafd3a5": "/srv/models/131f2e229eafd3a5/large",
        "model-small-9be51007ce528965": "/srv/models/9be51007ce528965/small",
    }
    assert len([one for one in fleet.artifacts if one.role == "model_store"]) == 3


def test_devices_of_volumes_have_names_that_incus_takes_and_never_one_twice() -> None:
    names = [letter * 58 + end for letter in "ab" for end in ("", "cd", "ef.gh")]
    models = {name: {"source": "builtin:tiny"} for name in names}
    services = {"llama_cpp": {"models": names}}
    (one,) = _fleet(_spec({"models": models, "containers": {"a": {"services": services}}})).instances
    found = [device.name for device in one.devices]
    assert len(set(found)) == len(names) + 1
    assert max(map(len, found)) == 63
