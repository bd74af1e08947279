"""Parameters are checked against PVE's own schema, in PVE's own words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.case_files import read_cases
from tests.doubles.proxmox import Double, formats, schema
from tests.doubles.proxmox.call import handlers
from tests.doubles.proxmox.client import root, with_token

CASES = read_cases("doubles/proxmox/parameters")

TEMPLATE = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst"


@pytest.mark.parametrize(("name", "value", "text"), CASES["what a parameter is refused with"])
def test_what_a_parameter_is_refused_with(pve: Double, name: str, value: str, text: str) -> None:
    """Facts: 400, ``errors`` by parameter, with the texts of the type, limit and format checks."""
    reply = root(pve).ask("POST", "/nodes/pve1/lxc", **{"vmid": 105, "ostemplate": TEMPLATE, name: value})
    assert reply.line == "400 Parameter verification failed."
    assert reply.json["message"] == "Parameter verification failed.\n"
    if text:
        assert reply.json["errors"][name].startswith(text)
    else:
        assert reply.json["errors"] == {"restore": "missing property required by 'unique'"}
    assert not pve.world.guests


def test_a_malformed_node_is_a_matter_of_permission_first(pve: Double) -> None:
    """Facts: malformed node name: ``403 Permission check failed (, Sys.Audit)``."""
    assert with_token(pve).ask("GET", "/nodes/a%20b/status").line == ("403 Permission check failed (, Sys.Audit)")


def test_a_parameter_that_contradicts_the_path(pve: Double) -> None:
    errors = root(pve).ask("GET", "/nodes/pve1/lxc/105/config", vmid=106).json["errors"]
    assert errors == {"vmid": "duplicate parameter (already defined in URI) with conflicting values!"}


def options() -> list[tuple[str, dict[str, Any]]]:
    """Every option of every method that the double answers, and the parts of property strings."""
    found = []
    for key in handlers():
        for name, option in schema.methods()[key].page["parameters"].items():
            form = option.get("format")
            found += [(f"{key} {name}", option)]
            found += [(f"{key} {name}.{part}", one) for part, one in form.items()] if isinstance(form, dict) else []
    return found


def test_the_double_knows_every_format_and_pattern_that_it_meets() -> None:
    for name, option in options():
        form = option.get("format", "string")
        assert isinstance(form, dict) or form.removesuffix("-list") in formats.FORMATS, name
        re.compile(option.get("pattern", "").replace("(?^", "(?"))


def test_the_double_answers_only_what_pve_has() -> None:
    assert set(handlers()) <= set(schema.methods())


def test_the_schema_bears_no_prose() -> None:
    assert not re.findall(r'"(description|typetext|verbose_description|format_description)":"', schema.FILE.read_text())


PLACES = {"{node}": "pve1", "{vmid}": "105", "{storage}": "local", "{snapname}": "s1", "{poolid}": "p1"}
ASKED = {"feature": {"feature": "snapshot"}, "resources": {"type": "vm"}}
# what PVE shows beyond its own schema, as its source says
BEYOND = {
    "GET /nodes/{node}/lxc/{vmid}/snapshot": {"digest", "running"},
    "GET /nodes": {"id", "type", "disk", "maxdisk"},
    "GET /nodes/{node}/network": {"bridge_stp", "bridge_fd"},
    "GET /nodes/{node}/status": {"uptime", "wait", "idle", "kversion", "swap", "ksm"},
    "GET /nodes/{node}/lxc": {"pid", "type", "swap"},
    "GET /nodes/{node}/lxc/{vmid}/status/current": {"pid", "type", "swap"},
    "GET /nodes/{node}/lxc/{vmid}/config": {"parent"},
    "GET /nodes/{node}/storage/{storage}/content": {"content"},
}


def test_answers_have_no_members_that_pve_does_not_name(pve: Double) -> None:
    """Nothing may be in the double that real PVE does not do: each answer's members are in the schema."""
    pve.world.add_guest(105, "pve1", net0="name=eth0,bridge=vmbr0,ip=dhcp", tags="x").remember("s1", "")
    pve.world.containers.start(105, {})
    assert root(pve).ask("POST", "/pools", poolid="p1").status == 200
    for key in sorted(handlers()):
        verb, path = key.split(" ")
        for place, value in PLACES.items():
            path = path.replace(place, value)
        if verb != "GET" or "{" in path:
            continue
        reply = root(pve).ask(verb, path, **ASKED.get(path.rpartition("/")[2], {}))
        assert reply.status == 200, (key, reply.line)
        returns = schema.methods()[key].page["returns"]
        data = reply.json["data"]
        kind = returns.get("items", returns) if isinstance(data, list) else returns
        allowed = {re.sub(r"\[n\]", "0", name) for name in kind.get("properties", ())} | BEYOND.get(key, set())
        for entry in data if isinstance(data, list) else [data]:
            if kind.get("properties") and isinstance(entry, dict):
                assert set(entry) <= allowed, key
