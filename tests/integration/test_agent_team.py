"""The program of role ``agent_team`` with the real library of agents, and engines that answer by a rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.openai.rule_engine import Question, Reply, RuleEngine, asks, last_text, serving, tool_answers
from tests.processes import completed
from tests.team_server import KEY, TeamServer, question, team_serving, team_venv
from tests.waiting import wait_until

pytestmark = [pytest.mark.network, pytest.mark.slow]
WATCH = """
import os, sys

def look(event, words):
    if event == "socket.connect" and isinstance(words[1], tuple):
        print("reached", words[1][0], words[1][1], file=sys.stderr, flush=True)
    elif event == "socket.getaddrinfo":
        print("looked up", words[0], words[1], file=sys.stderr, flush=True)

sys.addaudithook(look)
"""
TRACED = """
import agents, time
with agents.trace("a question"):
    pass
agents.tracing.get_trace_provider().force_flush()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return team_venv(tmp_path_factory.mktemp("team") / "venv")


def both(asked: Question) -> Reply:
    """A coordinator that asks both members, one after the other, and puts their answers together."""
    answers = tool_answers(asked)
    if len(answers) == 0:
        return asks(("researcher", "How fast is light?"))
    if len(answers) == 1:
        return asks(("coder", f"Print this: {answers[0]}"))
    return Reply(f"Together: {answers[1]}")


def at_once(asked: Question) -> Reply:
    """A coordinator that asks both members in one turn."""
    answers = tool_answers(asked)
    return Reply(" ".join(answers)) if answers else asks(("researcher", "one"), ("coder", "two"))


def researched(asked: Question) -> Reply:
    return Reply(f"researched({last_text(asked)})")


def coded(asked: Question) -> Reply:
    return Reply(f"coded({last_text(asked)})")


def trio(rule: Callable[[Question], Reply], **researcher: Any) -> list[tuple[str, RuleEngine]]:
    """A coordinator with that rule, and two members."""
    return [
        ("coordinator", RuleEngine(rule, key="key-of-coordinator")),
        ("researcher", RuleEngine(researched, key="key-of-researcher", **researcher)),
        ("coder", RuleEngine(coded)),
    ]


def way(server: TeamServer) -> list[tuple[str, str]]:
    """The hand-overs of the transcript, in their order."""
    return [(one["giver"], one["taker"]) for one in server.hand_overs]


ROUND = [
    ("coordinator", "researcher"),
    ("researcher", "coordinator"),
    ("coordinator", "coder"),
    ("coder", "coordinator"),
]
ANSWER = "Together: coded(Print this: researched(How fast is light?))"


