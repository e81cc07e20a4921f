"""Settings: read once, named in errors, nested deadlines."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from app.settings import Group, Settings, load_settings, setting_names
from layers.errors import ConfigurationError

ROOT = Path(__file__).parents[2]


def shown(value: object) -> str:
    match value:
        case None:
            return ""
        case SecretStr():
            return value.get_secret_value()
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(str(part) for part in value)
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def defaults() -> dict[str, str]:
    whole = Settings()
    result = {}
    for name, (group, field) in setting_names().items():
        owner: Group = getattr(whole, group) if group else whole
        result[name] = shown(getattr(owner, field))
    return result


def test_env_example_lists_every_setting_with_its_default() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    listed = dict(line.removeprefix("# ").split("=", 1) for line in lines if "=" in line)
    assert listed == defaults()


def test_the_names_operators_already_have_keep_their_defaults() -> None:
    expected = {
        "SENTINEL_L7_MCP_URL": "http://localhost:8080/mcp",
        "SYNAPSE_L4_BASE_URL": "http://localhost:8000",
        "OLLAMA_JUDGE_HOST": "http://localhost:11434",
        "OLLAMA_JUDGE_MODEL": "qwen3.5:9b-q4_K_M",
        "OLLAMA_URL": "http://localhost:11434",
        "OLLAMA_EMBEDDING_MODEL": "nomic-embed-text:v1.5",
        "GEMINI_API_KEY": "",
        "UPSTASH_VECTOR_REST_URL": "",
        "UPSTASH_VECTOR_REST_TOKEN": "",
        "UPSTASH_VECTOR_THRESHOLD": "0.9",
        "UPSTASH_VECTOR_POLICIES_THRESHOLD": "0.7",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318",
        "OTEL_SERVICE_NAME": "arbiter-l8",
        "ARBITER_AUDIT_RATE": "0.02",
        "ARBITER_SYNAPSE_REPLAY": "false",
        "ARBITER_TRANSACTIONS_NAMESPACE": "transactions",
        "ARBITER_POLICIES_NAMESPACE": "policies",
    }
    assert {name: defaults()[name] for name in expected} == expected


def test_a_default_is_not_an_address_given_on_purpose() -> None:
    assert not load_settings({}, None).sentinel.given("url")
    assert load_settings({"SENTINEL_L7_MCP_URL": "http://localhost:8080/mcp"}, None).sentinel.given("url")


def test_an_empty_value_counts_as_not_given() -> None:
    assert not load_settings({"SENTINEL_L7_MCP_URL": " "}, None).sentinel.given("url")


def test_a_real_environment_variable_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("ARBITER_PORT=1111\nARBITER_AUDIT_RATE=0.5\n")
    settings = load_settings({"ARBITER_PORT": "2222"}, file)
    assert (settings.server.port, settings.evaluation.audit_rate) == (2222, 0.5)


def test_lists_are_comma_separated() -> None:
    settings = load_settings({"ARBITER_JUDGE_ORDER": "gemini_flash, ollama"}, None)
    assert settings.judge.order == ("gemini_flash", "ollama")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        pytest.param({"ARBITER_PROT": "1"}, "unknown setting ARBITER_PROT; did you mean ARBITER_PORT?", id="typo"),
        pytest.param({"ARBITER_PORT": "x"}, "ARBITER_PORT: Input should be a valid integer", id="not a number"),
        pytest.param({"ARBITER_AUDIT_RATE": "nan"}, "ARBITER_AUDIT_RATE", id="nan"),
        pytest.param({"ARBITER_AUDIT_RATE": "1.5"}, "ARBITER_AUDIT_RATE", id="share over one"),
        pytest.param({"ARBITER_JUDGE_ORDER": "oracle"}, "ARBITER_JUDGE_ORDER", id="unknown judge"),
        pytest.param(
            {"ARBITER_JUDGE_TIMEOUT": "30"},
            "ARBITER_OLLAMA_JUDGE_TIMEOUT=25 + ARBITER_GEMINI_TIMEOUT=15 = 40 s must be less than "
            "ARBITER_JUDGE_TIMEOUT=30 s",
            id="the judge chain outlasts its layer",
        ),
        pytest.param(
            {"ARBITER_SENTINEL_TIMEOUT": "28"}, "ARBITER_DISAGREEMENT_TIMEOUT=28 s", id="a call as long as its layer"
        ),
        pytest.param(
            {"ARBITER_REQUEST_TIMEOUT": "73"},
            "ARBITER_DISAGREEMENT_TIMEOUT=28 + ARBITER_JUDGE_TIMEOUT=45 = 73 s must be less than "
            "ARBITER_REQUEST_TIMEOUT=73 s",
            id="the layers outlast the request",
        ),
        pytest.param(
            {"ARBITER_VERDICT_TIMEOUT": "300"},
            "ARBITER_VERDICT_MODEL_TIMEOUT=300 = 300 s must be less than ARBITER_VERDICT_TIMEOUT=300 s",
            id="the arbiter's model outlasts its verdict",
        ),
    ],
)
def test_a_wrong_setting_is_refused_by_name(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ, None)
    assert message in str(caught.value)


def test_a_secret_never_shows_in_an_error_or_a_repr() -> None:
    settings = load_settings({"GEMINI_API_KEY": "s3cr3t-value"}, None)
    assert "s3cr3t-value" not in repr(settings)
    with pytest.raises(ConfigurationError) as caught:
        load_settings({"GEMINI_API_KEY": "s3cr3t-value", "ARBITER_PORT": "x"}, None)
    assert "s3cr3t-value" not in str(caught.value)
