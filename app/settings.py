"""What an operator can set: frozen, nested, read once from the environment and `.env`, handed down as values.

Names without the `ARBITER_` prefix are those that operators of the neighbouring systems already have.
A remote is *configured* when its address was given on purpose; a default alone makes no call.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from layers.errors import ConfigurationError

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


def env(name: str, default: Any = ..., **constraints: Any) -> Any:
    """A field that is read from the environment variable `name`."""
    return Field(default, json_schema_extra={"env": name}, **constraints)


class Group(BaseModel):
    """A frozen group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def given(self, field: str) -> bool:
        """Whether `field` was set on purpose rather than left at its default."""
        return field in self.model_fields_set


class SentinelSettings(Group):
    """Sentinel-L7 over MCP."""

    url: str = env("SENTINEL_L7_MCP_URL", "http://localhost:8080/mcp")
    timeout: Seconds = env("ARBITER_SENTINEL_TIMEOUT", 20)
    rate_per_minute: Rate | None = env("ARBITER_SENTINEL_RATE_PER_MINUTE", 60)
    slots: int = env("ARBITER_SENTINEL_SLOTS", 16, ge=1)
    drivers: tuple[str, ...] = env("ARBITER_SENTINEL_DRIVERS", ("gemini", "openrouter", "ollama", "vertexai"))


class SynapseSettings(Group):
    """Synapse-L4 over REST. `replay` allows calls whose side effect is an axiom on Sentinel's stream."""

    base_url: str = env("SYNAPSE_L4_BASE_URL", "http://localhost:8000")
    timeout: Seconds = env("ARBITER_SYNAPSE_TIMEOUT", 25)
    rate_per_minute: Rate | None = env("ARBITER_SYNAPSE_RATE_PER_MINUTE", None)
    slots: int = env("ARBITER_SYNAPSE_SLOTS", 128, ge=1)
    replay: bool = env("ARBITER_SYNAPSE_REPLAY", False)
    repeats: int = env("ARBITER_REPEATS", 3, ge=2, le=20)


class OllamaJudgeSettings(Group):
    """The first judge."""

    host: str = env("OLLAMA_JUDGE_HOST", "http://localhost:11434")
    model: str = env("OLLAMA_JUDGE_MODEL", "qwen3.5:9b-q4_K_M")
    timeout: Seconds = env("ARBITER_OLLAMA_JUDGE_TIMEOUT", 25)
    num_ctx: int = env("ARBITER_OLLAMA_NUM_CTX", 8192, ge=512)
    slots: int = env("ARBITER_OLLAMA_JUDGE_SLOTS", 128, ge=1)


class GeminiSettings(Group):
    """The second judge; used only when a key was given."""

    api_key: SecretStr | None = env("GEMINI_API_KEY", None)
    url: str = env(
        "GEMINI_FLASH_URL",
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.0-flash:generateContent",
    )
    timeout: Seconds = env("ARBITER_GEMINI_TIMEOUT", 15)
    slots: int = env("ARBITER_GEMINI_SLOTS", 128, ge=1)


class OpenAISettings(Group):
    """Any OpenAI-compatible endpoint, as a judge and as an embedder."""

    base_url: str | None = env("OPENAI_BASE_URL", None)
    api_key: SecretStr | None = env("OPENAI_API_KEY", None)
    judge_model: str = env("ARBITER_OPENAI_JUDGE_MODEL", "default")
    embedding_model: str | None = env("ARBITER_OPENAI_EMBEDDING_MODEL", None)
    timeout: Seconds = env("ARBITER_OPENAI_TIMEOUT", 20)
    slots: int = env("ARBITER_OPENAI_SLOTS", 128, ge=1)


class JudgeSettings(Group):
    """The chain: which judges, in which order. Those not configured are passed over."""

    order: tuple[Literal["ollama", "gemini_flash", "openai_compatible"], ...] = env(
        "ARBITER_JUDGE_ORDER", ("ollama", "gemini_flash")
    )
    temperature: float = env("ARBITER_JUDGE_TEMPERATURE", 0.0, ge=0, le=2)
    seed: int = env("ARBITER_JUDGE_SEED", 7)
    max_pointers: int = env("ARBITER_JUDGE_MAX_POINTERS", 8, ge=1)


