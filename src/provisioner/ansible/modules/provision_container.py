# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: make one container of a lab what it should be, by the same observe, plan and apply as ``up``."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_container
short_description: Create, start, stop or delete one container of a lab
description:
  - Runs on the controller, whose Python has the package provisioner (C(ansible_playbook_python)).
  - Check mode and diff are the plan. A container without the lab's mark is never touched, unless I(adopt) says so.
options:
  name:
    description: Name of the container.
    type: str
    required: true
  lab:
    description: Name of the lab that owns the container.
    type: str
    required: true
  state:
    description:
      - C(started) creates it where it is missing, starts it and waits until it is ready; C(present) does not start one
        that is there and stopped; C(stopped) stops it; C(absent) deletes it.
    type: str
    choices: [present, started, stopped, absent]
    default: started
  endpoint:
    description: The unix socket of Incus; that of this machine when empty.
    type: path
  host:
    description:
      - A node of Proxmox VE or an Incus elsewhere, in the words of C(hosts) in a lab's file; the Incus of this machine
        when left out.
      - On Proxmox VE, without I(password) or I(ssh) what only root@pam itself may do is refused.
    type: dict
    suboptions:
      incus: {type: str, description: "Address of the API of an Incus: C(https://NAME:8443)."}
      cert: {type: path, description: File with the client certificate that it trusts; this user's when left out.}
      key: {type: path, description: File with the key of that certificate.}
      proxmox: {type: str, description: "Address of the API of Proxmox VE: C(https://NAME:8006)."}
      user: {type: str, description: "Who logs in there: C(root@pam)."}
      token:
        description: An API token of that user.
        type: dict
        suboptions:
          id: {type: str, required: true, description: What follows the C(!).}
          secret: {type: str, required: true, description: Its secret.}
      password: {type: str, description: "Of I(user), beside a token or instead of one."}
      ssh: {type: str, description: "C(USER@NAME), for what the API cannot do."}
      node: {type: str, description: "Name of the node; the one that answers when left out."}
      ca: {type: path, description: File with the certificate that signed the server's.}
      fingerprint: {type: str, description: sha256 of the server's certificate.}
      address: {type: str, description: Where other hosts' containers reach an Incus; not used here.}
      storage: {type: str, description: "For disks; the first fit one when left out."}
      templates: {type: str, description: "For templates; the first fit one when left out."}
      bridge: {type: str, description: "For network cards; C(vmbr0) when left out."}
      pool: {type: str, description: Pool that its containers are put into.}
  proxmox:
    description: What only Proxmox knows of the container, in the words of C(proxmox) in a lab's file.
    type: dict
  adopt:
    description: Whether a container of that name without any lab's mark becomes this lab's.
    type: bool
    default: false
  image:
    description: A local image's alias, or a distribution (C(debian/13)); needed unless C(state=absent).
    type: str
  cpu:
    description: Number of CPUs; no limit when left out.
    type: int
  memory:
    description: Memory, such as 2GiB; no limit when left out.
    type: str
  disk:
    description: Size of its disk, such as 10GiB; no limit when left out.
    type: str
  nesting:
    description: Whether containers and sandboxes may run inside.
    type: bool
    default: false
  replace:
    description: Whether it may be deleted and made anew for what cannot be changed in place; what is in it is lost.
    type: bool
    default: false
  devices:
    description: Volumes mounted in it and ports of it published on the host.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the device; that of its volume, or C(publish-) and its port, when left out.
        type: str
      kind:
        description: What it is.
        type: str
        choices: [volume, publish, gpu, node]
        required: true
      volume:
        description: Name of the storage volume (C(kind=volume)).
        type: str
      path:
        description: Where it is mounted (C(kind=volume)), or the device file (C(kind=node)).
        type: path
      readonly:
        description: Whether it is mounted read-only (C(kind=volume)).
        type: bool
        default: true
      listen:
        description: ADDRESS:PORT on the host (C(kind=publish)).
        type: str
      connect:
        description: ADDRESS:PORT in the container (C(kind=publish)).
        type: str
      proxy_protocol:
        description: Whether each connection begins with the address it comes from (C(kind=publish)).
        type: bool
      protocol:
        description: What is passed on, where it is not TCP (C(kind=publish)).
        type: str
        choices: [udp]
      pci:
        description: Address of the card on the host (C(kind=gpu), named C(gpu)).
        type: str
      mode:
        description: Mode of the device files in the container (C(kind=gpu) and C(kind=node)).
        type: str
      group:
        description: Group of the container that they belong to.
        type: str
      runtime:
        description: Which parts of NVIDIA's user space the host lends.
        type: str
      require_driver:
        description: What the host's driver must be, such as C(driver>=550).
        type: str
      require_cuda:
        description: What CUDA the host's driver must know, such as C(cuda>=12.4).
        type: str
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: Have a container of the Incus on this machine
  provision_container:
    name: llama
    lab: homelab
    image: debian/12
    memory: 4GiB
  delegate_to: localhost
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
"""
RETURN = r"""
instance:
  description: The container as it was read back; empty when there is none.
  returned: always
  type: dict
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from provisioner.hosts.base import Provider
    from provisioner.labfile.spec import Spec
    from provisioner.values.plan import Change
    from provisioner.values.state import Device, Fleet, Instance


HOST = "localhost"
TOKEN_OPTIONS = {"id": {"type": "str", "required": True}, "secret": {"type": "str", "required": True, "no_log": True}}
HOST_OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"type": "str"} for name in ("incus", "proxmox", "user")},
    "token": {"type": "dict", "options": TOKEN_OPTIONS, "no_log": False},
    "password": {"type": "str", "no_log": True},
    **{name: {"type": "path"} for name in ("ca", "cert")},
    "key": {"type": "path", "no_log": False},
    **{
        name: {"type": "str"}
        for name in ("ssh", "node", "fingerprint", "address", "storage", "templates", "bridge", "pool")
    },
}
DEVICE_OPTIONS = {
    "name": {"type": "str"},
    "kind": {"type": "str", "choices": ["volume", "publish", "gpu", "node"], "required": True},
    "volume": {"type": "str"},
    "path": {"type": "path"},
    "readonly": {"type": "bool", "default": True},
    "listen": {"type": "str"},
    "connect": {"type": "str"},
    "protocol": {"type": "str", "choices": ["udp"]},
    "proxy_protocol": {"type": "bool"},
    **{name: {"type": "str"} for name in ("pci", "mode", "group", "runtime", "require_driver", "require_cuda")},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "lab": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "started", "stopped", "absent"], "default": "started"},
    "endpoint": {"type": "path"},
    "host": {"type": "dict", "options": HOST_OPTIONS},
    "proxmox": {"type": "dict"},
    "adopt": {"type": "bool", "default": False},
    "image": {"type": "str"},
    "cpu": {"type": "int"},
    "memory": {"type": "str"},
    "disk": {"type": "str"},
    "nesting": {"type": "bool", "default": False},
    "replace": {"type": "bool", "default": False},
    "devices": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": DEVICE_OPTIONS,
        "required_if": [
            ("kind", "volume", ("volume", "path")),
            ("kind", "publish", ("listen", "connect")),
            ("kind", "gpu", ("name", "pci", "mode")),
            ("kind", "node", ("name", "path", "mode")),
        ],
    },
}
PROPERTIES = {
    "volume": ("volume", "path", "readonly"),
    "publish": ("listen", "connect", "protocol", "proxy_protocol"),
    "gpu": ("pci", "mode", "group", "runtime", "require_driver", "require_cuda"),
    "node": ("path", "mode", "group"),
}


