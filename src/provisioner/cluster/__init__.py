"""The effects of ``cluster``: nodes are asked over ssh, and playbooks are run on them; decisions are in ``repair``."""
