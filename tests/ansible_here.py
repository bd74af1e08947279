"""``ansible-playbook`` that does tasks and their modules in its own process, for plays on this machine."""

from __future__ import annotations

import sys

from ansible.cli.playbook import PlaybookCLI

from tests.plays import in_this_process

if __name__ == "__main__":
    with in_this_process():
        sys.exit(PlaybookCLI(["ansible-playbook", *sys.argv[1:]]).run())
