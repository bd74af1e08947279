"""The table of what reads from outside: a new reader is a new line in ``TARGETS``."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from urllib.error import URLError

import yaml

from provisioner.catalog import load_catalog
from provisioner.cluster.diagnosis import diagnose
from provisioner.cluster.facts import ClusterFacts
from provisioner.cluster.read_node import read_node
from provisioner.hosts.base import Looked
from provisioner.hosts.fake import FakeProvider
from provisioner.hosts.proxmox import ProxmoxProvider, marks
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.session import Login
from provisioner.lab import ModelFile, desired_fleet, problems, resolve
from provisioner.lab.opening import open_lab
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.pins import read_pins, read_stacks, write_pins, write_stacks
from provisioner.loads.layers import shape_of
from provisioner.models.gguf import read_head, read_header
from provisioner.models.header import GgufError
from provisioner.models.hub import Hub, HubError, find_file, find_folder
from provisioner.reconcile.gather import probe, reasons_to_run
from provisioner.reconcile.judge import judge
from provisioner.values.state import Execution, Fleet, Instance, Secret, Service, Status
from tests.corosync_captures import KINDS, NODES, look_answer
from tests.folder_files import folder_files, sibling_of
from tests.fuzz.harness import Target
from tests.fuzz.mutations import changed_bytes, changed_text, changed_value
from tests.gguf_bytes import model_bytes, projector_bytes

ROOT = Path(__file__).parents[2]
COMMIT = "5f" * 20
REPOSITORY = "acme/Small-GGUF"


def _plainly(text: str, of_secret: Callable[[Any], Any]) -> Any:
    """The YAML in plain values, ``of_secret`` in the place of each ``!secret`` (whose node it is given)."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!secret", lambda _loader, node: of_secret(node))
    return yaml.load(text, Loader)  # noqa: S506  # a SafeLoader


@cache
def lab_texts() -> tuple[str, ...]:
    """Files of labs: the examples', and the cases' of loader and resolve that are mappings."""
    texts = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "examples").glob("*.yml"))]
    for file in sorted((ROOT / "tests" / "cases" / "loader").glob("*.yml")):
        case = yaml.safe_load(file.read_text(encoding="utf-8"))
        texts.append(case["file"])
    return tuple(texts)


@cache
def labs() -> tuple[Any, ...]:
    """Labs in plain values: the cases of resolve, and the examples."""
    found = [_plainly(text, lambda _node: Secret("k", "sk-1")) for text in lab_texts()[:2]]
    for folder in ("problems", "fleets"):
        for file in sorted((ROOT / "tests" / "cases" / "resolve" / folder).glob("*.yml")):
            case = _plainly(file.read_text(encoding="utf-8"), lambda _node: Secret("k", "sk-1"))
            found.append({"name": "lab", **case["file"]})
    return tuple(found)


def _lab_text(chance: Random) -> bytes:
    if chance.random() < 0.5:  # every other one
        return changed_text(chance, chance.choice(lab_texts())).encode()
    data = changed_value(chance, _without_secrets(chance.choice(labs())))
    return json.dumps(data, ensure_ascii=False).encode()  # which is YAML, too


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Secret):
        return "sk-1"
    if isinstance(value, dict):
        return {key: _without_secrets(one) for key, one in value.items()}
    return [_without_secrets(one) for one in value] if isinstance(value, list) else value


def _open(content: bytes, folder: Path) -> None:
    file = folder / "homelab.yml"
    file.write_bytes(content)
    open_lab(file)


def _resolve(data: Any, _folder: Path) -> None:
    """Everything that follows from a file's values: its problems or, without any, what the lab shall be."""
    catalog = load_catalog()
    parsed = parse_spec(data if isinstance(data, dict) else {}, catalog)
    if parsed.spec is None:
        return
    lab = resolve(parsed.spec, catalog)
    if problems(lab):
        return
    models = {name: ModelFile(f"/models/{name}.gguf", f"{name}.gguf", "a" * 64) for name in parsed.spec.models}
    desired_fleet(lab, models)


def _hub_page(name: str, number: int) -> dict[str, Any]:
    lfs = {"sha256": f"{number:064x}", "size": 5_000_000_000, "pointerSize": 135}
    return {"rfilename": name, "blobId": "b" * 40, "size": 5_000_000_000, "lfs": lfs}


@cache
def _hub_pages() -> tuple[Any, ...]:
    names = (
        "README.md",
        "Small-Q4_K_M.gguf",
        "BF16/Small-BF16-00001-of-00002.gguf",
        "small.Q8_0.gguf",
        "mmproj-F16.gguf",
    )
    siblings = [_hub_page(name, number) for number, name in enumerate(names)]
    folder = [sibling_of(name, content) for name, content in folder_files().items()]
    refs = [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}]
    return (
        {"id": REPOSITORY, "sha": COMMIT, "siblings": siblings},
        {"id": REPOSITORY, "sha": COMMIT, "siblings": folder, "branches": refs, "tags": []},
    )


