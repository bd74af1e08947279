"""Whose a container is: what is written on it is read back, and nothing else counts as a mark."""

from __future__ import annotations

import pytest

from provisioner.hosts.proxmox import marks
from provisioner.hosts.proxmox.marks import Mark, Mount
from provisioner.values.state import InstanceKind

FULL = Mark(
    lab="Home.lab",
    vmid=105,
    image="debian/12",
    kind=InstanceKind.BUILDER,
    nesting=True,
    volumes=(Mount("data", "v-1", "/srv/data", readonly=True, slot="mp0"), Mount("b", "v-2", "/b", readonly=False)),
    asked={"memory": None, "disk": 2**30},
    extra=({"path": "/srv", "size": 2**30, "backup": False},),
    mac=True,
    discard=("local-lvm:vm-105-disk-3",),
    snapshot="20261120-173000",
)


@pytest.mark.parametrize("mark", [FULL, Mark("lab", 105, "")], ids=["full", "bare"])
@pytest.mark.parametrize("text", ["", "of a user\n\nwith lines", "ümläut % #"])
def test_what_is_written_is_read_back(mark: Mark, text: str) -> None:
    """Proxmox adds a line feed to descriptions."""
    assert marks.read_mark(marks.mark_text(text, mark) + "\n", 105) == (text, mark)


def test_nothing_in_a_block_ends_its_comment() -> None:
    mark = Mark("lab", 105, "debian/12", volumes=(Mount("a", "-->", "/<!-- x -->", readonly=True),))
    written = marks.mark_text("", mark)
    assert written.count("-->") == 1
    assert "\n" not in written
    assert marks.read_mark(written, 105) == ("", mark)


def test_a_block_of_another_number_is_nobodys() -> None:
    """A copy that somebody made by hand has the description of what it was copied from."""
    assert marks.read_mark(marks.mark_text("mine", FULL), 106) == ("mine", None)


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "only a user's words",
        "<!-- provisioner {} -->",
        '<!-- provisioner {"lab": "home"} -->',
        "<!-- provisioner {not json} -->",
        '<!-- provisioner {"lab": "h", "vmid": 105, "image": "", "kind": "strange", "nesting": false} -->',
        '<!-- provisioner {"lab":"h","vmid":105,"image":"","kind":"serving","nesting":false,"volumes":[1]} -->',
        '<!-- provisioner {"lab":"h","vmid":105,"image":"","kind":"serving","nesting":false,"asked":[1]} -->',
        marks.mark_text("", FULL)[:-5],
    ],
)
def test_what_cannot_be_read_is_no_mark(broken: str) -> None:
    assert marks.read_mark(broken, 105)[1] is None


def test_of_two_blocks_the_last_counts() -> None:
    """A user may have pasted one into the text."""
    pasted = marks.mark_text("mine", Mark("other", 105, ""))
    text, mark = marks.read_mark(marks.mark_text(pasted, FULL), 105)
    assert (text, mark) == (pasted, FULL)


@pytest.mark.parametrize(
    ("lab", "tag"), [("home", "provisioner-home"), ("Home.Lab", "provisioner-home_lab"), ("a b;c", "provisioner-a_b_c")]
)
def test_a_lab_has_a_tag_that_proxmox_takes(lab: str, tag: str) -> None:
    assert marks.tag_of(lab) == tag
    assert marks.with_tags(["web", "b"], lab) == ";".join(sorted(["b", "provisioner", tag, "web"]))
    assert marks.without_tags(marks.with_tags(["web"], lab), lab) == ("web",)
    assert marks.is_candidate(marks.with_tags([], lab), lab)


def test_a_tag_alone_finds_nothing() -> None:
    assert not marks.is_candidate("provisioner", "home")
    assert not marks.is_candidate("provisioner-home", "home")
    assert not marks.is_candidate("provisioner;provisioner-home2", "home")
    assert not marks.is_candidate("", "home")


def test_the_volumes_of_any_block_are_found() -> None:
    assert marks.volumes_in(marks.mark_text("text", FULL)) == {"v-1", "v-2"}
    assert marks.volumes_in("nothing") == frozenset()


@pytest.mark.parametrize("vmid", ["1e999", "-1e999", "NaN", "[" * 20_000, "9" * 5000])
def test_a_mark_with_a_number_that_is_none_is_no_mark(vmid: str) -> None:
    block = f'<!-- provisioner {{"lab": "l", "vmid": {vmid}, "image": "i", "kind": "serving", "nesting": false}} -->'
    assert marks.read_mark(block, 101) == ("", None)
