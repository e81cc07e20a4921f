"""Ollama as a judge, over `/api/chat`."""

from __future__ import annotations

from adapters.http import JsonClient
from adapters.model_output import count, no_verdict, part, read_envelope
from adapters.reply import Reply
from layers.model import InstrumentPath, JsonObject
from layers.ports import ModelReply
from layers.prompting import RenderedPrompt


class OllamaJudge:
    """Ask a model of an Ollama server. A model that the server only forwards (`...-cloud`) counts as external."""

    source = InstrumentPath.OLLAMA

    def __init__(self, client: JsonClient, host: str, model: str, *, num_ctx: int) -> None:
        self._client = client
        self._url = host.rstrip("/") + "/api/chat"
        self._model = model
        self._num_ctx = num_ctx
        self.dependency = client.name
        self.identity = f"ollama:{model}:num_ctx={num_ctx}"
        self.external = model.endswith(("-cloud", ":cloud"))

    async def ask(
        self,
        prompt: RenderedPrompt,
        schema: JsonObject,
        *,
        temperature: float,
        seed: int,
        deadline: float | None = None,
    ) -> ModelReply:
        """The model's whole reply. Raises `DependencyError` (`truncated`, `prompt_truncated`, `empty_output`, ...)."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt.text}],
            "format": schema,
            "stream": False,
            "think": False,
            "options": {"num_ctx": self._num_ctx, "temperature": temperature, "seed": seed},
        }
        return await self._client.call("POST", self._url, json=body, read=self._read, deadline=deadline)

    def _read(self, reply: Reply) -> ModelReply:
        value = read_envelope(reply)
        text = part(reply, part(reply, value, "message", dict), "content", str)
        tokens = {"input_tokens": count(value, "prompt_eval_count"), "output_tokens": count(value, "eval_count")}
        reason = value.get("done_reason")
        if (tokens["input_tokens"] or 0) >= self._num_ctx:
            message = f"the prompt filled the context of {self._num_ctx} tokens and was cut"
            raise no_verdict(reply, "prompt_truncated", message, **tokens)
        if reason == "length" or value.get("done") is False:
            raise no_verdict(reply, "truncated", "the reply was cut before its end", **tokens)
        if not text.strip():
            raise no_verdict(reply, "empty_output", "the model wrote nothing", **tokens)
        return ModelReply(text, self._model, finish_reason=reason if isinstance(reason, str) else None, **tokens)
