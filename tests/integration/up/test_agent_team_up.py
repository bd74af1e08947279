"""``examples/agents.yml`` on a real Incus: a team behind a real LiteLLM, before a real engine, and before rules.

The tests of this module build on each other, in their order. The model of the example says nothing sensible and asks
no member, so that what a gateway passes on of hand-overs, limits and failures is seen of engines that answer by a rule.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.openai.rule_engine import Question, Reply, RuleEngine, asks, last_text, serving, tool_answers
from tests.integration.up.quickstart_lab import ENGINE_KEY, MASTER_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "agents"
LLAMA, TEAM, GATEWAY = f"{NAME}-llama", f"{NAME}-team", f"{NAME}-gateway"
TEAM_KEY = "CANARY2-{{8*8}}-$HOME-team"
SECRETS = {"llama_key": ENGINE_KEY, "team_key": TEAM_KEY, "litellm_key": MASTER_KEY}
EXAMPLE = Path(__file__).resolve().parents[3] / "examples/agents.yml"
ORDERS = "Coordinate {{ 7*7 }}."
RULES = f"""
        coordinator: {{ instructions: "{ORDERS}", model: rule }}
        members:
          - {{ name: researcher, says: "Ask it for facts.", instructions: "Find facts.", model: rule }}
          - {{ name: coder, instructions: "Write code.", model: rule }}
        most_turns: 6
        most_seconds: 15
        transcript: true
"""


def ruled(engine: RuleEngine) -> str:
    """The same with members that are asked at that engine."""
    example = EXAMPLE.read_text(encoding="utf-8")
    team = re.sub(r"(?s)\n        coordinator: .*?most_seconds: 300\n", RULES.rstrip("\n") + "\n", example)
    upstream = f'rule: {{ model: openai/rule, base_url: "{engine.url}", api_key: !secret llama_key }}'
    return team.replace("\ncontainers:\n", f"\nupstreams:\n  {upstream}\ncontainers:\n")


def rule(asked: Question) -> Reply:
    """What a coordinator does by the words of its question, and what a member says."""
    if not asked.get("tools"):
        return Reply(f"member({last_text(asked)})")
    answers = tool_answers(asked)
    words = next(one["content"] for one in asked["messages"] if one["role"] == "user")
    if words == "again and again":  # a member that is not there: it would go on for ever, and nothing comes of it
        return Reply(calls=[("nobody", '{"input": "hello"}')])
    if words == "one after the other for ever":
        return asks(("researcher", "more"))
    if len(answers) < 2:
        return asks((("researcher", "coder")[len(answers)], f"part {len(answers) + 1}"))
    return Reply(f"Together: {' '.join(answers)}")


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: its first ``up`` has proved the engine, then the team, then the gateway."""
    environment = {f"PROVISION_SECRET_{name.upper()}": value for name, value in SECRETS.items()}
    folder = tmp_path_factory.mktemp(NAME)
    lab = Lab(folder, {**incus_lab.environment, **environment}, "debian/12", "debian/12", name=NAME)
    lab.write(EXAMPLE.read_text(encoding="utf-8"))
    with lab.brought_up():
        yield lab


@pytest.fixture(scope="module")
def engine(incus_lab: Incus) -> Iterator[RuleEngine]:
    """The engine that answers by the rule, where containers reach it."""
    engine = RuleEngine(rule, key=ENGINE_KEY, host=incus_lab.subnet.partition("/")[0])
    with serving(engine):
        yield engine


def sent(lab: Lab, words: str, **more: Any) -> HTTPResponse:
    """The beginning of the gateway's answer to that question for the team."""
    body = {"model": "team", "messages": [{"role": "user", "content": words}], **more}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {MASTER_KEY}"}
    url = f"http://{lab.address(GATEWAY)}:4000/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # http to our own bridge
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return direct.open(request, timeout=120)  # type: ignore[no-any-return]
    except urllib.error.HTTPError as error:
        return error  # type: ignore[return-value]  # it is read as an answer is


def whole(lab: Lab, words: str, **more: Any) -> tuple[int, Any]:
    """Status and body of an answer."""
    with sent(lab, words, **more) as answer:
        return answer.status, json.load(answer)


def stream(lab: Lab, words: str, **more: Any) -> list[Any]:
    """The events of a streamed answer, which is ended as OpenAI ends it."""
    with sent(lab, words, stream=True, stream_options={"include_usage": True}, **more) as answer:
        lines = [line.decode().strip() for line in answer]
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert events[-1] == "[DONE]", lines
    return [json.loads(event) for event in events[:-1]]


def joined(events: list[Any], word: str) -> str:
    """What a stream said in all of its parts."""
    deltas = [event["choices"][0]["delta"] for event in events if event.get("choices")]
    return "".join(delta.get(word) or "" for delta in deltas)


def transcript(lab: Lab) -> list[dict[str, Any]]:
    """The hand-overs that ``logs`` shows."""
    shown = lab.succeeded("logs", TEAM)
    return [json.loads(line.partition("transcript ")[2]) for line in shown.out.splitlines() if "transcript {" in line]


def test_each_was_proved_after_what_it_asks(lab: Lab) -> None:
    assert lab.runs[0].checks == {f"{LLAMA}/llama_cpp": True, f"{TEAM}/agent_team": True, f"{GATEWAY}/litellm": True}


def test_the_example_answers_at_its_gateway(lab: Lab) -> None:
    status, body = whole(lab, "hello", max_tokens=8)
    assert status == 200, body
    assert body["choices"][0]["finish_reason"] in ("stop", "length")
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"] > 0
    events = stream(lab, "hello", max_tokens=8)
    assert [event["choices"][0]["finish_reason"] for event in events if event["choices"][0].get("finish_reason")]
    assert joined(events, "content")
    assert events[-1]["usage"]["total_tokens"] > 0


