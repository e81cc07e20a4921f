"""The composition root: the only place where the service and its adapters meet."""
