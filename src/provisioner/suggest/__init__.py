"""The verb ``suggest``: which files of a model fit a card, and how fast they write."""
