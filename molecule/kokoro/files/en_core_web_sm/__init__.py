"""A stand-in for spaCy's small English model: it knows punctuation, and takes every word for a noun."""

from __future__ import annotations

from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc

__version__ = "3.8.0"


@Language.component("standin_tagger")
def tag(doc: Doc) -> Doc:
    """Give each word a tag."""
    for word in doc:
        word.tag_ = ("," if word.text == "," else ":" if word.text in ";:" else ".") if word.is_punct else "NN"
    return doc


def load(**_: Any) -> Language:
    """The model, whichever of its parts are asked for."""
    language = spacy.blank("en")
    language.add_pipe("standin_tagger")
    return language
