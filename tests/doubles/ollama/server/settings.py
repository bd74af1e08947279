"""What the environment says, read as Ollama reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.golang import duration

VERSION = "0.32.15"
FOREVER = (2**63 - 1) / 1e9


def keep_alive_seconds(value: Any) -> float | None:
    """What a request's ``keep_alive`` asks for (api/types.go, Duration.UnmarshalJSON): negative is for ever."""
    if value is None:
        return None
    if isinstance(value, str):
        seconds = duration(value)
        if seconds is None:
            raise Refused(400, f'time: invalid duration "{value}"')
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise Refused(400, f"Unsupported type: '{type(value).__name__}'")
    return FOREVER if seconds < 0 else min(seconds, FOREVER)


class Settings:
    """What the environment says, read as envconfig/config.go reads it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.models = Path(self.text("OLLAMA_MODELS") or Path(self.home()) / ".ollama" / "models")
        self.parallel = max(self.number("OLLAMA_NUM_PARALLEL", 1), 1)
        self.most_loaded = self.number("OLLAMA_MAX_LOADED_MODELS", 0) or 3  # server/sched.go:86, defaultModelsPerGPU
        self.most_waiting = self.number("OLLAMA_MAX_QUEUE", 512)
        self.context = self.number("OLLAMA_CONTEXT_LENGTH", 0) or 4096
        self.keep_alive = self._keep_alive()
        self.no_prune = self.truth("OLLAMA_NOPRUNE")
        self.no_cloud = self.truth("OLLAMA_NO_CLOUD")
        self.load_s = float(self.text("STAND_IN_LOAD_S") or 0.2)
        self.token_s = float(self.text("STAND_IN_TOKEN_S") or 0.01)
        self.words = self.number("STAND_IN_WORDS", 24)
        self.vram_share = float(self.text("STAND_IN_VRAM_SHARE") or 0)
        self.registry = self.text("STAND_IN_REGISTRY")

    def text(self, name: str) -> str:
        """A variable without the spaces and quotes around it (envconfig.Var)."""
        return self._environment.get(name, "").strip().strip("\"'")

    def number(self, name: str, default: int) -> int:
        """A whole number, or the default where it is none."""
        text = self.text(name)
        return int(text) if text.isascii() and text.isdigit() else default

    def truth(self, name: str) -> bool:
        """A yes or no; a value that is neither counts as yes (envconfig.BoolWithDefault)."""
        return self.text(name) not in {"", "0", "f", "F", "false", "FALSE", "False"}

    def home(self) -> str:
        """The home, without which neither the store's default nor the key has a place (os.UserHomeDir)."""
        home = self._environment.get("HOME", "")
        if not home:
            raise OSError("$HOME is not defined")
        return home

    def address(self) -> tuple[str, int]:
        """Where to listen (envconfig.Host)."""
        scheme, found, rest = self.text("OLLAMA_HOST").partition("://")
        port = {"http": "80", "https": "443"}.get(scheme, "11434") if found else "11434"
        place = (rest if found else scheme).partition("/")[0]
        split = re.fullmatch(r"(?:\[(.*)\]|([^:]*)):(\d*)", place)
        if split:
            host, port = split[1] or split[2] or "", split[3]  # ":11434" listens everywhere
        else:
            host = place.strip("[]") or "127.0.0.1"
        valid = port.isdigit() and int(port) <= 65535
        return host, int(port) if valid else 11434

    def shown(self) -> str:
        """The environment as the log tells it: all of it, whatever is secret in a proxy's address."""
        host, port = self.address()
        names = [name for name in self._environment if name.startswith("OLLAMA_") or name.lower().endswith("_proxy")]
        pairs = {name: self.text(name) for name in names}
        pairs |= {"OLLAMA_HOST": f"http://{host}:{port}", "OLLAMA_MODELS": str(self.models)}
        return "map[" + " ".join(f"{name}:{value}" for name, value in sorted(pairs.items())) + "]"

    def _keep_alive(self) -> float:
        text = self.text("OLLAMA_KEEP_ALIVE")
        seconds = duration(text)
        if seconds is None:
            seconds = float(text) if re.fullmatch(r"[+-]?\d+", text) else 300.0
        return FOREVER if seconds < 0 else min(seconds, FOREVER)
