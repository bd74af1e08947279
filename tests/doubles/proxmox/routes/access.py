"""``/access``: logging in, tokens, permissions."""

from __future__ import annotations

import secrets
import time

from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.errors import ApiError, bad_parameters, died
from tests.doubles.proxmox.formats import split_list
from tests.doubles.proxmox.permissions import Grant

TOKEN = "/access/users/{userid}/token"


@answers("GET /access/domains")
def realms(call: Call) -> object:
    """The realms, for everybody: a login page needs them."""
    del call
    return [
        {"realm": "pam", "type": "pam", "comment": "Linux PAM standard authentication"},
        {"realm": "pve", "type": "pve", "comment": "Proxmox VE authentication server"},
    ]


@answers("POST /access/ticket")
def login(call: Call) -> object:
    """A ticket for a password; nothing is said of why there is none."""
    access = call.world.access
    name = call.text("username") + (f"@{call.text('realm')}" if call.text("realm") else "")
    if not access.login(name, call.text("password")):
        raise ApiError(401, "authentication failure\n")
    if access.users[name].second_factor:
        half = f"PVE:!tfa!%7B%22totp%22%3Atrue%7D:{int(time.time()):08X}::00"
        return {"username": name, "ticket": half, "CSRFPreventionToken": access.csrf_token(name), "NeedTFA": 1}
    return {"username": name, "ticket": access.ticket(name), "CSRFPreventionToken": access.csrf_token(name)}


@answers("GET /access/permissions")
def permissions(call: Call) -> object:
    """What the caller, or another if that may be seen, may do on a path."""
    who = call.text("userid", call.user)
    if who != call.user and who.partition("!")[0] != call.user:
        call.check("/access", "Sys.Audit")
    path = call.text("path", "/")
    privileges = call.world.access.permissions.of(who, path)
    return {path: {name: int(on) for name, on in privileges.items()}}


@answers("GET /access/users")
def users(call: Call) -> object:
    """All users, or only the caller."""
    all_of_them = call.may_any("/access/groups", "User.Modify", "Sys.Audit")
    mine = call.user.partition("!")[0]
    known = call.world.access.users.items()
    return [
        {"userid": userid, "enable": int(user.enabled), "expire": 0, "realm-type": userid.partition("@")[2]}
        for userid, user in known
        if all_of_them or userid == mine
    ]


@answers("GET /access/roles")
def roles(call: Call) -> object:
    """The roles and their privileges."""
    known = call.world.access.permissions.roles
    special = ("Administrator", "NoAccess", "PVE")
    return [
        {"roleid": name, "privs": ",".join(sorted(privs)), "special": int(name.startswith(special))}
        for name, privs in sorted(known.items())
    ]


@answers("POST /access/roles")
def add_role(call: Call) -> object:
    """A role of one's own."""
    name, known = call.text("roleid"), call.world.access.permissions.roles
    if name in known:
        raise died(f"role '{name}' already exists")
    known[name] = frozenset(split_list(call.text("privs")))
    return None


@answers("PUT /access/roles/{roleid}")
def change_role(call: Call) -> object:
    """Other privileges for a role, or more of them."""
    name, known = call.text("roleid"), call.world.access.permissions.roles
    if name not in known:
        raise died(f"role '{name}' does not exist")
    known[name] = frozenset(split_list(call.text("privs"))) | (known[name] if call.flag("append") else frozenset())
    return None


@answers("POST /access/users")
def add_user(call: Call) -> object:
    """A user without a password."""
    name = call.text("userid")
    if name in call.world.access.users:
        raise died(f"create user failed: user '{name}' already exists")
    call.world.access.add_user(name, secrets.token_hex(16))
    return None


@answers("GET /access/acl")
def acl(call: Call) -> object:
    """The access control list, as far as the caller may change it."""
    grants = sorted(call.world.access.permissions.grants, key=lambda grant: (grant.path, grant.who, grant.role))
    return [
        {
            "path": grant.path,
            "ugid": grant.who,
            "roleid": grant.role,
            "type": "token" if "!" in grant.who else "user",
            "propagate": int(grant.propagate),
        }
        for grant in grants
        if call.may(grant.path, "Permissions.Modify")
    ]


@answers("PUT /access/acl")
def change_acl(call: Call) -> object:
    """Give roles, or take them away."""
    known = call.world.access.permissions
    whom = [*split_list(call.text("users")), *split_list(call.text("tokens"))]
    for role in split_list(call.text("roles")):
        if role not in known.roles:
            raise died(f"role '{role}' does not exist")
        for who in whom:
            grant = Grant(call.text("path"), who, role, call.text("propagate", "1") == "1")
            known.grants = {one for one in known.grants if (one.path, one.who, one.role) != (grant.path, who, role)}
            if not call.flag("delete"):
                known.grants.add(grant)
    return None


@answers(f"GET {TOKEN}")
def tokens(call: Call) -> object:
    """A user's tokens, without their secrets."""
    user = call.world.access.users.get(call.text("userid"))
    if user is None:
        raise died(f"no such user ('{call.text('userid')}')")
    return [
        {"tokenid": name, "privsep": int(token.privsep), "expire": token.expire} for name, token in user.tokens.items()
    ]


@answers(f"POST {TOKEN}/{{tokenid}}")
def add_token(call: Call) -> object:
    """A new token; its secret is told here and never again."""
    userid, name = call.text("userid"), call.text("tokenid")
    user = call.world.access.users.get(userid)
    if user is None:
        raise died(f"no such user ('{userid}')")
    if name in user.tokens:
        raise bad_parameters({"tokenid": "Token already exists."})
    secret = call.world.access.add_token(userid, name, privsep=call.text("privsep", "1") == "1")
    token = user.tokens[name]
    token.comment = call.text("comment")
    token.expire = call.number("expire") if call.number("expire") > time.time() else 0
    info = {"privsep": int(token.privsep), "expire": token.expire, "comment": token.comment}
    return {"full-tokenid": f"{userid}!{name}", "value": secret, "info": info}


@answers(f"DELETE {TOKEN}/{{tokenid}}")
def delete_token(call: Call) -> object:
    """Revoke a token."""
    user = call.world.access.users.get(call.text("userid"))
    if user is None or call.text("tokenid") not in user.tokens:
        raise died(f"no such token '{call.text('tokenid')}' for user '{call.text('userid')}'")
    del user.tokens[call.text("tokenid")]
    return None