class EmbedderSettings(Group):
    """Where embeddings come from. `auto`: Ollama when its address was given, else the embedded lexical one."""

    kind: Literal["auto", "ollama", "openai", "embedded"] = env("ARBITER_EMBEDDER", "auto")
    ollama_url: str = env("OLLAMA_URL", "http://localhost:11434")
    model: str = env("OLLAMA_EMBEDDING_MODEL", "nomic-embed-text:v1.5")
    timeout: Seconds = env("ARBITER_EMBEDDER_TIMEOUT", 8)
    slots: int = env("ARBITER_EMBEDDER_SLOTS", 128, ge=1)


class VectorSettings(Group):
    """Sentinel's vector index, or the embedded one when no address was given."""

    url: str | None = env("UPSTASH_VECTOR_REST_URL", None)
    token: SecretStr | None = env("UPSTASH_VECTOR_REST_TOKEN", None)
    timeout: Seconds = env("ARBITER_UPSTASH_TIMEOUT", 5)
    slots: int = env("ARBITER_UPSTASH_SLOTS", 128, ge=1)
    transactions_threshold: Share = env("UPSTASH_VECTOR_THRESHOLD", 0.90)
    policies_threshold: Share = env("UPSTASH_VECTOR_POLICIES_THRESHOLD", 0.70)
    transactions_namespace: str = env("ARBITER_TRANSACTIONS_NAMESPACE", "transactions")
    policies_namespace: str = env("ARBITER_POLICIES_NAMESPACE", "policies")
    top_k: int = env("ARBITER_TOP_K", 5, ge=1, le=100)
    policy_epoch: str | None = env("ARBITER_POLICY_EPOCH", None)
    policy_source: Literal["auto", "upstash", "sentinel", "embedded"] = env("ARBITER_POLICY_SOURCE", "auto")
    """Where grounding looks policies up; `auto`: the first of these that is configured."""


class TelemetrySettings(Group):
    """OTLP/HTTP. Nothing waits for the collector. `trace_ratio`: the share of cheap requests that get a full trace."""

    enabled: bool = env("ARBITER_TELEMETRY", True)
    endpoint: str = env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    service_name: str = env("OTEL_SERVICE_NAME", "arbiter-l8")
    trace_ratio: Share = env("ARBITER_TRACE_RATIO", 0.02)
    slow_ms: float = env("ARBITER_TRACE_SLOW_MS", 1000.0, gt=0)
    requests: Literal["kept", "all"] = env("ARBITER_TRACE_REQUESTS", "kept")
    """Which requests beside `/evaluate` get a span: those worth keeping, or all, by the FastAPI instrumentation."""
    content: bool = env("ARBITER_TELEMETRY_CONTENT", False)
    """Whether raw outputs, narratives and a judge's reasoning go into spans, redacted."""
    shutdown_timeout: Seconds = env("ARBITER_TELEMETRY_SHUTDOWN_TIMEOUT", 2)
    log_level: Literal["debug", "info", "warning", "error"] = env("ARBITER_LOG_LEVEL", "info")
    log_format: Literal["auto", "json", "pretty"] = env("ARBITER_LOG_FORMAT", "auto")


class StoreSettings(Group):
    """Where records live. `synchronous` FULL also survives a power cut, at a price per commit."""

    url: str = env("ARBITER_DATABASE_URL", "sqlite:///arbiter-l8.db")
    synchronous: Literal["NORMAL", "FULL"] = env("ARBITER_SQLITE_SYNCHRONOUS", "NORMAL")


class LogSettings(Group):
    """The append-only log. The key that signs its heads is made at first start; None = beside the database's file."""

    key_file: Path | None = env("ARBITER_LOG_KEY_FILE", None)


class ServerSettings(Group):
    """How the service listens. Without a key it binds loopback only."""

    host: str = env("ARBITER_HOST", "127.0.0.1")
    port: int = env("ARBITER_PORT", 8088, ge=0, le=65535)
    api_keys: tuple[SecretStr, ...] = env("ARBITER_API_KEYS", ())
    max_in_flight: int = env("ARBITER_MAX_IN_FLIGHT", 512, ge=1)
    max_body_bytes: int = env("ARBITER_MAX_BODY_BYTES", 1_000_000, ge=1_000)
    max_upload_bytes: int = env("ARBITER_MAX_UPLOAD_BYTES", 512_000_000, ge=1_000)
    max_batch: int = env("ARBITER_MAX_BATCH", 10_000, ge=1)
    body_timeout: Seconds = env("ARBITER_BODY_TIMEOUT", 20)
    """Seconds without a byte of a body after which it is given up: who sends nothing must not hold a connection."""
    body_min_rate: int = env("ARBITER_BODY_MIN_RATE", 8_000, ge=1)
    """Bytes a second that a body must come with on the whole, `body_timeout` beside: who drips must not either."""


