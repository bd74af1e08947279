"""Plans a lab and says the plan in one comment on its pull request (GitHub) or merge request (GitLab).

It needs the standard library and ``provision`` on PATH. Settings and the token come from the environment alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from typing import Any, NoReturn, Protocol

PLAN_TIMEOUT_S = 1800
REQUEST_TIMEOUT_S = 30
MOST_PAGES = 100
MOST_ANSWER_BYTES = 32 * 1024 * 1024
"""A page has 100 comments of at most 65,536 characters each on GitHub; longer notes are GitLab's alone, and rare."""
MOST_PLAN_BYTES = 240_000
"""``provision plan --markdown`` prints at most 60,000 characters, of at most four bytes each."""
MOST_ERROR_BYTES = 8_000
CHANGES_PENDING = 2
UNABLE = 1


class CommentError(Exception):
    """A comment could not be written: what failed, what the other side said, and what to do."""


@dataclass(frozen=True)
class Planned:
    """How ``provision plan`` ended: its exit code, and what it printed."""

    code: int
    markdown: str
    errors: str

    @property
    def has_failed(self) -> bool:
        """Whether this is no plan; pending changes are one. Python itself ends with 2 where it finds no program."""
        return self.code not in {0, CHANGES_PENDING} or not self.markdown.strip()

    @property
    def exit_code(self) -> int:
        """What the job ends with."""
        return (self.code or UNABLE) if self.has_failed else 0


@dataclass(frozen=True)
class Answer:
    """One answer of the API."""

    headers: Message
    content: Any


@dataclass(frozen=True)
class Api:
    """An HTTP API below one address, with the header that carries the token."""

    address: str
    header: tuple[str, str]

    def ask(self, method: str, address: str, content: Mapping[str, str] | None = None) -> Answer:
        """The answer to one request; ``CommentError`` where it fails, is too large, or is no JSON."""
        if not address.startswith((f"{self.address}/", f"{self.address}?")):
            raise CommentError(f"Unable to go on: the API names {address!r}, which is outside of {self.address}")
        sent = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(address, data=sent, method=method)  # noqa: S310  # `api_at` takes http and https alone
        request.add_header("Accept", "application/json")
        request.add_header("Content-Type", "application/json")
        request.add_header("User-Agent", "provisioner-plan")
        request.add_unredirected_header(*self.header)
        what = f"{method} {address}"
        try:
            with OPENER.open(request, timeout=REQUEST_TIMEOUT_S) as answer:
                read = answer.read(MOST_ANSWER_BYTES + 1)
                headers = answer.headers
        except urllib.error.HTTPError as error:
            said = printable(error.read(500).decode(errors="replace"))
            raise CommentError(f"{what} was refused with {error.code}: {said}\n{ADVICE}") from error
        except (OSError, HTTPException) as error:
            raise CommentError(f"{what} failed: {error}\nRun the job again.") from error
        if len(read) > MOST_ANSWER_BYTES:
            raise CommentError(f"{what} answered with more than {MOST_ANSWER_BYTES} bytes")
        try:
            return Answer(headers, json.loads(read))
        except ValueError as error:
            raise CommentError(f"{what} answered with something else than JSON: look at its address") from error


ADVICE = (
    "The token has to be valid and may write comments: `pull-requests: write` on GitHub, the scope `api` on GitLab."
)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses to be led elsewhere with a token."""

    def redirect_request(self, *_arguments: object) -> None:
        """Say that there is none, by which the answer becomes an error."""


OPENER = urllib.request.build_opener(NoRedirect)


class Forge(Protocol):
    """What GitHub and GitLab have in common: comments on one request."""

    def pages(self) -> list[list[Any]]:
        """All comments, by page."""

    def is_ours(self, comment: Mapping[str, Any]) -> bool:
        """Whether the token's own account wrote it."""

    def create(self, body: str) -> None:
        """Add a comment."""

    def update(self, number: int, body: str) -> None:
        """Write a comment anew."""


