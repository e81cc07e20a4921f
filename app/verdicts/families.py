"""Which model may judge what another one made: only one of another family, as the operator declared them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from layers.errors import ConfigurationError
from layers.ports import Answerer

HUMAN = "human"
"""What a config says where no model made the artifact: then any model may judge it."""


@dataclass(frozen=True)
class Families:
    """Declared families: patterns of model ids and the family of each, the first match counts. Case does not."""

    declared: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Families:
        """From entries `PATTERN=FAMILY`. Raises `ConfigurationError`."""
        pairs: list[tuple[str, str]] = []
        for entry in entries:
            pattern, sign, family = (part.strip().casefold() for part in entry.rpartition("="))
            if not (pattern and sign and family) or family == HUMAN:
                raise ConfigurationError(f"ARBITER_MODEL_FAMILIES: {entry!r} must read PATTERN=FAMILY")
            pairs.append((pattern, family))
        return cls(tuple(pairs))

    def of(self, model: str) -> str | None:
        """The family of a model's id, or of a family's own name; None = not declared."""
        name = model.strip().casefold()
        for pattern, family in self.declared:
            if name == family or fnmatchcase(name, pattern):
                return family
        return None


@dataclass(frozen=True)
class ArbiterModel:
    """The model that looks at the whole: how it is asked, its id, and the declared families."""

    answerer: Answerer
    model: str
    families: Families

    @property
    def family(self) -> str | None:
        return self.families.of(self.model)

    def why_refused(self, made_by: str | None) -> str | None:
        """Why it may not judge what `made_by` (a model's id or a family) made. What is not declared is refused."""
        if made_by is None:
            return "the config does not say who made the artifact (made_by)"
        if made_by.strip().casefold() == HUMAN:
            return None
        maker = self.families.of(made_by)
        if maker is None:
            return f"{made_by!r} is of no family that ARBITER_MODEL_FAMILIES declares"
        if self.family is None:
            return f"the arbiter's model {self.model!r} is of no family that ARBITER_MODEL_FAMILIES declares"
        if self.family == maker:
            return f"the arbiter's model {self.model!r} is of the family that made the artifact ({maker})"
        return None
