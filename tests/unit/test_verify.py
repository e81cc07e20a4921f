"""The stand-alone check of a bundle: true bundles pass, any change is named, what can't be checked says why."""

import ast
import base64
import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from app import verify
from app.log.model import head_message
from layers import translog
from layers.canonical import sha256_of
from layers.provenance import Provenance as Made
from layers.provenance import Recorder, bundle, erase, log_entry

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = PRIVATE.public_key().public_bytes_raw()
OTHERS = [translog.leaf_hash(b"%d" % i) for i in range(40)]


def text(digest: bytes) -> str:
    return "sha256:" + digest.hex()


def head_of(leaves, private=PRIVATE) -> dict:
    root = text(translog.tree_root(leaves))
    stamp = "2026-01-01T00:00:00.000000Z"
    signature = private.sign(head_message(len(leaves), root, stamp))
    return {
        "tree_size": len(leaves),
        "root_hash": root,
        "timestamp": stamp,
        "key_id": sha256_of(private.public_key().public_bytes_raw()),
        "signature": base64.b64encode(signature).decode(),
    }


def path_of(leaves, ranges) -> list[str]:
    return [text(translog.tree_root(leaves[start:end])) for start, end in ranges]


def growth(leaves, first: int, second: int) -> dict:
    ranges = translog.consistency_ranges(first, second)
    return {"first": first, "second": second, "path": path_of(leaves, ranges)}


def make(
    size: int = 23, index: int = 11, erased: set[str] = frozenset(), before: int | None = None
) -> tuple[dict, list]:
    """A bundle of an evaluation at `index` of a log of `size`, and the log's leaves."""
    recorder = Recorder()
    recorder.note("input", {"id": "t1", "narrative": "ä \u2028 \U0001f600"})
    recorder.note("prompt", {"text": "judge this"})
    recorder.note("model_output", {"reply": "{}"})
    made = recorder.finish({"label": "high", "evaluation_id": "e", "revision": 1})
    leaves = [*OTHERS[:index], translog.leaf_hash(log_entry("evaluation", made.root)), *OTHERS[index : size - 1]]
    log = {
        "index": index,
        "kind": "evaluation",
        "inclusion": {"path": path_of(leaves, translog.inclusion_ranges(index, size))},
        "head": head_of(leaves),
        "public_key": base64.b64encode(PUBLIC).decode(),
        "consistency": None if before is None else growth(leaves, before, size),
    }
    stages = erase(made.stages, erased)
    label = {"evaluation_id": "e", "revision": 1}
    return json.loads(json.dumps(bundle(Made(made.root, stages), about=label, log=log))), leaves


def check(made, **options) -> list[str]:
    lines: list[str] = []
    verify.verify(made, lambda what, result: lines.append(f"{what}: {result}"), **options)
    return lines


def test_a_true_bundle_is_true_and_every_step_is_told():
    lines = check(make()[0])
    assert [line.partition(" (")[0].partition(":")[0] for line in lines] == [
        "stage 1", "stage 2", "stage 3", "stage 4", "root", "about", "log", "head", "key",
    ]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_place_in_any_log_verifies(data):
    size = data.draw(st.integers(1, 40))
    index = data.draw(st.integers(0, size - 1))
    check(make(size, index)[0])


# --- changes -------------------------------------------------------------------------------------------------------

ORIGINAL, LEAVES = make()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_flipped_byte_of_any_payload_names_its_stage(data):
    made = copy.deepcopy(ORIGINAL)
    number = data.draw(st.integers(0, len(made["stages"]) - 1))
    stage = made["stages"][number]
    payload = bytearray(stage["payload"].encode())
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    stage["encoding"], stage["payload"] = "base64", base64.b64encode(payload).decode()
    with pytest.raises(verify.Differs, match=rf"stage {number + 1} \('{stage['name']}'\)"):
        check(made)


