"""Endpoints that answer chats, how they are asked without a key on a command line, and prompts of a wished length."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import random
import re
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import urlsplit

from provisioner.inside import interference
from provisioner.inside.answers import load_answer
from provisioner.inside.cpu_waits import Waits
from provisioner.lab.aliases import ENGINE_STAGE, flatten
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ENGINE_PROTOCOL, ResolvedLab
from provisioner.lab.served import models_of
from provisioner.labfile.spec import OLLAMA, Upstream, provider_of
from provisioner.measuring.engine import served_there
from provisioner.measuring.history import Setting
from provisioner.measuring.pause import SPARE_S, Engine, asked_there, look_at
from provisioner.reconcile.effects import Effects
from provisioner.services import knowledge_of
from provisioner.services.base import EngineBench, ResolvedService
from provisioner.services.gateway_routes import CHAT
from provisioner.values.address import Address
from provisioner.values.errors import InputError, PreflightError, VerificationError
from provisioner.values.plain_data import json_value
from provisioner.values.state import Secret

LONGEST_ANSWER_S = 3600.0
LONGEST_BODY = 2**20
SHORT_WORDS, LONGER_WORDS = 20, 60
LONGEST_WORDS = 500


class Load(Protocol):
    """What is in the way on the service's host, from the moment at which it is made."""

    def share_until_now(self, own: int) -> tuple[float, int]:
        """The part of the time in which something waited for a processor, and how many requests of others came.

        ``own``: how many came from here. Both are -1 where nobody tells.
        """


class NobodyTells:
    """The load of a host that is not ours."""

    def share_until_now(self, own: int) -> tuple[float, int]:  # noqa: ARG002
        """Nobody tells."""
        return -1.0, -1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service that answers chats: how people call it, where it is reached, which model of it is asked.

    ``context``: how many tokens one request may have, None where nobody here knows; ``is_ours``: whether it knows how
    to be kept from ending early, and costs nothing; ``where``: what results say it was measured on; ``hint``: what to
    do where this machine does not reach it; ``look``: begins to look at what is in the way there; ``served``: by which
    options of the service its results are told apart, beside what it is asked.
    """

    name: str
    target: Target
    model: str
    context: int | None
    is_ours: bool
    where: Setting
    hint: str
    look: Callable[[], Load] = NobodyTells
    served: Mapping[str, str] = field(default_factory=dict)

    def measured_with(self, options: Mapping[str, str]) -> Setting:
        """On what something was measured that was asked with these options."""
        return replace(self.where, options={**options, **self.served})


def length_of_words(endpoint: Endpoint, forwarder: Forwarder, tokens: int) -> Length:
    """How long words are to a service: first by two short texts, then by one that is nearly as long as ``tokens``.

    Raises ``VerificationError`` where it does not answer, or does not count.
    """
    shorter, longer = (tokens_of_words(endpoint, forwarder, words) for words in (SHORT_WORDS, LONGER_WORDS))
    try:
        length = length_of((SHORT_WORDS, shorter), (LONGER_WORDS, longer))
        words = min(length.words(tokens), LONGEST_LOOK)
        if words > 2 * LONGER_WORDS:
            length = length_of((SHORT_WORDS, shorter), (words, tokens_of_words(endpoint, forwarder, words)))
    except UncountedError as error:
        raise failed(endpoint, str(error)) from error
    return length


def failed(endpoint: Endpoint, why: str) -> VerificationError:
    """It does not answer as it is asked."""
    return VerificationError(
        f"Unable to measure {endpoint.name}: {why[:LONGEST_WORDS]}",
        resolution="Nothing is kept of it. Ask it for less, or look at what it logs.",
    )


def tokens_of_words(endpoint: Endpoint, forwarder: Forwarder, words: int) -> int:
    """How many tokens so many words have there; raises ``VerificationError`` where it does not say it."""
    parts = urlsplit(forwarder.url)
    messages = [{"role": "user", "content": filler(words, words)}]
    body = json.dumps({"model": endpoint.model, "messages": messages, "max_tokens": 1})
    there = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LONGEST_ANSWER_S)
    try:
        there.request("POST", f"{parts.path}/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = there.getresponse()
        said = answer.read(LONGEST_BODY)
    except (OSError, http.client.HTTPException) as error:
        raise failed(endpoint, f"no answer: {error}") from error
    finally:
        there.close()
    if answer.status != http.HTTPStatus.OK:
        raise failed(endpoint, f"it answered {answer.status}: {said.decode(errors='replace') or 'nothing more'}")
    try:
        return tokens_in(json_value(said))
    except (ValueError, UncountedError) as error:
        raise failed(endpoint, str(error)) from error


# Endpoints of services of the lab, of upstreams and of any address: how each is reached, and what is known of it.

VERB, LOAD = "bench", "load"
UPSTREAM, URL = "_upstream", "_url"
"""In the place of a container's name, which has no such character."""
ONLY_OURS = frozenset({"return_token_ids", "cache_prompt", "min_tokens", "ignore_eos"})
"""What others may refuse in the body of a request."""
REACH_S = 10.0
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.-]+")
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class _HostLoad:
    """The load of the host of an engine of ours, from a moment on."""

    engine: Engine
    effects: Effects
    began: tuple[Waits, int]

    def share_until_now(self, own: int) -> tuple[float, int]:
        """As ``Load`` has it."""
        (before, answered), (after, answered_now) = self.began, _looked(self.engine, self.effects)
        others = answered_now - answered - own
        is_counted = answered >= 0 and answered_now >= answered
        return before.share_until(after), others if is_counted else -1