def _hub_answers(chance: Random) -> dict[str, bytes]:
    page = json.dumps(changed_value(chance, chance.choice(_hub_pages()))).encode()
    files = dict(folder_files())
    name = chance.choice(list(files))
    files[name] = changed_bytes(chance, files[name])
    return {"page": changed_bytes(chance, page) if chance.random() < 0.2 else page, **files}


def _hub(answers: Mapping[str, bytes], _folder: Path) -> None:
    def read(request: Any, most: int) -> bytes:
        return answers.get(request.full_url.rpartition("/")[2], answers["page"])[:most]

    with patch("provisioner.models.hub._read", read):
        for ask in (partial(find_file, quantisation="Q4_K_M"), partial(find_folder, revision="main")):
            with suppress(HubError):
                ask(Hub("https://hub.example"), REPOSITORY)


@cache
def _locks() -> tuple[Any, ...]:
    part = {"file": "q/Small-Q8_0-00002-of-00002.gguf", "sha256": "2" * 64, "size": 7}
    first = {"source": f"hf:{REPOSITORY}:Q8_0", "revision": COMMIT, "file": "q/Small-Q8_0-00001-of-00002.gguf"}
    plain = {"source": f"hf:{REPOSITORY}:Q4_K_M", "revision": COMMIT, "file": "Small-Q4_K_M.gguf"}
    wheel = {"name": "torch", "version": "2.9.0", "url": "https://wheels.example/torch.whl", "sha256": "3" * 64}
    models = {
        "several": {**first, "sha256": "1" * 64, "size": 5, "rest": [part]},
        "small": {**plain, "sha256": "1" * 64, "size": 5},
    }
    stacks = [{"stack": "exl3", "distribution": "debian/12", "wants": "a", "packages": [wheel]}]
    return ({"version": 1, "models": models, "stacks": stacks},)


def _lock_text(chance: Random) -> bytes:
    text = yaml.dump(changed_value(chance, chance.choice(_locks())), Dumper=yaml.CSafeDumper)
    return changed_text(chance, text).encode() if chance.random() < 0.5 else text.encode()


def _lock(content: bytes, folder: Path) -> None:
    file = folder / "homelab.lock"
    file.write_bytes(content)
    pins, stacks = read_pins(file), read_stacks(file)
    write_pins(file, pins)
    write_stacks(file, stacks)
    assert (read_pins(file), read_stacks(file)) == (pins, stacks)


def _gguf_bytes(chance: Random) -> bytes:
    whole = chance.choice(_models())
    if chance.random() < 0.2:  # a head that claims what follows is not there
        counts = [chance.choice((0, 1, 2**16, 2**20, 2**60)) for _ in range(2)]
        return struct.pack("<4sIQQ", b"GGUF", 3, *counts) + bytes(chance.choice((0, 100, 10_000)))
    return changed_bytes(chance, whole)


@cache
def _models() -> tuple[bytes, ...]:
    window = {"attention__sliding_window": 1024, "attention__head_count": [2, 4], "expert_count": 8}
    return model_bytes(), model_bytes(**window), projector_bytes(64)


def _gguf(content: bytes, folder: Path) -> None:
    file = folder / "a.gguf"
    file.write_bytes(content)
    os.truncate(file, len(content) + 2**40)  # behind its end it is zeros, as a sparse file is
    header = read_header(file)
    shape_of(header.values, header.tokens)
    pieces = iter([content[at : at + 64] for at in range(0, len(content), 64)])
    with suppress(EOFError):
        read_head(lambda _most: next(pieces, b""), 1 << 20)


ENGINE = Service("llama_cpp", "a", "engine", {}, port=8080, unit="llama-server.service", health="/health")
WANTED = Instance("a", "box", "lab", "debian/12", services=(ENGINE,), status=Status.RUNNING)


def _agent_answers(chance: Random) -> bytes:
    digest = "0" * 64
    stamp = {
        "inputs": {"role": digest, "variables": {"llama_cpp_port": digest}},
        "secrets": {"key": digest},
        "salt": "0123456789abcdef",
        "changed": [["paths", "/etc/llama.conf", "edited"]],
    }
    answer = {
        "stamps": {"llama_cpp": stamp},
        "unit": {ENGINE.address: chance.choice(("active", "asleep"))},
        "health": {ENGINE.address: 200},
        "verdict": {ENGINE.address: {"verdict": "GPU", "why": "its memory is on the card", "stale": ""}},
        "rest": {ENGINE.address: {"since": 1764064800, "proved": 1764061200, "start_s": 3.2}},
        "leftovers": ["litellm"],
        "damaged": [],
    }
    content = json.dumps(changed_value(chance, answer)).encode()
    return changed_bytes(chance, content) if chance.random() < 0.2 else content


