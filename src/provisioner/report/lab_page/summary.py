"""The lab in four numbers."""

from __future__ import annotations

from provisioner.report.elements import Markup, tag
from provisioner.report.lab_page.content import LabContent
from provisioner.report.lab_page.warnings import all_warnings
from provisioner.values.state import Status


def summary(content: LabContent) -> Markup:
    """How many containers run, services are healthy, whose last proof went well, and what there is to warn of."""
    warned = [one for one in all_warnings(content) if one.severity != "note"]
    addresses = content.graph.services
    proved = [address for address, one in content.proofs.items() if address in addresses and not one.failure]
    wanted = {box.name for box in content.graph.boxes}
    running = healthy = 0
    for container in content.containers:
        if container.name not in wanted:
            continue
        running += container.status is Status.RUNNING
        healthy += sum(service.healthy is True for service in container.services)
    tiles = (
        (str(len(warned)), "to warn of"),
        (f"{running} of {len(wanted)}", "containers run"),
        (f"{healthy} of {len(addresses)}", "services are healthy"),
        (f"{len(proved)} of {len(addresses)}", "last proofs went well"),
    )
    items = [tag("li", tag("span", number, class_="number"), words) for number, words in tiles]
    return tag("ul", *items, class_="tiles")
