"""Infrastructure as code for local-AI inference hosts: one file in, running and verified hosts out."""

__version__ = "0.1.0"
