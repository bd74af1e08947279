"""Proves a desktop by using it: ``prove.py < JSON``; answers with ``problem``, ``notes``, ``took`` (s), ``pictures``.

Asked: ``users`` (name and password), ``port``, ``certificate``, ``browser`` (a program, or nothing), ``folder`` (for
the pictures), ``patience`` (seconds for a picture), ``max_sessions``. Who has a session is left alone. A session made
here ends here.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import browser
import client
import evidence
import judge
import sessions
import tls
from picture import Picture, write_png
from reasons import ENDED, Evidence, is_sure, reason

START_S = 15.0
REFUSAL_S = 20.0
POLL_S = 0.5
CALM_S = 1.5
LATEST_S = 8.0
NEWER = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
OLDER = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)


class Failed(Exception):  # noqa: N818  # a finding, not a defect
    """The proof's answer: why the desktop is none."""


@dataclass
class Proof:
    """What is asked, and what was found so far."""

    asked: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)
    took: dict[str, float] = field(default_factory=dict)
    pictures: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """The server's."""
        return int(self.asked["port"])

    @property
    def folder(self) -> Path:
        """Where pictures go."""
        return Path(self.asked["folder"])

    def keep(self, name: str, picture: Picture) -> None:
        """Write a picture down, with what it shows."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_png(picture, self.folder / f"{name}.png")
        self.pictures[name] = judge.kind(picture)

    def answer(self, problem: str = "") -> dict[str, Any]:
        """What is printed."""
        return {"problem": problem, "notes": self.notes, "took": self.took, "pictures": self.pictures}


def main() -> None:
    """Prove, and print the answer; it is kept beside the pictures."""
    os.umask(0o077)
    proof = Proof(json.load(sys.stdin))
    try:
        prove(proof)
        answer = proof.answer()
    except Failed as error:
        answer = proof.answer(str(error))
    except (OSError, ValueError, KeyError, struct.error, subprocess.SubprocessError, zlib.error) as error:
        answer = proof.answer(f"{type(error).__name__}: {error}")
    try:
        proof.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (proof.folder / "proof.json").write_text(json.dumps(answer), encoding="utf-8")
    except OSError as error:  # a full disk is the finding, not what hides it
        answer["problem"] = answer["problem"] or f"the answer cannot be kept: {error}"
    sys.stdout.write(json.dumps(answer))


def prove(proof: Proof) -> None:
    """TLS, a refused login, a real one, the browser, a second one that finds the first again."""
    for old in (*proof.folder.glob("*.png"), *proof.folder.glob("proof.json")):
        old.unlink()
    shown = check_tls(proof)
    if proof.asked["browser"] and (lacking := browser.missing(proof.asked["browser"])):
        raise Failed(f"there is no browser: {lacking}")
    open_ones = sessions.sessions()
    check_open(proof, open_ones)
    busy = {one.user for one in open_ones}
    free = [user for user in proof.asked["users"] if user["name"] not in busy]
    with client.screen() as screen:
        refuse_a_wrong_password(proof, screen, shown, (free or proof.asked["users"])[0]["name"])
        if untried := why_untried(proof, free):
            proof.notes.append(f"{untried}, so nobody's password was tried")
        else:
            log_in(proof, screen, shown, free[0])


def why_untried(proof: Proof, free: Sequence[Mapping[str, str]]) -> str:
    """Why nobody can log in without harm to somebody else's session, seen just before; an empty text where one can."""
    open_ones = sessions.sessions()
    if not free:
        return "every user has a session"
    if len(open_ones) >= proof.asked["max_sessions"]:
        return f"every session that is allowed is taken ({len(open_ones)})"
    if any(one.user == free[0]["name"] for one in open_ones):
        return f"{free[0]['name']} has logged in meanwhile"
    return ""


def check_tls(proof: Proof) -> str:
    """The certificate's fingerprint, which the server shows; raises ``Failed`` where it talks in another way."""
    wanted = tls.fingerprint_of(Path(proof.asked["certificate"]))
    until(lambda: tls.is_open(client.LOCAL, proof.port), START_S)  # it may have been started a moment ago
    try:
        shown = tls.fingerprint(client.LOCAL, proof.port, NEWER)
    except tls.Refused as error:
        raise Failed(
            f"xrdp does not talk TLS: {error}. Can user xrdp read the key? Look at /var/log/xrdp.log; run: provision up"
        ) from error
    except ConnectionRefusedError as error:
        raise Failed(f'nothing answers on port {proof.port}. Look at "systemctl status xrdp".') from error
    if shown != wanted:
        raise Failed(f"xrdp shows another certificate ({shown}) than {proof.asked['certificate']} ({wanted})")
    if tls.offers_rdp_security(client.LOCAL, proof.port):
        raise Failed("xrdp would talk without TLS: security_layer in /etc/xrdp/xrdp.ini is not tls. Run: provision up")
    try:
        tls.fingerprint(client.LOCAL, proof.port, OLDER)
    except tls.Refused:
        return shown
    raise Failed("xrdp takes TLS 1.1 or older: set ssl_protocols in /etc/xrdp/xrdp.ini. Run: provision up")


def check_open(proof: Proof, open_ones: Sequence[sessions.Session]) -> None:
    """Look at sessions that people have without touching them."""
    for one in open_ones:
        where = f"the session of {one.user} on display {one.display}"
        if one.orphaned:
            raise Failed(
                f"xrdp was restarted since {where} began and does not know it any more: the next login gets a second "
                f"desktop. Save what is open there, then end it: loginctl terminate-user {one.user}"
            )
        if not one.manager or not one.panel:
            lacking = "window manager (marco)" if not one.manager else "panel (mate-panel)"
            raise Failed(f"{where} has no {lacking}. Log out there and in again; if that does not help, provision up")
        if not sessions.bus_answers(one.bus):
            raise Failed(f"the bus of {where} is gone ({one.bus}). End it: loginctl terminate-user {one.user}")
        proof.notes.append(f"{where} was left alone; its window manager, panel and bus are there")


