"""Ansible module: make one container of a lab what it should be, by the same observe, plan and apply as ``up``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from provisioner.plan import Change
    from provisioner.providers.base import Provider
    from provisioner.state import Fleet, Instance

DOCUMENTATION = r"""
module: provision_container
short_description: Create, start, stop or delete one container of a lab
description:
  - Runs on the controller, whose Python has the package provisioner (C(ansible_playbook_python)).
  - Check mode and diff are the plan. A container without the lab's mark is never touched.
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
  image:
    description: Alias of a local image; needed unless C(state=absent).
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
        choices: [volume, publish]
        required: true
      volume:
        description: Name of the storage volume (C(kind=volume)).
        type: str
      path:
        description: Where it is mounted (C(kind=volume)).
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
author: [provisioner]
"""

RETURN = r"""
instance:
  description: The container as it was read back; empty when there is none.
  returned: always
  type: dict
"""

HOST = "localhost"
DEVICE_OPTIONS = {
    "name": {"type": "str"},
    "kind": {"type": "str", "choices": ["volume", "publish"], "required": True},
    "volume": {"type": "str"},
    "path": {"type": "path"},
    "readonly": {"type": "bool", "default": True},
    "listen": {"type": "str"},
    "connect": {"type": "str"},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "lab": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "started", "stopped", "absent"], "default": "started"},
    "endpoint": {"type": "path"},
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
        "required_if": [("kind", "volume", ("volume", "path")), ("kind", "publish", ("listen", "connect"))],
    },
}
PROPERTIES = {"volume": ("volume", "path", "readonly"), "publish": ("listen", "connect")}


def wanted_instance(options: Mapping[str, Any]) -> Instance:
    """The container that the task asks for."""
    from provisioner.sizes import parse_size
    from provisioner.state import Device, Instance

    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    def name(one: Mapping[str, Any]) -> str:
        return str(one["name"] or one["volume"] or f"publish-{one['listen'].rpartition(':')[2]}")

    devices = [
        Device(name(one), one["kind"], {key: text(one[key]) for key in PROPERTIES[one["kind"]]})
        for one in options["devices"]
    ]
    return Instance(
        name=options["name"],
        host=HOST,
        lab=options["lab"],
        image=options["image"] or "",
        cpu=options["cpu"],
        memory=parse_size(options["memory"]) if options["memory"] else None,
        disk=parse_size(options["disk"]) if options["disk"] else None,
        nesting=options["nesting"],
        devices=tuple(sorted(devices, key=lambda one: one.name)),
    )


def changes_for(wanted: Instance, state: str, actual: Fleet) -> tuple[Change, ...]:
    """The plan for this one container; other containers of the lab, orphans and leftovers too, are not looked at."""
    from provisioner.plan import Change, make_destroy_plan, make_plan
    from provisioner.state import Fleet, Status

    there = actual.instance(wanted.name)
    alone = Fleet(actual.lab, (there,) if there else (), hosts=actual.hosts)
    if state == "absent":
        return make_destroy_plan(alone).changes
    changes = make_plan(Fleet(wanted.lab, (wanted,)), alone).changes
    if state == "started":
        return changes
    changes = tuple(one for one in changes if one.action != "start")
    if state == "stopped" and (there is None or there.status is not Status.STOPPED):
        return (*changes, Change("stop", wanted.name, there or wanted, wanted, "it shall not run"))
    return changes


def diff_of(changes: tuple[Change, ...]) -> list[dict[str, str]]:
    """The plan in the words of ``--diff``."""
    return [
        {
            "before_header": one.target,
            "after_header": f"{one.target} ({one.action}: {one.reason})",
            "before": "".join(f"{name}: {pair[0]}\n" for name, pair in one.attributes().items()),
            "after": "".join(f"{name}: {pair[1]}\n" for name, pair in one.attributes().items()),
        }
        for one in changes
    ]


def result_of(found: Instance | None) -> dict[str, Any]:
    """What the task gives back of a container."""
    if found is None:
        return {}
    return {"name": found.name, "image": found.image, "status": str(found.status), "address": found.address}


def run(module: AnsibleModule, provider: Provider) -> dict[str, Any]:
    """Observe, plan and, unless in check mode, apply; what the task answers."""
    from provisioner.apply import apply_instances
    from provisioner.errors import PreflightError

    wanted = wanted_instance(module.params)
    provider.check_available()
    changes = changes_for(wanted, module.params["state"], provider.observe(wanted.lab))
    lost = [one for one in changes if one.action == "replace"]
    if lost and not module.params["replace"]:
        raise PreflightError(
            f"Unable to change container {wanted.name} without losing what is in it",
            details=lost[0].reason,
            resolution="Say replace: true (container_replace) to have it deleted and made anew.",
        )
    if not module.check_mode:
        apply_instances(changes, {HOST: provider}, lambda _event: None)
    found = provider.observe(wanted.lab).instance(wanted.name)
    return {"changed": bool(changes), "diff": diff_of(changes), "instance": result_of(found)}


def main() -> None:
    """Answer the task; every error of ours becomes the task's failure, with its resolution."""
    required = [("state", state, ("image",)) for state in ("present", "started", "stopped")]
    module = AnsibleModule(argument_spec=OPTIONS, required_if=required, supports_check_mode=True)
    try:
        from provisioner.errors import ProvisionError
        from provisioner.providers import provider_for
        from provisioner.sizes import SizeError
    except ImportError as error:
        module.fail_json(
            msg=f"Unable to import provisioner ({error}): run this task on the controller, with "
            "ansible_python_interpreter set to ansible_playbook_python"
        )
    try:
        answer = run(module, provider_for(HOST, "incus", endpoint=module.params["endpoint"]))
    except (ProvisionError, SizeError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
