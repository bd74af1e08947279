"""Clients of the lab: its addresses for people, snippets for programs that ask its gateways, and files for RDP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from provisioner.lab.resolved import SPEECH_OPTION, SPEECH_PROTOCOL, ResolvedLab
from provisioner.lab.served import Served, models_of, speakers_for
from provisioner.labfile.loader import environment_name
from provisioner.services import knowledge_of
from provisioner.services.base import LAN, ResolvedService
from provisioner.services.gateway_routes import CHAT
from provisioner.values.address import Address
from provisioner.values.state import Secret

# Settings of programs that ask a lab: keys are named by their variables, and never shown.

CLIENTS = ("opencode", "openai", "openwebui")


@dataclass(frozen=True, slots=True)
class Speech:
    """Where a lab speaks: the OpenAI URL for that, the variable that holds its key ("" for none), model and voice.

    ``voice`` is "" where nobody knows one.
    """

    url: str
    key_variable: str
    model: str
    voice: str


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a lab answers: its OpenAI URL, the variable that holds its key ("" for none), its models by their names.

    A lab that only speaks answers where it speaks, and has no models.
    """

    lab: str
    url: str
    key_variable: str
    models: Mapping[str, Served] = field(default_factory=dict)
    speech: Speech | None = None
    key_command: str = ""
    """The shell's command that prints the key where the environment does not have it; "" where it does."""


def client_text(client: str, gateway: Gateway) -> str:
    """The snippet for one of ``CLIENTS``."""
    return _WRITERS[client](gateway)


def _opencode(gateway: Gateway) -> str:
    """An OpenAI-compatible provider (opencode.ai/docs/providers); opencode reads ``{env:NAME}`` when it starts."""
    options = {"baseURL": gateway.url}
    if gateway.key_variable:
        options["apiKey"] = f"{{env:{gateway.key_variable}}}"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": gateway.lab,
        "options": options,
        "models": {name: _opencode_model(name, served) for name, served in gateway.models.items()},
    }
    return json.dumps({"$schema": "https://opencode.ai/config.json", "provider": {gateway.lab: provider}}, indent=2)


