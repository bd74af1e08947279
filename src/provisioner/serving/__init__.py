"""The verbs ``fit`` and ``audit``: engines against the memory of their cards, and what is open and on no page.

``fit`` adds up and refuses, ``engine_memory`` asks an engine's own program (within ``confined_program``) and puts its
answer in, ``text`` tells all of it. ``audit`` has what containers are asked, and what of the answers is a finding.
"""
