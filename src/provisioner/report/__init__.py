"""Texts as users read them, in pieces that all rooms share. Nothing here prints.

``style`` (colour, sizes, safe text), ``messages`` (errors, findings, summaries, and the ``--json`` stream), ``html``
and ``svg`` (pieces of pages and pictures).
"""
