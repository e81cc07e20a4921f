"""Event streams and JSON-RPC messages: what counts as the answer, in every legal and illegal shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.jsonrpc import AnswerWatch, Refusal, Result, read_answer
from adapters.reply import Reply
from adapters.sse import Event, parse_events
from layers.errors import DependencyError, DependencyMalformed

ANSWER = {"jsonrpc": "2.0", "id": 7, "result": {"content": [], "note": "zwei\u2028Zeilen"}}
LINE_ENDS = ["\n", "\r\n", "\r"]


def stream(body: str | bytes, status: int = 200) -> Reply:
    data = body.encode() if isinstance(body, str) else body
    return Reply(status, {"content-type": "text/event-stream; charset=utf-8"}, data)


def events(text: str) -> list[Event]:
    return list(parse_events(text.encode()))


def event(message: Any, name: str | None = "message") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(message, ensure_ascii=False)}\n\n"


# --- event streams ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("data: a\n\n", [Event("message", "a")], id="plain"),
        pytest.param("data:a\n\n", [Event("message", "a")], id="no space"),
        pytest.param("data:  a \n\n", [Event("message", " a ")], id="only one space goes"),
        pytest.param("data: a\ndata: b\n\n", [Event("message", "a\nb")], id="two lines"),
        pytest.param("data\ndata: b\n\n", [Event("message", "\nb")], id="field without colon"),
        pytest.param("data:\n\n", [], id="empty data"),
        pytest.param("id: 1\ndata:\n\n", [], id="priming event"),
        pytest.param("event: ping\n\n", [], id="no data"),
        pytest.param(": ping\n\ndata: a\n\n", [Event("message", "a")], id="comment"),
        pytest.param("retry: 10\nid: 4\ndata: a\n\n", [Event("message", "a", "4")], id="id and retry"),
        pytest.param("event: x\n\ndata: a\n\n", [Event("message", "a")], id="name does not outlive its event"),
        pytest.param("event: x\ndata: a\n\n", [Event("x", "a")], id="named"),
        pytest.param("data: a", [Event("message", "a")], id="cut off"),
        pytest.param("\ufeffdata: a\n\n", [Event("message", "a")], id="bom"),
        pytest.param("data: a\u2028b\x0bc\x85d\n\n", [Event("message", "a\u2028b\x0bc\x85d")], id="other line ends"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_events_are_read_as_the_standard_says(text: str, expected: list[Event]):
    """Fields, comments, names and line ends of the WHATWG standard."""
    assert events(text) == expected


@pytest.mark.parametrize("end", LINE_ENDS)
def test_any_line_end_will_do(end: str):
    """CRLF, LF and CR mean the same, CRLF is one."""
    assert events(f"data: a{end}data: b{end}{end}data: c{end}{end}") == [
        Event("message", "a\nb"),
        Event("message", "c"),
    ]


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"), min_size=1), min_size=1),
    st.sampled_from(LINE_ENDS),
)
def test_what_is_written_is_read(payloads: list[str], end: str):
    """Whatever the text, an event carries it unchanged."""
    written = "".join(f"data: {payload}{end}{end}" for payload in payloads)
    assert [found.data for found in events(written)] == payloads


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(body: bytes):
    """Hostile bytes give events or none, never an error."""
    assert all(found.data for found in parse_events(body))


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(event(ANSWER), id="alone"),
        pytest.param(event(ANSWER, None), id="unnamed event"),
        pytest.param(event({"hello": 1}, "ping") + event("not json-rpc", "x") + event(ANSWER), id="other events"),
        pytest.param("event: message\ndata:\n\n: ping\n\n" + event(ANSWER), id="empty data and pings"),
        pytest.param(event({"jsonrpc": "2.0", "method": "notifications/message"}) + event(ANSWER), id="notification"),
        pytest.param(event({"jsonrpc": "2.0", "id": 7, "method": "roots/list"}) + event(ANSWER), id="its request"),
        pytest.param(event({"jsonrpc": "2.0", "id": 6, "result": {}}) + event(ANSWER), id="another answer first"),
        pytest.param(event(ANSWER) + "data: {garbage\n\n", id="garbage afterwards"),
        pytest.param(event([{"jsonrpc": "2.0", "method": "x"}, ANSWER]), id="batch"),
    ],
)
@pytest.mark.parametrize("end", LINE_ENDS)
def test_the_answer_is_found_in_a_stream(body: str, end: str):
    """Only the response with the request's id counts, whatever stands around it."""
    found = read_answer(stream(body.replace("\n", end)), 7, "peer")
    assert found == Result(ANSWER["result"], None)


