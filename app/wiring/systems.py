"""The systems the service knows, and how those it may call are called."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adapters import sentinel_l7, synapse_l4
from adapters.mcp import McpClient
from adapters.recorded import RecordedSystem
from adapters.sentinel_l7 import SentinelClient, SentinelSystem
from adapters.synapse_l4 import SynapseSystem
from app.runs.judge_system import NAME as JUDGE
from app.runs.judge_system import JudgeSystem
from app.settings import Settings
from app.systems import SystemContext, load_plugins, load_profiles
from app.wiring.remotes import Remotes
from layers.ports import Layer, System, SystemUnderTest
from layers.profile import SystemProfile

SENTINEL, SYNAPSE, RECORDED = "sentinel-l7", "synapse-l4", "recorded"


@dataclass(frozen=True)
class Neighbours:
    """Clients of the two neighbouring systems; None = its address was not given."""

    sentinel: SentinelClient | None
    synapse: SynapseSystem | None


def connect_neighbours(settings: Settings, remotes: Remotes) -> Neighbours:
    """Clients of those neighbours whose address the operator gave."""
    return Neighbours(
        sentinel=_sentinel(settings, remotes) if settings.sentinel.given("url") else None,
        synapse=_synapse(settings, remotes) if settings.synapse.given("base_url") else None,
    )


def _sentinel(settings: Settings, remotes: Remotes) -> SentinelClient:
    own = settings.sentinel
    client = remotes.client("sentinel", timeout=own.timeout, slots=own.slots, rate_per_minute=own.rate_per_minute)
    drivers = {driver: remotes.breaker(f"sentinel.{driver}") for driver in own.drivers}
    return SentinelClient(McpClient(client, own.url, timeout=own.timeout), drivers)


def _synapse(settings: Settings, remotes: Remotes) -> SynapseSystem:
    own = settings.synapse
    client = remotes.client("synapse", timeout=own.timeout, slots=own.slots, rate_per_minute=own.rate_per_minute)
    return SynapseSystem(client, own.base_url)


def known_systems(settings: Settings, neighbours: Neighbours, remotes: Remotes) -> dict[str, System]:
    """Every system by name: the neighbours, those of the operator's file, `recorded`, and plugins.

    Raises `ConfigurationError` for a bad profile file or plugin.
    """
    profiles = load_profiles(settings.systems_file)
    systems = {name: System(profile, why_closed=_NO_ADAPTER) for name, profile in profiles.items()}
    systems[SENTINEL] = _sentinel_system(profiles[SENTINEL], neighbours.sentinel)
    systems[SYNAPSE] = _synapse_system(profiles[SYNAPSE], neighbours.synapse)
    systems[RECORDED] = System(profiles["generic"].model_copy(update={"name": RECORDED}), open=_open_recorded)
    context = SystemContext(os.environ, lambda name: remotes.client(name, timeout=_PLUGIN_TIMEOUT, slots=_PLUGIN_SLOTS))
    return systems | load_plugins(context, reserved=systems)


_NO_ADAPTER = (
    "this system has no adapter: post its predictions to /evaluate, score recorded ones with the system `recorded`, "
    "or install an adapter"
)
_PLUGIN_TIMEOUT, _PLUGIN_SLOTS = 20.0, 64


def _open_recorded(_driver: str | None) -> SystemUnderTest:
    return RecordedSystem()


def _sentinel_system(profile: SystemProfile, client: SentinelClient | None) -> System:
    if client is None:
        return System(profile, read=sentinel_l7.read_payload, why_closed="set SENTINEL_L7_MCP_URL to its MCP endpoint")
    in_runs = client.on("run")
    profile = profile.model_copy(update={"providers": tuple(client.breakers)})
    return System(
        profile,
        read=sentinel_l7.read_payload,
        open=lambda driver: SentinelSystem(in_runs, driver),
        outlook=in_runs.mcp.outlook,
    )


def _synapse_system(profile: SystemProfile, client: SynapseSystem | None) -> System:
    if client is None:
        return System(profile, read=synapse_l4.read_payload, why_closed="set SYNAPSE_L4_BASE_URL to its base address")
    in_runs = client.on("run")
    return System(profile, read=synapse_l4.read_payload, open=lambda _driver: in_runs, outlook=in_runs.client.outlook)


def judge_as_system(layer: Layer | None, systems: Mapping[str, System]) -> System:
    """The judge chain as a system under test: its driver names the system whose recorded predictions it judges."""
    readings = {
        name: system.profile.model_copy(update={"fields": (), "providers": ()})
        for name, system in systems.items()
        if name != RECORDED
    }
    plain = SystemProfile(name=JUDGE, providers=tuple(readings))
    if layer is None:
        return System(plain, variants=readings, why_closed=_NO_JUDGE)

    def open_judge(driver: str | None) -> SystemUnderTest:
        return JudgeSystem(layer, readings.get(driver or "", plain))

    return System(plain, open=open_judge, variants=readings)


_NO_JUDGE = "no judge is configured: set OLLAMA_JUDGE_HOST, GEMINI_API_KEY or OPENAI_BASE_URL"


def providers_for(
    settings: Settings, neighbours: Neighbours
) -> Callable[[SystemProfile], Mapping[str, SystemUnderTest]]:
    """Who is asked for a second opinion on a system's prediction; nobody for a system that can't be asked."""
    asked: dict[str, Mapping[str, SystemUnderTest]] = {}
    if neighbours.sentinel is not None:
        client = neighbours.sentinel
        asked[SENTINEL] = {driver: SentinelSystem(client, driver) for driver in settings.sentinel.drivers}
    if neighbours.synapse is not None:
        client_ = neighbours.synapse
        asked[SYNAPSE] = {f"repeat-{index + 1}": client_ for index in range(settings.synapse.repeats)}
    return lambda profile: asked.get(profile.name, {})
