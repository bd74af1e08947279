"""Ports of this machine that somebody else has: refused with who it is, before anything is made."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from provisioner.reconcile import capacity
from tests.unit.cli.conftest import FILE, World


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("verb", ["plan", "up"])
def test_a_port_that_somebody_has_is_refused_with_who_it_is(
    world: World, lab: Path, monkeypatch: pytest.MonkeyPatch, verb: str, family: socket.AddressFamily
) -> None:
    monkeypatch.setattr(capacity, "SS", "ss")
    with socket.socket(family) as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        lab.write_text(FILE.replace("model: tiny,", f"expose: lan, port: {port}, model: tiny,"))
        answer = world.command(verb, *(["--yes"] if verb == "up" else []))
        assert answer.code == 4
        assert f"llama: port {port} (tcp) is taken by process {os.getpid()} (" in answer.err
        assert not world.host.containers
    world.done(verb, *(["--yes"] if verb == "up" else []))


def test_a_port_that_the_lab_has_published_is_its_own(world: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as published:
        published.bind(("", 0))
        port = published.getsockname()[1]
        lab.write_text(FILE.replace("model: tiny,", f"expose: lan, port: {port}, model: tiny,"))
        world.done("up", "--yes")
        published.listen()
        monkeypatch.setattr(capacity, "SS", "ss")
        world.done("plan")


def test_an_address_of_ipv6_alone_is_in_nobodys_way(world: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "SS", "ss")
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen()
        port = other.getsockname()[1]
        lab.write_text(FILE.replace("model: tiny,", f"expose: lan, port: {port}, model: tiny,"))
        world.done("plan")


@pytest.mark.parametrize("where", ["local", "https://box.example:8443"])
@pytest.mark.parametrize("verb", ["plan", "up"])
def test_a_port_of_a_host_that_another_lab_publishes_is_refused_with_whose_it_is(
    world: World, lab: Path, verb: str, where: str
) -> None:
    published = FILE.replace("incus: local", f'incus: "{where}"').replace("model: tiny,", "expose: lan, model: tiny,")
    lab.write_text(published)
    world.host.published = {("tcp", 8080): "container web of lab other"}
    answer = world.command(verb, *(["--yes"] if verb == "up" else []))
    assert answer.code == 4
    assert "llama: port 8080 (tcp) is taken by container web of lab other" in answer.err
    assert not world.host.containers
    world.host.published = {("udp", 8080): "container web of lab other"}
    world.done("plan")
