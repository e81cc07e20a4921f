"""System profiles from TOML, and third-party systems by entry point."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from app.systems import ENTRY_POINT_GROUP, AtBase, SystemContext, load_plugins, load_profiles
from layers.errors import ConfigurationError
from layers.ports import System
from layers.profile import SystemProfile


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "systems.toml"
    path.write_text(text)
    return path


def test_there_are_three_builtin_profiles():
    """Without a file of the user's own, exactly the documented systems are known."""
    assert set(load_profiles()) == {"sentinel-l7", "synapse-l4", "generic"}


def test_binary_collapse_of_sentinel_keeps_exactly_low():
    """Everything but exactly `low` is high: `unknown`, other spellings and foreign labels included."""
    sentinel = load_profiles()["sentinel-l7"]
    labels = [*sentinel.labels, "Low", "low ", ""]
    assert {label: sentinel.collapse(label) for label in labels if sentinel.collapse(label) == "low"} == {"low": "low"}


def test_only_sentinel_has_a_binary_collapse_and_providers():
    """`--binary` and `--driver` are usage errors for systems that have neither."""
    profiles = load_profiles()
    assert [name for name, profile in profiles.items() if profile.binary] == ["sentinel-l7"]
    assert [name for name, profile in profiles.items() if profile.providers] == ["sentinel-l7"]


def test_labels_run_from_harmless_to_severe():
    """`unknown` counts as a threat and says nothing of severity, so it stands between low and medium."""
    profiles = load_profiles()
    assert profiles["sentinel-l7"].labels == ("low", "unknown", "medium", "high", "critical")
    assert profiles["sentinel-l7"].elevated == {"high", "critical"}
    assert profiles["synapse-l4"].labels == ("nominal", "degraded", "critical")


def test_synapse_score_is_no_certainty_and_its_replay_has_side_effects():
    """A healthy event has 0.1 in `confidence`; reading that as doubt would escalate all healthy traffic."""
    synapse = load_profiles()["synapse-l4"]
    assert synapse.confidence_means == "score"
    assert synapse.replay_has_side_effects


def test_synapse_rules_read_the_axiom_alone_and_inside_its_reply():
    """Each of the three rules stands once for a bare axiom and once for the whole reply of /ingest."""
    rules = load_profiles()["synapse-l4"].contradictions
    bare = {rule.name for rule in rules if not rule.when[0].pointer.startswith("/axiom/")}
    inside = {rule.name for rule in rules if rule.when[0].pointer.startswith("/axiom/")}
    assert bare == inside == {"high_score_not_critical", "raised_score_nominal", "metric_not_finite"}


def test_a_user_profile_is_added_to_the_builtin_ones(tmp_path: Path):
    """A file of the user's own adds systems; what it does not say has its default."""
    path = write(tmp_path, '[systems.triage]\nlabels = ["ok", "urgent"]\nelevated = ["urgent"]\n')
    profiles = load_profiles(path)
    assert profiles["triage"].elevated == {"urgent"}
    assert profiles["triage"].thresholds.low_confidence == 0.4
    assert "sentinel-l7" in profiles


def test_a_profile_extends_another_one_table_by_table(tmp_path: Path):
    """`extends` starts from another profile; only the keys given change, inside tables too."""
    path = write(
        tmp_path,
        '[systems.strict]\nextends = "sentinel-l7"\n[systems.strict.thresholds]\nlow_confidence = 0.7\n'
        '[systems.stricter]\nextends = "strict"\n[systems.stricter.thresholds]\nelevated_floor = 0.9\n',
    )
    stricter = load_profiles(path)["stricter"]
    assert (stricter.thresholds.low_confidence, stricter.thresholds.elevated_floor) == (0.7, 0.9)
    assert stricter.contradictions == load_profiles()["sentinel-l7"].contradictions
    assert stricter.name == "stricter"


