"""What a service's own module may say beside its role's page. What the base cannot know it calls unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from provisioner.catalog import ServiceType
from provisioner.labfile.spec import Model
from provisioner.models.header import Header
from provisioner.services.gateway_routes import CHAT, RoutedAlias, RoutedEngine
from provisioner.values.address import Address
from provisioner.values.declared import Problem, port_behind
from provisioner.values.quantities import seconds_of

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card
    from provisioner.loads.engines import EngineLoads
    from provisioner.models.pulled import Pulled, Wanted
    from provisioner.wheels.known import Stack

LAN = "lan"
DRAIN_OPTION = "drain"
IDLE_OPTION, QUEUE_OPTION = "idle", "queue"
"""How long nobody asks until it is ended, and how long requests wait for it."""
HOLD_OPTION = "hold"
"""How long it stays at least once its turn on a shared card has come; services that take no turns do not have it."""
FETCHED = "fetched"
"""The kind of a reference by which a service names models that it fetches by itself."""
SITES = "sites"
"""The kind of a reference by which a door names the services behind it."""
COMPUTING_STAGES = ("engine", "app")
"""Services of other stages hand requests on, or prepare a container: they take nothing of its card."""

Path = tuple[str | int, ...]
"""Where something stands in the file: keys and list indexes from its top."""


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model that an option of a service names; ``place`` is its index where the option is a list."""

    option: str
    place: int | None
    name: str


@dataclass(frozen=True, slots=True)
class OfferedPort:
    """A port on which clients reach a service; ``why``: what for, where its own process has it beside its port."""

    number: int
    protocol: Literal["tcp", "udp"] = "tcp"
    why: str = ""

    @property
    def words(self) -> str:
        """Its number, and its protocol where that is not the usual one."""
        return str(self.number) if self.protocol == "tcp" else f"{self.number} ({self.protocol})"


@dataclass(frozen=True, slots=True)
class FolderServing:
    """How a service would serve a model that is a folder.

    ``context``: its option that says how long its context is; ``keys``: those for secrets without which it does not
    serve; ``image``: of its container, empty for its own; ``caches``: how each type of cache is called, and the options
    to write for it, the one that loses least first; ``unknown``: why nobody knows what it takes; ``has_embeddings``:
    whether embeddings of tokens lie on the card; ``lock``: the command that finds its wheels.
    """

    context: str
    keys: tuple[str, ...] = ()
    image: str = ""
    caches: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    unknown: str = ""
    has_embeddings: bool = False
    lock: str = "provision lock"