def wanted_instance(options: Mapping[str, Any]) -> Instance:
    """The container that the task asks for; ``InputError`` for what a lab's file could not say either."""
    from provisioner.values.quantities import parse_size
    from provisioner.values.state import Instance

    plain = Instance(
        name=options["name"],
        host=HOST,
        lab=options["lab"],
        image=options["image"] or "",
        cpu=options["cpu"],
        memory=parse_size(options["memory"]) if options["memory"] else None,
        disk=parse_size(options["disk"]) if options["disk"] else None,
        nesting=options["nesting"],
        devices=_devices(options["devices"]),
        adopt=options["adopt"],
    )
    if not (options["host"] or {}).get("proxmox"):
        _refuse_block(options)
        return plain
    from provisioner.catalog import Catalog
    from provisioner.lab import desired_fleet, resolve

    lab = resolve(lab_of(options), Catalog({}, {}))
    return replace(plain, settings=desired_fleet(lab, {}).instances[0].settings)


def _refuse_block(options: Mapping[str, Any]) -> None:
    from provisioner.values.errors import InputError

    if options["proxmox"]:
        message = f"Unable to use the options of container {options['name']}: its host is no Proxmox"
        raise InputError(message, resolution="Leave proxmox out.")


def lab_of(options: Mapping[str, Any]) -> Spec:
    """A lab of this one container on its host, as its file would say it."""
    from provisioner.catalog import Catalog
    from provisioner.labfile.parsing import parse_spec
    from provisioner.values.errors import InputError
    from provisioner.values.refusals import path_text
    from provisioner.values.state import Secret

    host = _given(options["host"])
    host |= {"password": Secret("password", host["password"])} if "password" in host else {}
    if "token" in host:
        host["token"] = {**host["token"], "secret": Secret("token.secret", host["token"]["secret"])}
    container = {"host": HOST} | ({"proxmox": options["proxmox"] or {}} if "proxmox" in host else {})
    data = {"name": options["lab"], "hosts": {HOST: host}, "containers": {options["name"]: container}}
    parsed = parse_spec(data, Catalog({}, {}))
    if parsed.spec is None:
        raise InputError(
            f"Unable to use the options of container {options['name']}",
            details="\n".join(f"{path_text(one.path)}: {one.message}. {one.hint}" for one in parsed.problems),
            resolution="They are written as in a lab's file, under `hosts` and `proxmox`.",
        )
    return parsed.spec


