"""Which version of the service this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def service_version() -> str:
    """The installed version of this package."""
    try:
        return version("arbiter-l8")
    except PackageNotFoundError:
        return "0.0.0"