@given(st.data())
def test_any_changed_salt_or_commitment_names_its_stage(data):
    made = copy.deepcopy(ORIGINAL)
    number = data.draw(st.integers(0, len(made["stages"]) - 1))
    stage = made["stages"][number]
    field = data.draw(st.sampled_from(["salt", "commitment"]))
    at = data.draw(st.integers(len(stage[field]) - 32, len(stage[field]) - 1))
    digit = data.draw(st.sampled_from("0123456789abcdef").filter(lambda c: c != stage[field][at]))
    stage[field] = stage[field][:at] + digit + stage[field][at + 1 :]
    with pytest.raises(verify.Differs, match=rf"stage {number + 1} \('{stage['name']}'\)"):
        check(made)


def other_hash(value):
    return text(b"\1" * 32)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param(lambda b: b["stages"].reverse(), "root", id="order-of-stages"),
        pytest.param(lambda b: b["stages"].pop(), "root", id="stage-missing"),
        pytest.param(lambda b: b["stages"].append(b["stages"][0]), "root", id="stage-doubled"),
        pytest.param(lambda b: b["stages"][0].update(name="inputs"), "root", id="stage-renamed"),
        pytest.param(lambda b: b.update(root=text(b"\1" * 32)), "root", id="root"),
        pytest.param(
            lambda b: b["stages"][0].update(erased=True, payload=None, salt=None, commitment=text(b"\1" * 32)),
            "root",
            id="erased-with-another-hash",
        ),
        pytest.param(lambda b: b["about"].update(evaluation_id="another"), "about", id="labelled-as-another"),
        pytest.param(lambda b: b["about"].update(revision=2), "about", id="labelled-as-another-revision"),
        pytest.param(lambda b: b["about"].pop("evaluation_id"), "about", id="without-a-label"),
        pytest.param(lambda b: b["log"].update(index=12), "log", id="index"),
        pytest.param(lambda b: b["log"].update(index=-1), "log", id="negative-index"),
        pytest.param(lambda b: b["log"].update(kind="verdict"), "log", id="kind"),
        pytest.param(lambda b: b["log"]["inclusion"]["path"].pop(), "log", id="path-short"),
        pytest.param(lambda b: b["log"]["inclusion"]["path"].append(text(b"\1" * 32)), "log", id="path-long"),
        pytest.param(lambda b: b["log"]["inclusion"]["path"].reverse(), "log", id="path-order"),
        pytest.param(lambda b: b["log"]["head"].update(tree_size=99), "log", id="tree-size"),
        pytest.param(lambda b: b["log"]["head"].update(root_hash=text(b"\1" * 32)), "log", id="head-root"),
        pytest.param(lambda b: b["log"]["head"].update(timestamp="2020"), "head", id="head-time"),
        pytest.param(lambda b: b["log"]["head"].update(signature="AA=="), "head", id="signature-short"),
        pytest.param(
            lambda b: b["log"].update(head=head_of(LEAVES, Ed25519PrivateKey.from_private_bytes(b"\2" * 32))),
            "head",
            id="signed-by-another",
        ),
    ],
)
def test_every_other_change_is_named_too(change, what):
    made = copy.deepcopy(ORIGINAL)
    change(made)
    with pytest.raises(verify.Differs, match=f"^{what}"):
        check(made)


def test_a_forger_with_another_key_is_found_only_with_a_pinned_key():
    """Whoever rewrites everything can sign it with a key of their own: pinning is what catches that."""
    forger = Ed25519PrivateKey.from_private_bytes(b"\2" * 32)
    made = copy.deepcopy(ORIGINAL)
    made["log"]["head"] = head_of(LEAVES, forger)
    made["log"]["public_key"] = base64.b64encode(forger.public_key().public_bytes_raw()).decode()
    assert any("give --key to pin it" in line for line in check(made))
    with pytest.raises(verify.Differs, match="not one of those trusted"):
        check(made, pinned={sha256_of(PUBLIC): PUBLIC})


