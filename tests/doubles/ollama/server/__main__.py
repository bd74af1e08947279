"""``python -m tests.doubles.ollama.server serve``: the program ``ollama``."""

import sys

from tests.doubles.ollama.server.program import main

sys.exit(main(sys.argv[1:]))
