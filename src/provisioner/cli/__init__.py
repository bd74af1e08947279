"""The command ``provision``: arguments in, exit code out. Verb modules are imported when their verb is used."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

_PLUGINS = "pydantic.plugin._loader"
_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def main() -> NoReturn:
    """Run the command line of this process and end it with the exit code that the command promises."""
    # What a start makes, it keeps: to look through it for garbage again and again is a tenth of a quick verb's time.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _want_no_plugins_of_pydantic()
    from provisioner.cli.app import run

    code = run(sys.argv[1:])
    gc.freeze()  # else all that is left is looked through twice before it is given back: a tenth of a quick verb's time
    sys.exit(code)


def _want_no_plugins_of_pydantic() -> None:
    """Neither look through every installed package for plugins, nor import what would look: an eighth of a quick verb.

    pydantic imports ``importlib.metadata``, with ``email``, ``zipfile`` and more, also where plugins are disabled.
    """
    if os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__") != "__all__":
        return  # somebody wants some

    def from_the_real_one(name: str) -> Any:
        """What a later pydantic may want of the module beside the plugins; no name that Python itself asks for."""
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules.pop(_PLUGINS, None)
        return getattr(import_module(_PLUGINS), name)

    loader: Any = ModuleType(_PLUGINS)
    loader.get_plugins = tuple
    loader.__getattr__ = from_the_real_one
    sys.modules.setdefault(_PLUGINS, loader)
