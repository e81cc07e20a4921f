"""Any OpenAI-compatible endpoint as a judge, over `/chat/completions`."""

from __future__ import annotations

from pydantic import SecretStr

from adapters.http import JsonClient
from adapters.model_output import count, no_verdict, part, read_envelope
from adapters.reply import Reply
from layers.errors import DependencyMalformed
from layers.model import InstrumentPath, JsonObject
from layers.ports import ModelReply
from layers.prompting import RenderedPrompt


class OpenAICompatibleJudge:
    """Ask vLLM, llama.cpp's server, LiteLLM, OpenRouter and the like.

    Counts as external wherever it listens: a gateway on this machine may well forward to one that is not.
    """

    source = InstrumentPath.OPENAI_COMPATIBLE
    external = True

    def __init__(self, client: JsonClient, base_url: str, model: str, *, api_key: SecretStr | None = None) -> None:
        self._client = client
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._model = model
        self._headers = bearer(api_key)
        self.dependency = client.name
        self.identity = f"openai:{base_url.rstrip('/')}:{model}"

    async def ask(
        self,
        prompt: RenderedPrompt,
        schema: JsonObject,
        *,
        temperature: float,
        seed: int,
        deadline: float | None = None,
    ) -> ModelReply:
        """The model's whole reply. Raises `DependencyError` (`truncated`, `blocked`, `empty_output`, ...)."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt.text}],
            "temperature": temperature,
            "seed": seed,
            "stream": False,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": prompt.prompt.name, "strict": True, "schema": schema},
            },
        }
        return await self._client.call(
            "POST", self._url, json=body, headers=self._headers, read=self._read, deadline=deadline
        )

    def _read(self, reply: Reply) -> ModelReply:
        value = read_envelope(reply)
        usage = value.get("usage")
        tokens = {"input_tokens": count(usage, "prompt_tokens"), "output_tokens": count(usage, "completion_tokens")}
        choices = part(reply, value, "choices", list)
        if not choices:
            raise no_verdict(reply, "empty_output", "there is no choice", **tokens)
        message = part(reply, choices[0], "message", dict)
        text = message.get("content")
        if text is not None and not isinstance(text, str):
            raise DependencyMalformed(reply.dependency, "malformed", "the reply's `content` is not text")
        reason = choices[0].get("finish_reason")
        if reason == "length":
            raise no_verdict(reply, "truncated", "the reply was cut before its end", **tokens)
        if reason == "content_filter" or message.get("refusal"):
            raise no_verdict(reply, "blocked", "the model refused, or its reply was filtered", **tokens)
        if not (text or "").strip():
            raise no_verdict(reply, "empty_output", "the model wrote nothing", **tokens)
        return ModelReply(text or "", self._model, finish_reason=reason if isinstance(reason, str) else None, **tokens)


def bearer(api_key: SecretStr | None) -> dict[str, str]:
    """The header that carries the key, none without one."""
    return {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
