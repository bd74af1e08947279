"""CUDA's math headers mended for every glibc, and put back byte for byte. Pure: text in, text out.

The edit gives each declaration that has no exception specifier a macro. The macro is ``__THROW`` where glibc declares
the function as well, and nothing where it does not: edited headers compile on every glibc on which the plain ones did.
It goes into the extern declarations, the prototypes and the definitions, as NVIDIA's own fix does since 13.2.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from provisioner.cuda.glibc import PI, RSQRT, SINCE, Version
from provisioner.cuda.places import ANCHOR, DECLARATIONS, DEFINITIONS, OURS, Headers, Place, places_of
from provisioner.values.errors import PreflightError

State = Literal["bare", "guarded", "fixed", "half", "edited"]

_MACROS = {RSQRT: f"{OURS}RSQRT_SPEC", PI: f"{OURS}PI_SPEC"}
_BEGIN = "/* BEGIN provisioner: CUDA functions that glibc declares, too, with glibc's exception specifier."
_END = "/* END provisioner */\n"
_BLOCK = re.compile(rf"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
_SPECIFIER = re.compile(rf" (?:{'|'.join(_MACROS.values())})(?=[ \t]*[;)])")
_DIGESTS = re.compile(rf"{re.escape(DECLARATIONS)} ([0-9a-f]{{64}})\n[^\n]*{re.escape(DEFINITIONS)} ([0-9a-f]{{64}})\n")


@dataclass(frozen=True, slots=True)
class Examination:
    """Headers as they are, without our edit (``original``) and with it (``mended``); what others did to them."""

    headers: Headers
    original: Headers
    mended: Headers
    places: tuple[Place, ...]
    edits: tuple[str, ...]
    """What was changed by hand, a line each."""

    @property
    def state(self) -> State:
        """Bare or guarded (both as NVIDIA made them), fixed by us, half fixed (an interrupted run), edited by hand."""
        if self.edits:
            return "edited"
        if self.headers == self.original:
            return "guarded" if self.mended == self.original else "bare"
        return "fixed" if self.headers == self.mended else "half"

    @property
    def is_ours(self) -> bool:
        """Whether anything of our edit is in them."""
        return bears_edit(self.headers)

    def conflicts(self, glibc: Version) -> tuple[str, ...]:
        """The functions whose declarations contradict that glibc's, or each other on it."""
        return tuple(function for function in SINCE if self._is_contradicted(function, glibc))

    def is_pending(self, glibc: Version) -> bool:
        """Whether something has to be done before the headers compile on that glibc."""
        return self.state == "half" or bool(self.conflicts(glibc))

    def _is_contradicted(self, function: str, glibc: Version) -> bool:
        is_declared = glibc >= SINCE[function]
        throws_nothing = {}
        for place in self.places:
            if place.function == function:
                throws_nothing[place.kind] = _throws_nothing(place, is_declared=is_declared)
        if is_declared:  # g++ forgives the other two: they contradict a header of the system
            return not throws_nothing["extern"]
        return len(set(throws_nothing.values())) > 1


def _throws_nothing(place: Place, *, is_declared: bool) -> bool:
    """Whether the declaration promises not to throw; a macro does so where glibc declares the function as well."""
    if place.origin == "foreign":
        return True
    return is_declared and place.origin != "none"


def examine(headers: Headers) -> Examination:
    """Everything there is to know about the headers; ``PreflightError`` when their layout is unknown."""
    original = reverted(headers)
    mended = _mended(original, places_of(original))
    places = places_of(headers)
    edits = tuple(_edits(headers, original, places))
    if not edits and reverted(mended) != original:
        raise PreflightError(
            f"Unable to edit CUDA's {DECLARATIONS}: the edit could not be taken back byte for byte; nothing was done",
            resolution="Report the toolkit's version; until then use an overlay: provision cuda fix DIR --overlay OUT",
        )
    return Examination(headers, original, mended, places, edits)


def reverted(headers: Headers) -> Headers:
    """The headers without our edit; unchanged when it is not in them."""
    declarations = _BLOCK.sub("", headers.declarations, count=1)
    return Headers(_SPECIFIER.sub("", declarations), _SPECIFIER.sub("", headers.definitions))


