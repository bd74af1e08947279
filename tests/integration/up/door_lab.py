"""A lab of a small web service and a door before it, by a copy of this checkout that has a role for the service."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

from tests.integration.up.quickstart_lab import Lab
from tests.lab_files import lab_text

ROOT = Path(__file__).resolve().parents[3]
AUTHORITY = "CANARY1-{{7*7}}-of-the-authority"
"""A secret that is a template; quickstart_lab watches for its first word."""
HELLO = "hello of the service"
FILE = lab_text("door")
ROLE = {
    "README.md": """\
# hello

<!-- options: generated from meta/argument_specs.yml by `make generate` -->
<!-- /options -->
""",
    "meta/service.yml": """\
title: Hello
stage: app
unit: hello.service
port: 9000
health: /
protocol: null
defaults: { image: debian/12, cpu: 1, memory: 512MiB, disk: 4GiB, nesting: false }
internal: [listen]
stampable: true
""",
    "meta/argument_specs.yml": """\
argument_specs:
  main:
    options: &options
      hello_listen: { type: str, default: 127.0.0.1, description: Address. }
      hello_port: { type: int, default: 9000, description: Port. }
  verify: { options: *options }
""",
    "meta/managed.yml": """\
paths: [/etc/systemd/system/hello.service, /srv/index.html]
packages: []
units: [hello.service]
users: []
venvs: []
""",
    "meta/main.yml": "dependencies: []\n",
    "tasks/main.yml": f"""\
- name: Write a page and a unit
  provision_files:
    files:
      - {{ path: /srv/index.html, mode: "0644", content: "{HELLO}\\n" }}
      - path: /etc/systemd/system/hello.service
        mode: "0644"
        content: |
          [Service]
          DynamicUser=yes
          ExecStart=/usr/bin/python3 -m http.server {{{{ hello_port }}}} --bind {{{{ hello_listen }}}} --directory /srv
          [Install]
          WantedBy=multi-user.target
- name: Start it
  ansible.builtin.systemd_service: {{ name: hello.service, enabled: true, state: started, daemon_reload: true }}
""",
    "tasks/verify.yml": """\
- name: verify | Wait until it answers
  provision_unit: { name: hello.service, port: "{{ hello_port }}", health: / }
""",
}


class DoorLab(Lab):
    """The lab, and how its sites are seen from this machine, on the LAN side of the host."""

    def write_site(self, site: str) -> None:
        """Write the file with that one site, and its secret."""
        (self.folder / "homelab.yml").write_text(FILE.replace("SITE", site), encoding="utf-8")
        secrets = self.folder / "secrets.env"
        secrets.write_text(f"authority={AUTHORITY}\n", encoding="utf-8")
        secrets.chmod(0o600)

    def root(self) -> str:
        """The root certificate, as a user gets it."""
        return self.provision("show", "--ca").out

    def page(self, site: str) -> str:
        """What a browser that trusts the root sees; ``OSError`` where it would show a warning."""
        context = ssl.create_default_context(cadata=self.root())
        connection = http.client.HTTPConnection(site, timeout=30)
        with socket.create_connection(("127.0.0.1", 8443), 30) as raw:
            connection.sock = context.wrap_socket(raw, server_hostname=site)
            connection.request("GET", "/")
            return connection.getresponse().read().decode()

    def way_in(self, site: str) -> tuple[int, str | None]:
        """Status and place that the plain port answers with."""
        connection = http.client.HTTPConnection("127.0.0.1", 8081, timeout=30)
        connection.request("GET", "/a", headers={"Host": site})
        answer = connection.getresponse()
        connection.close()
        return answer.status, answer.getheader("Location")


def checkout_with_hello(folder: Path) -> dict[str, str]:
    """A copy of this checkout, as far as a lab needs it, with role ``hello``; the environment by which it is used."""
    for name in ("src", "roles", "playbooks", "inventory"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, text in ROLE.items():
        page = folder / "roles/hello" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    environment = {"PYTHONPATH": str(folder / "src")}
    command = [sys.executable, "-m", "provisioner.generate"]
    subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=True, capture_output=True, timeout=300)
    return environment