def test_an_answer_that_needs_two_members(python: Path, tmp_path: Path) -> None:
    engines = trio(both)
    with serving(*(engine for _, engine in engines)), team_serving(python, tmp_path, engines) as server:
        status, answer = server.ask(question())
        streamed = server.stream(question(stream_options={"include_usage": True}))
        wait_until(lambda: len(server.hand_overs) == 8)
        assert server.ask(question(), key="wrong")[0] == 401
    message = answer["choices"][0]["message"]
    assert (status, message["content"], answer["choices"][0]["finish_reason"]) == (200, ANSWER, "stop")
    assert message["reasoning_content"].splitlines()[0] == "coordinator → researcher: How fast is light?"
    deltas = [event["choices"][0]["delta"] for event in streamed if event["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message["reasoning_content"]
    assert len([delta for delta in deltas if delta.get("content")]) > 1, "the answer came in one piece"
    assert streamed[-1]["usage"] == answer["usage"]
    assert answer["usage"]["total_tokens"] == sum(10 + written for written in (5, 4, 5, 6, 7))
    assert way(server) == [*ROUND, *ROUND]
    assert [one["step"] for one in server.hand_overs] == [1, 2, 3, 4] * 2
    assert len({one["question"] for one in server.hand_overs}) == 2


def test_each_engine_gets_its_own_key_and_no_other(python: Path, tmp_path: Path) -> None:
    engines = trio(both)
    with serving(*(engine for _, engine in engines)), team_serving(python, tmp_path, engines) as server:
        assert server.ask(question())[0] == 200
    keys = [set(engine.keys) for _, engine in engines]
    assert keys == [{"Bearer key-of-coordinator"}, {"Bearer key-of-researcher"}, {"Bearer none"}]
    asked = engines[1][1].asked[0]
    assert asked["model"] == "researcher-model"
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert "tools" not in asked


def test_members_that_are_asked_in_one_turn_answer_one_after_the_other(python: Path, tmp_path: Path) -> None:
    engines = trio(at_once)
    with serving(*(engine for _, engine in engines)), team_serving(python, tmp_path, engines) as server:
        status, answer = server.ask(question())
        wait_until(lambda: len(server.hand_overs) == 4)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "researched(one) coded(two)")
    assert way(server) == ROUND


def test_a_transcript_masks_keys_and_is_off_unless_it_is_wanted(python: Path, tmp_path: Path) -> None:
    def tells(asked: Question) -> Reply:
        return Reply("done") if tool_answers(asked) else asks(("coder", f"key-of-researcher and {KEY}"))

    engines = trio(tells)
    with serving(*(engine for _, engine in engines)):
        with team_serving(python, tmp_path, engines) as server:
            assert server.ask(question())[0] == 200
            wait_until(lambda: len(server.hand_overs) == 2)
        assert server.hand_overs[0]["text"] == "******** and ********"
        with team_serving(python, tmp_path, engines, transcript=False) as silent:
            assert silent.ask(question())[0] == 200
    assert not silent.hand_overs
    assert "key-of-researcher" not in "\n".join([*server.lines, *silent.lines])


@pytest.mark.parametrize(
    ("most", "option"),
    [({"turns": 3}, "most_turns"), ({"tokens": 60}, "most_tokens"), ({"cost": 0.00002}, "most_cost")],
)
def test_a_limit_ends_a_question_with_what_there_is(
    python: Path, tmp_path: Path, most: dict[str, Any], option: str
) -> None:
    engines = trio(lambda _: asks(("researcher", "again")))  # it would go on for ever
    price = {"read": 0.5, "written": 2.0}
    with (
        serving(*(engine for _, engine in engines)),
        team_serving(python, tmp_path, engines, most=most, price=price) as server,
    ):
        status, answer = server.ask(question())
    choice = answer["choices"][0]
    assert (status, choice["finish_reason"]) == (200, "length")
    assert choice["message"]["content"].startswith("researcher: researched(again)")
    assert f"({option})" in choice["message"]["reasoning_content"]
    assert len(engines[0][1].asked) <= 3


def test_a_limit_before_there_is_anything_is_an_error(python: Path, tmp_path: Path) -> None:
    engines = trio(both)
    with (
        serving(*(engine for _, engine in engines)),
        team_serving(python, tmp_path, engines, most={"turns": 1}) as server,
    ):
        status, answer = server.ask(question())
    assert (status, answer["error"]["code"], answer["error"]["type"]) == (400, "most_turns", "limit_reached")


def test_an_engine_that_writes_on_and_on_is_ended_at_the_limit_of_tokens(python: Path, tmp_path: Path) -> None:
    endless = RuleEngine(lambda _: Reply("begin"), endless=True)
    engines = [("coordinator", endless), ("coder", RuleEngine(coded))]
    with (
        serving(*(engine for _, engine in engines)),
        team_serving(python, tmp_path, engines, most={"tokens": 300}) as server,
    ):
        status, answer = server.ask(question())
        wait_until(endless.left.is_set)
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
    assert 0 < answer["usage"]["total_tokens"] <= 310


def test_an_engine_that_hangs_is_ended_at_the_limit_of_time(python: Path, tmp_path: Path) -> None:
    engines = trio(both, hangs=True)
    with (
        serving(*(engine for _, engine in engines)),
        team_serving(python, tmp_path, engines, most={"seconds": 8}) as server,
    ):
        status, answer = server.ask(question())
        wait_until(engines[1][1].left.is_set)
        [first, *_, last] = server.stream(question())
    assert (status, answer["error"]["code"]) == (400, "most_seconds")
    assert "its 8 seconds are over, while the engine of researcher (researcher-model) was asked" in str(answer)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (last["error"]["code"], last["error"]["type"]) == ("most_seconds", "limit_reached")


def test_an_engine_that_refuses_is_named_with_what_it_said_and_without_its_key(python: Path, tmp_path: Path) -> None:
    engines = trio(both, status=503, says="no room, said to key-of-researcher")
    with serving(*(engine for _, engine in engines)), team_serving(python, tmp_path, engines) as server:
        status, answer = server.ask(question())
        streamed = server.stream(question())
    text = answer["error"]["message"]
    assert (status, answer["error"]["code"]) == (502, "engine_failed")
    said = "HTTP 503: no room, said to ********"
    assert text == f"The engine of researcher (researcher-model) does not answer: {said}"
    assert streamed[-1]["error"]["message"] == text
    assert len(engines[1][1].asked) == 2, "a request that failed was repeated"
    assert "key-of-researcher" not in "\n".join(server.lines)


def test_an_engine_that_is_not_there_is_an_error(python: Path, tmp_path: Path) -> None:
    engines = trio(both)
    with serving(engines[0][1], engines[2][1]):
        engines[1][1].port = 9  # discard: nobody listens
        with team_serving(python, tmp_path, engines) as server:
            status, answer = server.ask(question())
    assert (status, answer["error"]["code"]) == (502, "engine_failed")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_what_its_engine_is_at(python: Path, tmp_path: Path, *, stream: bool) -> None:
    engines = trio(both, hangs=True)
    researcher = engines[1][1]
    with serving(*(engine for _, engine in engines)), team_serving(python, tmp_path, engines) as server:
        connection = server.send(question(stream=stream))
        wait_until(lambda: researcher.asked)
        connection.close()
        wait_until(researcher.left.is_set, timeout_s=20)
        assert server.process.poll() is None


def test_a_call_that_makes_no_sense_is_told_to_who_made_it(python: Path, tmp_path: Path) -> None:
    def stumbles(asked: Question) -> Reply:
        answers = tool_answers(asked)
        if len(answers) == 0:
            return Reply(calls=[("researcher", '{"question": 1}')])
        if len(answers) == 1:
            return Reply(calls=[("nobody", '{"input": "hello"}')])
        return Reply("mended")

    engines = trio(stumbles)
    with serving(*(engine for _, engine in engines)), team_serving(python, tmp_path, engines) as server:
        status, answer = server.ask(question())
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "mended"), answer