def host_load(engine: Engine, effects: Effects) -> Load:
    """The load of the host of an engine of ours, from now on."""
    return _HostLoad(engine, effects, _looked(engine, effects))


def _looked(engine: Engine, effects: Effects) -> tuple[Waits, int]:
    """What is in the way there now, and how many requests were led to it so far."""
    asked = {"do": LOAD, "socket": engine.switch}
    said = asked_there(engine, interference, asked, load_answer, effects, within_s=SPARE_S)
    answered = int(said.pop("answered"))
    return Waits(**said), answered


def chat_service(lab: ResolvedLab, name: str) -> ResolvedService:
    """The engine or gateway of that name, CONTAINER or CONTAINER/SERVICE; ``InputError`` where it names not one."""
    found = [service for address, service in lab.services.items() if name in (address, service.container)]
    chats = [
        one for one in found if one.page.protocol == ENGINE_PROTOCOL and knowledge_of(one.role).answers(one) == CHAT
    ]
    if len(chats) != 1:
        raise InputError(
            f"Unable to measure {name}: it names {len(chats)} services that answer chats, and one is wanted",
            resolution="Name it as CONTAINER/SERVICE, or name an upstream of the file.",
        )
    return chats[0]


def measured_address(lab: ResolvedLab, name: str) -> Address:
    """Under which address the results of what is called so are kept; raises ``InputError`` where nothing is."""
    found = [one for address, one in lab.services.items() if name in (address, one.container)]
    if not found and name in lab.upstreams:
        return Address.of(UPSTREAM, name)
    engines = [one for one in found if one.page.stage == ENGINE_STAGE] or found
    if len(engines) != 1:
        raise InputError(
            f"Unable to show what was measured of {name}: it names {len(engines)} services of the file",
            resolution="Name it as CONTAINER/SERVICE, or name an upstream of the file.",
        )
    return engines[0].address


def endpoint_of_service(
    lab: Lab, effects: Effects, service: ResolvedService, model: str | None, address_of: Callable[[str, bool], str]
) -> Endpoint:
    """A service of the lab, reached from this machine; ``address_of``: of a container, in the LAN if it is there."""
    models = models_of(lab.resolved, service)
    name = chosen_model(service.address, tuple(models), model)
    engine, _ = look_at(lab, effects, service, VERB)
    served = served_there(engine, EngineBench("-"), effects)
    may_cost = costs(lab.resolved, service, name)
    written = service.models.get(service.served_models[0]) if len(service.served_models) == 1 else None
    where = Setting(
        host=engine.instance.host,
        processor=f"{served.processor}, {served.threads} of them",
        card=served.card,
        driver=served.driver,
        build=served.build,
        model=served.model or (written.sha256 if written else None) or "",
        options={},
    )
    address = address_of(service.container, service.is_on_lan)
    without = ONLY_OURS if may_cost else frozenset()
    target = Target(f"http://{address}:{service.port}/v1", service.key, without=without)
    return Endpoint(
        str(service.address),
        target,
        name,
        models[name].context,
        not may_cost,
        where,
        "Write expose: lan for it, or run this on its host.",
        lambda: host_load(engine, effects),
        _ways_of_writing(service),
    )


