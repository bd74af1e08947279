# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible lookup ``provision_litellm_routes``: what role litellm prints and proves, of a play's aliases and engines."""

from __future__ import annotations

DOCUMENTATION = r"""
name: provision_litellm_routes
author: [provisioner (!UNKNOWN)]
short_description: Joins aliases with their engines for role litellm
description:
  - Gives what the variable C(litellm_routes) of that role wants. In a lab C(provision) fills it; this is for plays of
    your own. The same code does both.
  - An alias with an engine that is not among I(engines) is an error.
options:
  _terms:
    description:
      - One mapping, alias to a list of names of engines, the primary first; or to a mapping of C(engines),
        C(timeout), C(stream_timeout), C(retries) and C(context_window_fallbacks), as in C(litellm_aliases).
    required: true
  engines:
    description:
      - "What answers: C(name); C(model), provider and model, such as C(openai/qwen); C(api_base), the URL with /v1;
        C(api_key) where it wants one; C(local), whether it is yours, so that its proof may ask it; C(answers), one of
        chat, embedding and rerank. Several may have one name."
    type: list
    elements: dict
    required: true
"""
EXAMPLES = r"""
- hosts: gateways
  vars:
    litellm_aliases: {fast: [qwen]}
    litellm_routes: "{{ lookup('provision_litellm_routes', litellm_aliases, engines=engines) }}"
    engines:
      - {name: qwen, model: openai/qwen, api_base: "http://10.0.0.7:8080/v1", api_key: "{{ qwen_key }}", local: true}
  roles: [provisioner.inference.litellm]
"""
RETURN = r"""
_raw:
  description: One mapping.
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from provisioner.services.gateway_routes import CHAT, EMBEDDING, RERANK, RoutedAlias, RoutedEngine, routes_of

WORDS_OF_ENGINES = frozenset({"name", "model", "api_base", "api_key", "local", "answers"})
LIMITS = ("timeout", "stream_timeout", "retries")
ENGINES = "engines"
TOO_LONG = "context_window_fallbacks"


class LookupModule(LookupBase):  # type: ignore[misc]  # ansible-core ships no types
    """Joins them; fails the task that asked where a name leads nowhere."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        """The routes of each mapping of aliases."""
        self.set_options(var_options=variables, direct=kwargs)
        try:
            engines = [_engine(written) for written in self.get_option("engines")]
            return [dict(routes_of(list(_aliases(term, engines)), engines)) for term in terms]
        except (KeyError, TypeError, ValueError) as error:
            raise AnsibleError(f"Unable to join aliases with their engines: {error}.") from None


def _engine(written: Mapping[str, Any]) -> RoutedEngine:
    unknown = sorted(set(written) - WORDS_OF_ENGINES)
    if unknown or not written.get("name") or "/" not in str(written.get("model", "")):
        what = f"nobody knows {', '.join(unknown)}" if unknown else "name and model (PROVIDER/MODEL) have to be there"
        raise ValueError(f"of engine {written.get('name', '')!r} {what}")
    answers = str(written.get("answers", CHAT))
    if answers not in {CHAT, EMBEDDING, RERANK}:
        raise ValueError(f"engine {written['name']!r} answers {answers!r}, and not chat, embedding or rerank")
    return RoutedEngine(
        str(written["name"]),
        str(written["model"]),
        is_ours=bool(written.get("local", False)),
        api_base=str(written.get("api_base") or ""),
        api_key=written.get("api_key") or None,
        answers=answers,
    )


def _aliases(term: Any, engines: Iterable[RoutedEngine]) -> Iterable[RoutedAlias]:
    if not isinstance(term, Mapping):
        raise TypeError("aliases are one mapping")
    known = {engine.name for engine in engines}
    for name, written in sorted(term.items()):  # as a lab has them, whose file may be written in any order
        said = written if isinstance(written, Mapping) else {ENGINES: written}
        lists = {word: tuple(map(str, said.get(word) or ())) for word in (ENGINES, TOO_LONG)}
        strangers = sorted({engine for names in lists.values() for engine in names} - known)
        if strangers or not lists[ENGINES]:
            what = f"{', '.join(strangers)} is none of the engines" if strangers else "it has no engine"
            raise ValueError(f"alias {name!r}: {what}")
        limits: dict[str, Any] = {word: said.get(word) for word in LIMITS}
        yield RoutedAlias(str(name), lists[ENGINES], **limits, context_window_fallbacks=lists[TOO_LONG])
