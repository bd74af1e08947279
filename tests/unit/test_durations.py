"""Durations of the file: what they are, and that every page that has one takes the same."""

from __future__ import annotations

import re

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.services.base import DRAIN_OPTION
from provisioner.values import paths
from provisioner.values.quantities import UP_TO_AN_HOUR, seconds_of

ANSWERING = (
    *("agent_team", "kokoro", "litellm", "llama_cpp", "oci", "ollama", "open_webui", "pipelines", "tabbyapi", "vllm"),
)
"""The services that may be in the middle of an answer when they are stopped."""


@pytest.mark.parametrize(("text", "seconds"), [("0s", 0), ("20s", 20), ("2m", 120), ("15m", 900), ("1h", 3600)])
def test_a_duration_has_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
    assert re.fullmatch(UP_TO_AN_HOUR, text)


@pytest.mark.parametrize(
    "text", ["", "15", "8GiB", "2 m", "-2m", "1.5h", "2M", "m", "20s\n", "1h30m", "٢m", "1d", "99999999s"]
)
def test_what_has_no_unit_or_another_one_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        seconds_of(text)


@pytest.mark.parametrize("text", ["3601s", "9999s", "61m", "2h", "0m", "007s"])
def test_nobody_waits_longer_than_an_hour(text: str) -> None:
    assert seconds_of(text) >= 0
    assert not re.fullmatch(UP_TO_AN_HOUR, text)


def test_every_number_of_seconds_up_to_an_hour_may_be_written() -> None:
    assert [number for number in range(4000) if re.fullmatch(UP_TO_AN_HOUR, f"{number}s")] == list(range(3601))


QUEUEING = ("agent_team", "kokoro", "litellm", "llama_cpp", "ollama", "pipelines", "tabbyapi", "vllm")
"""Those whose requests wait in a switch; people see a page instead."""
SWITCHES = tuple(
    f"switch-{name}.service"
    for name in ("agent-team", "kokoro", "litellm", "llama-server", "ollama", "pipelines", "tabbyapi", "vllm")
)


def test_a_switch_stands_before_what_answers() -> None:
    services = load_catalog().services
    assert sorted(name for name, page in services.items() if page.behind) == list(ANSWERING)
    assert sorted(name for name, page in services.items() if "queue" in page.options) == list(QUEUEING)
    limits = {services[name].options["queue"].limit for name in QUEUEING}
    assert {limit and limit.pattern for limit in limits} == {UP_TO_AN_HOUR}
    assert tuple(services[name].units[1] for name in QUEUEING) == SWITCHES


@pytest.mark.parametrize("option", ["drain", "queue"])
def test_what_the_switch_passes_on_has_the_limits_of_its_own_page(option: str) -> None:
    services = load_catalog().services
    page = yaml.safe_load((paths.roles() / "switch/meta/service.yml").read_text(encoding="utf-8"))
    for name in QUEUEING:
        own = yaml.safe_load((paths.roles() / name / "meta/service.yml").read_text(encoding="utf-8"))
        assert option not in own["limits"]
        limit = services[name].options[option].limit
        assert limit is not None
        assert {"pattern": limit.pattern, "says": limit.says} == page["limits"][option]


def test_every_page_says_the_same_of_its_drain() -> None:
    services = load_catalog().services
    draining = {name for name, page in services.items() if DRAIN_OPTION in page.options}
    assert draining == {*ANSWERING, "door"}, "a door counts open connections as well, and says so"
    assert services["door"].options[DRAIN_OPTION].limit == services["llama_cpp"].options[DRAIN_OPTION].limit
    said = {name: services[name].options[DRAIN_OPTION] for name in ANSWERING}
    assert len({(option.default, option.description, option.limit) for option in said.values()}) == 1
    limit = said["llama_cpp"].limit
    assert limit is not None
    assert limit.pattern == UP_TO_AN_HOUR
