"""The verbs ``fit`` and ``audit``: engines against the memory of their cards, and what is open and on no page.

``fit`` adds up and refuses, ``engine_memory`` asks an engine's own program (``programs``, within ``confined_program``),
``told`` puts its answer in, ``text`` tells all of it. ``audit_questions`` has what containers are asked, ``audit`` what
of the answers is a finding.
"""