def test_an_answer_may_be_split_over_data_lines():
    """The parts are joined with line feeds, which JSON allows between its tokens."""
    lines = json.dumps(ANSWER, indent=1).splitlines()
    body = "".join(f"data: {line}\r\n" for line in lines) + "\r\n"
    assert read_answer(stream(body), 7, "peer") == Result(ANSWER["result"], None)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("", id="empty"),
        pytest.param(": ping\n\n", id="pings only"),
        pytest.param(event({"jsonrpc": "2.0", "method": "x"}), id="notification only"),
        pytest.param(event({**ANSWER, "id": "7"}), id="id of another type"),
        pytest.param(event({**ANSWER, "id": 7.0}), id="id as float"),
        pytest.param(event(ANSWER)[:-20], id="cut off"),
        pytest.param(event(ANSWER, "other"), id="wrong event"),
        pytest.param("data: {garbage\n\n", id="garbage"),
        pytest.param('data: {"id": 7, "result": {"x": 1e999}}\n\n', id="infinite"),
        pytest.param('data: {"id": 7, "id": 7, "result": {}}\n\n', id="duplicate key"),
        pytest.param('data: {"id": 7, "result": {"x": "\\ud800"}}\n\n', id="lone surrogate"),
    ],
)
def test_a_stream_without_the_answer_is_malformed(body: str):
    """Half an answer, another's answer and no answer are all none."""
    with pytest.raises(DependencyMalformed):
        read_answer(stream(body), 7, "peer")


def test_an_error_without_an_id_is_taken_for_ours():
    """A server that could not read the id answers with null; nobody else is waiting on this reply."""
    body = event({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}})
    assert read_answer(stream(body), 7, "peer") == Refusal(200, -32700, "Parse error")


def test_a_refusal_keeps_status_code_data_and_session():
    """All that tells what the server wants."""
    body = json.dumps({"id": None, "error": {"code": -32022, "message": "no", "data": {"supported": ["x"]}}})
    reply = Reply(400, {"content-type": "application/json", "mcp-session-id": "s"}, body.encode())
    assert read_answer(reply, 7, "peer") == Refusal(400, -32022, "no", {"supported": ["x"]}, "s")


@given(st.data(), st.sampled_from(LINE_ENDS))
def test_the_answer_is_noticed_however_the_stream_is_cut(data: st.DataObject, end: str):
    """Whatever the pieces, it is noticed with the piece that ends its event, and not before."""
    before = event({"jsonrpc": "2.0", "method": "x"}) + ": ping\n\n" + event({**ANSWER, "id": 6})
    head, answer = (part.replace("\n", end).encode() for part in (before, event(ANSWER)))
    body = head + answer
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=20)))
    watch, given_so_far, noticed = AnswerWatch(7), 0, False
    for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True):
        noticed = watch(body[start:stop])
        given_so_far = stop
        if noticed:
            break
    assert noticed
    assert given_so_far > len(head)


def test_a_stream_without_the_answer_is_watched_to_its_end():
    """Garbage, other events and other answers end nothing."""
    watch = AnswerWatch(7)
    for piece in ("data: {\n\n", event(ANSWER, "other"), event({**ANSWER, "id": "7"}), json.dumps(ANSWER) + "\n\n"):
        assert not watch(piece.encode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
messages = st.fixed_dictionaries(
    {}, optional={"id": st.just(7) | json_values, "result": json_values, "error": json_values, "method": json_values}
)


@given(messages | json_values, st.sampled_from([200, 202, 400, 404, 500]), st.booleans())
def test_any_json_is_an_answer_a_refusal_or_an_error(value: Any, status: int, streamed: bool):
    """Whatever a server says, nothing but a dependency error comes out of reading it."""
    text = json.dumps(value)
    reply = stream(f"data: {text}\n\n", status) if streamed else Reply(status, {}, text.encode())
    try:
        outcome: Any = read_answer(reply, 7, "peer")
    except DependencyError as exc:
        outcome = exc
    assert isinstance(outcome, Result | Refusal) or outcome.message.isprintable()
