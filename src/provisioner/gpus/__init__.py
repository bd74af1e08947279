"""The graphics cards of a host: what is there, which device nodes are whose, and which one a container gets. Pure.

``look`` is what a host is asked and how its answer is read, ``cards`` what a card is, ``choice`` who gets which,
``bandwidth`` how fast the memory of known cards is.
"""
