"""What a run request must fulfil before anything is stored for it, and what is put on record of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.errors import FieldError, Unprocessable
from app.runs.dataset_store import StoredDataset
from app.runs.model import RunOptions, RunRequest, RunStatus
from app.runs.store import RunConfig, StoredRun
from app.settings import RunSettings
from app.store.ids import now, uuid7
from layers.model import EvalExample
from layers.ports import Pipeline, System
from layers.profile import SystemProfile

LOOKED_AT = 20
"""Examples that are looked at to tell a dataset that was made for another system."""


def check_request(request: RunRequest, systems: Mapping[str, System]) -> System:
    """The system to ask. Raises `Unprocessable` naming the field and what it may be."""
    system = systems.get(request.system)
    if system is None:
        raise _refusal("/system", f"no system {request.system!r}; there are {', '.join(sorted(systems))}")
    if system.open is None:
        raise _refusal("/system", system.why_closed or f"the system {request.system!r} can't be asked")
    _check_options(request.system, request.options, system)
    return system


def _check_options(name: str, options: RunOptions, system: System) -> None:
    profile = system.profile
    _check_pipeline(name, options, system)
    if options.binary and system.profile_under(options.driver).binary is None:
        raise _refusal("/options/binary", f"{name} has no binary collapse of its labels")
    if options.driver is not None and not profile.providers:
        raise _refusal("/options/driver", f"{name} has no drivers to choose from")
    if options.driver is not None and options.driver not in profile.providers:
        raise _refusal("/options/driver", f"no driver {options.driver!r}; there are {', '.join(profile.providers)}")
    if options.repeats > 1 and profile.providers and options.driver is None:
        raise _refusal("/options/repeats", f"repeats need a driver: without one {name} may answer from its cache")


def _check_pipeline(name: str, options: RunOptions, system: System) -> None:
    chosen = options.pipeline
    if chosen != "offline" and chosen not in system.pipelines:
        raise _refusal("/options/pipeline", f"{name} has no pipeline {chosen!r}; classifiers under a critic have")
    if chosen in system.pipelines and options.repeats > 1:
        raise _refusal("/options/repeats", f"{name} is asked once: at temperature 0 a repeat would be a copy")


def check_examples(examples: Sequence[EvalExample], profile: SystemProfile) -> None:
    """Raise `Unprocessable` when none of these examples has what the system must be asked with."""
    needed = profile.fields
    if needed and not any(all(field in example.input for field in needed) for example in examples):
        raise _refusal(
            "/dataset",
            f"the dataset was not made for {profile.name}: no example's input has {', '.join(needed)}",
        )


def new_run(
    request: RunRequest,
    dataset: StoredDataset,
    profile: SystemProfile,
    settings: RunSettings,
    code_version: str,
    pipeline: Pipeline | None = None,
) -> StoredRun:
    """The run as it is stored first: queued, with everything that decides what it will do."""
    options = request.options
    n_examples = min(options.limit or dataset.n_examples, dataset.n_examples)
    config = RunConfig(
        system=request.system,
        options=options,
        labels=request.labels,
        concurrency=options.concurrency or settings.concurrency,
        max_failed_share=settings.max_failed_share,
        unreachable_limit=settings.unreachable_limit,
        profile=profile,
        code_version=code_version,
        plan=None if pipeline is None else pipeline.plan,
    )
    return StoredRun(
        no=0,
        run_id=uuid7(),
        name=request.name,
        system=request.system,
        status=RunStatus.QUEUED,
        failure=None,
        dataset_no=dataset.no,
        dataset_id=dataset.id,
        n_total=n_examples * options.repeats,
        attempts=1,
        generation=0,
        executor=None,
        config=config,
        created_at=now(),
        started_at=None,
        finished_at=None,
    )


def _refusal(pointer: str, message: str) -> Unprocessable:
    return Unprocessable(message, [FieldError(pointer, message)])
