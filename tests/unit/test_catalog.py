"""The catalog: the roles' pages as values, read or compiled; a wrong one is an error that names its role."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner import catalog as catalog_module
from provisioner.catalog import (
    STAGES,
    ArtifactType,
    Defaults,
    Limit,
    Reference,
    SecretForm,
    catalog_from,
    compile_catalog,
    load_catalog,
)
from provisioner.values import paths
from provisioner.values.errors import ProvisionError

PAGES = Path(__file__).parent / "fixtures" / "catalog"


def test_services_come_in_the_order_of_their_work() -> None:
    assert list(load_catalog(PAGES).services) == ["llama_cpp", "litellm", "desktop"]


def test_a_service_is_what_its_pages_say() -> None:
    service = load_catalog(PAGES).services["llama_cpp"]
    assert (service.title, service.stage, service.unit) == (
        "An engine, as the tests want it",
        "engine",
        "llama-server.service",
    )
    assert (service.port, service.health, service.protocol) == (8080, "/health", "openai")
    assert service.defaults == Defaults("debian/12", 2, 2 * 2**30, 10 * 2**30, nesting=False)
    assert service.references == {"model": Reference("model", ("gguf",), "alias", None)}
    assert service.internal == {"listen", "alias"}
    assert service.secrets == {"api_key": SecretForm()}
    assert service.key_option == "api_key"
    assert service.stampable
    assert service.unstampable_reason == ""


def test_what_a_page_leaves_out_has_a_default() -> None:
    services = load_catalog(PAGES).services
    assert services["litellm"].defaults == Defaults(memory=3 * 2**29)
    assert services["litellm"].internal == {"listen", "routes"}, "what aliases are joined to is filled in, too"
    assert services["litellm"].artifact is not None
    assert services["litellm"].artifact.options == ()
    assert (services["litellm"].stampable, services["litellm"].unstampable_reason) == (
        False,
        "its database changes by itself",
    )
    assert (services["desktop"].artifact, services["desktop"].protocol) == (None, None)


def test_options_lose_their_prefix_and_keep_everything_else() -> None:
    options = load_catalog(PAGES).services["llama_cpp"].options
    assert list(options)[:3] == ["model", "alias", "port"]
    assert (options["port"].type, options["port"].default, options["port"].required) == ("int", 8080, False)
    assert (options["model"].required, options["api_key"].secret) == (True, True)
    assert options["flash_attention"].choices == ("auto", "on", "off")
    assert options["kv_cache"].options["k"].choices == ("f16", "q8_0", "q4_0")
    assert options["extra_arguments"].elements == "str"
    assert options["port"].limit == Limit(min=1, max=65535)
    assert options["extra_arguments"].limit == Limit(pattern="-.+", says="begin with a dash")
    assert options["context"].limit is None


def test_a_role_without_a_stage_is_no_service() -> None:
    catalog = load_catalog(PAGES)
    assert "model_store" not in catalog.services
    artifact = catalog.artifact_roles["model_store"]
    assert artifact == ArtifactType("model", "/srv/models", ("sha256", "filename"), artifact.source_digest)


def test_compiled_pages_give_the_same_catalog() -> None:
    assert catalog_from(json.loads(json.dumps(compile_catalog(PAGES)))) == load_catalog(PAGES)


def test_a_wheel_reads_its_compiled_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / catalog_module.COMPILED).write_text(json.dumps(compile_catalog(PAGES)))
    monkeypatch.setattr(paths, "PACKAGE", tmp_path)
    assert load_catalog(tmp_path / "share" / "roles") == load_catalog(PAGES)


@pytest.fixture
def role(tmp_path: Path) -> Path:
    shutil.copytree(PAGES / "llama_cpp", tmp_path / "llama_cpp")
    return tmp_path / "llama_cpp"


def digest(role: Path) -> str:
    return str(compile_catalog(role.parent)["roles"]["llama_cpp"]["source_digest"])


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        *((f"tasks/{name}.yml", True) for name in ("build", "build_cuda")),
        *((name, True) for name in ("files/a/lock.txt", "templates/x.j2", "vars/main.yml")),
        *((name, False) for name in ("tasks/main.yml", "README.md", "files/__pycache__/x.pyc")),
    ],
)
def test_an_artifact_depends_on_what_builds_it_and_on_nothing_else(role: Path, name: str, counts: bool) -> None:
    before = digest(role)
    (role / name).parent.mkdir(parents=True, exist_ok=True)
    (role / name).write_text("other\n")
    assert (digest(role) != before) is counts


def test_where_a_build_writes_how_far_it_is_makes_no_other_artifact(role: Path) -> None:
    log = "/var/log/build.log"
    before = catalog_from(compile_catalog(role.parent)).services["llama_cpp"].artifact
    assert before is not None
    assert before.log == ""
    rewrite(role, "service", lambda page: page["artifact"].update(log=log))
    after = catalog_from(compile_catalog(role.parent)).services["llama_cpp"].artifact
    assert after == replace(before, log=log)


def test_an_artifact_depends_on_the_names_of_its_files(role: Path) -> None:
    (role / "files").mkdir()
    (role / "files/a").write_text("x")
    before = digest(role)
    (role / "files/a").rename(role / "files/b")
    assert digest(role) != before


Page = dict[str, Any]


def rewrite(role: Path, page: str, change: Callable[[Page], object]) -> None:
    file = role / "meta" / f"{page}.yml"
    content = yaml.safe_load(file.read_text())
    change(content if page == "service" else content["argument_specs"]["main"]["options"])
    file.write_text(yaml.safe_dump(content))


@pytest.mark.parametrize(
    ("page", "change", "told"),
    [
        ("service", lambda page: page.pop("unit"), "'unit'"),
        (
            "service",
            lambda page: page.update(stage="motor"),
            "stage 'motor' is none of driver, engine, team, gateway, app",
        ),
        ("service", lambda page: page["references"]["model"].update(kind="modell"), "unknown kind 'modell'"),
        ("service", lambda page: page["references"]["model"].update(kind="file"), "says what it holds"),
        ("service", lambda page: page["references"]["model"].update(holds="python"), "says what it holds"),
        ("service", lambda page: page["references"].update(modle={"kind": "model"}), "'modle', which is no option"),
        ("service", lambda page: page["references"]["model"].update(instead_of="modle"), "'modle', which is no option"),
        ("service", lambda page: page["internal"].append("lisen"), "'lisen', which is no option"),
        ("service", lambda page: page.update(after_change={"modle": "do it again"}), "'modle', which is no option"),
        ("service", lambda page: page.update(key_option="key"), "'key', which is no option"),
        ("service", lambda page: page["artifact"]["options"].append("sauce"), "'sauce', which is no option"),
        ("service", lambda page: page["artifact"].pop("path"), "'path'"),
        ("service", lambda page: page["artifact"].update(log="build.log"), "log 'build.log' is no absolute path"),
        ("service", lambda page: page["artifact"].update(log=["/build.log"]), "is no absolute path"),
        ("service", lambda page: page["defaults"].update(memory="2 GB"), 'write "2GiB"'),
        ("service", lambda page: page["defaults"].update(cpus=2), "cpus"),
        ("service", lambda page: page["limits"].update(prot={"min": 1}), "'prot' is no option"),
        ("service", lambda page: page["limits"].update(port={"least": 1}), "least"),
        ("service", lambda page: page["limits"].update(port={}), "port needs min or max"),
        ("service", lambda page: page["limits"].update(port={"min": "1"}), "numbers of its type"),
        ("service", lambda page: page["limits"].update(port={"min": True}), "numbers of its type"),
        ("service", lambda page: page["limits"].update(port={"min": 0.5}), "numbers of its type"),
        ("service", lambda page: page["limits"].update(port={"min": 9000, "max": 80}), "min of port is larger"),
        ("service", lambda page: page["limits"].update(port={"min": 1, "pattern": ".", "says": "x"}), "no pattern"),
        ("service", lambda page: page["limits"].update(port={"min": 9000}), "default of port: 8080 is too small"),
        ("service", lambda page: page["limits"].update(source={"min": 1}), "source is a text"),
        ("service", lambda page: page["limits"].update(source={"pattern": "a+"}), "needs a pattern, and in says"),
        ("service", lambda page: page["limits"].update(source={"pattern": "(", "says": "be"}), "cannot be read"),
        ("service", lambda page: page["limits"].update(metrics={"min": 1}), "metrics is neither a number, a text"),
        ("service", lambda page: page["limits"].update(model={"pattern": "a", "says": "be a"}), "model is a reference"),
        ("service", lambda page: page["limits"].update(api_key={"pattern": "a", "says": "be a"}), "a secret"),
        ("service", lambda page: page["limits"].update(flash_attention={"pattern": "a", "says": "be a"}), "choices"),
        ("argument_specs", lambda page: page.update(port={}), "option port does not begin with llama_cpp_"),
        ("argument_specs", lambda page: page["llama_cpp_port"].update(type="integer"), "type 'integer'"),
        (
            "argument_specs",
            lambda page: page["llama_cpp_flash_attention"].update(choices=["auto", True]),
            "option flash_attention has a choice that is no str",
        ),
    ],
)
def test_a_wrong_page_names_its_role(role: Path, page: str, change: Callable[[Page], object], told: str) -> None:
    rewrite(role, page, change)
    with pytest.raises(ProvisionError, match="Unable to read the pages of role llama_cpp") as caught:
        load_catalog(role.parent)
    assert told in caught.value.details


def test_a_page_that_is_no_yaml_names_its_role(role: Path) -> None:
    (role / "meta/argument_specs.yml").write_text("a: [\n")
    with pytest.raises(ProvisionError, match="role llama_cpp"):
        load_catalog(role.parent)


@pytest.mark.parametrize("page", ["meta/argument_specs.yml", "tasks/build.yml"])
def test_a_missing_page_names_its_role(role: Path, page: str) -> None:
    (role / page).unlink()
    with pytest.raises(ProvisionError, match="role llama_cpp"):
        load_catalog(role.parent)


def test_what_comes_by_itself_is_a_service_that_no_file_names(role: Path) -> None:
    rewrite(role, "service", lambda page: page.update(stage="driver", unit=None, health=None, implied=True))
    catalog = load_catalog(role.parent)
    assert list(catalog.services) == ["llama_cpp", *catalog.offered]
    service = catalog.services["llama_cpp"]
    assert (service.unit, service.health, service.implied) == (None, None, True)
    assert catalog_from(json.loads(json.dumps(compile_catalog(role.parent)))) == catalog
    assert not any(one.implied for one in catalog.offered.values())


def test_our_own_roles_are_readable_and_compile() -> None:
    catalog = load_catalog()
    assert {"llama_cpp", "litellm"} <= catalog.services.keys()
    assert catalog_from(json.loads(json.dumps(compile_catalog()))) == catalog
    stages = [STAGES.index(service.stage) for service in catalog.services.values()]
    assert stages == sorted(stages)