class EvaluationSettings(Group):
    """Deadlines (seconds) and the audit sample of `/evaluate`."""

    audit_rate: Share = env("ARBITER_AUDIT_RATE", 0.02)
    audit_key: SecretStr = env("ARBITER_AUDIT_KEY", SecretStr("arbiter-l8"))
    request_timeout: Seconds = env("ARBITER_REQUEST_TIMEOUT", 75)
    grounding_timeout: Seconds = env("ARBITER_GROUNDING_TIMEOUT", 10)
    disagreement_timeout: Seconds = env("ARBITER_DISAGREEMENT_TIMEOUT", 28)
    consistency_timeout: Seconds = env("ARBITER_CONSISTENCY_TIMEOUT", 16)
    judge_timeout: Seconds = env("ARBITER_JUDGE_TIMEOUT", 45)


class RunSettings(Group):
    """How runs execute."""

    concurrency: int = env("ARBITER_RUN_CONCURRENCY", 16, ge=1, le=1024)
    chunk_size: int = env("ARBITER_RUN_CHUNK_SIZE", 500, ge=1, le=500)
    chunk_seconds: Seconds = env("ARBITER_RUN_CHUNK_SECONDS", 10)
    max_failed_share: Share = env("ARBITER_MAX_FAILED_SHARE", 0.5)
    unreachable_limit: int = env("ARBITER_RUN_UNREACHABLE_LIMIT", 20, ge=1)
    max_examples: int = env("ARBITER_MAX_EXAMPLES", 2_000_000, ge=1)
    work: bool = env("ARBITER_RUN_WORK", True)
    """Whether `serve` also does what was accepted; False leaves that to `worker` processes on the same store."""
    shared: bool = env("ARBITER_RUN_SHARED", True)
    """Whether this process, on PostgreSQL, works on the same runs as all others; False: on none but its own."""
    worker_lease: float = env("ARBITER_WORKER_LEASE", 20.0, ge=0.5, le=3600)
    """Seconds of silence after which a process is taken for dead and others do its work."""
    per_system: int = env("ARBITER_RUNS_PER_SYSTEM", 4, ge=1)
    """Runs that ask one system at the same time; the others wait for their turn."""


class ModelRoles(Group):
    """Which model does what beside judging, as ids that the first configured judge's vendor knows.

    An unset role uses that judge's own model; an unset escalation switches escalation off.
    """

    adjudication: str | None = env("ARBITER_MODEL_ADJUDICATION", None)
    escalation: str | None = env("ARBITER_MODEL_ESCALATION", None)
    synthesis: str | None = env("ARBITER_MODEL_SYNTHESIS", None)
    critic: str | None = env("ARBITER_MODEL_CRITIC", None)
    arbiter: str | None = env("ARBITER_MODEL_ARBITER", None)
    families: tuple[str, ...] = env("ARBITER_MODEL_FAMILIES", ())
    """Which family a model belongs to, as `PATTERN=FAMILY`: `qwen*=qwen, gemini-*=gemini`. The first match counts."""


class AdjudicationSettings(Group):
    """When a model's reading of evidence counts, and how pairs are worked off. Percentages are 0..100."""

    min_relevance: Percent = env("ARBITER_ADJUDICATION_MIN_RELEVANCE", 60)
    min_confidence: Percent = env("ARBITER_ADJUDICATION_MIN_CONFIDENCE", 65)
    escalate_below: Percent = env("ARBITER_ADJUDICATION_ESCALATE_BELOW", 70)
    escalate_min_importance: Percent = env("ARBITER_ADJUDICATION_ESCALATE_MIN_IMPORTANCE", 70)
    prefilter_similarity: Share = env("ARBITER_ADJUDICATION_PREFILTER_SIMILARITY", 0.35)
    concurrency: int = env("ARBITER_ADJUDICATION_CONCURRENCY", 4, ge=1, le=256)
    pair_timeout: Seconds = env("ARBITER_ADJUDICATION_PAIR_TIMEOUT", 60)
    max_pairs: int = env("ARBITER_ADJUDICATION_MAX_PAIRS", 10_000, ge=1, le=1_000_000)
    snapshot_key: SecretStr | None = env("ARBITER_ADJUDICATION_SNAPSHOT_KEY", None)
    """What snapshots are sealed with; whoever has it can make snapshots that this service accepts."""


