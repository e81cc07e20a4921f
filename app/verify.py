"""Check a provenance bundle with nothing but Python's standard library: `python verify.py BUNDLE [--head HEAD]`.

Exit code 0: everything checked is true. 1: something differs, and the first thing that does is named. 3: could not
check (usage, unreadable file, missing parts). Formulae: `layers/provenance.py`, RFC 9162 section 2.1, RFC 8032.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

FORMAT = "arbiter-l8/provenance-bundle/1"
MAX_BYTES = 64_000_000
MAX_STAGES = 1_000

Say = Callable[[str, str], None]


class Differs(Exception):
    """Something is not what it is said to be."""


class Unusable(Exception):
    """What was given can't be checked."""


def verify(
    bundle: Any,
    say: Say,
    *,
    older_head: Any = None,
    consistency: Any = None,
    pinned: dict[str, bytes] | None = None,
    without_verdict: bool = False,
) -> list[str]:
    """Check a decoded bundle; `say(what, result)` is told each step. Raises `Differs` or `Unusable`.

    `pinned` maps key ids to public keys that the caller trusts; without it the bundle's own key is believed. A bundle
    whose verdict is erased proves nothing about what was decided: it is unusable unless `without_verdict`. Returns the
    names of the stages that are erased, about which nothing could be checked but their place.
    """
    if _get(bundle, "format", str) != FORMAT:
        raise Unusable(f"the bundle's format is not {FORMAT}")
    stages = _get(bundle, "stages", list)
    root = _check_stages(stages, say)
    if root != _hash(bundle, "root"):
        raise Differs("root: the stages, each true to its own hash, do not give the root on record")
    say("root", f"sha256:{root.hex()}  true")
    _check_about(_get(bundle, "about", dict), stages, say, without_verdict=without_verdict)
    log = _get(bundle, "log", dict)
    head = _check_log(log, root, say)
    keys = _keys(log, pinned)
    _check_head(head, keys, "head", say)
    say("key", "one that you gave" if pinned is not None else "taken from the bundle; give --key to pin it")
    if older_head is not None:
        _check_growth(older_head, head, [consistency, log.get("consistency")], keys, say)
    return [stage["name"] for stage in stages if _is_erased(stage)]


# --- stages ---------------------------------------------------------------------------------------------------------


def _check_stages(stages: list[Any], say: Say) -> bytes:
    if not 0 < len(stages) <= MAX_STAGES:
        raise Unusable(f"the bundle has {len(stages)} stages")
    leaves = []
    for number, stage in enumerate(stages, 1):
        name = _get(stage, "name", str, f"stage {number}")
        what = f"stage {number} ({name[:64]!r})"
        commitment = _hash(stage, "commitment", what)
        if _is_erased(stage):
            if stage.get("payload") is not None or stage.get("salt") is not None:
                raise Unusable(f"{what}: it is said to be erased, and is there")
            say(what, "erased, hash kept")
        else:
            payload, salt = _payload(stage, what), _hex(_get(stage, "salt", str, what), what)
            if _sha(b"arbiter-l8:payload:1\x00", salt, payload) != commitment:
                raise Differs(f"{what}: its bytes do not give the hash on record")
            say(what, f"{len(payload)} bytes, true")
        encoded = name.encode("utf-8", "replace")
        if len(encoded) > 255:
            raise Unusable(f"{what}: its name is too long")
        leaves.append(_sha(b"\x00arbiter-l8:stage:1\x00", bytes([len(encoded)]), encoded, commitment))
    top = _tree(leaves, lambda left, right: _sha(b"\x01arbiter-l8:node:1\x00", left, right))
    return _sha(b"\x02arbiter-l8:record:1\x00", len(leaves).to_bytes(4, "big"), top)


def _is_erased(stage: dict[str, Any]) -> bool:
    return stage.get("erased") is True


