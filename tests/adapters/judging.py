"""What the judges' tests share: one prompt, one schema, one way to ask."""

from __future__ import annotations

from layers.judge_question import verdict_schema
from layers.ports import Answerer, ModelReply
from layers.prompting import RenderedPrompt, render
from prompts import load

VERDICT = '{"reasoning": "r", "claims": [], "verdict": "high", "confidence": 0.5}'
SCHEMA = verdict_schema(("low", "high"), ("E1", "E2"), 8)
SECRET = "k-3f9c-very-secret"


def judge_prompt() -> RenderedPrompt:
    values = {"labels": '["low","high"]', "label": '"low"', "evidence": "{}", "max_pointers": "8"}
    return render(load("judge"), values)


async def ask(judge: Answerer) -> ModelReply:
    return await judge.ask(judge_prompt(), SCHEMA, temperature=0.0, seed=7)