class CriticSettings(Group):
    """Classifiers under a critic: their files, TOML or JSON. `row_timeout` (seconds) is for all calls of one row."""

    classifiers: tuple[Path, ...] = env("ARBITER_CLASSIFIERS", ())
    row_timeout: Seconds = env("ARBITER_CRITIC_ROW_TIMEOUT", 120)
    premium: tuple[str, ...] = env("ARBITER_PREMIUM_MODELS", ())
    """Models that no critic's pipeline may use, as patterns; those of the roles escalation and arbiter never may."""


class VerdictSettings(Group):
    """The arbiter. `config` is what it judges by over HTTP, where only checks whose names stand in `checks` run.

    `timeout` (seconds) is for a verdict as a whole, `model_timeout` for one question to the arbiter's model.
    """

    config: Path | None = env("ARBITER_VERDICT_CONFIG", None)
    checks: tuple[str, ...] = env("ARBITER_VERDICT_CHECKS", ())
    slots: int = env("ARBITER_VERDICT_SLOTS", 2, ge=1, le=64)
    timeout: Seconds = env("ARBITER_VERDICT_TIMEOUT", 900)
    model_timeout: Seconds = env("ARBITER_VERDICT_MODEL_TIMEOUT", 300)


class NetworkSettings(Group):
    """What all remotes share."""

    connect_timeout: Seconds = env("ARBITER_CONNECT_TIMEOUT", 2)
    max_response_bytes: int = env("ARBITER_MAX_RESPONSE_BYTES", 8_000_000, ge=1_000)
    breaker_window: Seconds = env("ARBITER_BREAKER_WINDOW", 60)
    breaker_minimum_calls: int = env("ARBITER_BREAKER_MINIMUM_CALLS", 5, ge=1)
    breaker_failure_share: Share = env("ARBITER_BREAKER_FAILURE_SHARE", 0.5)
    breaker_recovery: Seconds = env("ARBITER_BREAKER_RECOVERY", 30)
    evaluate_share: Share = env("ARBITER_EVALUATE_RATE_SHARE", 0.2)
    """Share of a remote's rate limit that runs may not use, kept for `/evaluate`."""


class Settings(Group):
    """All settings. Build with `load_settings`, or directly in tests."""

    sentinel: SentinelSettings = SentinelSettings()
    synapse: SynapseSettings = SynapseSettings()
    ollama: OllamaJudgeSettings = OllamaJudgeSettings()
    gemini: GeminiSettings = GeminiSettings()
    openai: OpenAISettings = OpenAISettings()
    judge: JudgeSettings = JudgeSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    vectors: VectorSettings = VectorSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    store: StoreSettings = StoreSettings()
    log: LogSettings = LogSettings()
    server: ServerSettings = ServerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    runs: RunSettings = RunSettings()
    models: ModelRoles = ModelRoles()
    adjudication: AdjudicationSettings = AdjudicationSettings()
    critic: CriticSettings = CriticSettings()
    verdicts: VerdictSettings = VerdictSettings()
    network: NetworkSettings = NetworkSettings()
    systems_file: Path | None = env("ARBITER_SYSTEMS_FILE", None)
    """A TOML file of further system profiles."""

    @model_validator(mode="after")
    def _deadlines_nest(self) -> Settings:
        layers = self.evaluation
        judges = {
            "ollama": ("ARBITER_OLLAMA_JUDGE_TIMEOUT", self.ollama.timeout),
            "gemini_flash": ("ARBITER_GEMINI_TIMEOUT", self.gemini.timeout),
            "openai_compatible": ("ARBITER_OPENAI_TIMEOUT", self.openai.timeout),
        }
        chain = [judges[name] for name in self.judge.order]
        sentinel = ("ARBITER_SENTINEL_TIMEOUT", self.sentinel.timeout)
        synapse = ("ARBITER_SYNAPSE_TIMEOUT", self.synapse.timeout)
        embed = ("ARBITER_EMBEDDER_TIMEOUT", self.embedder.timeout)
        upstash = ("ARBITER_UPSTASH_TIMEOUT", self.vectors.timeout)
        disagreement = ("ARBITER_DISAGREEMENT_TIMEOUT", layers.disagreement_timeout)
        consistency = ("ARBITER_CONSISTENCY_TIMEOUT", layers.consistency_timeout)
        judge = ("ARBITER_JUDGE_TIMEOUT", layers.judge_timeout)
        question = ("ARBITER_VERDICT_MODEL_TIMEOUT", self.verdicts.model_timeout)
        tier_one = max(disagreement, consistency, key=lambda pair: pair[1])
        for parts, whole in (
            ([sentinel], disagreement),
            ([synapse], disagreement),
            ([embed, upstash], consistency),
            (chain, judge),
            ([tier_one, judge], ("ARBITER_REQUEST_TIMEOUT", layers.request_timeout)),
            ([question], ("ARBITER_VERDICT_TIMEOUT", self.verdicts.timeout)),
        ):
            _check_nesting(parts, whole)
        return self


