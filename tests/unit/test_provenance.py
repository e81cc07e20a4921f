"""Provenance: exact bytes, salted commitments, one root over names, order and number of stages."""

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers import provenance as prov
from layers.provenance import Provenance, Recorder, Stage


def salts(count: int) -> bytes:
    return bytes(i % 256 for i in range(count))


def recorded() -> Provenance:
    recorder = Recorder(salts)
    recorder.note("evidence", {"items": []})
    recorder.note("input", {"id": "t1", "amount": 10**20})
    recorder.note("retrieval_plan", {"query": "a"})
    recorder.note("retrieval_plan", {"query": "b"})
    return recorder.finish({"disposition": "pass"})


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def test_known_answer_by_the_written_definition():
    """The root of two stages, computed with nothing but the formulae of the docstring."""
    recorder = Recorder(salts)
    recorder.note("input", {"a": 1})
    result = recorder.finish({"b": 2})
    commitments = [
        sha(b"arbiter-l8:payload:1\0", bytes(range(16)), b'{"a":1}'),
        sha(b"arbiter-l8:payload:1\0", bytes(range(16, 32)), b'{"b":2}'),
    ]
    leaves = [
        sha(b"\0arbiter-l8:stage:1\0", b"\x05input", commitments[0]),
        sha(b"\0arbiter-l8:stage:1\0", b"\x07verdict", commitments[1]),
    ]
    top = sha(b"\x01arbiter-l8:node:1\0", *leaves)
    root = sha(b"\x02arbiter-l8:record:1\0", b"\0\0\0\x02", top)
    assert result.root == "sha256:" + root.hex()
    assert [stage.commitment for stage in result.stages] == commitments
    # Written out once, so that a change of every formula at the same time is seen too.
    assert result.root == "sha256:9c578bcecad196d8ecd5f55907ef829ee52e2ae822e5d0c68956c4f47961a94c"


def test_stages_enter_in_their_fixed_order_whatever_the_order_of_notes():
    assert [stage.name for stage in recorded().stages] == ["input", "retrieval_plan", "evidence", "verdict"]


def test_a_stage_of_another_name_goes_before_the_verification():
    recorder = Recorder(salts)
    for name in ("verification", "zeta", "alpha", "model_output", "input"):
        recorder.note(name, {})
    names = [stage.name for stage in recorder.finish({}).stages]
    assert names == ["input", "model_output", "alpha", "zeta", "verification", "verdict"]


def test_input_and_verdict_are_objects_and_other_stages_arrays_of_notes():
    payloads = {stage.name: stage.payload for stage in recorded().stages}
    assert payloads["input"] == b'{"amount":100000000000000000000,"id":"t1"}'
    assert payloads["retrieval_plan"] == b'[{"query":"a"},{"query":"b"}]'


def test_a_note_is_serialised_when_it_is_made():
    recorder = Recorder(salts)
    value = {"a": 1}
    recorder.note("input", value)
    value["a"] = 2
    assert recorder.finish({}).stages[0].payload == b'{"a":1}'


@pytest.mark.parametrize("stage", [Stage.INPUT, Stage.VERDICT])
def test_input_and_verdict_are_noted_once(stage):
    recorder = Recorder(salts)
    recorder.note(stage, {})
    with pytest.raises(ValueError, match="once"):
        recorder.note(stage, {})


@pytest.mark.parametrize("name", ["", "Input", "a b", "a" * 65, "ä", "a\n", "1a"])
def test_a_bad_stage_name_is_refused(name):
    with pytest.raises(ValueError, match="stage name"):
        Recorder(salts).note(name, {})


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param({"text": "a\ud800b"}, {"text": "a\\ud800b"}, id="lone-surrogate"),
        pytest.param({"x": [float("nan"), float("-inf"), 1.5]}, {"x": ["nan", "-inf", 1.5]}, id="not-finite"),
        pytest.param({1: (True, None, b"\x00")}, {"1": [True, None, "b'\\x00'"]}, id="foreign-types"),
        pytest.param({"n": 1 << 20_000}, {"n": hex(1 << 20_000)}, id="huge-integer"),
    ],
)
def test_a_hostile_note_is_written_out_and_marked_not_lost(value, written):
    recorder = Recorder(salts)
    recorder.note("model_output", value)
    payload = recorder.finish({}).stages[0].payload
    assert json.loads(payload) == [{"not_exact": True, "value": written}]