def refuse_a_wrong_password(proof: Proof, screen: client.Screen, shown: str, user: str) -> None:
    """A wrong password ends the connection, soon."""
    began = time.monotonic()
    with client.login(screen, proof.port, user, secrets.token_urlsafe(12), shown) as login:
        while login.code is None and time.monotonic() - began < REFUSAL_S:
            time.sleep(POLL_S)
        code, picture = login.code, screen.picture()
    proof.took["refused"] = round(time.monotonic() - began, 1)
    if code == ENDED:
        return
    if code is not None:
        raise Failed(reason(Evidence(user, "blank", code, login.words())))
    proof.keep("failed", picture)
    if judge.kind(picture) == "mate":
        raise Failed(f"{user} got in with a wrong password. Look at /etc/pam.d/xrdp-sesman")
    raise Failed(
        f"a wrong password does not end the connection within {REFUSAL_S:.0f} seconds: require_credentials in "
        "/etc/xrdp/xrdp.ini is not true. Run: provision up"
    )


def log_in(proof: Proof, screen: client.Screen, shown: str, user: Mapping[str, str]) -> None:
    """The right password leads to a desktop; the same one again when the client comes back."""
    name = user["name"]
    lengths = evidence.lengths(name)
    try:
        with client.login(screen, proof.port, name, user["password"], shown) as login:
            proof.took["panel"] = wait_for_desktop(proof, screen, login, name, lengths)
            session = own(name)
            proof.keep("desktop", calm(screen))
            if not proof.asked["browser"]:
                return
            with browser.served() as (address, fields):
                with browser.in_session(proof.asked["browser"], session.leader, name, address):
                    proof.took["browser"] = wait_for_page(proof, screen, fields)
                    client.end(login.process)
                    with client.login(screen, proof.port, name, user["password"], shown):
                        proof.took["again"] = come_back(proof, screen, session, fields)
                check_headless(proof, name, address, fields)
        return
    finally:
        for one in sessions.sessions():
            if one.user == name:
                sessions.end(one)


def own(user: str) -> sessions.Session:
    """The user's session. Raises ``Failed`` where there is none, or more than one."""
    found = [one for one in sessions.sessions() if one.user == user]
    if len(found) != 1:
        raise Failed(
            f"{user} has {len(found)} sessions ({', '.join(one.display for one in found)}) where one is expected"
        )
    return found[0]


def wait_for_desktop(
    proof: Proof, screen: client.Screen, login: client.Login, user: str, lengths: Mapping[Path, int]
) -> float:
    """Seconds until panels are drawn and a window manager runs; logs count from ``lengths`` on. Raises ``Failed``."""
    began = time.monotonic()
    while True:
        seen = evidence.look(screen, login, user, lengths)
        elapsed = time.monotonic() - began
        if seen.kind == "mate" and not reason(seen):
            return round(elapsed, 1)
        if seen.code is not None or is_sure(seen) or elapsed > float(proof.asked["patience"]):
            why = reason(seen) or "the client ended although a desktop was drawn"
            with suppress(OSError):  # on a full disk there is no room for a picture of it
                proof.keep("failed", screen.picture())
            raise Failed(why)
        time.sleep(POLL_S)


def calm(screen: client.Screen) -> Picture:
    """A picture that did not change for a moment (icons come after panels), or the last one."""
    began = changed = time.monotonic()
    picture = screen.picture()
    while time.monotonic() - changed < CALM_S and time.monotonic() - began < LATEST_S:
        time.sleep(POLL_S)
        now = screen.picture()
        if now.pixels != picture.pixels:
            picture, changed = now, time.monotonic()
    return picture


def wait_for_page(proof: Proof, screen: client.Screen, fields: Sequence[int]) -> float:
    """Seconds until the page is on the screen."""
    took = until(lambda: judge.shows(screen.picture(), fields), float(proof.asked["patience"]))
    proof.keep("browser" if took is not None else "failed", screen.picture())
    if took is None:
        raise Failed(
            f"{proof.asked['browser']} runs in the session and does not show its page; the picture is kept. Start it "
            "in the session by hand, and look at ~/.xsession-errors"
        )
    return took


def come_back(proof: Proof, screen: client.Screen, session: sessions.Session, fields: Sequence[int]) -> float:
    """Seconds until a login that was just made shows the session and the page again."""
    took = until(lambda: judge.shows(screen.picture(), fields), float(proof.asked["patience"]))
    now = own(session.user)
    if took is None or now.server != session.server:
        raise Failed(
            f"a second login of {session.user} does not get the same session back (display {session.display}, then "
            f"{now.display}). Is Policy in /etc/xrdp/sesman.ini Default?"
        )
    return took


def check_headless(proof: Proof, user: str, address: str, fields: Sequence[int]) -> None:
    """The browser draws its page without a screen, too."""
    began = time.monotonic()
    picture = browser.headless(proof.asked["browser"], user, address)
    proof.took["headless"] = round(time.monotonic() - began, 1)
    if not judge.shows(picture, fields):
        raise Failed(f"{proof.asked['browser']} --headless draws another page than the one that it was given")


def until(true: Callable[[], bool], limit_s: float) -> float | None:
    """Seconds until it is true, None when it never is."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        if true():
            return round(time.monotonic() - began, 1)
        time.sleep(POLL_S)
    return None


if __name__ == "__main__":
    main()
