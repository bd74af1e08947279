"""CUDA's math headers against glibc's: what conflicts, a guarded edit in place that can be taken back, an overlay.

``glibc`` (versions, and what which one declares), ``places`` (where the headers declare it) and ``headers`` (the edit)
are pure; ``toolkit`` (the files), ``overlay`` (the way without an edit), ``look`` (all that a verb knows beforehand).
"""