def test_an_erased_stage_is_told_and_the_rest_still_proves(tmp_path: Path, capsys):
    made = make(erased={"prompt", "input"})[0]
    assert "stage 2 ('prompt'): erased, hash kept" in check(made)
    (tmp_path / "b.json").write_text(json.dumps(made))
    assert verify.main([str(tmp_path / "b.json")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("; erased, and not checked: input, prompt")


def test_a_bundle_without_its_verdict_proves_nothing_unless_one_says_so(tmp_path: Path, capsys):
    """Or whoever holds a bundle could hide what was decided and still show a check that passes."""
    path = tmp_path / "b.json"
    path.write_text(json.dumps(make(erased={"verdict", "input"})[0]))
    assert verify.main([str(path)]) == 3
    assert "--without-verdict" in capsys.readouterr().err
    assert verify.main([str(path), "--without-verdict"]) == 0
    assert "not proved: the verdict is erased" in capsys.readouterr().out


@pytest.mark.parametrize("left", ["payload", "salt"])
def test_what_is_said_to_be_erased_must_be_gone(left):
    made, erased = make()[0], make(erased={"prompt"})[0]
    kept = made["stages"][1][left]
    erased["stages"][1][left] = kept
    with pytest.raises(verify.Unusable, match="said to be erased"):
        check(erased)


# --- growth --------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_growth_from_any_older_head_is_proved(data):
    size = data.draw(st.integers(1, 40))
    before = data.draw(st.integers(0, size))
    made, leaves = make(size, size - 1, before=before)
    lines = check(made, older_head=head_of(leaves[:before]))
    assert f"growth: from {before} to {size} entries, only added" in lines


def test_a_newer_head_than_the_bundles_is_compared_the_other_way_round():
    made, leaves = make(20)
    longer = [*leaves, *OTHERS[30:]]
    check(made, older_head=head_of(longer), consistency=growth(longer, 20, len(longer)))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 23), st.data())
def test_a_log_rewritten_before_the_older_head_is_found(before, data):
    changed = data.draw(st.integers(0, before - 1))
    old = list(LEAVES[:before])
    old[changed] = translog.leaf_hash(b"what stood there before")
    made = copy.deepcopy(ORIGINAL)
    made["log"]["consistency"] = growth(LEAVES, before, 23)
    with pytest.raises(verify.Differs, match="rewritten"):
        check(made, older_head=head_of(old))


def test_an_older_bundle_serves_as_an_older_head():
    older = {"log": {"head": head_of(LEAVES[:7])}}
    assert any("from 7 to 23" in line for line in check(ORIGINAL, older_head=older, consistency=growth(LEAVES, 7, 23)))


def test_a_forged_older_head_is_found():
    head = head_of(LEAVES[:7])
    head["tree_size"] = 8
    with pytest.raises(verify.Differs, match="older head: its signature"):
        check(ORIGINAL, older_head=head)


def test_an_empty_log_has_one_root_only():
    head = head_of([])
    root = text(b"\1" * 32)
    signature = PRIVATE.sign(head_message(0, root, head["timestamp"]))
    head.update(root_hash=root, signature=base64.b64encode(signature).decode())
    with pytest.raises(verify.Differs, match="empty log"):
        check(ORIGINAL, older_head=head)


def test_a_head_of_a_larger_log_says_that_the_bundle_is_behind_or_entries_are_gone():
    """The end of a log that was dropped: there is no proof to ask for, since the service no longer has the entries."""
    made, leaves = make(20)
    said = (
        r"the head you hold is of a larger log \(23\) than the bundle's \(20\): "
        r"fetch the bundle again; if the service still answers 20, entries were dropped$"
    )
    for foreign in (None, growth(LEAVES, 7, 23)):
        with pytest.raises(verify.Unusable, match=said):
            check(made, older_head=head_of([*leaves, *OTHERS[:3]]), consistency=foreign)


def test_growth_without_a_proof_says_what_to_ask_for():
    with pytest.raises(verify.Unusable, match=r"first=7&second=23"):
        check(ORIGINAL, older_head=head_of(LEAVES[:7]))