def provider_of(options: Mapping[str, Any]) -> Provider:
    """The driver of the host that the task names."""
    from provisioner.hosts import provider_for

    if options["host"]:
        from provisioner.cli.effects import provider_of as provider_by_page

        return provider_by_page(HOST, lab_of(options).hosts[HOST], Path.cwd())
    from provisioner.hosts.incus.api import endpoint_in

    return provider_for(HOST, "incus", endpoint=endpoint_in({"endpoint": options["endpoint"]}))


def _devices(given: Iterable[Mapping[str, Any]]) -> tuple[Device, ...]:
    from provisioner.values.state import Device

    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    def name(one: Mapping[str, Any]) -> str:
        return str(one["name"] or one["volume"] or f"publish-{one['listen'].rpartition(':')[2]}")

    def properties(one: Mapping[str, Any]) -> dict[str, str]:
        return {key: text(one[key]) for key in PROPERTIES[one["kind"]] if one.get(key) is not None}

    devices = [Device(name(one), one["kind"], properties(one)) for one in given]
    return tuple(sorted(devices, key=lambda one: one.name))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given: a module's own are all there, None for those that were not."""
    return {name: value for name, value in options.items() if value is not None}


def changes_for(wanted: Instance, state: str, actual: Fleet) -> tuple[Change, ...]:
    """The plan for this one container; other containers of the lab, orphans and leftovers too, are not looked at."""
    from provisioner.labfile.hosts import behind_firewall
    from provisioner.reconcile.plan import make_destroy_plan, make_plan
    from provisioner.values.plan import Change
    from provisioner.values.state import Fleet, Status

    there = actual.instance(wanted.name)
    alone = Fleet(actual.lab, (there,) if there else (), hosts=actual.hosts)
    if state == "absent":
        return make_destroy_plan(alone, [wanted.name]).changes
    if there is not None and there.reaches is not None:  # which a lab's file says, and no option
        wanted = replace(wanted, reaches=there.reaches, settings=behind_firewall(wanted.settings))
    changes = make_plan(Fleet(wanted.lab, (wanted,)), alone).changes
    if state == "started":
        return changes
    changes = tuple(change for change in changes if change.action != "start")
    is_stopped = there is not None and there.status is Status.STOPPED
    if state == "stopped" and not is_stopped:
        return (*changes, Change("stop", wanted.name, there or wanted, wanted, "it shall not run"))
    return changes


