"""Kokoro: its voices, what it is told of its card and takes of it, and how it is asked to speak."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.gpus.cards import Card, described
from provisioner.loads.engines import EngineLoads, Way
from provisioner.loads.layers import Shape
from provisioner.loads.terms import MIB, Load
from provisioner.services import base
from provisioner.services.base import Processor, ResolvedService, Speech, WebPage
from provisioner.values.address import Address
from provisioner.values.declared import Problem

NVIDIA = "nvidia"
MODEL = "openai/kokoro"
"""The model that clients name, whatever its service is called."""
CARD_VARIABLE = "USE_GPU"
"""What the role writes into the unit's environment: whether it computes on a card."""
SPEAKER = "/usr/local/lib/kokoro/speak.py"
"""Where the role puts the program that its proof uses."""
NAME = "[a-z]{2}_[a-z0-9]+"
"""One voice of a mix: language, sex, an underline and the rest. How mixes are written is a limit of the role's page."""
BESIDE_BYTES = 1500 * 2**20
"""What has to be free for a second server, as the role says it (``__kokoro_beside_bytes``)."""
MUTE = ("j", "z")
"""The languages, Japanese and Chinese, whose sounds are made by what the role does not install."""


class Knowledge(base.Knowledge):
    """Knowledge of Kokoro."""

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Voices whose languages cannot be spoken; which voices there are only the commit knows."""
        if "default_voice" in service.written:
            yield from _voice_problems(service, "default_voice", service.written["default_voice"])
        for place, voice in enumerate(service.written.get("voices") or ()):
            yield from _voice_problems(service, f"voices.{place}", voice)

    def options_of_card(self, said: Mapping[str, Any], card: Card) -> Mapping[str, Any]:
        """Torch for CUDA and the card, where it is one of nvidia and the CPU was not asked for."""
        takes_card = card.vendor == NVIDIA and said.get("device", "auto") != "cpu"
        return {"torch": "cuda", "card": described(card)} if takes_card else {}

    def card_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Who is to compute on a card of nvidia and gets none: never on the CPU in silence."""
        if service.written.get("device") != NVIDIA:
            return
        if service.card is None:
            hint = "Give the container one (gpu: …), or write device: cpu."
            yield service.problem("device", "its container has no card of nvidia", hint)
        elif service.card.vendor != NVIDIA:
            hint = "Write device: cpu, or give it another card."
            yield service.problem("device", f"{service.card.title} is not one of nvidia", hint)

    def loads(
        self,
        service: ResolvedService,
        sizes: Mapping[str, int],  # noqa: ARG002
        memory: int,  # noqa: ARG002
    ) -> EngineLoads | None:
        """Its weights, and what the longest text takes that is computed at once; None where the CPU computes."""
        if not service.wants_card or service.option("device") == "cpu":
            return None
        if service.card is not None and service.card.vendor != NVIDIA:
            return None
        return loads_of(service.address)

    def changes_beside(self, service: ResolvedService, sizes: Mapping[str, int | None]) -> bool | None:  # noqa: ARG002
        """Never on a card or in turns; where memory holds two only its role knows whether another commit comes."""
        on_card = service.wants_card and service.option("device") != "cpu"
        if on_card or service.share or not service.option("beside"):
            return False
        return None if service.memory >= 2 * BESIDE_BYTES else False

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """The card that torch was installed for. Its proof notes nothing."""
        if variables.get("torch") == "cuda":
            return Processor(is_device=True, why="its proof does not note what computed", notes_verdict=False)
        return Processor(is_device=False, why="no device was asked for")

    def speech(self, service: ResolvedService) -> Speech:
        """The model, the voices of the file, and the program that measures."""
        usual = str(service.option("default_voice") or "")
        voices = tuple(dict.fromkeys([usual, *service.written.get("voices", ())]))
        return Speech(MODEL, usual, voices, SPEAKER, CARD_VARIABLE)

    def web_page(self, service: ResolvedService) -> WebPage | None:
        """Its web player, where the file has it served."""
        return WebPage("/web/") if service.option("web_player") else None


def _voice_problems(service: ResolvedService, option: str, voice: str) -> Iterator[Problem]:
    unspeakable = [name for name in re.findall(NAME, voice) if name.startswith(MUTE)]
    if unspeakable:
        message = f"{', '.join(unspeakable)}: what Japanese and Chinese need is not installed"
        yield service.problem(option, message, "Take one whose name begins with another letter than j and z.")


# The load on a card of a server that speaks by Kokoro's model of 82M. The figures are those of the real library,
# kokoro 0.9.4 with torch 2.13, counted on the CPU by `python -m benchmarks speech-memory`: on a card the same tensors
# are made.

LOADED = "kokoro"
WEIGHTS = 327_248_280
"""Its 81,810,022 parameters, and the few buffers beside them, in float32, in which the library loads them."""
SYMBOLS = 510
"""The library computes no longer text at once; the server cuts texts before that (``ABSOLUTE_MAX_TOKENS``, 450)."""
FRAMES_A_SYMBOL, FRAMES_A_SECOND = 3, 40
"""Frames that a slow reader takes for a sound: 510 sounds are 38 s of speech."""
FRAME_BYTES = 471_840
"""By how much the most that lives at the same time grows with each frame, to the byte from 512 to 2,048 frames."""
FIXED_BYTES = 235_791_848
"""What of it does not grow: mostly weights that are made of their norms and directions, a second time."""
MARGIN = 512 * MIB
"""For what is in no tensor: workspaces of cuDNN and cuBLAS, and what the allocator rounds up; measured on no card."""


def activation_bytes(frames: int) -> int:
    """The most bytes of tensors beside the weights that live at the same time while so many frames are computed."""
    return FIXED_BYTES + FRAME_BYTES * frames


def loads_of(address: Address) -> EngineLoads:
    """What the server takes: one text is computed at a time, and the longest one counts."""
    frames = SYMBOLS * FRAMES_A_SYMBOL
    load = Load(LOADED, Shape(LOADED), WEIGHTS, 0, buffers=activation_bytes(frames), workspaces=MARGIN)
    seconds = frames // FRAMES_A_SECOND
    reckoned = f"activations are reckoned for {seconds} s of speech, the longest text that is computed at once"
    margin = f"{MARGIN // MIB} MiB stand for workspaces; measured on no card"
    each_second = -(-FRAME_BYTES * FRAMES_A_SECOND // MIB)
    slower = f"a client that asks for a lower `speed` makes it take more, {each_second} MiB for each further second"
    guesses = (f"{LOADED}: {reckoned}, and {margin}", f"{LOADED}: {slower}")
    return EngineLoads(address, (load,), guesses, ways=(Way("all of it on the CPU", "device: cpu"),), grows=True)
