"""Read what an operator ingests: policy documents and past verdicts. Every refusal names the file and the place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from app.errors import NotFound, Unprocessable
from app.index.model import IndexItem
from layers.strict_json import StrictJsonError, loads

MAX_BYTES = 64_000_000
_TEXTS = frozenset({".md", ".markdown", ".txt"})


def read_documents(path: Path) -> list[tuple[str, str]]:
    """Name and text of a file, or of every `.md`, `.markdown` and `.txt` file below a folder, in order of names."""
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.suffix.lower() in _TEXTS and each.is_file())
        if not files:
            raise NotFound(f"{path} holds no Markdown files")
        return [(each.relative_to(path).as_posix(), _text(each)) for each in files]
    return [(path.name, _text(path))]


def read_verdicts(path: Path) -> list[IndexItem]:
    """Past verdicts of a `.json` file (an array, or an object with `items`), or of one with a JSON object a line."""
    text = _text(path)
    items = _lines(path, text) if path.suffix.lower() != ".json" else _array(path, text)
    return [_item(path, number, value) for number, value in items]


def _text(path: Path) -> str:
    if not path.is_file():
        raise NotFound(f"there is no file or folder at {path}" if not path.exists() else f"{path} is not a file")
    if path.stat().st_size > MAX_BYTES:
        raise Unprocessable(f"{path} is larger than {MAX_BYTES} bytes")
    try:
        return path.read_text("utf-8-sig").replace("\x00", "\ufffd")
    except UnicodeDecodeError as exc:
        raise Unprocessable(f"{path} is not UTF-8 text (byte {exc.start})") from None
    except OSError as exc:
        raise Unprocessable(f"{path} can't be read: {exc.strerror}") from None


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield f"line {number}", _decode(path, f"line {number}", line)


def _array(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    value = _decode(path, "the file", text)
    items = value.get("items") if isinstance(value, dict) else value
    if not isinstance(items, list):
        raise Unprocessable(f"{path} holds neither an array nor an object with `items`")
    for number, item in enumerate(items):
        yield f"item {number}", item


def _decode(path: Path, where: str, text: str) -> Any:
    try:
        return loads(text)
    except StrictJsonError as exc:
        raise Unprocessable(f"{path}, {where}: {exc}") from None


def _item(path: Path, where: str, value: Any) -> IndexItem:
    try:
        return IndexItem.model_validate(value)
    except ValidationError as exc:
        error = exc.errors(include_input=False, include_url=False)[0]
        field = "/".join(str(part) for part in error["loc"])
        raise Unprocessable(f"{path}, {where}: {field}: {error['msg']}".replace(": : ", ": ")) from None
