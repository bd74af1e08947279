"""What roles/llama_cpp does, as a deploy of pyinfra: user, key, unit from a template, enabled and running, health.

pyinfra runs this file; what it needs is in the data of its inventory.
"""

from __future__ import annotations

import io

from pyinfra import host  # type: ignore[import-not-found]  # in a place of its own, no dependency of ours
from pyinfra.operations import files, server, systemd  # type: ignore[import-not-found]

USER = "llama-server"
URL = "http://127.0.0.1:8080/health"
HEALTH = f"import urllib.request as r; r.build_opener(r.ProxyHandler({{}})).open('{URL}', timeout=5)"


server.user(  # noqa: S604  # the name of a login shell
    name="Make the system user",
    user=USER,
    system=True,
    home="/nonexistent",
    shell="/usr/sbin/nologin",
    ensure_home=False,
    create_home=False,
)
files.put(
    name="Write the API key",
    src=io.StringIO(f"{host.data.engine_key}\n"),
    dest="/etc/llama-server.api-key",
    user=USER,
    group=USER,
    mode="600",
)
files.template(
    name="Install the unit file",
    src=host.data.unit_template,
    dest="/etc/systemd/system/llama-server.service",
    user="root",
    group="root",
    mode="644",
    description="llama.cpp server",
)
systemd.service(
    name="Enable and start the server",
    service="llama-server.service",
    running=True,
    enabled=True,
)
server.shell(name="Ask for its health", commands=[f'python3 -c "{HEALTH}"'])
