"""`audit` on real services: closed as they are made, and each one found that is opened on purpose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab, Ran, sh
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus]

NAME = "audited"
ENGINE, BARE, GATEWAY, DOOR = "audited-engine", "audited-bare", "audited-gateway", "audited-door"
SITE = "api.home.example"
KEY = "sk-audited-0123456789abcdef"
AUTHORITY = "audited-authority-0123456789"
FILE = lab_text("audit")
UNIT = "/etc/systemd/system/llama-server.service"
SWITCH = "/etc/switch-litellm.cfg"
DOOR_CONFIG = "/etc/door/haproxy.cfg"


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    secrets = f"master_key={KEY}\nengine_key={ENGINE_KEY}\nauthority={AUTHORITY}\n"
    (lab.folder / "secrets.env").write_text(secrets, encoding="utf-8")
    with lab.brought_up():
        yield lab


def findings(ran: Ran) -> list[str]:
    """What a run found, a line each."""
    return [line["message"] for line in ran.lines if line["type"] == "diagnostic" and line["severity"] == "error"]


def audited(lab: Lab, name: str, verb: str = "audit") -> list[str]:
    """What is found in that container; its exit code says the same."""
    ran = lab.provision(verb, name, "--json")
    found = findings(ran)
    assert ran.code == (3 if found else 0), ran.out + ran.err
    return found


def restarted(lab: Lab, container: str, unit: str) -> None:
    """Have systemd take up what was written, and wait until the unit serves."""
    sh(lab, container, f"systemctl daemon-reload && systemctl restart {unit}")
    looks = "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health', timeout=5)"
    sh(lab, container, f'timeout 60 sh -c "until python3 -c \\"{looks}\\" 2>/dev/null; do sleep 0.2; done"')


def state_of(lab: Lab) -> str:
    """Every file that services have of their own, by its checksum."""
    kept = "find /etc /var/lib -xdev -type f -not -path '*/systemd/*' -not -path '*/haproxy/*' -print0"
    return "".join(sh(lab, name, f"{kept} | sort -z | xargs -0 sha256sum") for name in (ENGINE, BARE, GATEWAY, DOOR))


def test_nothing_is_open_that_is_on_no_page_and_nothing_is_changed(lab: Lab) -> None:
    before = state_of(lab)
    ran = lab.provision("audit", "--json")
    assert (ran.code, findings(ran)) == (0, []), ran.out
    checks = [(line["target"], line["message"]) for line in ran.lines if line["type"] == "check"]
    said = dict(reversed(checks))
    assert "from its own loopback, from its network, from the LAN" in said[f"{GATEWAY}/litellm"]
    assert f"by {SITE}" in said[f"{DOOR}/door"]
    assert (f"{BARE}/llama_cpp", "no key asked for: whoever reaches its port may use it") in checks
    assert state_of(lab) == before
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_what_is_asleep_stays_asleep(lab: Lab) -> None:
    marker = "/run/switch-llama-server-keeper/asleep"
    sh(lab, BARE, f"timeout 60 sh -c 'until test -e {marker}; do sleep 0.2; done'")
    ran = lab.provision("audit", BARE)
    assert (ran.code, "it is asleep or busy: only what its switch answers was asked" in ran.out) == (0, True), ran.out
    sh(lab, BARE, f"test -e {marker}")


def test_a_wide_listener_and_a_debug_port_are_found(lab: Lab) -> None:
    sh(lab, ENGINE, "systemd-run --quiet --unit=debug-port python3 -m http.server 9999")
    sh(lab, ENGINE, f'cp {UNIT} /root/unit && sed -i \'s/"--host" "127.0.0.1"/"--host" "0.0.0.0"/\' {UNIT}')
    restarted(lab, ENGINE, "llama-server")
    found = audited(lab, ENGINE)
    assert f"{ENGINE}/llama_cpp: llama-server.service listens on 0.0.0.0:18080 (tcp), which is on no page" in found
    assert f"{ENGINE}: debug-port.service listens on 0.0.0.0:9999 (tcp), which is on no page" in found
    assert len(found) == 2
    sh(lab, ENGINE, f"systemctl stop debug-port; cp /root/unit {UNIT}")
    restarted(lab, ENGINE, "llama-server")
    assert audited(lab, ENGINE) == []


def test_an_engine_without_its_key_is_found_by_verify_as_well(lab: Lab) -> None:
    sh(lab, ENGINE, f'sed -i \'s|"--api-key-file" "[^"]*"||\' {UNIT}')
    restarted(lab, ENGINE, "llama-server")
    for verb in ("audit", "verify"):
        found = [line for line in audited(lab, ENGINE, verb) if "answers, and no page says so" in line]
        assert any("GET /props answers, and no page says so: 200 without a key" in line for line in found), found
        assert not any("POST " in line for line in found), "what has it compute its switch keeps closed by itself"
    sh(lab, ENGINE, f"cp /root/unit {UNIT}")
    restarted(lab, ENGINE, "llama-server")
    assert audited(lab, ENGINE, "verify") == []


def test_a_switch_that_gives_everybody_the_key_is_found_from_each_side(lab: Lab) -> None:
    """From loopback, from the network, from the LAN, and by the site of the door."""
    given = f'http-request set-header Authorization "Bearer {KEY}"'
    sh(lab, GATEWAY, f"cp -p {SWITCH} /root/switch && sed -i 's/^    acl is_odd/    {given}\\n&/' {SWITCH}")
    sh(lab, GATEWAY, "systemctl reload switch-litellm")
    (models,) = [line for line in audited(lab, GATEWAY) if "GET /v1/models " in line]
    for place in ("from its own loopback", "from its network", "from the LAN"):
        assert f"200 without a key {place}" in models
        assert f"200 with a wrong key {place}" in models
    assert any(
        f"GET /v1/models answers, and no page says so: 200 without a key by {SITE}" in line
        for line in audited(lab, DOOR)
    )
    sh(lab, GATEWAY, f"cp -p /root/switch {SWITCH} && systemctl reload switch-litellm")
    assert audited(lab, GATEWAY) == audited(lab, DOOR) == []


def test_a_path_that_the_switch_was_made_to_pass_is_found_although_no_key_is_asked_for(lab: Lab) -> None:
    config = "/etc/switch-llama-server.cfg"
    opened = "http-request set-var(txn.kind) str(look) if { path -m str /slots }"
    sh(lab, BARE, f"cp -p {config} /root/switch && sed -i 's|^    acl is_answer|    {opened}\\n&|' {config}")
    sh(lab, BARE, "systemctl reload switch-llama-server")
    ran = lab.provision("verify", "--wake", "--json", BARE)  # it answers only while it is awake
    assert ran.code == 3, ran.out
    found = findings(ran)
    assert len(found) == 1, found
    assert f"{BARE}/llama_cpp: GET /slots answers, and no page says so: 200 without a key" in found[0]
    sh(lab, BARE, f"cp -p /root/switch {config} && systemctl reload switch-llama-server")
    assert audited(lab, BARE) == []


def test_a_page_of_figures_at_the_door_is_found(lab: Lab) -> None:
    page = "frontend figures\\n    bind :9101\\n    stats enable\\n    stats uri /"
    sh(lab, DOOR, f"cp -p {DOOR_CONFIG} /root/door && printf '{page}\\n' >> {DOOR_CONFIG} && systemctl reload door")
    sh(lab, DOOR, "timeout 20 sh -c 'until ss -tln | grep -q :9101; do sleep 0.1; done'")
    assert [line for line in audited(lab, DOOR) if "door.service listens on" in line and ":9101 (tcp)" in line]
    sh(lab, DOOR, f"cp -p /root/door {DOOR_CONFIG} && systemctl reload door")
    sh(lab, DOOR, "timeout 20 sh -c 'while ss -tln | grep -q :9101; do sleep 0.1; done'")
    assert audited(lab, DOOR) == []


def test_no_key_is_in_what_was_said(lab: Lab) -> None:
    said = "".join(run.out + run.err for run in lab.runs)
    assert lab.runs
    assert not any(secret in said for secret in (KEY, ENGINE_KEY, AUTHORITY))
    assert not lab.arguments_seen
