"""Take out of a text what must not leave: secrets, long digit runs, opaque tokens, e-mail addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable

from layers.scrubbing import MARK, Scrubber

MAX_READ = 4_096
"""Characters of a text that are looked at; what is kept of an attribute is less."""

_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"[\w.%+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",  # e-mail
        r"\b[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,4})?\b",  # IBAN
        r"\b(?=[A-Za-z+/_]{0,200}\d)(?=[\d+/_]{0,200}[A-Za-z])[A-Za-z0-9+/_]{32,}={0,2}",  # hashes, tokens
        # cards, accounts, telephones; dates such as 2024-05-01 stay
        r"(?<![\w.])(?!\d{4}-\d\d-\d\d(?!\d))\+?\d(?:[ ./()-]{0,2}\d){6,}|\d{7,}",
    )
)


_SHORTEST = 6
"""Characters of a secret that is looked for as it is: a shorter one would take words."""


class Redactor:
    """Makes of a text what may leave. `secrets` are values that the service itself holds, of whatever shape."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)
        self._known = tuple(known)
        self._scrubber = Scrubber(known)

    def __call__(self, text: str) -> str:
        """`text` without known secrets and what looks like one, an account, a telephone or card number, or an e-mail
        address.

        Better too much than too little: amounts of seven digits go too. At most `MAX_READ` characters are kept.
        """
        text = self._scrubber.text(self.without_known(text)[:MAX_READ])
        for pattern in _PATTERNS:
            text = pattern.sub(MARK, text)
        return text

    def without_known(self, text: str) -> str:
        """`text` without known secrets alone. They go first and from all of it: half of one fits no pattern."""
        for secret in self._known:
            text = text.replace(secret, MARK)
        return text
