"""Users, API tokens, tickets and CSRF tokens."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.doubles.proxmox.errors import RefusedError
from tests.doubles.proxmox.permissions import Permissions

TICKET_LIFE_S = 7200
TICKET = re.compile(r"PVE:([^:]+):([0-9A-F]{8})::([0-9a-f]+)")
CSRF = re.compile(r"([0-9A-F]{8}):([0-9a-f]+)")


@dataclass
class Token:
    """One API token; with ``privsep`` it may only what both it and its user may."""

    secret: str
    privsep: bool = True
    comment: str = ""
    expire: int = 0


@dataclass
class User:
    """One user, of realm ``pam`` or ``pve``; ``second_factor``: a password opens only half the door."""

    password: str
    enabled: bool = True
    second_factor: bool = False
    groups: set[str] = field(default_factory=set)
    tokens: dict[str, Token] = field(default_factory=dict)


class Access:
    """Who may come in; ``permissions`` says what they may then do."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.permissions = Permissions(self.token_owner)
        self._key = secrets.token_bytes(16)
        self._generation = 0

    def add_user(self, userid: str, password: str) -> User:
        """A user who can log in with a password and has no permissions yet (but for ``root@pam``, who has all)."""
        self.users[userid] = User(password)
        return self.users[userid]

    def add_token(self, userid: str, tokenid: str, *, privsep: bool = True) -> str:
        """A token of a user; its secret, which no call tells a second time."""
        secret = f"{secrets.token_hex(4)}-{secrets.token_hex(2)}-4{secrets.token_hex(1)}0-a000-{secrets.token_hex(6)}"
        self.users[userid].tokens[tokenid] = Token(secret, privsep)
        return secret

    def token_owner(self, name: str) -> tuple[str, bool]:
        """The user behind ``user@realm`` or ``user@realm!token``, and whether the token is kept apart from them."""
        userid, mark, tokenid = name.partition("!")
        token = self.users[userid].tokens.get(tokenid) if userid in self.users else None
        return userid, bool(mark and (token is None or token.privsep))

    def expire_tickets(self) -> None:
        """Make every ticket given so far invalid, as two hours would."""
        self._generation += 1

    def ticket(self, userid: str, age_s: int = 0) -> str:
        """A ticket of a user, given ``age_s`` ago; it is good for two hours."""
        stamp = f"PVE:{userid}:{int(time.time()) - age_s:08X}"
        return f"{stamp}::{self._signature(stamp, self._generation)}"

    def csrf_token(self, userid: str) -> str:
        """What a ticket's user sends with everything that is no GET."""
        stamp = f"{int(time.time()):08X}"
        return f"{stamp}:{self._signature(stamp + userid)}"

    def login(self, username: str, password: str) -> bool:
        """Whether a password opens the door."""
        user = self.users.get(username)
        if user is None or not user.enabled:
            return False
        return hmac.compare_digest(user.password.encode(), password.encode())

    def ticket_user(self, ticket: str) -> str:
        """The user of a good ticket; nothing for one that is forged, too old or garbage."""
        match = TICKET.fullmatch(ticket)
        if not match:
            return ""
        age = time.time() - int(match[2], 16)
        if not -300 < age <= TICKET_LIFE_S or match[1] not in self.users:
            return ""
        return match[1] if self._is_ours(ticket) else ""

    def _is_ours(self, ticket: str) -> bool:
        stamp, _, signature = ticket.partition("::")
        return hmac.compare_digest(signature, self._signature(stamp, self._generation))

    def _signature(self, text: str, generation: int = 0) -> str:
        return hmac.new(self._key, f"{generation} {text}".encode(), hashlib.sha256).hexdigest()

    def caller(self, verb: str, cookie: str, authorization: str, csrf: str) -> str:
        """Who calls; ``RefusedError`` as PVE refuses."""
        ticket = _value(cookie, "PVEAuthCookie") or _value(authorization, "PVEAuthCookie")
        token = "" if ticket else _value(authorization, "PVEAPIToken")
        if token:
            return self._token_caller(token)
        if not ticket:
            raise RefusedError("No ticket")
        user = self.ticket_user(ticket)
        if not user or not self.users[user].enabled:
            raise RefusedError("Authentication failed!")
        if verb != "GET" and not self._is_csrf(user, csrf):
            raise RefusedError("Permission denied - invalid csrf token")
        return user

    def _is_csrf(self, user: str, given: str) -> bool:
        match = CSRF.fullmatch(given)
        return bool(match and hmac.compare_digest(match[2], self._signature(match[1] + user)))

    def _token_caller(self, text: str) -> str:
        name, _, secret = text.partition("=")
        userid, _, tokenid = name.partition("!")
        user = self.users.get(userid)
        token = user.tokens.get(tokenid) if user and user.enabled else None
        if token is None or not hmac.compare_digest(token.secret.encode(), secret.encode()):
            raise RefusedError("Authentication failed!")
        if token.expire and token.expire < time.time():
            raise RefusedError("Authentication failed!")
        return name


def _value(header: str, key: str) -> str:
    """What a header says after ``key=``, as PVE reads cookies and ``Authorization`` alike."""
    match = re.search(rf"(?:^|\s){key}(?:=| )([^;]*)", header)
    return unquote(match[1]) if match else ""
