"""The command ``provision``: arguments in, exit code out. Verb modules are imported when their verb is used."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def main() -> NoReturn:
    """Run the command line of this process and end it with the exit code that the command promises."""
    # What a start makes, it keeps: to look through it for garbage again and again is a tenth of a quick verb's time.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # pydantic would look through every installed package for plugins of its own: a tenth of a quick verb's time.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from provisioner.cli.app import run

    code = run(sys.argv[1:])
    gc.freeze()  # else all that is left is looked through twice before it is given back: a tenth of a quick verb's time
    sys.exit(code)