def _ways_of_writing(service: ResolvedService) -> dict[str, str]:
    """By which of its options the results of a service are told apart, with what it is; empty where by none."""
    ways = knowledge_of(service.role).ways_of_writing(service)
    return {"engine": service.role, **ways} if ways else {}


def costs(lab: ResolvedLab, service: ResolvedService, model: str) -> bool:
    """Whether somebody may be paid for what a gateway is asked by that alias."""
    return any(name in lab.upstreams for name in flatten(service.aliases, model)) if service.aliases else False


def endpoint_of_upstream(name: str, upstream: Upstream) -> Endpoint:
    """An upstream of the file; raises ``InputError`` where only its provider's library knows its address."""
    if upstream.base_url is None:
        raise InputError(
            f"Unable to measure {name}: the file does not say where {provider_of(upstream.model)} answers",
            resolution="Say it: provision bench --kind llm --url https://…/v1 --key SECRET --model NAME",
        )
    url = str(upstream.base_url).rstrip("/")
    if provider_of(upstream.model) in OLLAMA:
        url += "/v1"
    model = upstream.model.partition("/")[2]
    key = upstream.api_key if isinstance(upstream.api_key, Secret) else None
    return elsewhere(name, url, model, key)


def elsewhere(name: str, url: str, model: str, key: Secret | None) -> Endpoint:
    """Any address; ``name``: how it is called."""
    target = Target(url, key, without=ONLY_OURS)
    where = Setting(urlsplit(url).hostname or "", "", "", "", "", "", {})
    return Endpoint(name, target, model, None, False, where, "Look at its address.")


def address_of_url(url: str) -> Address:
    """Under which address the results of a URL are kept."""
    parts = urlsplit(url)
    name = NOT_IN_A_NAME.sub("-", parts.netloc + parts.path).strip("-")[:LONGEST_NAME]
    return Address.of(URL, f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:8]}")


def check_reached(endpoint: Endpoint) -> None:
    """Raise ``PreflightError`` where nobody listens there."""
    parts = urlsplit(endpoint.target.url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or HTTP[parts.scheme]), REACH_S):
            pass
    except OSError as error:
        raise PreflightError(
            f"Unable to measure {endpoint.name}: this machine does not reach {parts.netloc}",
            details=str(error),
            resolution=endpoint.hint,
        ) from error


def chosen_model(name: str, models: Sequence[str], wanted: str | None) -> str:
    """The model that is asked: the wanted one, else the only one; raises ``InputError`` where that is none."""
    if wanted is None and len(models) == 1:
        return models[0]
    if wanted in models and wanted is not None:
        return wanted
    offered = ", ".join(models) or "none"
    problem = f"it has no {wanted}" if wanted else f"it has {len(models)} models"
    raise InputError(f"Unable to measure {name}: {problem}", resolution=f"Say --model, one of: {offered}.")


# The forwarder: a server on loopback that adds a key to what it passes on, for programs that take keys only where
# others see them.
#
# It listens under a path that nobody can guess, passes on what benchmarks ask and nothing else, streams answers as they
# come, and ends with the block in which it is used.