def _check_about(about: dict[str, Any], stages: list[Any], say: Say, *, without_verdict: bool) -> None:
    """Whether the bundle is of the evaluation that it is labelled with, as its verdict says."""
    verdict = next((stage for stage in stages if stage["name"] == "verdict"), None)
    if verdict is None:
        raise Unusable("there is no verdict among the stages")
    if _is_erased(verdict):
        if not without_verdict:
            raise Unusable(
                "the verdict is erased, so nothing here says what was decided, nor of which evaluation; "
                "--without-verdict checks the rest"
            )
        say("about", "not proved: the verdict is erased")
        return
    said = _decode(_payload(verdict, "verdict"), "the verdict")
    labelled, true = ([one.get(name) for name in _LABEL] for one in (about, said if isinstance(said, dict) else {}))
    if labelled != true:
        raise Differs(f"about: it is labelled {_shown(labelled)}, its verdict is of {_shown(true)}")
    say("about", f"{_shown(true)}, as its verdict says")


_LABEL = ("evaluation_id", "revision")


def _shown(label: list[Any]) -> str:
    return f"evaluation {str(label[0])[:80]!r}, revision {str(label[1])[:20]}"


def _payload(stage: dict[str, Any], what: str) -> bytes:
    text: str = _get(stage, "payload", str, what)
    try:
        if stage.get("encoding") == "base64":
            return base64.b64decode(text, validate=True)
        return text.encode("utf-8")
    except (ValueError, binascii.Error) as exc:
        raise Unusable(f"{what}: its payload can't be decoded") from exc


def _tree(hashes: list[bytes], node: Callable[[bytes, bytes], bytes]) -> bytes:
    if len(hashes) == 1:
        return hashes[0]
    middle = 1 << ((len(hashes) - 1).bit_length() - 1)
    return node(_tree(hashes[:middle], node), _tree(hashes[middle:], node))


# --- the log --------------------------------------------------------------------------------------------------------


def _check_log(log: dict[str, Any], root: bytes, say: Say) -> dict[str, Any]:
    """The head that the entry is proved against."""
    index: int = _get(log, "index", int, "log")
    head: dict[str, Any] = _get(log, "head", dict, "log")
    size = _get(head, "tree_size", int, "head")
    kind = _get(log, "kind", str, "log")
    leaf = _sha(b"\x00", b"arbiter-l8:log:1\x00", kind.encode("utf-8", "replace"), b"\x00", root)
    path = _path(_get(log, "inclusion", dict, "log"), "inclusion")
    if _included(leaf, index, size, path) != _hash(head, "root_hash", "head"):
        raise Differs(f"log: entry {index} with this root is not in the log of {size} entries")
    say("log", f"entry {index} of {size}, in place")
    return head


def _node(left: bytes, right: bytes) -> bytes:
    return _sha(b"\x01", left, right)