# --- what can't be checked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda b: b.pop("format"), "format is missing", id="format"),
        pytest.param(lambda b: b.update(format="x/2"), "format is not", id="other-format"),
        pytest.param(lambda b: b.pop("root"), "root is missing", id="root"),
        pytest.param(lambda b: b.update(root="sha256:zz"), "hexadecimal", id="root-not-hex"),
        pytest.param(lambda b: b.update(root=5), "root is not what it should be", id="root-a-number"),
        pytest.param(lambda b: b.update(stages=[]), "0 stages", id="no-stages"),
        pytest.param(lambda b: b.update(stages=[5]), "stage 1: name is missing", id="stage-a-number"),
        pytest.param(lambda b: b["stages"][1].pop("salt"), r"stage 2 \('prompt'\): salt", id="salt"),
        pytest.param(lambda b: b["stages"][1].update(payload=None), r"stage 2 \('prompt'\): payload", id="payload"),
        pytest.param(lambda b: b["stages"][1].update(encoding="base64"), "stage 2", id="not-base64"),
        pytest.param(lambda b: b["stages"][1].update(payload="\ud800"), "stage 2", id="surrogate"),
        pytest.param(lambda b: b.update(log=None), "log is not what it should be", id="never-logged"),
        pytest.param(lambda b: b["log"].pop("inclusion"), "inclusion is missing", id="inclusion"),
        pytest.param(lambda b: b["log"]["inclusion"].update(path=[1]), "step", id="path-of-numbers"),
        pytest.param(lambda b: b["log"]["inclusion"].update(path=["x"] * 999), "too long", id="path-endless"),
        pytest.param(lambda b: b["log"].update(index=True), "index is not", id="index-a-boolean"),
        pytest.param(lambda b: b["log"].update(public_key="AAAA"), "32 bytes", id="key-short"),
        pytest.param(lambda b: b["log"].update(public_key="@"), "base64", id="key-not-base64"),
        pytest.param(lambda b: b["log"]["head"].pop("signature"), "signature is missing", id="signature"),
    ],
)
def test_missing_or_odd_parts_are_named_and_are_not_a_difference(change, message):
    made = copy.deepcopy(ORIGINAL)
    change(made)
    with pytest.raises(verify.Unusable, match=message):
        check(made)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_is_put_anywhere_never_passes_and_never_crashes(data):
    made = copy.deepcopy(ORIGINAL)
    node, key = made, None
    while True:
        keys = sorted(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    if key in {"encoding", "erased", "consistency"}:
        return  # describe; what they describe is checked by itself
    old = node[key]
    node[key] = data.draw(JSON.filter(lambda value: value != old))
    with pytest.raises((verify.Differs, verify.Unusable)):
        check(made)


# --- the command line ----------------------------------------------------------------------------------------------


def written(tmp_path: Path, name: str, value) -> str:
    path = tmp_path / name
    path.write_text(json.dumps(value))
    return str(path)


def test_the_program_runs_alone_with_an_older_head_and_a_pinned_key(tmp_path: Path):
    """Copied elsewhere and run in isolated mode: nothing of the service, no installed package."""
    program = tmp_path / "verify.py"
    program.write_bytes(Path(verify.__file__).read_bytes())
    made, leaves = make(before=7)
    arguments = [
        written(tmp_path, "bundle.json", made), "--head", written(tmp_path, "head.json", head_of(leaves[:7])),
        "--key", base64.b64encode(PUBLIC).decode(),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program), *arguments], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("TRUE")


def test_only_the_standard_library_is_imported():
    tree = ast.parse(Path(verify.__file__).read_text())
    modules = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert modules <= sys.stdlib_module_names | {"__future__"}


