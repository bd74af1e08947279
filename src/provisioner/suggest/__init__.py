"""The verb ``suggest``: which files of a model fit a card, and how fast they write.

``suggest`` finds the files and what they take, ``speeds`` what was measured of them, ``text`` says it; the choice
itself is that of ``loads.suggestions``.
"""