@dataclass(frozen=True, slots=True)
class ResolvedService:
    """A service of the file, with all that follows for it from the rest of the file, its image and its card."""

    address: Address
    page: ServiceType
    written: Mapping[str, Any]
    """The options that the file says."""
    derived: Mapping[str, Any]
    """Options that follow from the wheels, the image and the card; what is written overrules them."""
    expose: str
    image: str
    memory: int
    """Bytes of its container, as they will be."""
    has_written_memory: bool
    wants_card: bool
    """Whether the file asks for a card for its container."""
    card: Card | None
    """The card, once its host has been looked at."""
    uses: tuple[ModelUse, ...]
    models: Mapping[str, Model] = field(default_factory=dict)
    """The models of the file."""
    headers: Mapping[str, Header] = field(default_factory=dict)
    """What models' files say of themselves, as far as that is known."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What is in the files that its options name, as far as that is known.

    By the options; where one lists several, by ``option.0``, ``option.1`` and so on.
    """
    needed_by: tuple[Address, ...] = ()
    """The services of other hosts that reach it over the LAN."""
    pulled: Mapping[str, Pulled] = field(default_factory=dict)
    """What registries say of the models that it fetches by itself, by their names in the file, as far as is known."""
    is_copy: bool = False
    """Whether its container is a copy to try something: nobody is led to it who does not name its address."""
    share: tuple[Address, ...] = ()
    """The services that take turns with it on one card, itself included, in the file's order; empty: it takes none."""

    @property
    def container(self) -> str:
        """The name of its container."""
        return self.address.container

    @property
    def role(self) -> str:
        """The role that makes it."""
        return self.page.role

    @property
    def drain_s(self) -> float:
        """How long its running answers may take to be finished before it is stopped; 0 where its page has no drain."""
        return self._duration(DRAIN_OPTION)

    @property
    def idle_s(self) -> float:
        """How long nobody asks it until it is ended; 0 where it never is."""
        return self._duration(IDLE_OPTION)

    @property
    def hold_s(self) -> float:
        """How long it stays at least once its turn on a shared card has come."""
        return self._duration(HOLD_OPTION)

    @property
    def queue_s(self) -> float:
        """How long requests wait for it; 0 where none does."""
        return self._duration(QUEUE_OPTION)

    def _duration(self, name: str) -> float:
        option = self.page.options.get(name)
        if option is None:
            return 0.0
        return seconds_of(str(self.written.get(name, option.default)))

    @property
    def said(self) -> Mapping[str, Any]:
        """The options that are written or derived."""
        return {**self.derived, **self.written}

    def option(self, name: str) -> Any:
        """The option as it will be: written, else derived, else its page's default; None where the role has none."""
        if name in self.written:
            return self.written[name]
        if name in self.derived:
            return self.derived[name]
        option = self.page.options.get(name)
        return option.default if option is not None else None

    def options(self) -> dict[str, Any]:
        """All options as they will be."""
        defaults = {name: option.default for name, option in self.page.options.items()}
        return {**defaults, **self.said}

    @property
    def port(self) -> int | None:
        """The port on which it listens: its option's, else its page's; None where it only has further ones."""
        if self.page.health_option and self.health is None:
            return None
        port: int | None = self.written.get("port", self.page.port)
        return port

    @property
    def behind(self) -> str:
        """The role that stands before it and has its port; empty where none does."""
        return self.page.behind_with(self.said)

    @property
    def health(self) -> str | None:
        """The page that answers 200 when it is ready: its own option's, else its page's; None where it has none."""
        return self.page.health_with(self.said)

    @property
    def further_ports(self) -> tuple[OfferedPort, ...]:
        """The ports of its own process on which clients reach it, beside its port."""
        found = list[OfferedPort]()
        for name in self.page.also_listens:
            value = self.option(name)
            if isinstance(value, int):
                found.append(OfferedPort(value, why="clients reach it there"))
                continue
            for entry in value or ():
                found.append(OfferedPort(entry["port"], entry.get("protocol") or "tcp", entry["why"]))
        return tuple(found)

    @property
    def offered_ports(self) -> tuple[OfferedPort, ...]:
        """The ports on which clients reach it, its own first."""
        return self.further_ports if self.port is None else (OfferedPort(self.port), *self.further_ports)

    @property
    def own_port(self) -> int | None:
        """The port on which its own process listens: that behind the switch where it has one."""
        return port_behind(self.port) if self.port is not None and self.behind else self.port

    @property
    def ports(self) -> tuple[OfferedPort, ...]:
        """All ports that it takes in its container: the offered ones, and that behind the switch where it has one."""
        if self.own_port is None or self.own_port == self.port:
            return self.offered_ports
        return (*self.offered_ports, OfferedPort(self.own_port))

    @property
    def sites(self) -> Mapping[str, str]:
        """The addresses of the services that it offers, by the host names of their sites; empty for what is no door."""
        found: dict[str, str] = {}
        for option, reference in self.page.references.items():
            if reference.kind == SITES:
                found |= self.written.get(option) or {}
        return found

    @property
    def authority(self) -> Any:
        """The secret (``Secret``) of which the root of its sites' certificate is made; None for what is no door."""
        for reference in self.page.references.values():
            if reference.signed_by:
                return self.said.get(reference.signed_by)
        return None

    @property
    def is_on_lan(self) -> bool:
        """Whether the LAN reaches it, because the file says so or because another host's services need it."""
        return self.expose == LAN or bool(self.needed_by)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names of all models that its options name."""
        return tuple(dict.fromkeys(use.name for use in self.uses))

    @property
    def served_models(self) -> tuple[str, ...]:
        """The models that it answers with: all of its lists, else the first; others help it."""
        listed = tuple(use.name for use in self.uses if use.place is not None)
        return (*listed, *self.fetched_models) or self.model_names[:1]

    @property
    def fetched_models(self) -> tuple[str, ...]:
        """The names of the models that it fetches by itself, which the file says nothing else of."""
        return tuple(name for name, _ in models_fetched(self.page, self.written))

    @property
    def key(self) -> Any:
        """The key that it asks for (``Secret``); None where it asks for none."""
        return self.said.get(self.page.key_option or "")

    @property
    def aliases(self) -> Mapping[str, Any]:
        """The names under which it offers engines, each with what the file says of it; empty for what is no gateway."""
        found: dict[str, Any] = {}
        for option, reference in self.page.references.items():
            if reference.kind == "aliases":
                found |= self.written.get(option) or {}
        return found

    def name_of(self, model: str) -> str:
        """The name by which its clients ask for a model: the one that the file says, else the model's own."""
        for reference in self.page.references.values():
            if reference.name_to and self.said.get(reference.name_to):
                return str(self.said[reference.name_to])
        return model

    @property
    def path(self) -> Path:
        """Where it stands in the file."""
        return ("containers", self.container, "services", self.role)

    def problem(self, option: str, message: str, hint: str = "") -> Problem:
        """Something wrong with an option; dots in ``option`` lead into its value."""
        parts = (int(part) if part.isdigit() else part for part in option.split("."))
        return Problem((*self.path, *parts), message, hint)


