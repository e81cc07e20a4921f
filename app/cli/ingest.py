"""`arbiter-l8 ingest`: fill the embedded index from files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from app.cli.client import RequestFailed, named, no_answer, post, service
from app.cli.console import err, fail, out
from app.cli.exits import FAILED, USAGE
from app.errors import ServiceError
from app.index.chunks import chunk_markdown, domain_of
from app.index.files import read_documents, read_verdicts
from app.settings import Settings
from layers.errors import DependencyError

BATCH = 200
VERDICTS = frozenset({".json", ".ndjson", ".jsonl"})


async def ingest(settings: Settings, path: Path, namespace: str | None, *, server: str | None, key: str | None) -> int:
    """Put a file or folder in; `.json` and `.ndjson` hold past verdicts, all else is policy text. The exit code."""
    vectors = settings.vectors
    is_verdicts = path.suffix.lower() in VERDICTS
    name = namespace or (vectors.transactions_namespace if is_verdicts else vectors.policies_namespace)
    try:
        items = list(_verdict_items(path) if is_verdicts else _policy_items(path))
        async with service(settings, server, key, execute=False) as client:
            for start in range(0, len(items), BATCH):
                done = await post(client, f"/index/{name}", json={"items": items[start : start + BATCH]})
                err.print(f"{min(start + BATCH, len(items))}/{len(items)} entries")
    except ServiceError as exc:
        fail(str(exc), USAGE)
    except (RequestFailed, DependencyError) as exc:
        fail(str(exc), FAILED)
    except httpx.HTTPError as exc:
        fail(no_answer(exc, named(server or "")), FAILED)
    now = done["namespace"]
    entries = "1 entry" if now["entries"] == 1 else f"{now['entries']} entries"
    out.print(f"{name}: {entries} of {now['dimension']} dimensions, embedded by {now['embedder']}")
    return 0


def _policy_items(path: Path) -> Iterator[dict[str, Any]]:
    for source, text in read_documents(path):
        for number, chunk in enumerate(chunk_markdown(text)):
            metadata = {"text": chunk, "source": source, "chunk": number, "domain": domain_of(source)}
            yield {"id": f"{source}#{number}", "text": chunk, "metadata": metadata}


def _verdict_items(path: Path) -> Iterator[dict[str, Any]]:
    for item in read_verdicts(path):
        yield item.model_dump(mode="json", exclude_none=True)
