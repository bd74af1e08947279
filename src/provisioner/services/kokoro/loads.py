"""What a server that speaks by Kokoro's model of 82M takes of a card.

The figures are those of the real library, kokoro 0.9.4 with torch 2.13, counted on the CPU by
``python -m benchmarks speech-memory``: on a card the same tensors are made.
"""

from __future__ import annotations

from provisioner.loads.engines import EngineLoads, Way
from provisioner.loads.layers import Shape
from provisioner.loads.terms import MIB, Load
from provisioner.values.address import Address

MODEL = "kokoro"
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
    load = Load(MODEL, Shape(MODEL), WEIGHTS, 0, buffers=activation_bytes(frames), workspaces=MARGIN)
    seconds = frames // FRAMES_A_SECOND
    reckoned = f"activations are reckoned for {seconds} s of speech, the longest text that is computed at once"
    margin = f"{MARGIN // MIB} MiB stand for workspaces; measured on no card"
    each_second = -(-FRAME_BYTES * FRAMES_A_SECOND // MIB)
    slower = f"a client that asks for a lower `speed` makes it take more, {each_second} MiB for each further second"
    guesses = (f"{MODEL}: {reckoned}, and {margin}", f"{MODEL}: {slower}")
    return EngineLoads(address, (load,), guesses, ways=(Way("all of it on the CPU", "device: cpu"),), grows=True)
