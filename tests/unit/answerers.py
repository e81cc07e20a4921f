"""A model that says what the test wants, when the test wants it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from layers.model import InstrumentPath, JsonObject
from layers.ports import ModelReply
from layers.prompting import RenderedPrompt

Speak = Callable[[RenderedPrompt], str | Exception | Awaitable[str]]


@dataclass
class ScriptedAnswerer:
    """`speak` gives the reply's text, an exception to raise, or something to await."""

    speak: Speak
    source: InstrumentPath = InstrumentPath.OLLAMA
    external: bool = False
    identity: str = "scripted:1"
    asked: list[RenderedPrompt] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)

    @property
    def dependency(self) -> str:
        return self.source.value

    async def ask(
        self,
        prompt: RenderedPrompt,
        schema: JsonObject,
        *,
        temperature: float,
        seed: int,
        deadline: float | None = None,
    ) -> ModelReply:
        self.asked.append(prompt)
        self.options.append({"schema": schema, "temperature": temperature, "seed": seed, "deadline": deadline})
        said = self.speak(prompt)
        if isinstance(said, Exception):
            raise said
        text = said if isinstance(said, str) else await said
        return ModelReply(text, self.identity, input_tokens=100, output_tokens=10, finish_reason="stop")