def _check_nesting(parts: list[tuple[str, float]], whole: tuple[str, float]) -> None:
    total = sum(seconds for _, seconds in parts)
    if total >= whole[1]:
        sum_shown = " + ".join(f"{name}={seconds:g}" for name, seconds in parts)
        raise ValueError(
            f"deadlines must nest: {sum_shown} = {total:g} s must be less than {whole[0]}={whole[1]:g} s; "
            f"raise {whole[0]} or lower the others"
        )


def setting_names() -> dict[str, tuple[str, str]]:
    """Every environment variable, with the group and field that it fills; the group of a top-level field is empty."""
    names: dict[str, tuple[str, str]] = {}
    for group, field in Settings.model_fields.items():
        if isinstance(field.default, Group):
            for name, inner in type(field.default).model_fields.items():
                names[_env_of(inner)] = (group, name)
        else:
            names[_env_of(field)] = ("", group)
    return names


def _env_of(field: Any) -> str:
    return str(field.json_schema_extra["env"])


def load_settings(
    environ: Mapping[str, str] | None = None,
    env_file: Path | None = Path(".env"),
    *,
    others: Container[str] | None = frozenset(),
) -> Settings:
    """Read the settings once: a real environment variable wins over `env_file`, an empty value counts as not given.

    `others` are variables of the environment that somebody else reads; None = any may be. Raises `ConfigurationError`
    naming the variable and what is wrong with it.
    """
    in_file: dict[str, str | None] = dict(dotenv_values(env_file)) if env_file and env_file.is_file() else {}
    given: Mapping[str, str] = os.environ if environ is None else environ
    names = setting_names()
    if others is not None:
        _refuse_others_in_file(in_file, others)
        _refuse_unknown({**in_file, **{name: text for name, text in given.items() if name not in others}}, names)
    values: dict[str, str | None] = {**in_file, **given}
    nested: dict[str, Any] = {}
    for name, (group, field) in names.items():
        if text := (values.get(name) or "").strip():
            target = nested.setdefault(group, {}) if group else nested
            target[field] = _parse(group, field, text)
    try:
        return Settings.model_validate(nested)
    except ValidationError as exc:
        raise ConfigurationError(_explain(exc, names)) from None


def _refuse_unknown(values: Mapping[str, Any], names: Mapping[str, Any]) -> None:
    for name in values:
        if name.startswith("ARBITER_") and name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigurationError(f"unknown setting {name}{hint}")


def _refuse_others_in_file(in_file: Iterable[str], others: Container[str]) -> None:
    for name in in_file:
        if name in others:
            raise ConfigurationError(f"{name} is read from the environment only: take it out of the .env file")


def _parse(group: str, field: str, text: str) -> Any:
    model = type(Settings.model_fields[group].default) if group else Settings
    annotation = str(model.model_fields[field].annotation)
    if annotation.startswith("tuple"):
        return [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
    if "None" in annotation and text.lower() in {"none", "off"}:
        return None
    return text


def _explain(exc: ValidationError, names: Mapping[str, tuple[str, str]]) -> str:
    by_field = {pair: name for name, pair in names.items()}
    lines = []
    for error in exc.errors(include_input=False, include_url=False):
        path = tuple(str(part) for part in error["loc"])
        pair = (path[0], path[1]) if len(path) > 1 else ("", path[0] if path else "")
        message = error["msg"].removeprefix("Value error, ")
        name = by_field.get(pair)
        lines.append(f"{name}: {message}" if name else message)
    return "; ".join(lines)