def test_endless_nesting_does_not_cost_the_record():
    loop: dict = {}
    loop["self"] = loop
    recorder = Recorder(salts)
    recorder.note("model_output", loop)
    assert prov.first_difference(recorder.finish({})) is None


def test_two_evaluations_of_the_same_thing_share_no_hash():
    """Salts are fresh: equal payloads can't be recognised by their commitments."""
    roots = set()
    commitments = set()
    for _ in range(2):
        recorder = Recorder()
        recorder.note("input", {"a": 1})
        result = recorder.finish({"a": 1})
        roots.add(result.root)
        commitments |= {stage.commitment for stage in result.stages}
    assert len(roots) == 2
    assert len(commitments) == 4


@given(st.data())
def test_any_flipped_bit_of_any_stage_names_that_stage(data):
    result = recorded()
    position = data.draw(st.integers(0, len(result.stages) - 1))
    stage = result.stages[position]
    field = data.draw(st.sampled_from(["payload", "salt", "commitment"]))
    old = bytearray(getattr(stage, field))
    old[data.draw(st.integers(0, len(old) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    stages = list(result.stages)
    stages[position] = replace(stage, **{field: bytes(old)})
    assert prov.first_difference(replace(result, stages=tuple(stages))) == stage.name


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: s[::-1], id="order"),
        pytest.param(lambda s: s[:-1], id="one-missing"),
        pytest.param(lambda s: [*s, s[-1]], id="one-doubled"),
        pytest.param(lambda s: [replace(s[0], name="outputs"), *s[1:]], id="renamed"),
        pytest.param(lambda s: [], id="none"),
    ],
)
def test_the_root_binds_names_order_and_number(change):
    result = recorded()
    changed = replace(result, stages=tuple(change(list(result.stages))))
    assert prov.first_difference(changed) == "root"


def test_erasing_keeps_hash_and_root_and_drops_payload_and_salt():
    result = recorded()
    stages = prov.erase(result.stages, {"input", "retrieval_plan"})
    assert [(s.name, s.erased, s.salt is None) for s in stages] == [
        ("input", True, True),
        ("retrieval_plan", True, True),
        ("evidence", False, False),
        ("verdict", False, False),
    ]
    assert prov.root_of(stages) == result.root
    assert prov.first_difference(Provenance(result.root, stages)) is None


def test_only_stages_that_exist_can_be_erased():
    with pytest.raises(ValueError, match="no such stage: prompt"):
        prov.erase(recorded().stages, {"prompt"})


def test_log_entries_of_different_kinds_differ():
    root = recorded().root
    assert prov.log_entry("evaluation", root) != prov.log_entry("verdict", root)
    assert prov.log_entry("evaluation", root).endswith(b"evaluation\0" + bytes.fromhex(root[7:]))


@pytest.mark.parametrize(
    ("kind", "root"), [("evaluation", "sha256:00"), ("evaluation", "00" * 32), ("a\0b", "sha256:" + "00" * 32)]
)
def test_a_foreign_log_entry_is_refused(kind, root):
    with pytest.raises(ValueError, match=r"."):
        prov.log_entry(kind, root)


def test_the_bundle_carries_the_exact_bytes():
    result = recorded()
    made = json.loads(json.dumps(prov.bundle(result, about={"evaluation_id": "e"}, log=None)))
    for stage, record in zip(made["stages"], result.stages, strict=True):
        assert stage["payload"].encode() == record.payload
        assert bytes.fromhex(stage["salt"]) == record.salt
        assert stage["commitment"] == "sha256:" + record.commitment.hex()


def test_bytes_that_are_no_text_travel_as_base64():
    stage = prov.StageRecord("input", b"\0" * 32, b"\xff\xfe", b"\0" * 16)
    made = prov.bundle(Provenance("sha256:", (stage,)), about={}, log=None)["stages"][0]
    assert (made["encoding"], made["payload"]) == ("base64", "//4=")
