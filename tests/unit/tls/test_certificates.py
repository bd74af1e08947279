"""What is refused of certificates that are given, what is only told, and that no word of a key is ever said."""

from __future__ import annotations

from datetime import timedelta

import pytest

from provisioner.tls.certificates import CERTIFICATE, KEY, Flaw, flaws, remarks
from tests.signed_pairs import NOW, Signed, signed

CHAT, API = "chat.home.example", "api.home.example"
ROOT = signed("root")
BETWEEN = signed("between", ROOT)
OTHER = signed("other", ROOT)
PAIR = signed(CHAT, BETWEEN, CHAT, API)
WILD = signed("wild", BETWEEN, "*.home.example")
OLD = signed("old", BETWEEN, CHAT, API, ends=NOW - timedelta(hours=1))
EARLY = signed("early", BETWEEN, CHAT, API, begins=NOW + timedelta(hours=1))
OLD_BETWEEN = signed("between", ROOT, ends=NOW - timedelta(days=3))
BELOW_OLD = signed("below", OLD_BETWEEN, CHAT, API)


def told(chain: str, key: str | None, *names: str) -> list[tuple[str, str]]:
    """Part and message of each flaw."""
    found = list(flaws(chain, key, names or (CHAT, API), NOW))
    assert all(flaw.hint for flaw in found)
    return [(flaw.part, flaw.message) for flaw in found]


@pytest.mark.parametrize(
    ("chain", "key"),
    [
        (PAIR.chain, PAIR.key),
        (PAIR.chain, None),
        (WILD.chain, WILD.key),
        (f"Subject: C = XX, O = \u00e4\n{PAIR.own}\n# and above it\n{BETWEEN.own}", PAIR.key),
        (PAIR.chain.replace("\n", "\r\n"), PAIR.key.replace("\n", "\r\n")),
        (PAIR.own, PAIR.key),
        (PAIR.chain + ROOT.own, PAIR.key),
    ],
    ids=["pair", "key unknown", "wildcard", "remarks between", "other line ends", "alone", "with the root"],
)
def test_a_good_pair_has_no_flaw(chain: str, key: str | None) -> None:
    assert told(chain, key) == []


@pytest.mark.parametrize(
    ("chain", "key", "part", "words"),
    [
        ("", PAIR.key, CERTIFICATE, "there is no certificate in PEM form"),
        ("hello", PAIR.key, CERTIFICATE, "there is no certificate in PEM form"),
        (PAIR.own.replace("MII", "AAA", 1), PAIR.key, CERTIFICATE, "or a broken one"),
        (PAIR.chain + PAIR.key, PAIR.key, CERTIFICATE, "there is a private key in the file"),
        (OLD.chain, OLD.key, CERTIFICATE, "the certificate expired on "),
        (BELOW_OLD.chain, BELOW_OLD.key, CERTIFICATE, "certificate 2 of the file expired on "),
        (EARLY.chain, EARLY.key, CERTIFICATE, "the certificate is not valid before "),
        (PAIR.own + OTHER.own, PAIR.key, CERTIFICATE, "the certificate is not signed by the one that follows it"),
        (PAIR.chain, WILD.key, KEY, "it is not the key of the certificate"),
        (PAIR.chain, PAIR.locked("canary"), KEY, "the key has a password"),
        (PAIR.chain, "canary", KEY, "it is no private key in PEM form"),
        (PAIR.chain, PAIR.own, KEY, "it is no private key in PEM form"),
    ],
)
def test_what_no_browser_takes_is_a_flaw(chain: str, key: str, part: str, words: str) -> None:
    ((found, message),) = told(chain, key)
    assert found == part
    assert words in message
    assert "canary" not in message


def test_a_chain_in_the_wrong_order_is_told_as_such() -> None:
    found = told(BETWEEN.own + PAIR.own, PAIR.key)
    assert (CERTIFICATE, "the certificate is not signed by the one that follows it") in found
    assert (KEY, "it is the key of certificate 2 of the file, and not of the first") in found


@pytest.mark.parametrize(
    ("pair", "names"),
    [
        (PAIR, ("new.home.example",)),
        (WILD, ("home.example",)),
        (WILD, ("a.chat.home.example",)),
        (WILD, ("chat.home.example.org",)),
        (ROOT, (CHAT,)),
    ],
)
def test_each_site_that_it_is_not_for_is_a_flaw_of_that_site(pair: Signed, names: tuple[str, ...]) -> None:
    found = told(pair.chain if pair is not ROOT else ROOT.own, pair.key, *names)
    assert [part for part, _ in found] == list(names)
    assert "the certificate is not for this name, but for " in found[0][1]


def test_a_certificate_that_ends_soon_is_a_remark() -> None:
    ends = NOW + timedelta(days=20, hours=1)
    (found,) = remarks(signed("soon", BETWEEN, CHAT, ends=ends).chain, NOW)
    assert found.message == f"it ends on {ends:%Y-%m-%d}, in 20 days"
    assert list(remarks(PAIR.chain, NOW)) == []
    assert list(remarks(OLD.chain, NOW)) == [], "it is a flaw"
    assert list(remarks("hello", NOW)) == [], "it is a flaw"


def test_the_end_of_one_above_counts_as_well() -> None:
    above = signed("above", ROOT, ends=NOW + timedelta(days=3))
    (found,) = remarks(signed("below", above, CHAT).chain, NOW)
    assert "in 3 days" in found.message


def test_a_certificate_without_those_above_it_is_a_remark() -> None:
    (found,) = remarks(PAIR.own, NOW)
    assert "it stands alone in its file" in found.message
    assert isinstance(found, Flaw)
    assert list(remarks(signed("own", None, CHAT).own, NOW)) == [], "nobody stands above it"