def test_a_difference_exits_1_and_is_the_last_line(tmp_path: Path, capsys):
    made = copy.deepcopy(ORIGINAL)
    made["stages"][2]["payload"] += " "
    assert verify.main([written(tmp_path, "b.json", made)]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("DIFFERS")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":1,"a":2}', b'{"a":NaN}', b"5", b"null"],
    ids=["empty", "half", "no-text", "deep", "doubled-key", "nan", "number", "null"],
)
def test_what_is_no_bundle_exits_3_with_one_line(tmp_path: Path, capsys, content):
    path = tmp_path / "b.json"
    path.write_bytes(content)
    assert verify.main([str(path)]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--nope"], ["/no/such/file"], ["."]])
def test_bad_usage_exits_3(capsys, arguments):
    assert verify.main(arguments) == 3
    assert capsys.readouterr().err.startswith("verify: ")


def test_a_file_over_the_limit_is_not_read_whole(tmp_path: Path, capsys):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(verify.MAX_BYTES + 1)
    assert verify.main([str(path)]) == 3
    assert "larger than" in capsys.readouterr().err


def test_help_exits_0(capsys):
    assert verify.main(["--help"]) == 0
    assert "--head" in capsys.readouterr().out


def test_keys_are_read_from_text_files_and_the_services_answer(tmp_path: Path):
    one, two = base64.b64encode(PUBLIC).decode(), base64.b64encode(b"\3" * 32).decode()
    plain = tmp_path / "key.txt"
    plain.write_text(one + "\n")
    shown = written(tmp_path, "key.json", {"public_key": one, "earlier": [{"public_key": two}]})
    assert verify.read_keys(one) == verify.read_keys(str(plain)) == {sha256_of(PUBLIC): PUBLIC}
    assert set(verify.read_keys(shown).values()) == {PUBLIC, b"\3" * 32}


# --- Ed25519 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("public", "message", "signature"),
    [
        (
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
            "d25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
            "387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
            "4a7c15e9716ed28dc027beceea1ec40a",
        ),
    ],
    ids=["TEST 1", "TEST 2", "TEST 3"],
)
def test_the_vectors_of_rfc_8032(public, message, signature):
    """RFC 8032, section 7.1."""
    key, told, signed = (bytes.fromhex(value) for value in (public, message, signature))
    assert verify.ed25519_verify(key, told, signed)
    assert not verify.ed25519_verify(key, told + b"x", signed)


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100))
def test_true_signatures_of_another_implementation_are_true(secret, message):
    private = Ed25519PrivateKey.from_private_bytes(secret)
    assert verify.ed25519_verify(private.public_key().public_bytes_raw(), message, private.sign(message))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_changed_keys_and_signatures_are_judged_as_another_implementation_does(data):
    message = b"message"
    public, signature = bytearray(PUBLIC), bytearray(PRIVATE.sign(message))
    target = data.draw(st.sampled_from([public, signature]))
    target[data.draw(st.integers(0, len(target) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        Ed25519PublicKey.from_public_bytes(bytes(public)).verify(bytes(signature), message)
        expected = True
    except InvalidSignature:
        expected = False
    assert verify.ed25519_verify(bytes(public), message, bytes(signature)) == expected


def test_a_signature_with_an_unreduced_scalar_is_refused():
    """RFC 8032, 5.1.7: S must be below the group's order, or one signature would have two spellings."""
    signature = PRIVATE.sign(b"m")
    scalar = int.from_bytes(signature[32:], "little") + verify._L
    assert not verify.ed25519_verify(PUBLIC, b"m", signature[:32] + scalar.to_bytes(32, "little"))


@pytest.mark.parametrize(("public", "signature"), [(b"", b"\0" * 64), (PUBLIC, b""), (b"\xff" * 32, b"\0" * 64)])
def test_keys_and_signatures_of_no_point_are_refused(public, signature):
    assert not verify.ed25519_verify(public, b"m", signature)


@pytest.mark.parametrize("given", ["/nonexistent", "key.pem", "AAAA", "not base64!"])
def test_a_key_that_is_no_file_and_no_key_is_said_to_be_both(given: str) -> None:
    with pytest.raises(verify.Unusable, match="there is no file") as refusal:
        verify.read_keys(given)
    assert given in str(refusal.value)