@dataclass(frozen=True)
class GitHub:
    """The comments on a pull request; they are those of the issue of its number."""

    api: Api
    repository: str
    number: str
    author: str

    def pages(self) -> list[list[Any]]:
        """All comments: each page names the next one in its header ``Link``."""
        address: str | None = f"{self._issues}/{self.number}/comments?per_page=100"
        pages = []
        while address:
            answer = self.api.ask("GET", address)
            pages.append(listed(answer.content))
            refuse_endless(pages)
            following = re.search(r'<([^<>]+)>;\s*rel="next"', answer.headers.get("Link", ""))
            address = following[1] if following else None
        return pages

    def is_ours(self, comment: Mapping[str, Any]) -> bool:
        """Whether the author is the account that the action was told."""
        author = comment.get("user")
        return isinstance(author, dict) and author.get("login") == self.author

    def create(self, body: str) -> None:
        """Add a comment."""
        self.api.ask("POST", f"{self._issues}/{self.number}/comments", {"body": body})

    def update(self, number: int, body: str) -> None:
        """Write a comment anew."""
        self.api.ask("PATCH", f"{self._issues}/comments/{number}", {"body": body})

    @property
    def _issues(self) -> str:
        return f"{self.api.address}/repos/{self.repository}/issues"


@dataclass(frozen=True)
class GitLab:
    """The notes on a merge request."""

    api: Api
    project: str
    number: str
    author: object

    def pages(self) -> list[list[Any]]:
        """All notes: each page names the next one's number in its header ``X-Next-Page``."""
        following = "1"
        pages = []
        while following:
            answer = self.api.ask("GET", f"{self._notes}?per_page=100&page={following}")
            pages.append(listed(answer.content))
            refuse_endless(pages)
            following = answer.headers.get("X-Next-Page", "").strip()
            if following and not following.isdecimal():
                raise CommentError(f"GitLab names {following!r} as the next page, which is no number")
        return pages

    def is_ours(self, comment: Mapping[str, Any]) -> bool:
        """Whether the token's own user wrote it."""
        author = comment.get("author")
        return isinstance(author, dict) and author.get("id") == self.author

    def create(self, body: str) -> None:
        """Add a note."""
        self.api.ask("POST", self._notes, {"body": body})

    def update(self, number: int, body: str) -> None:
        """Write a note anew."""
        self.api.ask("PUT", f"{self._notes}/{number}", {"body": body})

    @property
    def _notes(self) -> str:
        return f"{self.api.address}/projects/{self.project}/merge_requests/{self.number}/notes"


def listed(content: Any) -> list[Any]:
    """A page of comments; ``CommentError`` where the API answered with something else."""
    if not isinstance(content, list):
        raise CommentError("Unable to read the comments: the API answered with no list")
    return content


def refuse_endless(pages: list[list[Any]]) -> None:
    """End a list of comments that has no end."""
    if len(pages) > MOST_PAGES:
        raise CommentError(f"Unable to read the comments: there are more than {MOST_PAGES} pages")


def setting(environment: Mapping[str, str], name: str, form: str) -> str:
    """A variable of the environment that has this form; ``CommentError`` where it has not. Its value is not printed."""
    value = environment.get(name, "")
    if not re.fullmatch(form, value):
        raise CommentError(f"The variable {name} is missing or has another form than {form}")
    return value


def api_at(environment: Mapping[str, str], name: str, header: tuple[str, str]) -> Api:
    """The API whose address a variable has."""
    return Api(setting(environment, name, r"https?://[^\s?#]+").rstrip("/"), header)


def forge_of(kind: str, environment: Mapping[str, str]) -> Forge:
    """The pull request or merge request that the job is run for."""
    token = setting(environment, "COMMENT_TOKEN", r"[\x21-\x7e]+")
    if kind == "github":
        return GitHub(
            api_at(environment, "GITHUB_API_URL", ("Authorization", f"Bearer {token}")),
            setting(environment, "GITHUB_REPOSITORY", r"[\w.-]+/[\w.-]+"),
            setting(environment, "PULL_REQUEST", "[0-9]+"),
            setting(environment, "COMMENT_AUTHOR", r"[\w.-]+(\[bot\])?"),
        )
    api = api_at(environment, "CI_API_V4_URL", ("PRIVATE-TOKEN", token))
    project = setting(environment, "CI_MERGE_REQUEST_PROJECT_ID", "[0-9]+")
    number = setting(environment, "CI_MERGE_REQUEST_IID", "[0-9]+")
    user = api.ask("GET", f"{api.address}/user").content
    if not isinstance(user, dict) or not isinstance(user.get("id"), int):
        raise CommentError("GitLab does not say whose token COMMENT_TOKEN is")
    return GitLab(api, project, number, user["id"])