def _agent(content: bytes, _folder: Path) -> None:
    class Provider(FakeProvider):
        def look(self, *_: Any, **__: Any) -> Looked:
            return Looked({"a": Execution(0, content, b"")}, frozenset())

    facts = probe([WANTED], {"box": Provider("box")})
    fleet = Fleet("lab", (WANTED,))
    judge(fleet, fleet, facts)
    reasons_to_run(WANTED, facts)


NODE = "pve1"
_LXC = f"nodes/{NODE}/lxc"


@cache
def _pve_answers() -> dict[str, Any]:
    """What a node with one container of ours, running, and one of somebody else says when it is observed."""
    mark = marks.Mark("lab", 101, "debian/12")
    entry = {"vmid": 101, "name": "a", "status": "running", "tags": marks.with_tags((), "lab"), "type": "lxc"}
    config = {
        "hostname": "a", "description": marks.mark_text("of mine", mark), "digest": "d" * 40, "cores": 2, "memory": 512,
        "rootfs": "local-lvm:vm-101-disk-0,size=8G",
        "net0": "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=dhcp",
        "features": "nesting=1", "mp0": "local-lvm:vm-101-disk-1,mp=/srv,size=4G",
        "dev0": "/dev/dri/renderD128,gid=992",
        "lxc": [["lxc.apparmor.profile", "unconfined"]], "unprivileged": 1, "arch": "amd64", "ostype": "debian",
    }  # fmt: skip
    snapshot = {"name": "before", "snaptime": 1_700_000_000, "description": marks.mark_text("", mark), "parent": ""}
    card = {"name": "eth0", "hwaddr": "bc:24:11:00:00:01", "inet": "10.0.0.5/24", "inet6": "fe80::1/64"}
    return {
        "cluster/resources": [{**entry, "node": NODE, "id": "lxc/101", "pool": "lab"}, {"vmid": 7, "node": NODE}],
        _LXC: [entry, {"vmid": "7", "name": "other", "status": "stopped"}],
        f"nodes/{NODE}/aplinfo": [{"template": "debian-12-standard_12.7-1_amd64.tar.zst"}],
        f"nodes/{NODE}/storage": [{"storage": "local", "type": "dir", "active": 1, "content": "vztmpl"}],
        f"nodes/{NODE}/storage/local/content": [{"volid": "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst"}],
        f"nodes/{NODE}/status": {"current-kernel": {"machine": "x86_64"}, "pveversion": "pve-manager/9.2"},
        f"{_LXC}/101/config": config,
        f"{_LXC}/101/status/current": {"vmid": 101, "status": "running", "name": "a"},
        f"{_LXC}/101/snapshot": [snapshot, {"name": "current", "parent": "before", "running": 1}],
        f"{_LXC}/101/interfaces": [{**card, "ip-addresses": [{"ip-address": "10.0.0.5", "ip-address-type": "inet"}]}],
    }


def _pve_changed(chance: Random) -> dict[str, Any]:
    answers = dict(_pve_answers())
    path = chance.choice(list(answers))
    return {**answers, path: changed_value(chance, answers[path])}


def _pve(answers: Mapping[str, Any], _folder: Path) -> None:
    provider = ProxmoxProvider(NODE, access=Access("https://pve.example:8006", "root@pam", node=NODE))

    def call(_login: Login, verb: str, path: Sequence[object], _given: object) -> Any:
        place = "/".join(map(str, path))
        if place not in answers:
            raise PveError(f"there is no {place}", status=404, verb=verb)
        return answers[place]

    with patch.object(Login, "call", call):
        provider.observe("lab")
        provider.read("a")


def _cluster_texts(chance: Random) -> tuple[str, ...]:
    kind = chance.choice(KINDS)
    texts = [_look_answer(kind, name) for name in NODES]
    place = chance.randrange(len(texts))
    texts[place] = changed_text(chance, texts[place])
    return tuple(texts)


_look_answer = cache(look_answer)


def _cluster(texts: tuple[str, ...], _folder: Path) -> None:
    nodes = {one.name: one for one in (read_node(text, f"10.77.0.{number}") for number, text in enumerate(texts, 11))}
    diagnose(ClusterFacts(next(iter(nodes)), tuple(nodes.values()), ()))


def no_network(*_: Any, **__: Any) -> Any:
    """What stands in the place of every request: nothing here asks anybody."""
    raise URLError("no network here")


TARGETS: dict[str, Target] = {
    "loader": Target(_lab_text, _open, weight=3),
    "resolve": Target(lambda chance: changed_value(chance, chance.choice(labs())), _resolve, weight=6),
    "hub": Target(_hub_answers, _hub, weight=6),
    "lock": Target(_lock_text, _lock, weight=2),
    "gguf": Target(_gguf_bytes, _gguf, weight=6, errors=(GgufError,)),
    "agent": Target(_agent_answers, _agent, weight=8),
    "pve": Target(_pve_changed, _pve, weight=8),
    "corosync": Target(_cluster_texts, _cluster, weight=4),
}