def models_fetched(page: ServiceType, written: Mapping[str, Any]) -> list[tuple[str, Wanted]]:
    """The models that a service with these options fetches by itself, each with its name in the file."""
    found: list[tuple[str, Wanted]] = []
    for option, reference in page.references.items():
        if reference.kind != FETCHED:
            continue
        from provisioner.models.pulled import Wanted  # nothing that a lab needs whose services fetch none

        for entry in written.get(option, ()):
            wanted = Wanted(str(entry.get("model", "")), str(entry.get("digest") or ""))
            found.append((str(entry["name"]), wanted))
    return found


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request to a model may hold: tokens (None: unknown), and whether images."""

    context: int | None = None
    vision: bool = False


@dataclass(frozen=True, slots=True)
class Speech:
    """How clients have texts spoken: the model's name, and the voice that speaks where they name none."""

    model: str
    voice: str
    voices: tuple[str, ...] = ()
    """The voices that the file names, the usual one first."""
    program: str = ""
    """The program in the container that asks the server and takes the time; empty where there is none."""
    card_variable: str = ""
    """The variable of its unit's environment that is "true" where it computes on a card; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Screen:
    """How clients of RDP log in to a service, what they share with it, and which certificate it shows."""

    user: str = ""
    """The account; empty where nobody knows one."""
    clipboard: bool = False
    drives: bool = False
    certificate: str = ""
    """The file in its container; empty where nobody knows it."""


@dataclass(frozen=True, slots=True)
class WebPage:
    """The page of a service that people open in a browser: its path, and the account of the file that signs in."""

    path: str = "/"
    user: str = ""


@dataclass(frozen=True, slots=True)
class CudaBuild:
    """A program that is compiled with CUDA: its version, and the architectures of the cards it is compiled for."""

    version: str
    architectures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Processor:
    """What a service was asked to compute on: a device (True), the CPU (False), or nobody knows (None); and why."""

    is_device: bool | None
    why: str
    notes_verdict: bool = True
    """Whether its proof notes what computed."""


NATIVE, OPENAI = "/completion", "/v1/completions"
"""Where engines take prompts: llama-server, and those that answer as OpenAI does (as in ``trying``)."""
CONTEXT = "{context}"
"""Stands for the tokens that are tried."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How another context of an engine is tried: what stands otherwise in its unit, and how it is asked.

    ``option`` of the file says it, ``word`` of its command; ``changes``: patterns of its unit, and what stands there
    (``{port}``, ``{context}``); ``step``: in which steps it takes them; ``most``: what its model was made for, 0 where
    nobody tells; ``path``: where it is asked; ``requests`` share it; ``key_file``: where its key lies while it runs,
    ``key_name``: in which line of several; ``encode``: where it counts the tokens of a text, which others than that are
    not asked; ``no_room``: what it says where there is too little memory; ``placed``: by which two numbers it says how
    many layers of how many lie on a card, empty where all of them have to.
    """

    option: str
    word: str
    changes: tuple[tuple[str, str], ...]
    step: int
    most: int
    path: str
    requests: int = 1
    key_file: str = ""
    key_name: str = ""
    encode: str = ""
    no_room: tuple[str, ...] = ()
    placed: str = ""


@dataclass(frozen=True, slots=True)
class EngineBench:
    """How what an engine computes is measured without its server: the program that serves, and what it says.

    ``no_room``: its words where there is too little memory.
    """

    serves: str
    no_room: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where an engine's own process says what it does at this moment, and in which words; an empty one it does not say.

    ``page``: in Prometheus' text format, ``series``: what is called how there (``read`` and ``written``: counters of
    tokens, ``running`` and ``waiting``: requests, ``cache``: the part of it that is used); ``slots``: how far requests
    are that no counter has counted yet; ``models``: which of several are in memory, each of which has pages of its own;
    ``sleeping``: whether it has let its model go; ``held``: which models take how much of a card, in place of all of
    these. ``key_file``: where its key lies while it runs.
    """

    page: str = ""
    series: Mapping[str, str] = field(default_factory=dict)
    slots: str = ""
    models: str = ""
    sleeping: str = ""
    held: str = ""
    key_file: str = ""


