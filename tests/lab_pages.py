"""Labs as values for the page of ``report``: one with everything in it, whose names are what a test wants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from provisioner.gpus.cards import Card
from provisioner.lab.served import Served
from provisioner.loads.budgets import Budget, usable_of
from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import Shape
from provisioner.loads.measured import Measured, digest_of, identity_of
from provisioner.loads.terms import MIB, Load
from provisioner.measuring.history import SECONDS, Result, Series, Setting, Trial
from provisioner.measuring.probe import Kept, Tried
from provisioner.page.clients import Gateway, Speech
from provisioner.page.content import Asked, Clients, LabContent, Pending
from provisioner.page.topology import Box, Edge, Graph, Host, Outside, Service
from provisioner.reconcile.prove import Proved
from provisioner.values.address import Address
from provisioner.values.events import Diagnostic
from provisioner.values.facts import ProofStep
from provisioner.values.state import ContainerStatus, Run, Screen, ServiceStatus, Status

AT = "2026-11-28T12:00:00+00:00"
HOSTILE = "<script>alert('x')</script>\"&<img src=x onerror=alert(1)>"
"""A name that is a tag, an attribute's end and an entity."""
ENGINE, OTHER = Address("llama/llama_cpp"), Address("coder/vllm")
DRIVER, GONE = Address("llama/gpu_userspace"), Address("llama/kokoro")
GATEWAY, DESK = Address("gateway/litellm"), Address("desk/desktop")
CARD = Card("0000:01:00.0", "nvidia", "NVIDIA GeForce RTX 3060", "nvidia", "GPU-1", 12 * 2**30)
BROWSER, DESKTOP = "/lab/.provision/screens/browser.png", "/lab/.provision/screens/desktop.png"
PNG = (Path(__file__).parents[1] / "docs/desktop.png").read_bytes()


def load(name: str, size: int) -> Load:
    """A model of so many MiB, which computes with 500 MiB or with a third of that besides."""
    return Load(name, Shape("llama"), size * MIB, 8192, buffers=max(500 * MIB, round(0.36 * size * MIB)))


def full_lab(word: str = "") -> LabContent:
    """A lab with something in every part of its page; ``word`` stands wherever others choose what is said."""
    return LabContent(
        lab=f"homelab{word}",
        file="homelab.yml",
        at=AT,
        graph=graph(word),
        warnings=(
            Diagnostic("warning", f"Container old{word} does not answer", f"timed out{word}", "provision doctor"),
        ),
        containers=containers(word),
        asked={ENGINE: (Asked("GET /health on port 8080", f"HTTP 200{word}", well=True),)},
        proofs=proofs(word),
        pictures={BROWSER: PNG, DESKTOP: PNG},
        budgets=(budget(word),),
        measured={ENGINE: measured()},
        tried={ENGINE: tries(word)},
        results={ENGINE: results(word), GATEWAY: clients_results()},
        pending=(Pending("configure", "coder/vllm", f"its stamp says so{word}"),),
        runs=runs(word),
        clients=Clients(gateway(word), needs_root=True),
    )


def empty_lab() -> LabContent:
    """A lab that names nothing, and of which nothing was made."""
    return LabContent("empty", "homelab.yml", AT, Graph("empty", (), (), (), ()), pending=())


def graph(word: str = "") -> Graph:
    """Two engines, a gateway with two aliases, a desktop, on one host."""
    boxes = (
        Box("llama", "box", "gpu", (Service(ENGINE, "llama_cpp", "engine", 8080, f"qwen{word}"),)),
        Box("coder", "box", "gpu", (Service(OTHER, "vllm", "engine", 8000, "coder-7b"),)),
        Box("gateway", "box", "", (Service(GATEWAY, "litellm", "gateway", 4000, None, True, ("fast", f"big{word}")),)),
        Box("desk", "box", "", (Service(DESK, "desktop", "app", 3389, None),)),
    )
    outside = (
        Outside(f"model:qwen{word}", "model", f"qwen{word}", "file:qwen.gguf"),
        Outside("upstream:cloud", "upstream", "cloud", f"gpt{word}"),
    )
    edges = (
        Edge("lan", GATEWAY, "exposed"),
        Edge(GATEWAY, ENGINE, "first", "fast", 1, f"qwen{word}"),
        Edge(GATEWAY, "upstream:cloud", "fallback", "fast", 2),
        Edge(GATEWAY, OTHER, "first", f"big{word}", 1, "coder-7b"),
        Edge(ENGINE, f"model:qwen{word}", "serves"),
    )
    return Graph(f"homelab{word}", (Host("box", "Incus, this machine"),), boxes, outside, edges)


def containers(word: str = "") -> tuple[ContainerStatus, ...]:
    """One that is well, one that has drifted, one without a card, a desktop with pictures, and an orphan."""
    screens = (
        Screen("browser", f"the page{word}", BROWSER, "2026-11-28T11:58:00+00:00"),
        Screen("desktop", "mate", DESKTOP),
    )
    engine = ServiceStatus("llama_cpp", "active", healthy=True, port=8080, processor="GPU", why=word, health="healthy")
    vllm = ServiceStatus("vllm", "failed", healthy=False, port=8000, health="unhealthy")
    litellm = ServiceStatus("litellm", "active", healthy=True, port=4000, processor="CPU", health="busy")
    desktop = ServiceStatus("desktop", "active", healthy=True, port=3389, processor="CPU", health="healthy")
    shown = replace(desktop, screens=screens)
    return (
        ContainerStatus("llama", "box", Status.RUNNING, "10.0.0.2", (engine,)),
        ContainerStatus("coder", "box", Status.RUNNING, "10.0.0.3", (vllm,), (f"vllm: changed{word}",)),
        ContainerStatus("gateway", "box", Status.RUNNING, "10.0.0.4", (litellm,)),
        ContainerStatus("desk", "box", Status.RUNNING, "10.0.0.5", (shown,)),
        ContainerStatus(f"old{word}", "box", Status.STOPPED, orphan=True),
    )