def _included(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
    """The root to which a leaf and its path lead (RFC 9162, 2.1.3.2); None for a path of the wrong length."""
    if not 0 <= index < size:
        return None
    number, last = index, size - 1
    for step in path:
        if last == 0:
            return None
        if number & 1 or number == last:
            leaf = _node(step, leaf)
            while number and not number & 1:
                number, last = number >> 1, last >> 1
        else:
            leaf = _node(leaf, step)
        number, last = number >> 1, last >> 1
    return leaf if last == 0 else None


def _grown(first: int, second: int, first_root: bytes, path: list[bytes]) -> tuple[bytes, bytes] | None:
    """The older and the newer root to which a consistency path leads (RFC 9162, 2.1.4.2), for 0 < first < second."""
    steps = [first_root, *path] if first & (first - 1) == 0 else path
    number, last = first - 1, second - 1
    while number & 1:
        number, last = number >> 1, last >> 1
    if not steps:
        return None
    older = newer = steps[0]
    for step in steps[1:]:
        if last == 0:
            return None
        if number & 1 or number == last:
            older, newer = _node(step, older), _node(step, newer)
            while number and not number & 1:
                number, last = number >> 1, last >> 1
        else:
            newer = _node(newer, step)
        number, last = number >> 1, last >> 1
    return (older, newer) if last == 0 else None


def _check_growth(given: Any, head: dict[str, Any], proofs: Sequence[Any], keys: dict[str, bytes], say: Say) -> None:
    if isinstance(given, dict) and isinstance(given.get("log"), dict):
        given = given["log"].get("head")  # an older bundle holds an older head
    if not isinstance(given, dict):
        raise Unusable("the older head is not a JSON object")
    _check_head(given, keys, "older head", say)
    heads = sorted(
        ((_get(one, "tree_size", int, "head"), _hash(one, "root_hash", "head")) for one in (given, head)),
        key=lambda pair: pair[0],
    )
    (first, first_root), (second, second_root) = heads
    if first == second and first_root != second_root:
        raise Differs(f"growth: two heads of {first} entries have different roots: the log was rewritten")
    if first == 0 and first_root != _sha():
        raise Differs("growth: the head of an empty log has another root than an empty log")
    if 0 < first < second:
        proof = next(
            (p for p in proofs if isinstance(p, dict) and (p.get("first"), p.get("second")) == (first, second)), None
        )
        if proof is None and head["tree_size"] == first:
            raise Unusable(
                f"the head you hold is of a larger log ({second}) than the bundle's ({first}): fetch the bundle again; "
                f"if the service still answers {first}, entries were dropped"
            )
        if proof is None:
            raise Unusable(
                f"growth from {first} to {second} entries needs a proof: save GET /log/consistency?first={first}"
                f"&second={second} and give it as --consistency"
            )
        if _grown(first, second, first_root, _path(proof, "consistency")) != (first_root, second_root):
            raise Differs(
                f"growth: the log of {second} entries does not begin with the one of {first}: it was rewritten"
            )
    say("growth", f"from {first} to {second} entries, only added")


# --- heads and keys -------------------------------------------------------------------------------------------------


def _keys(log: dict[str, Any], pinned: dict[str, bytes] | None) -> dict[str, bytes]:
    if pinned is not None:
        return pinned
    key = _base64(_get(log, "public_key", str, "log"), "public_key")
    return {_key_id(key): key}


def _check_head(head: dict[str, Any], keys: dict[str, bytes], what: str, say: Say) -> None:
    size, stamp = _get(head, "tree_size", int, what), _get(head, "timestamp", str, what)
    root, key_id = _hash(head, "root_hash", what), _get(head, "key_id", str, what)
    if key_id not in keys:
        raise Differs(f"{what}: it is signed with key {key_id[:80]!r}, which is not one of those trusted here")
    message = f"arbiter-l8 tree head 1\n{size}\nsha256:{root.hex()}\n{stamp}\n".encode("utf-8", "replace")
    if not ed25519_verify(keys[key_id], message, _base64(_get(head, "signature", str, what), what)):
        raise Differs(f"{what}: its signature is not true")
    say(what, f"{size} entries at {stamp[:40]}, signed by {key_id[:23]}...")


def read_keys(given: str) -> dict[str, bytes]:
    """Trusted keys by id: a file (the JSON of `GET /log/key`, or one key in base64), or one key in base64 itself.

    Raises `Unusable`.
    """
    text = given.strip()
    if Path(given).is_file():
        text = _read(given).decode("utf-8", "replace").strip()
    elif not _is_key(text):
        raise Unusable(f"--key: there is no file {given[:200]!r}, and it is no public key (32 bytes in base64) either")
    texts = [text]
    if text.startswith("{"):
        shown = _decode(text.encode(), given)
        earlier = shown.get("earlier") or []
        texts = [
            _get(one, "public_key", str, "key") for one in (shown, *(earlier if isinstance(earlier, list) else []))
        ]
    return {_key_id(key): key for key in (_base64(one, "key") for one in texts)}


def _is_key(text: str) -> bool:
    try:
        return len(_base64(text, "key")) == 32
    except Unusable:
        return False


def _key_id(key: bytes) -> str:
    if len(key) != 32:
        raise Unusable(f"a public key has 32 bytes, not {len(key)}")
    return "sha256:" + hashlib.sha256(key).hexdigest()


# --- Ed25519 (RFC 8032, 5.1) ----------------------------------------------------------------------------------------

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_SQRT_M1 = pow(2, (_P - 1) // 4, _P)
Point = tuple[int, int, int, int]  # extended coordinates X, Y, Z, T with x = X/Z, y = Y/Z, x*y = T/Z


def ed25519_verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the 64-byte signature is the key's (32 bytes) over the message."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, commitment = _point(public), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or scalar >= _L:
        return False
    digest = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _L
    return _same(_times(scalar, _BASE), _add(commitment, _times(digest, key)))


def _point(data: bytes) -> Point | None:
    encoded = int.from_bytes(data, "little")
    y, sign = encoded & ((1 << 255) - 1), encoded >> 255
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _SQRT_M1 % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _add(p: Point, q: Point) -> Point:
    a = (p[1] - p[0]) * (q[1] - q[0]) % _P
    b = (p[1] + p[0]) * (q[1] + q[0]) % _P
    c, d = 2 * p[3] * q[3] * _D % _P, 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(scalar: int, point: Point) -> Point:
    result: Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point, scalar = _add(point, point), scalar >> 1
    return result


def _same(p: Point, q: Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % _P == 0 and (p[1] * q[2] - q[1] * p[2]) % _P == 0


_BASE_Y = 4 * pow(5, -1, _P) % _P
_BASE: Point = _point(_BASE_Y.to_bytes(32, "little")) or (0, 1, 1, 0)


# --- reading what was given -----------------------------------------------------------------------------------------


def _sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def _get(value: Any, name: str, kind: type, where: str = "the bundle") -> Any:
    if not isinstance(value, dict) or name not in value:
        raise Unusable(f"{where}: {name} is missing")
    found = value[name]
    if not isinstance(found, kind) or isinstance(found, bool):
        raise Unusable(f"{where}: {name} is not what it should be")
    return found


def _hash(value: Any, name: str, where: str = "the bundle") -> bytes:
    text = _get(value, name, str, where)
    digest = _hex(text.removeprefix("sha256:"), f"{where}: {name}")
    if not text.startswith("sha256:") or len(digest) != 32:
        raise Unusable(f"{where}: {name} is not a SHA-256 hash")
    return digest


def _path(proof: dict[str, Any], where: str) -> list[bytes]:
    steps = _get(proof, "path", list, where)
    if len(steps) > 130:
        raise Unusable(f"{where}: its path is too long")
    return [_hash({"step": step}, "step", where) for step in steps]


def _hex(text: str, where: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as exc:
        raise Unusable(f"{where}: not hexadecimal") from exc


def _base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise Unusable(f"{where}: not base64") from exc


def _read(path: str) -> bytes:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise Unusable(f"{path}: {exc.strerror}") from exc
    if len(data) > MAX_BYTES:
        raise Unusable(f"{path}: larger than {MAX_BYTES // 1_000_000} MB")
    return data


def _decode(data: bytes, path: str) -> Any:
    try:
        return json.loads(data, object_pairs_hook=_no_doubles, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise Unusable(f"{path}: not JSON ({str(exc)[:120]})") from exc


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# --- command line ---------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Unusable(message)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="verify", description="Check an evaluation's provenance bundle.")
    parser.add_argument("bundle", help="the answer of GET /evaluations/{id}/provenance; - reads standard input")
    parser.add_argument("--head", help="an older head of the log (or an older bundle): prove that it only grew")
    parser.add_argument("--consistency", help="the answer of GET /log/consistency, where the bundle does not hold it")
    parser.add_argument(
        "--without-verdict", action="store_true", help="accept a bundle whose verdict was erased, and check the rest"
    )
    parser.add_argument("--key", help="the log's public key as you know it: a file, or base64")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Prints one line for each step and the result last."""

    def say(what: str, result: str) -> None:
        sys.stdout.write(f"{what:<28} {result}\n")

    try:
        given = _arguments(sys.argv[1:] if argv is None else argv)
        files = {name: getattr(given, name) for name in ("bundle", "head", "consistency")}
        decoded = {name: path and _decode(_read(path), path) for name, path in files.items()}
        erased = verify(
            decoded["bundle"],
            say,
            older_head=decoded["head"],
            consistency=decoded["consistency"],
            pinned=read_keys(given.key) if given.key else None,
            without_verdict=given.without_verdict,
        )
    except Differs as exc:
        say("DIFFERS", str(exc))
        return 1
    except Unusable as exc:
        sys.stderr.write(f"verify: {exc}\n")
        return 3
    except SystemExit:  # --help
        return 0
    gone = f"; erased, and not checked: {', '.join(erased)}" if erased else ""
    say("TRUE", f"everything that was checked is as it was recorded{gone}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
