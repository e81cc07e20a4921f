"""What every ratio is measured against: a FastAPI route that does nothing with a validated body."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel


class Body(BaseModel):
    """The same fields as an evaluation request."""

    id: str
    system: str
    raw_output: dict[str, Any]
    label: str
    confidence: float
    metadata: dict[str, Any] = {}


app = FastAPI()


@app.post("/noop")
async def noop(body: Body) -> Body:
    """Give back what came."""
    return body


@app.get("/livez")
async def livez() -> dict[str, str]:
    """Say that the process lives."""
    return {"status": "ok"}
