"""Which card of its host each container gets, what its services are told of it, and who takes turns on one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from provisioner.gpus.cards import Card
from provisioner.gpus.choice import CardRequest, Refusal, choices
from provisioner.lab.resolved import ResolvedContainer, ResolvedLab, host_name
from provisioner.labfile.hosts import SHARE, SHARE_KEY
from provisioner.labfile.spec import Gpu
from provisioner.services import knowledge_of
from provisioner.services.base import Path, ResolvedService
from provisioner.values.state import Device, Problem, Service

TAKING_TURNS = "taking_turns"
"""Ansible's group of the containers with services that take turns."""
DEVICE = "gpu"
"""The name of the device that we make; one of another name is its user's own."""
RENDER = "render"
"""The group of a container to which device files belong that not everybody may open."""
COMPUTE, GRAPHICS = "compute,utility", "compute,graphics,utility"
"""What of the driver a container is lent: Vulkan belongs to graphics."""
KFD = "/dev/kfd"
USERSPACE = "gpu_userspace"
"""The role that puts the user space of a card's driver into a container."""
_EVERYBODY, _GROUP = "0666", "0660"


def card_requests(lab: ResolvedLab) -> dict[str, dict[str, CardRequest]]:
    """The containers that want a card, with what they say of it, by their hosts."""
    found: dict[str, dict[str, CardRequest]] = {}
    for name, container in lab.containers.items():
        if container.written.gpu is not None:
            found.setdefault(host_name(container), {})[name] = _request(container.written.gpu)
    return found


def choose_cards(lab: ResolvedLab, cards: Mapping[str, Sequence[Card]]) -> tuple[dict[str, Card], list[Problem]]:
    """The card of each container that wants one, and why some get none; ``cards`` are those of each host."""
    found: dict[str, Card] = {}
    problems: list[Problem] = []
    for host, requests in card_requests(lab).items():
        for name, card in choices(requests, cards.get(host, ())).items():
            path = ("containers", name, "gpu")
            if isinstance(card, Refusal):
                problems.append(Problem(path, f"host {host}: {card.message}", card.hint))
            else:
                found[name] = card
                gpu = lab.containers[name].written.gpu or Gpu()
                problems += [Problem(path, *words) for words in _too_old(gpu, card)]
    return found, problems


def devices(container: ResolvedContainer, card: Card) -> Iterator[Device]:
    """What a host attaches: the card by its address, since the numbers of its nodes change from boot to boot."""
    properties = {"pci": card.pci}
    if card.vendor == "nvidia":
        # As on the host, where everybody may open them too.
        properties |= {"mode": _EVERYBODY} | (_lent(container) if card.runtime else {})
    else:
        properties |= {"mode": _GROUP, "group": RENDER}
    yield Device(DEVICE, "gpu", properties)
    # The device for a card leaves this one out.
    if any(node.path == KFD for node in card.nodes):
        yield Device("gpu-kfd", "node", {"path": KFD, "mode": _GROUP, "group": RENDER})


def device_files(card: Card) -> tuple[dict[str, Any], ...]:
    """What a host passes on that attaches no cards; a group is a name, its number the container's own."""
    is_open = card.vendor == "nvidia"
    mode, group = (_EVERYBODY, 0) if is_open else (_GROUP, RENDER)
    return tuple({"path": node.path, "mode": mode, "uid": 0, "gid": group} for node in card.nodes)


def with_device_files(settings: Mapping[str, Any], card: Card | None) -> Mapping[str, Any]:
    """The settings of a container with the device files of its card; one that the file names stays."""
    if card is None:
        return settings
    written = {one["path"]: one for one in settings["devices"]}
    both = {one["path"]: one for one in device_files(card)} | written
    return {**settings, "devices": tuple(both[path] for path in sorted(both))}


