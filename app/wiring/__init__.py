"""The composition root: the only place where the service and its adapters meet."""

from app.wiring.connect import connector, service_app

__all__ = ["connector", "service_app"]
