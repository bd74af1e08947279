"""Answers of another form than Proxmox VE's are refused where they come in, by their path and in words."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.hosts.proxmox.api import checked_answer
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.translate import bytes_of, whole_number
from tests.case_files import read_cases

CASES = read_cases("hosts/proxmox/forms")

LXC = ("nodes", "pve1", "lxc")
CONFIG = (*LXC, 101, "config")


@pytest.mark.parametrize(("path", "answer"), CASES["what proxmox answers is taken as it is"])
def test_what_proxmox_answers_is_taken_as_it_is(path: tuple[object, ...], answer: Any) -> None:
    assert checked_answer(path, answer) is answer


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        (LXC, None, "it is no list"),
        (LXC, {"vmid": 1}, "it is no list"),
        (LXC, ["101"], "it has none"),
        (LXC, [{"name": "a"}], "there is no vmid in it"),
        (LXC, [{"vmid": "1_0"}], "its vmid is no number"),
        (LXC, [{"vmid": True}], "its vmid is no number"),
        (LXC, [{"vmid": -5}], "its vmid is no number"),
        (LXC, [{"vmid": "9" * 5000}], "its vmid is no number"),
        (LXC, [{"vmid": 1, "tags": ["a"]}], "its tags is no text"),
        (LXC, [{"vmid": 1}] * 100_001, "more than 100000 rows"),
        (CONFIG, [], "it has none"),
        (CONFIG, {"cores": "local-lvm:8"}, "its cores is no number"),
        ((*LXC, 101, "interfaces"), [{"ip-addresses": {"ip-address": "x"}}], "its ip-addresses has another form"),
        ((*LXC, 101, "interfaces"), [{"ip-addresses": ["x"]}], "it has none"),
        (("nodes", "pve1", "status"), {"current-kernel": "6.8"}, "its current-kernel has another form"),
        (("nodes", "pve1", "status"), {"cpuinfo": "EPYC"}, "its cpuinfo has another form"),
    ],
)
def test_what_it_never_answers_is_refused_in_words(path: tuple[object, ...], answer: Any, words: str) -> None:
    with pytest.raises(PveError) as caught:
        checked_answer(path, answer)
    assert words in caught.value.message
    assert "/".join(map(str, path)) in caught.value.message


def test_numbers_in_texts_have_a_length() -> None:
    assert (whole_number("44"), whole_number("x"), whole_number("²"), whole_number("9" * 5000), whole_number("-1")) == (
        44,
        0,
        0,
        0,
        0,
    )
    assert (bytes_of("8G"), bytes_of("9" * 5000 + "T")) == (8 << 30, 0)