def _opencode_model(name: str, served: Served) -> dict[str, Any]:
    """As models.dev describes a model: without ``modalities`` opencode leaves images out of what it sends."""
    model: dict[str, Any] = {"name": name}
    if served.context is not None:
        model["limit"] = {"context": served.context, "output": served.output}
    if served.vision:
        model |= {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
    return model


def _openai(gateway: Gateway) -> str:
    """Two variables, and as comments what answers there."""
    lines = []
    if gateway.models or not gateway.speech:
        lines += _model_comments(gateway.models)
    if gateway.speech:
        lines.append(_speech_comment(gateway.speech, gateway.url))
    key = f'"${gateway.key_variable}"' if gateway.key_variable else "none"
    if gateway.key_command:
        key = f'"${{{gateway.key_variable}:-$({gateway.key_command})}}"'
    return "\n".join([*lines, f"export OPENAI_BASE_URL={gateway.url}", f"export OPENAI_API_KEY={key}"])


def _model_comments(models: Mapping[str, Served]) -> list[str]:
    lines = [f"# models: {', '.join(models) or 'ask /v1/models'}"]
    return lines + [f"# {name}: {_served_text(served)}" for name, served in models.items()]


def _speech_comment(speech: Speech, url: str) -> str:
    """What speaks; its address only where that is not ``url``, which stands below anyway."""
    comment = f"# speech: model {speech.model}"
    if speech.voice:
        comment += f", voice {speech.voice}"
    if speech.url != url:
        comment += f", at {speech.url}"
    return comment


def _served_text(served: Served) -> str:
    taken = "text and images" if served.vision else "text"
    if served.context is None:
        return taken
    return f"{taken}, {served.context} tokens of context, {served.output} of them for the answer"


def _openwebui(gateway: Gateway) -> str:
    """Without ENABLE_PERSISTENT_CONFIG=False its database wins over these variables after the first start."""
    speech = gateway.speech
    lines = []
    only_speaks = speech is not None and not gateway.models and speech.url == gateway.url
    if not only_speaks:
        lines += [
            "ENABLE_OPENAI_API=True",
            f"OPENAI_API_BASE_URLS={gateway.url}",
            f"OPENAI_API_KEYS={_webui_key(gateway.key_variable)}",
        ]
    if speech is not None:
        lines += _webui_speech(speech)
    return "\n".join([*lines, "ENABLE_PERSISTENT_CONFIG=False"])


def _webui_speech(speech: Speech) -> list[str]:
    """It asks for each sentence alone, so that the first is heard early whatever the server does."""
    return [
        "AUDIO_TTS_ENGINE=openai",
        f"AUDIO_TTS_OPENAI_API_BASE_URL={speech.url}",
        f"AUDIO_TTS_OPENAI_API_KEY={_webui_key(speech.key_variable)}",
        f"AUDIO_TTS_MODEL={speech.model}",
        *([f"AUDIO_TTS_VOICE={speech.voice}"] if speech.voice else []),
        "AUDIO_TTS_SPLIT_ON=punctuation",
    ]


def _webui_key(variable: str) -> str:
    return f"${{{variable}}}" if variable else "none"


_WRITERS: Mapping[str, Callable[[Gateway], str]] = {"opencode": _opencode, "openai": _openai, "openwebui": _openwebui}


# The entrance of a lab: the service that its clients talk to, what that serves, and who speaks for them.

PROTOCOL = "openai"
ORDER = ("gateway", "engine")
HTTPS_PORT = 443


@dataclass(frozen=True, slots=True)
class Entrance:
    """The service that clients should talk to."""

    service: Address
    port: int
    is_on_lan: bool
    key: str
    """The name of the secret that it asks for; empty where it asks for none."""
    key_variable: str
    models: Mapping[str, Served]
    site: str = ""
    """Its URL behind a door of the lab, ``https://api.home.example``; empty where no door has it as a site."""
    has_own_root: bool = False
    """Whether clients have to trust the lab's own authority for that."""

    @property
    def container(self) -> str:
        """The name of its container."""
        return self.service.container


def entrance_of(lab: ResolvedLab) -> Entrance | None:
    """The lab's first gateway, else its first engine that answers chats in OpenAI's protocol, else None."""
    for stage in ORDER:
        for service in lab.services.values():
            is_chat = knowledge_of(service.role).answers(service) == CHAT
            if service.page.protocol == PROTOCOL and service.page.stage == stage and is_chat:
                return _entrance(lab, service, models_of(lab, service))
    return None


def _entrance(lab: ResolvedLab, service: ResolvedService, models: Mapping[str, Served]) -> Entrance:
    site, has_own_root = _site_of(lab, service)
    is_on_lan, key, variable = service.expose == LAN, key_name(service), _key_variable(service)
    return Entrance(service.address, service.port or 0, is_on_lan, key, variable, models, site, has_own_root)


def _site_of(lab: ResolvedLab, service: ResolvedService) -> tuple[str, bool]:
    """The URL of its first site, and whether the lab's own authority signs for it; an empty URL where it has none."""
    for door in lab.services.values():
        for name, used in door.sites.items():
            if used == service.address:
                port = "" if door.port == HTTPS_PORT else f":{door.port}"
                return f"https://{name}{port}", door.authority is not None
    return "", False


@dataclass(frozen=True, slots=True)
class SpeechEndpoint:
    """Where clients have texts spoken: through the lab's gateway, or by the service itself."""

    entrance: Entrance
    model: str
    voice: str


def speech_endpoint_of(lab: ResolvedLab, entrance: Entrance | None) -> SpeechEndpoint | None:
    """Who speaks for clients that talk to ``entrance``: that one where it offers speech, else the first that speaks."""
    through = _speech_through(lab, entrance) if entrance is not None else None
    if through is not None or not lab.speakers:
        return through
    service = lab.speakers[0]
    own = _entrance(lab, service, {})
    speech = knowledge_of(service.role).speech(service)
    return SpeechEndpoint(own, speech.model.removeprefix(f"{PROTOCOL}/"), speech.voice)


def _speech_through(lab: ResolvedLab, entrance: Entrance) -> SpeechEndpoint | None:
    """Speech as the gateway at ``entrance`` offers it; None where it offers none."""
    for gateway in lab.containers[entrance.container].services:
        speakers = speakers_for(lab, gateway) if SPEECH_OPTION in gateway.page.options else ()
        for speaker in speakers:
            return SpeechEndpoint(entrance, speaker.name, speaker.voice)
    return None


def key_name(service: ResolvedService) -> str:
    """The name of the secret of the file that a service asks for, its path for one in clear; empty without one."""
    key = service.written.get(service.page.key_option or "")
    return key.name if isinstance(key, Secret) else ""


def _key_variable(service: ResolvedService) -> str:
    """The variable of the environment that gives the key; empty where the service asks for none."""
    name = key_name(service)
    if not name:
        return ""
    # one in clear has its path for a name, which no variable could have
    return environment_name(service.page.key_option or "" if "." in name else name)


# The addresses of a lab that people need: its pages and desktops, and what programs ask.

RDP = "rdp"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What people use of one service: a page in a browser, a desktop for RDP clients, or an API.

    ``site``: its URL behind a door of the lab; ``path`` follows the address where it has none. ``secret``: the name of
    the password or key that it asks for; ``user``: the account that signs in with it.
    """

    service: ResolvedService
    kind: Literal["page", "desktop", "api"]
    path: str = ""
    site: str = ""
    has_own_root: bool = False
    user: str = ""
    secret: str = ""

    def url(self, address: str) -> str:
        """Where it is; ``address`` is its container's, of which a site needs nothing."""
        if self.site:
            return self.site + self.path
        place = f"{address}:{self.service.port}"
        return place if self.kind == "desktop" else f"http://{place}{self.path}"


def endpoints_of(lab: ResolvedLab) -> tuple[Endpoint, ...]:
    """Return what people use of a lab, in the order of the file: pages, desktops, and what programs are to ask.

    Programs ask the entrance and what speaks, and what has a site; engines behind a gateway are not among them.
    """
    entrance = entrance_of(lab)
    endpoint = speech_endpoint_of(lab, entrance)
    asked = {entrance.service} if entrance else set[Address]()
    if endpoint is not None:
        asked.add(endpoint.entrance.service)
    found = list[Endpoint]()
    for service in lab.services.values():
        found += _endpoints(lab, service, is_asked=service.address in asked)
    return tuple(found)


def _endpoints(lab: ResolvedLab, service: ResolvedService, *, is_asked: bool) -> Iterator[Endpoint]:
    """What people use of one service; ``is_asked``: programs are to ask it.

    A page without an account of the file has no secret: the key of such a service is for programs.
    """
    site, has_own_root = _site_of(lab, service)
    secret = key_name(service)
    page = knowledge_of(service.role).web_page(service)
    if service.page.protocol == RDP:
        user = knowledge_of(service.role).screen(service).user
        yield Endpoint(service, "desktop", user=user, secret=secret)
    if page is not None:
        password = secret if page.user else ""
        yield Endpoint(
            service,
            "page",
            path=page.path,
            site=site,
            has_own_root=has_own_root,
            user=page.user,
            secret=password,
        )
    if is_asked or (site and page is None):
        path = "/v1" if service.page.protocol in (PROTOCOL, SPEECH_PROTOCOL) else "/"
        yield Endpoint(service, "api", path, site, has_own_root, secret=secret)


# A desktop on a screen: the file that RDP clients open, and the words that start one of them here.

WINDOWED = ("remmina", "open", "mstsc.exe")
"""Clients that ask for password and certificate in a window, in the order in which they are looked for; the last are
macOS's own way to a file's program, and Windows' client."""
ON_TERMINAL = ("xfreerdp3", "xfreerdp", "wlfreerdp3", "wlfreerdp")
"""Those that ask for the password on the terminal on which they were started."""


@dataclass(frozen=True, slots=True)
class Desktop:
    """Where a desktop answers, and as whom one logs in. The password is in no file and on no command line."""

    name: str
    address: str
    port: int
    user: str
    clipboard: bool = False
    drives: bool = False
    certificate: str = ""
    """The file in its container that holds the certificate it shows; empty where nobody knows it."""


def rdp_text(desktop: Desktop) -> str:
    """The file, with CRLF line endings."""
    lines = (
        f"full address:s:{desktop.address}:{desktop.port}",
        *([f"username:s:{desktop.user}"] if desktop.user else []),
        "screen mode id:i:2",
        "use multimon:i:0",
        "session bpp:i:24",
        "prompt for credentials:i:1",
        "authentication level:i:2",
        "enablecredsspsupport:i:0",
        "negotiate security layer:i:1",
        f"redirectclipboard:i:{desktop.clipboard:d}",
        "redirectprinters:i:0",
        f"drivestoredirect:s:{'*' if desktop.drives else ''}",
        "autoreconnection enabled:i:1",
    )
    return "".join(f"{line}\r\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Client:
    """How a client is started; it asks for the password itself, in a window or ``on_terminal``."""

    command: Sequence[str]
    on_terminal: bool


def client(desktop: Desktop, file: str, find: Callable[[str], str | None], *, has_terminal: bool) -> Client | None:
    """The first client that ``find`` knows and that can ask what it has to; None without one."""
    names = (*WINDOWED, *ON_TERMINAL) if has_terminal else WINDOWED
    for name in names:
        program = find(name)
        if program:
            return Client((program, *_arguments(desktop, file, name)), on_terminal=name in ON_TERMINAL)
    return None


def _arguments(desktop: Desktop, file: str, name: str) -> Sequence[str]:
    if name == "remmina":
        return ("-c", file)
    if "freerdp" not in name:
        return (file,)
    words = [f"/v:{desktop.address}:{desktop.port}"]
    if desktop.user:
        words.append(f"/u:{desktop.user}")
    words += ["/d:", "/sec:tls", "/dynamic-resolution"]
    words.append("+clipboard" if desktop.clipboard else "-clipboard")
    if desktop.drives:
        words.append("+drives")
    return (*words, "/from-stdin:force")  # FreeRDP 2 does not ask by itself


def certificate_word(fingerprint: str) -> str:
    """FreeRDP's word for the one certificate that it takes, by its sha256 as openssl tells it, or as digits alone."""
    with_colons = fingerprint.lower()  # FreeRDP 2 wants these
    without_colons = with_colons.replace(":", "")  # and FreeRDP 3 these
    return f"/cert:fingerprint:sha256:{without_colons},fingerprint:sha256:{with_colons}"