def proofs(word: str = "") -> dict[Address, Proved]:
    """One proof that went well, and one that failed."""
    steps = (
        ProofStep(ENGINE, "Ask which model is served", well=True, took_s=0.2),
        ProofStep(ENGINE, "Ask without the key", well=True, took_s=0.1),
        ProofStep(ENGINE, f"Check the answer{word}", well=True, words=f"HTTP 200{word}\nHello!{word}", took_s=3.5),
    )
    driver = ProofStep(DRIVER, "Check that it answers", well=True, words=f"RTX 3060{word}", took_s=0.3)
    failed = ProofStep(OTHER, "Wait until the server is ready", well=False, words=f"HTTP 503{word}", took_s=61.0)
    return {
        ENGINE: Proved("2026-11-28T11:59:00+00:00", "up", steps),
        DRIVER: Proved("2026-11-28T11:59:00+00:00", "up", (driver,)),
        GONE: Proved("2026-11-27T11:59:00+00:00", "up", (driver,)),
        OTHER: Proved("2026-11-28T11:57:00+00:00", "verify", (failed,), f"HTTP 503{word}"),
    }


def budget(word: str = "") -> Budget:
    """Two engines on one card."""
    engines = (
        EngineLoads(ENGINE, (load(f"qwen{word}", 5200),), host="box"),
        EngineLoads(OTHER, (load("coder-7b", 3300),), host="box", unread=(f"guessed{word}",)),
    )
    return Budget(f"llama, coder on {CARD.title}{word}", engines, usable_of(CARD), CARD)


def measured() -> Measured:
    """What the first engine took."""
    engine = budget().engines[0]
    at = "2026-11-27T20:00:00+00:00"
    return Measured(digest_of(engine.loads), engine.total, 6900 * MIB, identity_of(CARD, "box"), at)


def tries(word: str = "") -> tuple[Kept, ...]:
    """Contexts of the engine as it is, and one of before."""
    moment = "2026-11-26T10:00:00+00:00"
    return (
        Kept("", "former", Tried(4096, "answered", took_s=9.0, memory=2 * 2**30)),
        Kept(moment, "now", Tried(8192, "answered", took_s=11.0, memory=3 * 2**30, card=6 * 2**30)),
        Kept(moment, "now", Tried(32768, "no room", f"out of memory{word}", took_s=4.0)),
        Kept(moment, "now", Tried(16384, "answered", took_s=15.0, memory=3 * 2**30, card=7 * 2**30)),
    )


def results(word: str = "") -> tuple[Result, ...]:
    """Four runs of the engine's benchmark; before the last one its driver has changed."""
    found = []
    for day, (reading, writing) in enumerate(((1000, 41), (1012, 41.5), (1008, 40.8), (1190, 47))):
        driver = "590.12" if day == 3 else "580.95"
        setting = Setting("box", "EPYC", CARD.name, driver, "b" * 12, "m" * 12, {"batch": f"2048{word}"})
        series = (Series("pp512", "tokens/s", trials(reading)), Series(f"tg128{word}", "tokens/s", trials(writing)))
        found.append(Result(f"2026-11-{20 + day}T08:00:00+00:00", "engine", ENGINE, setting, series))
    return tuple(found)


def clients_results() -> tuple[Result, ...]:
    """One run of what clients of the gateway see, on no card."""
    setting = Setting("box", "EPYC", "", "", "", "", {})
    return (
        Result("2026-11-25T09:00:00+00:00", "llm", GATEWAY, setting, (Series("first token", SECONDS, trials(0.4)),)),
    )


def trials(value: float) -> tuple[Trial, ...]:
    """Five trials around a value."""
    return tuple(Trial(value * factor) for factor in (0.99, 1.0, 1.0, 1.005, 1.02))


def runs(word: str = "") -> tuple[Run, ...]:
    """One run that failed, one that was cut off, and one that did what it should."""
    return (
        Run(
            "up",
            "2026-11-28T11:50:00+00:00",
            "2026-11-28T11:57:00+00:00",
            "VerificationError",
            ("create desk",),
            (f"configure coder: HTTP 503{word}",),
        ),
        Run("down", "2026-11-27T22:00:00+00:00", "", "", (), ()),
        Run(
            "up", "2026-11-27T19:00:00+00:00", "2026-11-27T19:06:00+00:00", "", ("create llama", "configure llama"), ()
        ),
    )


def gateway(word: str = "") -> Gateway:
    """A gateway that speaks as well."""
    url = "https://api.home.example/v1"
    models = {"fast": Served(8192), f"big{word}": Served(None, vision=True)}
    return Gateway("homelab", url, "LITELLM_KEY", models, Speech(url, "LITELLM_KEY", "kokoro", "af_heart"))
