"""The action of GitHub and the template of GitLab: their shell runs here against a stand-in of the two APIs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.http_servers import HERE, QuietHandler, served

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "canary-token-of-the-job"
PLAN = "### Plan\n\n1 to create"
KINDS = ["github", "gitlab"]
GITHUB_LIST, GITLAB_LIST = "/repos/me/labs/issues/7/comments", "/projects/4/merge_requests/7/notes"
OURS: dict[str, dict[str, Any]] = {
    "github": {"user": {"login": "github-actions[bot]"}},
    "gitlab": {"author": {"id": 42}},
}
OTHERS: dict[str, dict[str, Any]] = {"github": {"user": {"login": "stranger"}}, "gitlab": {"author": {"id": 43}}}


@dataclass
class Api:
    """Comments of one request, and who asked for what."""

    kind: str
    address: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    raw: tuple[int, dict[str, str], bytes] | None = None
    """What is answered in place of all else."""

    def own_bodies(self) -> list[str]:
        """The texts that the token's own account wrote."""
        return [comment["body"] for comment in self.comments if OURS[self.kind].items() <= comment.items()]

    def fill(self, count: int) -> None:
        """Add so many comments of others."""
        for number in range(count):
            self.comments.append({"id": number, "body": "Looks good", **OTHERS[self.kind]})

    def answer(self, method: str, address: str, content: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        """Status, headers and content for one request."""
        path = urlsplit(address).path
        if path == "/user" and self.kind == "gitlab":
            return 200, {}, {"id": 42}
        several = GITHUB_LIST if self.kind == "github" else GITLAB_LIST
        if path == several and method == "GET":
            return self.page(address)
        if path == several and method == "POST":
            self.comments.append({"id": 1000 + len(self.comments), "body": content["body"], **OURS[self.kind]})
            return 201, {}, self.comments[-1]
        changed = several.replace("/7", "") if self.kind == "github" else several
        update = "PATCH" if self.kind == "github" else "PUT"
        for comment in self.comments:
            if (method, path) == (update, f"{changed}/{comment['id']}"):
                comment["body"] = content["body"]
                return 200, {}, comment
        return 404, {}, {"message": "Not Found"}

    def page(self, address: str) -> tuple[int, dict[str, str], Any]:
        """One page of comments, with the header that names the next one."""
        asked = parse_qs(urlsplit(address).query)
        size = min(100, int(asked.get("per_page", ["30" if self.kind == "github" else "20"])[0]))
        number = int(asked.get("page", ["1"])[0])
        rows = self.comments[(number - 1) * size : number * size]
        is_last = number * size >= len(self.comments)
        if self.kind == "gitlab":
            return 200, {"X-Next-Page": "" if is_last else str(number + 1)}, rows
        first = f"{self.address}{GITHUB_LIST}?per_page={size}"
        following = f'<{first}&page={number + 1}>; rel="next", <{first}&page=9>; rel="last"'
        return 200, {} if is_last else {"Link": following}, rows


def handler_of(api: Api) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def answer(self) -> None:
            api.asked.append((self.command, self.path))
            headers: dict[str, str] = {}
            read = self.content()
            name, value = ("Authorization", f"Bearer {TOKEN}") if api.kind == "github" else ("PRIVATE-TOKEN", TOKEN)
            if self.headers.get(name) != value:
                status, body = 401, b'{"message": "Bad credentials"}'
            elif api.raw:
                status, headers, body = api.raw
            else:
                status, headers, content = api.answer(self.command, self.path, json.loads(read or b"{}"))
                body = json.dumps(content).encode()
            self.give(status, body, *headers.items())

        do_GET = do_POST = do_PATCH = do_PUT = answer  # http.server's names

    return Handler


@pytest.fixture(params=KINDS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    api = Api(request.param)
    with served(ThreadingHTTPServer(HERE, handler_of(api))) as server:
        api.address = f"http://127.0.0.1:{server.server_port}"
        yield api


@dataclass
class Job:
    """A job's shell and environment, in a folder of its own; ``python3 -m venv`` makes a stand-in there."""

    api: Api
    folder: Path

    def provision(self, text: str) -> None:
        """What ``provision`` is: a script."""
        self.program("provision", text)

    def program(self, name: str, text: str) -> None:
        """Write a script that is first on PATH."""
        file = self.folder / "programs" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        file.chmod(0o755)

    def run(self, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the job's steps until one fails; the last one's end."""
        real = shlex.quote(sys.executable)
        self.program("python", f'[ "$2" = pip ] && {{ echo "$@" >>{self.folder}/pip; exit; }}\nexec {real} "$@"')
        self.program("python3", f'mkdir -p "${{@: -1}}" && cp -rT {self.folder}/programs "${{@: -1}}/bin"')
        self.program("git", f'mkdir -p "${{@: -1}}" && cp -rT {ROOT}/.github "${{@: -1}}/.github"')
        environment = {
            "PATH": f"{self.folder}/programs:{os.environ['PATH']}",
            "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT / "src")),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
        }
        steps = github_steps if self.api.kind == "github" else gitlab_steps
        for script, variables in steps(self):
            ended = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
                check=False, cwd=self.folder, env=environment | variables | more,
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert TOKEN not in ended.stdout + ended.stderr
            if ended.returncode:
                break
        return ended


def github_steps(job: Job) -> Iterator[tuple[str, dict[str, str]]]:
    """The steps of the action, with what the runner puts in the place of expressions in ``env`` alone."""
    action = yaml.safe_load((ROOT / ".github/actions/plan/action.yml").read_text(encoding="utf-8"))
    values = {f"inputs.{name}": given["default"] for name, given in action["inputs"].items()}
    values |= {"inputs.token": TOKEN, "github.event.pull_request.number": "7"}
    runner = {
        "RUNNER_TEMP": str(job.folder),
        "GITHUB_ACTION_PATH": str(ROOT / ".github/actions/plan"),
        "GITHUB_API_URL": job.api.address,
        "GITHUB_REPOSITORY": "me/labs",
    }
    for step in action["runs"]["steps"]:
        env = {
            name: re.sub(r"\$\{\{ (.+?) }}", lambda found: values[found[1]], text) for name, text in step["env"].items()
        }
        yield step["run"], runner | env


def gitlab_steps(job: Job) -> Iterator[tuple[str, dict[str, str]]]:
    """The lines of the template's job, which are one script to the runner."""
    template = yaml.safe_load((ROOT / ".gitlab/plan.yml").read_text(encoding="utf-8"))
    yield (
        "\n".join(template["provision-plan"]["script"]),
        {
            **template["variables"],
            "PROVISIONER_REPOSITORY": "https://git.example/provisioner.git",
            "PROVISIONER_REF": "v1",
            "COMMENT_TOKEN": TOKEN,
            "CI_API_V4_URL": job.api.address,
            "CI_MERGE_REQUEST_PROJECT_ID": "4",
            "CI_MERGE_REQUEST_IID": "7",
        },
    )


@pytest.fixture
def job(api: Api, tmp_path: Path) -> Job:
    job = Job(api, tmp_path)
    job.provision(f'echo "$@ ${{COMMENT_TOKEN-none}}" >{tmp_path}/arguments\nprintf %s {shlex.quote(PLAN)}\nexit 2')
    return job


def test_the_first_run_adds_a_comment_and_the_second_updates_it_on_page_two(api: Api, job: Job) -> None:
    api.fill(130)
    ended = job.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (body,) = api.own_bodies()
    assert re.fullmatch(r"<!-- provision plan [0-9a-f]{16} -->\n" + re.escape(PLAN), body)
    words = (job.folder / "arguments").read_text(encoding="utf-8")
    assert words == "plan --markdown --detailed-exitcode --file homelab.yml none\n", "and it has no token"
    job.provision("echo none to do")
    assert job.run().returncode == 0
    assert api.own_bodies() == [f"{body.splitlines()[0]}\nnone to do\n"]
    assert len(api.comments) == 131
    assert "page=2" in " ".join(address for _, address in api.asked)


def test_comments_of_others_and_on_other_files_are_left(api: Api, job: Job) -> None:
    job.run()
    marked = api.comments[0]["body"]
    api.comments = [{"id": 1, "body": marked, **OTHERS[api.kind]}]
    job.run()
    job.run(LAB_FILE="other.yml")
    assert [comment["body"] for comment in api.comments[:2]] == [marked, marked]
    assert len(set(api.own_bodies())) == 2


def test_a_plan_that_fails_is_told_and_ends_the_job_with_its_exit_code(api: Api, job: Job) -> None:
    job.run()
    job.provision(f'exec {shlex.quote(sys.executable)} -m provisioner "$@"')
    ended = job.run(LAB_FILE="gone.yml")
    assert ended.returncode == 64, ended.stdout
    assert "there is no such file" in ended.stdout
    body = api.own_bodies()[1]
    assert "ended with exit code 64" in body
    assert "Unable to read gone.yml" in body


def test_what_a_failing_plan_says_leaves_its_block_and_the_log_to_nobody(api: Api, job: Job) -> None:
    job.provision("printf '````\\n@all\\n::error::x\\n##[error]y\\n' >&2; exit 70")
    ended = job.run()
    assert ended.returncode == 70
    assert [line for line in ended.stdout.splitlines() if line.startswith("::") or "##[" in line] == []
    assert "`````text\n````\n@all" in api.own_bodies()[0]


def test_no_run_of_backticks_is_too_long_for_a_fence_and_nothing_steers_a_terminal(api: Api, job: Job) -> None:
    job.provision("printf '%0300d\\n@all \\302\\2332J \\342\\200\\256\\n' 0 | tr 0 '`' >&2; exit 70")
    ended = job.run()
    body = api.own_bodies()[0]
    assert "```text\n…\n@all" in body
    assert not {"\x9b", "\u202e"} & set(body + ended.stdout)


def test_exit_code_2_without_a_plan_is_a_failure(api: Api, job: Job) -> None:
    job.provision("exit 2")
    assert job.run().returncode == 2
    assert "The plan failed" in api.own_bodies()[0]


RAW = {
    "another form": ((200, {}, b'{"message": "no list"}'), "no list|does not say whose token"),
    "no JSON": ((200, {}, b"<html>"), "something else than JSON"),
    "elsewhere": ((302, {"Location": "http://127.0.0.1:1/x"}, b""), "refused with 302"),
    "too many requests": ((429, {}, b'{"message": "slow down"}'), "refused with 429: .*slow down"),
}


@pytest.mark.parametrize("raw", RAW)
def test_an_answer_that_is_none_ends_the_job(api: Api, job: Job, raw: str) -> None:
    api.raw, expected = RAW[raw]
    ended = job.run()
    assert ended.returncode == 1
    assert re.search(expected, ended.stdout), ended.stdout
    job.provision("exit 70")
    assert job.run().returncode == 70, "provision's own exit code comes first"


def test_a_wrong_token_is_told_without_it(job: Job) -> None:
    ended = job.run(COMMENT_TOKEN="other-canary")
    assert ended.returncode == 1
    assert "refused with 401" in ended.stdout
    assert "other-canary" not in ended.stdout + ended.stderr


def test_no_script_of_the_action_has_an_expression_in_it() -> None:
    action = yaml.safe_load((ROOT / ".github/actions/plan/action.yml").read_text(encoding="utf-8"))
    scripts = [step["run"] for step in action["runs"]["steps"]]
    assert len(scripts) == 2
    assert [script for script in scripts if "${{" in script] == []


def test_a_fork_gets_no_job_of_gitlab() -> None:
    template = yaml.safe_load((ROOT / ".gitlab/plan.yml").read_text(encoding="utf-8"))
    (rule,) = template["provision-plan"]["rules"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_MERGE_REQUEST_PROJECT_ID" in rule["if"]