PASSED_ON = frozenset({("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/v1/completions")})
"""Methods and paths."""
LONGEST_REQUEST = 64 * 2**20
"""Bytes; a prompt of a million tokens has less."""
PIECE = 2**16
LONGEST_SILENCE_S = 3600.0
TOKEN_BYTES = 24
VERSION = "/v1"
HTTP = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: OpenAI's base URL, the key that is added (None: none), what TLS trusts.

    ``without``: what is left out of the body of requests, as only some services know it.
    """

    url: str
    key: Secret | None = None
    trust: ssl.SSLContext | None = None
    without: frozenset[str] = frozenset()

    def connection(self) -> http.client.HTTPConnection:
        """A connection that is not open yet."""
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or HTTP[parts.scheme]
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=LONGEST_SILENCE_S)
        trust = self.trust or ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=LONGEST_SILENCE_S, context=trust)

    def path_of(self, path: str) -> str:
        """Where a path of a request lies there."""
        return urlsplit(self.url).path.rstrip("/") + path.removeprefix(VERSION)

    def body_of(self, body: bytes) -> bytes:
        """What of a request is passed on; ``ValueError`` where that cannot be told."""
        if not self.without or not body:
            return body
        said = json_value(body)
        if not isinstance(said, dict):
            raise ValueError("no object")  # noqa: TRY004  # as for everything else that is no request
        return json.dumps({name: value for name, value in said.items() if name not in self.without}).encode()


@dataclass
class Forwarder:
    """Where a target is reached without its key: ``url``, without ``/v1``; and how many prompts were passed on."""

    url: str
    prompts: int = 0
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> None:
        """One more prompt was passed on."""
        with self._counting:
            self.prompts += 1


@contextmanager
def forwarding(target: Target) -> Iterator[Forwarder]:
    """Reach ``target`` without its key for as long as the block lasts."""
    prefix = f"/{secrets.token_urlsafe(TOKEN_BYTES)}"
    forwarder = Forwarder("")

    class Handler(_Handler):
        pass

    Handler.target, Handler.prefix, Handler.forwarder = target, prefix, forwarder
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, name="forwarder", daemon=True)
        serving.start()
        try:
            forwarder.url = f"http://127.0.0.1:{server.server_port}{prefix}"
            yield forwarder
        finally:
            server.shutdown()
            serving.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client: its requests one after the other, over one connection to the target."""

    protocol_version = "HTTP/1.1"
    timeout = LONGEST_SILENCE_S
    disable_nagle_algorithm = True  # else pieces of an answer would wait for each other
    target: Target
    prefix: str
    forwarder: Forwarder
    there: http.client.HTTPConnection | None = None

    def do_GET(self) -> None:
        """Pass it on."""
        self._pass_on()

    def do_POST(self) -> None:
        """Pass it on."""
        self._pass_on()

    def log_message(self, *_: Any) -> None:
        """Nothing: prompts are the user's."""

    def finish(self) -> None:
        """End the connection to the target, too."""
        if self.there is not None:
            self.there.close()
        super().finish()

    def _pass_on(self) -> None:
        given, path = self.path[: len(self.prefix)], self.path[len(self.prefix) :]
        if not hmac.compare_digest(given.encode(), self.prefix.encode()) or (self.command, path) not in PASSED_ON:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LONGEST_REQUEST:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            body = self.target.body_of(self.rfile.read(int(length)))
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        try:
            answer = self._asked(path, body)
        except (OSError, http.client.HTTPException):
            self._refuse(HTTPStatus.BAD_GATEWAY)
            return
        with answer:
            self._answer(answer)

    def _asked(self, path: str, body: bytes) -> http.client.HTTPResponse:
        """What the target answers, over the connection of the request before where that still stands."""
        if self.command == "POST":
            self.forwarder.count()
        if self.there is not None:
            try:
                return self._sent(self.there, path, body)
            except (ConnectionError, http.client.BadStatusLine):
                self.there.close()  # it was idle for too long
        self.there = self.target.connection()
        return self._sent(self.there, path, body)

    def _sent(self, there: http.client.HTTPConnection, path: str, body: bytes) -> http.client.HTTPResponse:
        headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        if self.target.key is not None:
            headers["Authorization"] = f"Bearer {self.target.key.reveal()}"
        there.request(self.command, self.target.path_of(path), body or None, headers)
        return there.getresponse()

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        """Give back what comes, as it comes; an answer that breaks off there breaks off here."""
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while piece := answer.read1(PIECE):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if answer.length:  # it broke off, and says nothing of it
                raise http.client.IncompleteRead(b"", answer.length)
            self.wfile.write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException):
            self.close_connection = True

    def _refuse(self, status: int) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()


