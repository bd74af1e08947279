"""Containers that provision did not make: which can become a lab's, of what image they are, how they are marked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from provisioner.providers.incus.client import Client
from provisioner.providers.incus.translate import IMAGE, KIND, LAB, instance_of
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.state import Instance, InstanceKind

BASE_IMAGE = "volatile.base_image"
"""Where Incus keeps the fingerprint of the image that a container was made of."""


def adoptable(found: Iterable[Mapping[str, Any]], names: Collection[str], host: str) -> dict[str, Instance]:
    """Those of ``names`` among what Incus lists that are containers without any lab's mark."""
    containers: dict[str, Instance] = {}
    for entry in found:
        name = entry["name"]
        if name in names and _is_unmarked(entry):
            containers[name] = instance_of(entry, host)
    return containers


def described(client: Client, found: Mapping[str, Any], host: str) -> Instance:
    """The container as it is; of one without a mark, the image is the alias that its own image has here, if any."""
    instance = instance_of(found, host)
    if instance.image:
        return instance
    fingerprint = found["config"].get(BASE_IMAGE)
    aliases = client.get("images", "aliases", recursion="1")
    names = sorted(alias["name"] for alias in aliases if alias["target"] == fingerprint)
    return replace(instance, image=next(iter(names), ""))


def marked(body: Mapping[str, Any], instance: Instance) -> dict[str, Any]:
    """The body of an existing container with the lab's mark; ``ProviderError`` when it bears another lab's."""
    owner = body["config"].get(LAB)
    if owner not in (None, "", instance.lab):
        raise ProviderError(
            f"Unable to adopt container {instance.name}",
            details=f"It bears the mark of lab {owner}.",
            resolution=f"Choose another name in the file, or have lab {owner} give it up.",
        )
    if owner == instance.lab:
        return dict(body)
    mark = {LAB: instance.lab, KIND: str(InstanceKind.SERVING), IMAGE: instance.image}
    return {**body, "config": {**body["config"], **mark}}


def notes(found: Mapping[str, Any]) -> tuple[str, ...]:
    """What should be known of a container that is to be adopted; ``PreflightError`` for one that cannot be adopted."""
    name = found["name"]
    if found.get("ephemeral"):
        raise PreflightError(
            f"Unable to adopt container {name}: Incus deletes it when it stops",
            details="It is ephemeral.",
            resolution=f"Run: incus config edit {name}   and write `ephemeral: false`.",
        )
    if found["expanded_config"].get("security.privileged") != "true":
        return ()
    return (f"Container {name} is privileged: root in it is root of its host. What provision makes is not.",)


def _is_unmarked(found: Mapping[str, Any]) -> bool:
    return found["type"] == "container" and not found["config"].get(LAB)