def test_a_builtin_profile_is_replaced_only_on_purpose(tmp_path: Path):
    """A name that exists is refused without `replace = true`, and replaced with it."""
    with pytest.raises(ConfigurationError, match=r"systems\.toml: systems\.generic\.replace"):
        load_profiles(write(tmp_path, '[systems.generic]\nlabels = ["a"]\n'))
    profiles = load_profiles(write(tmp_path, '[systems.generic]\nreplace = true\nlabels = ["a"]\n'))
    assert profiles["generic"].labels == ("a",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("[systems.x]\nlabel = ['a']", r"systems\.x\.label: unknown key; did you mean labels\?", id="typo"),
        pytest.param("[systems.x.thresholds]\nsaturation = 2", r"systems\.x\.thresholds\.saturation: ", id="range"),
        pytest.param("[systems.x.thresholds]\nsaturation = nan", r"x\.thresholds\.saturation: must be a fin", id="nan"),
        pytest.param("[systems.x]\nlabels = ['a']\nelevated = ['b']", r"systems\.x: elevated labels", id="elevated"),
        pytest.param("[systems.'Big Name']", r"systems\.Big Name\.name: ", id="name"),
        pytest.param("[systems.x]\nextends = 'nobody'", r"systems\.x\.extends: no profile 'nobody'", id="extends"),
        pytest.param("[systems.x]\nextends = 3", r"systems\.x\.extends: ", id="extends number"),
        pytest.param("[systems]\nx = 1", r"systems\.x: must be a table", id="no table"),
        pytest.param("", r"systems: there must be at least one", id="empty"),
        pytest.param("[system.x]", r"system: unknown key", id="top level"),
        pytest.param("[systems.x", r"not valid TOML", id="toml"),
        pytest.param("x = " + "[" * 2000, r"systems\.toml: ", id="deep"),
        pytest.param(
            "[[systems.x.contradictions]]\nname='n'\nreason='r'\nseverity=1\nwhen=[{pointer='a', op='eq'}]",
            r"systems\.x\.contradictions\.0\.when\.0\.pointer: ",
            id="pointer",
        ),
    ],
)
def test_errors_name_file_key_and_problem(tmp_path: Path, text: str, says: str):
    """Whoever wrote the file is told where to look and what to change."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        load_profiles(write(tmp_path, text))
    assert "systems.toml" in str(caught.value)


def test_a_missing_file_or_folder_is_named(tmp_path: Path):
    """A path that can't be read is a configuration error, not a traceback."""
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigurationError, match="can't be read"):
            load_profiles(path)
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not valid UTF-8"):
        load_profiles(bad)


# --- plugins ----------------------------------------------------------------------------------------------------------


class Recorder:
    """Stands in for the service's client: keeps what it was asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.urls: list[str] = []

    async def call(self, method, url, *, read, json=None, headers=None, expect=(), deadline=None, repeatable=True):
        self.urls.append(url)
        return read(None)


def context() -> SystemContext:
    return SystemContext({"TRIAGE_URL": "https://triage.example/api/"}, Recorder)


def triage(context: SystemContext) -> System:
    context.client("triage", context.environ["TRIAGE_URL"])
    return System(SystemProfile(name="triage"))


def breaks(context: SystemContext) -> System:
    raise KeyError("TRIAGE_TOKEN")


def returns_nothing(context: SystemContext) -> None:
    return None


async def is_async(context: SystemContext) -> System:
    raise AssertionError


def point(name: str, attribute: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{attribute}", ENTRY_POINT_GROUP)


def test_plugins_are_keyed_by_their_profile_name():
    """The entry point's own name does not matter; the profile's does."""
    assert set(load_plugins(context(), [point("whatever", "triage")])) == {"triage"}


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("breaks", "KeyError: 'TRIAGE_TOKEN'"),
        ("returns_nothing", "must return a System, not NoneType"),
        ("is_async", "plain function"),
        ("not_there", "AttributeError"),
    ],
)
def test_a_broken_plugin_is_named(attribute: str, says: str):
    """A plugin that can't be used stops the start with its name and the reason."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        load_plugins(context(), [point("mine", attribute)])
    assert "system plugin mine" in str(caught.value)


def test_a_plugin_takes_no_name_that_is_taken():
    """Two systems of one name would be asked in each other's place."""
    with pytest.raises(ConfigurationError, match="'triage' is taken"):
        load_plugins(context(), [point("a", "triage"), point("b", "triage")])
    with pytest.raises(ConfigurationError, match="'triage' is taken"):
        load_plugins(context(), [point("a", "triage")], reserved={"triage"})


@pytest.mark.parametrize("url", ["ftp://host", "host", "https://user:secret@host/", "https://", ""])
def test_a_base_address_is_http_without_credentials(url: str):
    """Credentials in an address would end up in logs and errors; the error does not repeat them."""
    with pytest.raises(ConfigurationError, match="triage") as caught:
        context().client("triage", url)
    assert "secret" not in str(caught.value)


@pytest.mark.anyio
async def test_a_client_joins_paths_to_its_base():
    """Slashes on either side make no difference."""
    client = context().client("triage", "https://triage.example/api/")
    assert isinstance(client, AtBase)
    await client.call("POST", "/classify", read=lambda reply: reply)
    assert client.inner.urls == ["https://triage.example/api/classify"]