def test_it_answers_with_its_key_and_nobody_else(lab: Lab) -> None:
    answer = lab.ask(TEAM, 4100, "agent_team", TEAM_KEY)
    assert answer.status == 200, answer.body
    for key in (None, "wrong", ENGINE_KEY, MASTER_KEY):
        assert lab.ask(TEAM, 4100, "agent_team", key).status == 401


def test_nothing_is_left_to_do_and_all_is_well(lab: Lab) -> None:
    lab.succeeded("plan", "--detailed-exitcode")
    for words in (("verify",), ("audit", TEAM)):
        lab.succeeded(*words)
    again = lab.succeeded("up", "--yes", "--json")
    assert not [line for line in again.lines if line["type"] in ("planned_change", "apply_start")]
    assert transcript(lab) == [], "it is off where the file does not want it"


def test_hand_overs_pass_the_gateway_and_stand_in_the_journal(lab: Lab, engine: RuleEngine) -> None:
    lab.write(ruled(engine))
    lab.succeeded("up", "--yes")
    assert engine.asked == [], "an upstream is not asked without being wanted"
    status, body = whole(lab, "Who knows?")
    assert status == 200, body
    message = body["choices"][0]["message"]
    assert message["content"] == "Together: member(part 1) member(part 2)"
    way = [
        "coordinator → researcher: part 1",
        "researcher → coordinator: member(part 1)",
        "coordinator → coder: part 2",
        "coder → coordinator: member(part 2)",
    ]
    assert message["reasoning_content"].splitlines() == way
    assert body["choices"][0]["finish_reason"] == "stop"
    assert engine.asked[0]["messages"][0] == {"role": "system", "content": ORDERS}
    events = stream(lab, "Who knows?")
    assert (joined(events, "content"), joined(events, "reasoning_content").splitlines()) == (message["content"], way)
    for told in (body["usage"], events[-1]["usage"]):
        tokens = (told["prompt_tokens"], told["completion_tokens"], told["total_tokens"])
        assert tokens == (50, 5 + 2 + 5 + 2 + 5, 69)
    wait_until(lambda: len(transcript(lab)) == 8)
    noted = [one for one in transcript(lab) if one["question"] == body["id"]]
    assert [f"{one['giver']} → {one['taker']}: {one['text']}" for one in noted] == way


@pytest.mark.usefixtures("engine")
def test_a_limit_ends_an_answer_as_the_team_says_it(lab: Lab) -> None:
    status, body = whole(lab, "one after the other for ever")
    choice = body["choices"][0]
    assert (status, choice["finish_reason"]) == (200, "length")
    assert choice["message"]["content"].startswith("researcher: member(more)")
    last = "The team was stopped: its 6 turns are used (most_turns)."
    assert choice["message"]["reasoning_content"].splitlines()[-1] == last
    events = stream(lab, "one after the other for ever")
    assert joined(events, "reasoning_content").splitlines()[-1] == last
    assert "length" in [event["choices"][0].get("finish_reason") for event in events if event.get("choices")]


def test_errors_reach_the_client_of_the_gateway_in_the_teams_own_words(lab: Lab, engine: RuleEngine) -> None:
    words = "The team was stopped before it had an answer: its 6 turns are used (most_turns)."
    asked = len(engine.asked)
    status, body = whole(lab, "again and again")
    assert (status, words in body["error"]["message"]) == (400, True), body
    assert len(engine.asked) == asked + 6, "the gateway has asked again"
    status, body = whole(lab, "again and again", stream=True)
    assert (status, words in body["error"]["message"]) == (400, True), body
    status, body = whole(lab, "hello", tools=[{"type": "function", "function": {"name": "a", "parameters": {}}}])
    assert (status, "A team takes no tools of a client" in body["error"]["message"]) == (400, True), body
    engine.status, engine.says = 503, f"no room, said to {ENGINE_KEY}"
    try:
        status, body = whole(lab, "Who knows?")
    finally:
        engine.status = 200
    assert status >= 500, body
    text = body["error"]["message"]
    assert "The engine of coordinator (rule) does not answer: HTTP 503:" in text
    assert "no room, said to ********" in text


def test_an_engine_that_hangs_is_an_error_at_the_limit_of_time_also_in_a_stream(lab: Lab, engine: RuleEngine) -> None:
    words = "The team was stopped before it had an answer: its 15 seconds are over"
    engine.hangs = True
    try:
        status, body = whole(lab, "Who knows?")
        with sent(lab, "Who knows?", stream=True) as answer:
            lines = answer.read().decode()
    finally:
        engine.hangs = False
    assert (status, words in body["error"]["message"]) == (400, True), body
    assert words in lines, "its stream has begun when the time is over"


def test_keys_stand_in_one_file_and_in_nothing_that_was_written_or_printed(lab: Lab) -> None:
    found = {}
    for container in (TEAM, GATEWAY):
        folders = ("/etc", "/usr/local", "/var/log")
        found[container] = lab.incus("exec", container, "--", "grep", "-rl", "CANARY", *folders, check=False).split()
    assert found == {TEAM: ["/etc/agent_team/secrets.env"], GATEWAY: ["/etc/litellm/secrets.env"]}
    for container in (LLAMA, TEAM, GATEWAY):
        assert "CANARY" not in lab.incus("exec", container, "--", "journalctl", "--quiet", "--no-pager")
    lab.shows_none_of("CANARY")
