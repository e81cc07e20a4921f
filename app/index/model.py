"""What can be put into the embedded index, and what is told about it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from layers.model import Identifier, JsonObject, Label, Value

Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e15, le=1e15)]
NAMESPACE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"


class IndexItem(Value):
    """One entry, as exactly one of three: a `text`, a `vector` of the embedder in force, or a past verdict.

    A past verdict is what the system was asked (`input`) and the `label` it came to. It is found again by the
    fingerprint of its input, and stands under the id `txn_{id}`, as in Sentinel's own index.
    """

    id: Identifier
    text: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    vector: Annotated[tuple[Number, ...], Field(min_length=1, max_length=65_536)] | None = None
    input: JsonObject | None = None
    label: Label | None = None
    policy_epoch: str | None = Field(default=None, max_length=256)
    metadata: JsonObject = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_one_of_three(self) -> IndexItem:
        if sum(part is not None for part in (self.text, self.vector, self.input)) != 1:
            raise ValueError("give exactly one of text, vector and input")
        if (self.label is None) != (self.input is None):
            raise ValueError("a past verdict has both input and label, other items have neither")
        return self


class IndexRequest(Value):
    """The body of `POST /index/{namespace}`."""

    items: Annotated[tuple[IndexItem, ...], Field(min_length=1, max_length=10_000)]


class NamespaceInfo(Value):
    """A namespace as it is now. Its vectors all come from one embedder."""

    namespace: str
    embedder: str
    dimension: int
    entries: int


class Ingested(Value):
    """What was put in: `documents` read, `entries` written, and the namespace after it."""

    documents: int
    entries: int
    namespace: NamespaceInfo
