"""Everything a user reads, as strings: plans, states, proofs, errors, files, JSON lines. Nothing here prints.

``style`` (colour, sizes, safe text), ``plan``, ``status``, ``messages`` (errors, findings, summaries),
``file`` (YAML of a lab), ``client`` (snippets for programs that use the gateway), ``lines`` (the ``--json`` stream).
"""