def test_an_engine_that_counts_nothing_is_counted(python: Path, tmp_path: Path) -> None:
    engines = [
        ("coordinator", RuleEngine(lambda _: Reply("one two three"), counts=False)),
        ("coder", RuleEngine(coded)),
    ]
    with serving(*(engine for _, engine in engines)), team_serving(python, tmp_path, engines) as server:
        status, answer = server.ask(question())
    assert status == 200
    assert answer["usage"]["completion_tokens"] >= 3
    assert answer["usage"]["prompt_tokens"] >= 5


def test_nobody_but_the_members_is_asked(python: Path, tmp_path: Path) -> None:
    engines = trio(both)
    with (
        serving(*(engine for _, engine in engines)),
        team_serving(
            python, tmp_path, engines, sitecustomize=WATCH, environment={"OPENAI_API_KEY": "sk-canary"}
        ) as server,
    ):
        assert server.ask(question())[0] == 200
    ports = {str(engine.port) for _, engine in engines}
    reached = {line.split()[1:] and tuple(line.split()[1:]) for line in server.lines if line.startswith("reached ")}
    assert reached == {("127.0.0.1", port) for port in ports}
    looked_up = {line.split()[2] for line in server.lines if line.startswith("looked up ")}
    assert looked_up <= {"127.0.0.1"}


def test_the_watch_sees_what_the_library_would_send(python: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    environment = {"PYTHONPATH": str(tmp_path), "OPENAI_API_KEY": "sk-canary"}
    # OpenAI's name is answered by nobody here: that it is looked up is enough.
    done = completed([python, "-c", TRACED], env=environment, timeout_s=120)
    assert "looked up api.openai.com" in done.stderr