def userspace(gpu: Gpu, card: Card, *, is_lent: bool) -> dict[str, Any] | None:
    """The options of the role that puts the driver's user space into a container; None where the host lends its own."""
    if is_lent and card.vendor == "nvidia" and card.runtime:
        return None
    installer = {"source": gpu.userspace.source, "sha256": gpu.userspace.sha256} if gpu.userspace else {}
    return {
        "vendor": card.vendor,
        "driver_version": card.driver_version,
        "nodes": [node.path for node in card.needed],
        **installer,
    }


def _request(gpu: Gpu) -> CardRequest:
    return CardRequest(gpu.vendor, gpu.pci, gpu.uuid, gpu.vram, exclusive=gpu.sharing == "exclusive")


def _lent(container: ResolvedContainer) -> dict[str, str]:
    uses_vulkan = any(knowledge_of(service.role).needs_vulkan(service) for service in container.services)
    lent = {"runtime": GRAPHICS if uses_vulkan else COMPUTE}
    gpu = container.written.gpu
    for name in ("driver", "cuda"):
        least = getattr(gpu.require, name) if gpu else None
        if least:
            lent[f"require_{name}"] = f"{name}>={least}"
    return lent


def _too_old(gpu: Gpu, card: Card) -> Iterator[tuple[str, str]]:
    pairs = (
        ("driver", "is", gpu.require.driver, card.driver_version),
        ("driver", "knows CUDA", gpu.require.cuda, card.cuda),
    )
    for what, verb, wanted, found in pairs:
        if wanted and (not found or _numbers(found) < _numbers(wanted)):
            seen = f"its {what} {verb} {found}" if found else f"nobody tells what its {what} {verb}"
            yield (
                f"{card.title}: {seen}, and {wanted} is required",
                "Install a newer driver on the host, or leave `require` out.",
            )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def turn_options(lab: ResolvedLab, service: ResolvedService) -> dict[str, Any]:
    """The options of a service that takes turns: all members of its group in the file's order, and their key."""
    members = [_entry(lab, service, lab.services[address]) for address in service.share]
    page = lab.containers[service.container].page
    return {SHARE: members, SHARE_KEY: page.share_key if page is not None else None}


def _entry(lab: ResolvedLab, service: ResolvedService, member: ResolvedService) -> dict[str, Any]:
    """A member as ``service`` reaches it: one in the same container at that container's own loopback address."""
    is_here = member.container == service.container
    url = f"http://127.0.0.1:{member.port}" if is_here else lab.base_url(member, service.container)
    return {"name": str(member.address), "url": url, "own": member.address == service.address}


def others(lab: ResolvedLab, service: ResolvedService) -> tuple[ResolvedService, ...]:
    """The services of the file that take turns with this one, without itself."""
    known = [lab.services[address] for address in service.share if address in lab.services]
    return tuple(other for other in known if other.address != service.address)


def others_hold_s(lab: ResolvedLab, service: ResolvedService) -> float:
    """How many seconds the others of its group may stay on the card, one after the other, before its turn comes."""
    return sum(other.hold_s for other in others(lab, service))


def place_in_share(lab: ResolvedLab, service: ResolvedService) -> Path:
    """Where the file names a service that takes turns: its first place in ``share`` of its host."""
    host = lab.containers[service.container].host or ""
    for number, group in enumerate(lab.hosts[host].share):
        if service.address in group:
            return ("hosts", host, SHARE, number, group.index(service.address))
    raise ValueError(f"{service.address} takes no turns")


def takes_turns(service: Service) -> bool:
    """Whether it shares a card with others."""
    return bool(service.variables.get(f"{service.role}_{SHARE}"))


def one_by_one(plays: Iterable[dict[str, Any]], groups: Mapping[str, Iterable[str]]) -> list[dict[str, Any]]:
    """The plays, each one container after the other where several of its group take turns with others.

    Ansible does each task for all containers at once: who has the card would keep it until all others had it as well.
    """
    taking = set(groups.get(TAKING_TURNS, ()))
    made = []
    for play in plays:
        has_several = len(taking.intersection(groups.get(play["hosts"], ()))) > 1
        made.append({**play, "serial": 1} if has_several and play["hosts"].startswith("service_") else play)
    return made