def quoted_changes(word: str) -> tuple[tuple[str, str], ...]:
    """Those of a unit in whose command each word stands in double quotes."""
    return (('"--port" "[0-9]+"', '"--port" "{port}"'), (f'"{word}" "[0-9]+"', f'"{word}" "{CONTEXT}"'))


class Knowledge:
    """Knowledge of one role's service. A module overrides what it can answer; everything here is a valid answer.

    Nothing here may depend on the role's name: a copy of the role with a copy of its module behaves the same.
    """

    def problems(self, service: ResolvedService) -> Iterator[Problem]:  # noqa: ARG002
        """What no server of this kind could run with."""
        return iter(())

    def model_problems(self, service: ResolvedService) -> Iterator[Problem]:  # noqa: ARG002
        """What no server could run with, because of what its models' files say."""
        return iter(())

    def warnings(self, service: ResolvedService) -> Iterator[Problem]:  # noqa: ARG002
        """What a server runs with, and its user will not like."""
        return iter(())

    def card_problems(self, service: ResolvedService) -> Iterator[Problem]:  # noqa: ARG002
        """What the service cannot do with its card, or without one; asked once the hosts' cards are known."""
        return iter(())

    def reading_problems(self, told: Mapping[Path, Any]) -> Iterator[Problem]:  # noqa: ARG002
        """What this service would misread of all that gateways are told; ``told``: values by their places."""
        return iter(())

    def options_of_card(self, said: Mapping[str, Any], card: Card) -> Mapping[str, Any]:  # noqa: ARG002
        """The options that follow from the card where the file leaves them open."""
        return {}

    def options_of_stack(self, stack: Stack) -> Mapping[str, Any]:  # noqa: ARG002
        """The options that follow from the stack of wheels that it is installed with, beside the wheels themselves."""
        return {}

    def folder_serving(self, form: str, card: Card, usable: int) -> FolderServing | None:  # noqa: ARG002
        """How it would serve weights of a format on a card; None where it does not read them."""
        return None

    def ways_of_writing(self, service: ResolvedService) -> Mapping[str, str]:  # noqa: ARG002
        """What of its options decides how fast it writes, as results keep it beside the model that it serves.

        ``cache``: what ``folder_serving`` calls the cache that it has; the others by their names, where they are not
        the role's own. Empty where results of it are told apart by nothing else.
        """
        return {}

    def options_of_processor(
        self,
        service: ResolvedService,  # noqa: ARG002
        flags: frozenset[str],  # noqa: ARG002
        all_flags: Sequence[frozenset[str]],  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """The options that follow from what the processors of the service's host can do; asked where it is built.

        ``all_flags`` are those of all hosts that have such a service. Empty flags: nobody knows.
        """
        return {}

    def made_for(self, service: ResolvedService) -> str:  # noqa: ARG002
        """What its program is made for beyond what is usual, in words that follow "made "."""
        return ""

    def asked_program(self, options: Mapping[str, Any]) -> tuple[str, str]:  # noqa: ARG002
        """Return the program of its build that tells what it takes of a card: its place, and the name to keep it under.

        ``options``: what it was built with. Empty: there is none.
        """
        return "", ""

    def options_of_image(self, image: str) -> Mapping[str, Any]:  # noqa: ARG002
        """The options that follow from the container's image."""
        return {}

    def routes(
        self,
        aliases: Sequence[RoutedAlias],  # noqa: ARG002
        engines: Sequence[RoutedEngine],  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """What a gateway's role prints: aliases joined with their engines. Keys stay ``Secret`` in it."""
        return {}

    def needs_vulkan(self, service: ResolvedService) -> bool:  # noqa: ARG002
        """Whether it computes or draws with Vulkan."""
        return False

    def cuda_build(self, service: ResolvedService) -> CudaBuild | None:  # noqa: ARG002
        """What is compiled with CUDA for it; None where nothing is."""
        return None

    def loads(
        self,
        service: ResolvedService,
        sizes: Mapping[str, int],  # noqa: ARG002
        memory: int,  # noqa: ARG002
    ) -> EngineLoads | None:
        """What it needs on its card: ``sizes`` of models in bytes, ``memory`` of the card, 0 where unknown.

        None where it computes nothing there.
        """
        if not service.wants_card or service.page.stage not in COMPUTING_STAGES:
            return None
        from provisioner.loads.engines import EngineLoads  # what no run needs that only looks

        return EngineLoads(service.address, unknown=f"nobody knows what {service.page.title} takes of a card")

    def changes_beside(self, service: ResolvedService, sizes: Mapping[str, int | None]) -> bool | None:  # noqa: ARG002
        """Whether a changed one is started beside the one that serves; None: where its role finds that it can be.

        ``sizes``: bytes of the files of models, None where nobody tells.
        """
        return False

    def estimates(self, service: ResolvedService, sizes: Mapping[str, int | None]) -> Mapping[str, int]:  # noqa: ARG002
        """Variables of its role that are reckoned; ``sizes`` as above."""
        return {}

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """What the service was asked to compute on; ``variables``: its role's, without their prefix."""
        if not has_card:
            return Processor(is_device=False, why="its container has no card")
        return Processor(is_device=None, why="its role does not say what it computes on")

    def answers(self, service: ResolvedService) -> str:  # noqa: ARG002
        """What it is asked for; of engines only."""
        return CHAT

    def offers(self, service: ResolvedService) -> tuple[str, ...]:
        """The names under which it answers, where it serves no model of the file; the first is the usual one."""
        return (service.role,)

    def thinking(self, service: ResolvedService, *, is_on: bool) -> Mapping[str, Any] | None:  # noqa: ARG002
        """What a request says in its body to have it think or not; None where nobody knows how it is told."""
        return None

    def thinking_budget(self, service: ResolvedService, tokens: int) -> Mapping[str, Any] | None:  # noqa: ARG002
        """What a request says besides to have a thought ended after so many tokens; None where it cannot be told."""
        return None

    def trial(self, service: ResolvedService) -> Trial | None:  # noqa: ARG002
        """How another context of it is tried; None where nobody knows how."""
        return None

    def engine_bench(self, service: ResolvedService) -> EngineBench | None:  # noqa: ARG002
        """How what it computes is measured by llama-bench; None where that knows nothing of it."""
        return None

    def quality_bench(self, service: ResolvedService) -> EngineBench | None:  # noqa: ARG002
        """How its models are held against one of them, their parent; None where nothing of it can do that."""
        return None

    def registry(self, service: ResolvedService) -> str:  # noqa: ARG002
        """Where its role fetches it from ("HOST:PORT"), which may be in the LAN; empty where that is always public."""
        return ""

    def metrics(self, service: ResolvedService) -> Metrics | None:  # noqa: ARG002
        """How it is asked what it does at this moment; None where it does not say that."""
        return None

    def limits(self, service: ResolvedService, model: str) -> Limits:  # noqa: ARG002
        """What one request to that model may hold."""
        return Limits()

    def speech(self, service: ResolvedService) -> Speech:
        """How it is asked to speak; of services with protocol ``speech`` only."""
        voice = service.option("default_voice") or ""
        return Speech(f"openai/{service.role}", str(voice))

    def screen(self, service: ResolvedService) -> Screen:
        """How one logs in to it; of services with protocol ``rdp`` only."""
        return Screen(str(service.option("user") or ""))

    def web_page(self, service: ResolvedService) -> WebPage | None:  # noqa: ARG002
        """The page that people open; None where programs alone ask it."""
        return None


def unusual_options(service: ResolvedService, names: Sequence[str]) -> dict[str, str]:
    """The options of these names that are not what the role has by itself, as texts."""
    found: dict[str, str] = {}
    for name in names:
        value = service.option(name)
        if value != service.page.options[name].default:
            found[name] = str(value)
    return found


def template_thinking(*, is_on: bool) -> Mapping[str, Any]:
    """How most engines are told to think or not: by a variable of the model's chat template."""
    return {"chat_template_kwargs": {"enable_thinking": is_on}}


class OnCpu(Knowledge):
    """Knowledge of a service that computes on the CPU, whatever its container has."""

    def loads(
        self,
        service: ResolvedService,  # noqa: ARG002
        sizes: Mapping[str, int],  # noqa: ARG002
        memory: int,  # noqa: ARG002
    ) -> EngineLoads | None:
        """None: nothing of it lies on a card."""
        return None

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """The CPU."""
        return Processor(is_device=False, why="no device was asked for")