# Texts of any length by which services are kept busy: of common words, drawn anew each time.

_TEXT = """
about above across after again against all almost along already also although always among and
another answer any around ask away back because become before begin behind believe below best better
between big bird black blood blue board boat body book both box boy bread break bring brother brown
build burn but call came can car carry cat catch center change check child city clean clear close
cloud cold color come common cook copy could country course cover cross cry cut dance dark day
decide deep did differ dog door down draw dream dress drink drive drop dry each ear early earth east
easy eat edge egg end energy engine enough even evening ever every example eye face fact fall family
farm fast father feel feet few field fight figure fill final find fine finger fire first fish five
floor flower fly follow food foot for force forest form four free friend from front full game garden
gave general get girl give glass gold gone good great green ground group grow had half hand happen
hard has hat have head hear heart heat heavy help her here high hill his history hold home hope
horse hot hour house how hundred ice idea inch iron island join just keep kind king knew know lady
lake land language large last late laugh law lead learn leave left less letter life light like line
list listen little live long look lost love low machine made main make man map mark matter may mean
measure metal middle might mile milk mind minute miss money month moon more morning most mother
mountain move much music must name near need never new next night north note nothing notice now
number ocean off often oil old once one only open order other our out over own page paint pair paper
part pass people person picture piece place plan plane plant play point poor power press print
problem produce pull push put question quick quiet race rain reach read ready real red rest ride
right river road rock room round rule run safe said salt same say school science sea second see seem
self sentence serve set seven shape she ship short should show side simple sing sister sit six size
sky sleep slow small snow soft some son song soon sound south space speak stand star start state
stay step still stone stop story street strong study such summer sun sure table tail take talk teach
tell ten test than that the their them then there these thing think this those thought three through
time together town travel tree true turn two under unit until use usual very voice wait walk wall
want war warm watch water way weather week weight well went were west what wheel when where which
white who whole why will wind window winter wish with woman wonder wood word work world would write
year yellow yes yet young your
"""
WORDS = tuple(_TEXT.split())
"""Most tokenizers have each of them as one token."""


def filler(words: int, seed: int) -> str:
    """So many words; other ones for another seed."""
    return " ".join(random.Random(seed).choices(WORDS, k=words))  # noqa: S311  # the same for the same seed


# The length of words in tokens, as a service counts them.

LONGEST_LOOK = 1000
"""Words of the text by which its tokens are counted, at most."""


class UncountedError(Exception):
    """A service does not say how long prompts are, or says what cannot be."""


@dataclass(frozen=True, slots=True)
class Length:
    """How long words are to a service: its tokens for one of them, and those that stand around each prompt."""

    per_word: float
    around: float

    def words(self, tokens: int) -> int:
        """How many words are so many tokens, at least one."""
        return max(round(tokens / self.per_word), 1)


def length_of(shorter: tuple[int, int], longer: tuple[int, int]) -> Length:
    """How long words are, by two texts: how many words and tokens each of them has.

    Raises ``UncountedError`` where the longer one has no more tokens.
    """
    (few, few_tokens), (many, many_tokens) = shorter, longer
    if many_tokens <= few_tokens:
        raise UncountedError(f"it counts {few_tokens} tokens in {few} words, and {many_tokens} in {many}")
    per_word = (many_tokens - few_tokens) / (many - few)
    return Length(per_word, few_tokens - few * per_word)


def tokens_in(answer: Any) -> int:
    """How many tokens a prompt had, as an answer of ``/v1/chat/completions`` says; else ``UncountedError``."""
    try:
        tokens = answer["usage"]["prompt_tokens"]
    except (TypeError, KeyError):
        tokens = None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens <= 0:
        raise UncountedError("its answer does not say how many tokens the prompt had")
    return tokens
