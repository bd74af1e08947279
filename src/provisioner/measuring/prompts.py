"""Prompts of a wished length: texts of common words, and how many tokens those are to a service. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

# Texts of any length by which services are kept busy: of common words, drawn anew each time.

_TEXT = """
about above across after again against all almost along already also although always among and
another answer any around ask away back because become before begin behind believe below best better
between big bird black blood blue board boat body book both box boy bread break bring brother brown
build burn but call came can car carry cat catch center change check child city clean clear close
cloud cold color come common cook copy could country course cover cross cry cut dance dark day
decide deep did differ dog door down draw dream dress drink drive drop dry each ear early earth east
easy eat edge egg end energy engine enough even evening ever every example eye face fact fall family
farm fast father feel feet few field fight figure fill final find fine finger fire first fish five
floor flower fly follow food foot for force forest form four free friend from front full game garden
gave general get girl give glass gold gone good great green ground group grow had half hand happen
hard has hat have head hear heart heat heavy help her here high hill his history hold home hope
horse hot hour house how hundred ice idea inch iron island join just keep kind king knew know lady
lake land language large last late laugh law lead learn leave left less letter life light like line
list listen little live long look lost love low machine made main make man map mark matter may mean
measure metal middle might mile milk mind minute miss money month moon more morning most mother
mountain move much music must name near need never new next night north note nothing notice now
number ocean off often oil old once one only open order other our out over own page paint pair paper
part pass people person picture piece place plan plane plant play point poor power press print
problem produce pull push put question quick quiet race rain reach read ready real red rest ride
right river road rock room round rule run safe said salt same say school science sea second see seem
self sentence serve set seven shape she ship short should show side simple sing sister sit six size
sky sleep slow small snow soft some son song soon sound south space speak stand star start state
stay step still stone stop story street strong study such summer sun sure table tail take talk teach
tell ten test than that the their them then there these thing think this those thought three through
time together town travel tree true turn two under unit until use usual very voice wait walk wall
want war warm watch water way weather week weight well went were west what wheel when where which
white who whole why will wind window winter wish with woman wonder wood word work world would write
year yellow yes yet young your
"""
WORDS = tuple(_TEXT.split())
"""Most tokenizers have each of them as one token."""


def filler(words: int, seed: int) -> str:
    """So many words; other ones for another seed."""
    return " ".join(random.Random(seed).choices(WORDS, k=words))  # noqa: S311  # the same for the same seed


# The length of words in tokens, as a service counts them.

LONGEST_LOOK = 1000
"""Words of the text by which its tokens are counted, at most."""


class UncountedError(Exception):
    """A service does not say how long prompts are, or says what cannot be."""


@dataclass(frozen=True, slots=True)
class Length:
    """How long words are to a service: its tokens for one of them, and those that stand around each prompt."""

    per_word: float
    around: float

    def words(self, tokens: int) -> int:
        """How many words are so many tokens, at least one."""
        return max(round(tokens / self.per_word), 1)


def length_of(shorter: tuple[int, int], longer: tuple[int, int]) -> Length:
    """How long words are, by two texts: how many words and tokens each of them has.

    Raises ``UncountedError`` where the longer one has no more tokens.
    """
    (few, few_tokens), (many, many_tokens) = shorter, longer
    if many_tokens <= few_tokens:
        raise UncountedError(f"it counts {few_tokens} tokens in {few} words, and {many_tokens} in {many}")
    per_word = (many_tokens - few_tokens) / (many - few)
    return Length(per_word, few_tokens - few * per_word)


def tokens_in(answer: Any) -> int:
    """How many tokens a prompt had, as an answer of ``/v1/chat/completions`` says; else ``UncountedError``."""
    try:
        tokens = answer["usage"]["prompt_tokens"]
    except (TypeError, KeyError):
        tokens = None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens <= 0:
        raise UncountedError("its answer does not say how many tokens the prompt had")
    return tokens