def diff_of(changes: tuple[Change, ...]) -> list[dict[str, str]]:
    """The plan in the words of ``--diff``."""
    diffs = []
    for change in changes:
        before, after = [], []
        for name, (old, new) in change.attributes().items():
            before.append(f"{name}: {old}\n")
            after.append(f"{name}: {new}\n")
        diffs.append(
            {
                "before_header": change.target,
                "after_header": f"{change.target} ({change.action}: {change.reason})",
                "before": "".join(before),
                "after": "".join(after),
            }
        )
    return diffs


def result_of(found: Instance | None) -> dict[str, Any]:
    """What the task gives back of a container."""
    if found is None:
        return {}
    return {"name": found.name, "image": found.image, "status": str(found.status), "address": found.address}


def run(module: AnsibleModule, provider: Provider) -> dict[str, Any]:
    """Observe, plan and, unless in check mode, apply; what the task answers."""
    from provisioner.reconcile.apply import apply_instances
    from provisioner.values.errors import PreflightError, ProviderError

    wanted = wanted_instance(module.params)
    provider.check_available()
    actual = provider.observe(wanted.lab, adopt=[wanted.name] if wanted.adopt else [])
    changes = changes_for(wanted, module.params["state"], actual)
    lost = [one for one in changes if one.action == "replace"]
    if lost and not module.params["replace"]:
        raise PreflightError(
            f"Unable to change container {wanted.name} without losing what is in it",
            details=lost[0].reason,
            resolution="Say replace: true (container_replace) to have it deleted and made anew.",
        )
    _refuse_publication(wanted, provider)
    for note in provider.review(changes):
        module.warn(note)
    growing = [change for change in changes if change.takes_room]
    if growing:
        try:
            has = provider.capacity(growing)
        except ProviderError as error:
            module.warn(f"Whether the host has room is not known: {error.message}")
        else:
            for words in has.require_room(wanted.host):
                module.warn(words)
    if not module.check_mode:
        apply_instances(changes, {HOST: provider}, lambda _event: None)
    found = provider.observe(wanted.lab).instance(wanted.name)
    return {"changed": bool(changes), "diff": diff_of(changes), "instance": result_of(found)}


def _refuse_publication(wanted: Instance, provider: Provider) -> None:
    from provisioner.values.errors import PreflightError

    published = [one.name for one in wanted.devices if one.kind == "publish"]
    if published and not provider.can_publish:
        raise PreflightError(
            f"Unable to publish {', '.join(published)} of container {wanted.name} on its host",
            details="A container there has an address of its own in the network.",
            resolution="Leave these devices out, and reach the container at its own address.",
        )


def main() -> None:
    """Answer the task; every error of ours becomes the task's failure, with its resolution."""
    required = [("state", state, ("image",)) for state in ("present", "started", "stopped")]
    module = AnsibleModule(
        argument_spec=OPTIONS,
        required_if=required,
        mutually_exclusive=[("endpoint", "host")],
        required_by={"proxmox": ["host"]},
        supports_check_mode=True,
    )
    try:
        from provisioner.values.errors import ProvisionError
        from provisioner.values.one_version import refusal
        from provisioner.values.quantities import SizeError
    except ImportError as error:
        module.fail_json(
            msg=f"Unable to import provisioner ({error}): run this task on the controller, with "
            "ansible_python_interpreter set to ansible_playbook_python"
        )
    refused = refusal("provision_container")
    if refused:
        module.fail_json(msg=refused)
    try:
        answer = run(module, provider_of(module.params))
    except (ProvisionError, SizeError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