def write(forge: Forge, marker: str, body: str) -> str:
    """Update the comment that begins with the marker, or add one where there is none; say which."""
    for page in forge.pages():
        for comment in page:
            if not isinstance(comment, dict) or not forge.is_ours(comment):
                continue
            number = comment.get("id")
            if isinstance(number, int) and str(comment.get("body")).startswith(marker):
                forge.update(number, body)
                return "updated"
    forge.create(body)
    return "created"


def marker_of(file: str) -> str:
    """What an earlier comment on this lab's file begins with; nobody sees it."""
    return f"<!-- provision plan {hashlib.sha256(file.encode()).hexdigest()[:16]} -->"


def body_of(planned: Planned, marker: str) -> str:
    """The comment: the plan, or that there is none and why."""
    if not planned.has_failed:
        return f"{marker}\n{planned.markdown}"
    errors = re.sub("`{99,}", "…", planned.errors.strip())  # GitHub takes a fence for one of 255 at most
    longest = max((len(run) for run in re.findall("`+", errors)), default=0)
    fence = "`" * max(3, longest + 1)
    return (
        f"{marker}\n### The plan failed\n\n`provision plan` ended with exit code {planned.code}, and there is no plan."
        f"\n\n{fence}text\n{errors}\n{fence}\n"
    )


def plan(file: str, environment: Mapping[str, str]) -> Planned:
    """Run ``provision plan``, which does not get the token."""
    without_token = {name: value for name, value in environment.items() if name != "COMMENT_TOKEN"}
    command = ["provision", "plan", "--markdown", "--detailed-exitcode", "--file", file]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            ended = subprocess.run(
                command, check=False, env=without_token, stdout=output, stderr=errors, timeout=PLAN_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return Planned(UNABLE, "", f"It was stopped after {PLAN_TIMEOUT_S} seconds.")
        except OSError as error:
            return Planned(UNABLE, "", f"provision cannot be run: {error}")
        output.seek(0)
        markdown = output.read(MOST_PLAN_BYTES).decode(errors="replace")
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - MOST_ERROR_BYTES))
        return Planned(ended.returncode, markdown, printable(errors.read().decode(errors="replace")))


def printable(text: str) -> str:
    """The text without what steers a terminal."""
    return "".join(character if character == "\n" or character.isprintable() else " " for character in text)


def tell(text: str) -> None:
    """Print lines to the job's log, none of which the runner takes for a command of its own (``::…``, ``##[…``)."""
    for line in text.strip().splitlines():
        print("|", line.replace("##[", "## ["), flush=True)  # noqa: T201  # the job's log


def main(kind: str, environment: Mapping[str, str]) -> int:
    """Plan, comment, and give the exit code of the job: provision's own where it failed."""
    file = environment.get("LAB_FILE") or "homelab.yml"
    planned = plan(file, environment)
    tell(planned.errors)
    marker = marker_of(file)
    try:
        done = write(forge_of(kind, environment), marker, body_of(planned, marker))
    except CommentError as error:
        tell(f"Unable to comment.\n{error}")
        return planned.exit_code or UNABLE
    tell(f"The comment was {done}; provision plan ended with exit code {planned.code}.")
    return planned.exit_code


def start() -> NoReturn:
    """Run as a program: its one argument is ``github`` or ``gitlab``."""
    if sys.argv[1:] not in (["github"], ["gitlab"]):
        sys.exit("usage: comment.py github|gitlab")
    sys.exit(main(sys.argv[1], os.environ))


if __name__ == "__main__":
    start()
