"""Whether the database can be used, told in the log when that changes and not for every call that fails."""

from __future__ import annotations

import logging

from sqlalchemy.exc import InterfaceError, OperationalError

from app.errors import Unavailable

logger = logging.getLogger(__name__)

TROUBLE = (OperationalError, InterfaceError)
"""What the driver raises when the database, and not the statement, is the trouble."""


class Health:
    """The state of one database as its calls found it. Any thread may tell; two at once log twice at worst."""

    def __init__(self) -> None:
        self.usable = True

    def failed(self, exc: OperationalError | InterfaceError) -> Unavailable:
        """The refusal for a call that failed; what exactly the database said goes to the log only."""
        if self.usable:
            self.usable = False
            logger.warning("the store can't be used: %s", exc.orig)
        error = Unavailable("the store can't be used at the moment", retry_after=1.0)
        error.__cause__ = exc
        return error

    def worked(self) -> None:
        """A call went through."""
        if not self.usable:
            self.usable = True
            logger.info("the store can be used again")