def bears_edit(headers: Headers) -> bool:
    """Whether anything of our edit is in them; asked of unknown headers, too, which are then left alone."""
    return is_mended(headers) or OURS in headers.declarations or OURS in headers.definitions


def is_mended(headers: Headers) -> bool:
    """Whether the declarations define our macros, without which definitions that bear them do not compile."""
    return _BEGIN in headers.declarations


def _mended(original: Headers, places: tuple[Place, ...]) -> Headers:
    chosen = _bare(places)
    if not chosen:
        return original
    declarations = _with_specifiers(original.declarations, chosen, DECLARATIONS)
    definitions = _with_specifiers(original.definitions, chosen, DEFINITIONS)
    anchor = ANCHOR.search(declarations)
    start = anchor.start() if anchor else 0  # places_of has seen it
    return Headers(declarations[:start] + _block(original) + declarations[start:], definitions)


def _bare(places: tuple[Place, ...]) -> list[Place]:
    """The places without a specifier, of the functions whose extern declaration has none."""
    without = [place for place in places if place.origin == "none"]
    functions = {place.function for place in without if place.kind == "extern"}
    return [place for place in without if place.function in functions]


def _with_specifiers(text: str, places: list[Place], file: str) -> str:
    """The text of that file with a macro at each of its places, from the last to the first."""
    for place in sorted(places, key=lambda place: place.offset, reverse=True):
        if place.file == file:
            text = f"{text[: place.offset]} {_MACROS[SINCE[place.function]]}{text[place.offset :]}"
    return text


def _block(original: Headers) -> str:
    """What defines our macros; it bears the digests of the files as they were, so that a revert can be proved."""
    declarations, definitions = _digests(original)
    lines = [
        _BEGIN,
        " * `provision cuda revert` takes all of it out again. sha256 of the files before:",
        f" * {DECLARATIONS} {declarations}",
        f" * {DEFINITIONS} {definitions}",
        " */",
        "#if defined(__cplusplus) && defined(__linux__) && !defined(__ANDROID__) && !defined(__CUDACC_RTC__)",
        "# include <features.h>",
        "#endif",
    ]
    for since, macro in _MACROS.items():
        lines += _definition(macro, since)
    return "\n".join(lines) + "\n" + _END


def _definition(macro: str, since: Version) -> list[str]:
    return [
        f"#if defined(__cplusplus) && defined(__GLIBC__) && defined(__GLIBC_PREREQ) && !defined({macro})",
        f"# if __GLIBC_PREREQ({since[0]}, {since[1]})",
        f"#  define {macro} __THROW",
        "# endif",
        "#endif",
        f"#ifndef {macro}",
        f"# define {macro}",
        "#endif",
    ]


def _edits(headers: Headers, original: Headers, places: tuple[Place, ...]) -> list[str]:
    foreign = [place for place in places if place.origin == "foreign"]
    edits = [f"{place.file}:{place.line}: {place.function} bears {place.specifier!r}" for place in foreign]
    return edits + (_damaged(original) or _changed_since(headers, original))


def _damaged(original: Headers) -> list[str]:
    """The files in which something of our edit is left when it has been taken out."""
    lines = []
    for file, text in ((DECLARATIONS, original.declarations), (DEFINITIONS, original.definitions)):
        if OURS in text or _BEGIN in text:
            lines.append(f"{file}: our edit in it is damaged")
    return lines


def _changed_since(headers: Headers, original: Headers) -> list[str]:
    """The files that are others, without our edit, than those that were edited."""
    recorded = _DIGESTS.search(headers.declarations) if is_mended(headers) else None
    if recorded is None:
        return []
    lines = []
    for file, before, now in zip((DECLARATIONS, DEFINITIONS), recorded.groups(), _digests(original), strict=True):
        if before != now:
            lines.append(f"{file}: changed by somebody after it was fixed")
    return lines


def _digests(headers: Headers) -> tuple[str, str]:
    """The sha256 of both files."""
    return _digest(headers.declarations), _digest(headers.definitions)


def _digest(text: str) -> str:
    """The sha256 of a file whose bytes were read as Latin-1."""
    return hashlib.sha256(text.encode("latin-1")).hexdigest()
