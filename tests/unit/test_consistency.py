"""Neighbours are earlier verdicts on other, near-identical items under the policy in force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.consistency import Consistency, majority_label
from layers.errors import ConfigurationError, DependencyUnavailable
from layers.fingerprint import NeighborSpace, transaction_fingerprint
from layers.model import EvalPrediction, Neighbor, SkipReason
from layers.ports import LayerInput, Match, Skip
from layers.profile import SystemProfile

pytestmark = pytest.mark.anyio

PROFILE = SystemProfile(
    name="cached",
    source_pointer="/source",
    cached_sources=frozenset({"cache_hit"}),
    not_verdicts=frozenset({"skipped"}),
)
INPUT = {"id": "7", "amount": 20, "currency": "EUR", "merchant": "Acme"}


class Embedding:
    name = "lexical-4"

    def __init__(self, dimension=4, vector=(1.0, 0.0, 0.0, 0.0), error=None):
        self.dimension, self.vector, self.error = dimension, list(vector), error
        self.asked = []

    async def embed(self, text, task):
        self.asked.append((text, task))
        if self.error:
            raise self.error
        return self.vector


class Index:
    """Gives the entries it was made of, nearest first, at most as many as asked for."""

    name = "memory"

    def __init__(self, *entries, error=None):
        self.matches = [Match(entry_id, score, metadata) for entry_id, score, metadata in entries]
        self.error = error
        self.asked = []

    async def query(self, namespace, vector, *, top_k, filter=None):
        self.asked.append((namespace, vector, top_k, filter))
        if self.error:
            raise self.error
        return self.matches[:top_k]


class Notes:
    def __init__(self):
        self.found = []

    def note(self, stage, value):
        self.found.append((stage, value))


def verdict(label, epoch="now"):
    return {"analysis": {"risk_level": label}, "policy_epoch": epoch}


def layer(index, embedder=None, **options):
    space = NeighborSpace("transactions")
    return Consistency(embedder or Embedding(), index, lambda _: space, policy_epoch="now", **options)


def item(label="high", *, input=INPUT, source="cache_miss", profile=PROFILE, trace=None):
    prediction = EvalPrediction(id="7", raw_output={"source": source}, label=label, confidence=0.7)
    return LayerInput(prediction, profile, input, (), {}, trace or Notes())


def near(label, similarity=0.95, stale=False):
    return Neighbor(id="n", label=label, similarity=similarity, stale=stale)


async def test_it_asks_for_the_neighbours_of_the_fingerprint_as_a_document():
    embedder, index = Embedding(), Index()
    await layer(index, embedder, top_k=3)(item())
    assert embedder.asked == [(transaction_fingerprint(INPUT), "document")]
    assert index.asked == [("transactions", embedder.vector, 8, None)]


async def test_the_majority_agrees_or_not():
    index = Index(("a", 0.99, verdict("high")), ("b", 0.98, verdict("high")), ("c", 0.97, verdict("low")))
    agreeing, differing = await layer(index)(item("high")), await layer(index)(item("low"))
    assert (agreeing.majority_label, agreeing.consistent) == ("high", True)
    assert (differing.majority_label, differing.consistent) == ("high", False)
    assert [neighbor.id for neighbor in agreeing.neighbors] == ["a", "b", "c"]
    assert (agreeing.embedder, agreeing.threshold) == ("lexical-4", 0.90)


async def test_nothing_near_enough_is_nothing_to_compare_with():
    for index in (Index(), Index(("a", 0.8999, verdict("high"))), Index(("a", float("nan"), verdict("high")))):
        finding = await layer(index)(item())
        assert (finding.consistent, finding.majority_label, finding.neighbors) == (None, None, ())


async def test_a_neighbour_at_the_threshold_counts():
    assert (await layer(Index(("a", 0.90, verdict("high"))))(item())).consistent is True


async def test_the_items_own_entry_confirms_nothing():
    finding = await layer(Index(("txn_7", 1.0, verdict("high")), ("txn_8", 0.95, verdict("low"))))(item("high"))
    assert [neighbor.id for neighbor in finding.neighbors] == ["txn_8"]
    assert finding.consistent is False


async def test_the_origin_of_a_copied_answer_confirms_nothing():
    """It is the nearest entry that is not the item's own, whether or not the item has one."""
    others = [("txn_3", 0.99, verdict("high")), ("txn_4", 0.95, verdict("low"))]
    for entries in (others, [("txn_7", 1.0, verdict("high")), *others]):
        finding = await layer(Index(*entries))(item("high", source="cache_hit"))
        assert [neighbor.id for neighbor in finding.neighbors] == ["txn_4"]
    assert (await layer(Index(others[0]))(item("high", source="cache_hit"))).consistent is None


async def test_leaving_entries_out_costs_no_neighbour():
    entries = [("txn_7", 1.0, verdict("high"))] + [(f"n{at}", 0.99 - at / 1000, verdict("low")) for at in range(9)]
    finding = await layer(Index(*entries), top_k=3)(item(source="cache_hit"))
    assert [neighbor.id for neighbor in finding.neighbors] == ["n1", "n2", "n3"]


async def test_a_stale_entry_is_shown_and_has_no_vote():
    index = Index(("a", 0.99, verdict("low", "old")), ("b", 0.98, verdict("low", None)), ("c", 0.92, verdict("high")))
    finding = await layer(index)(item("high"))
    assert [neighbor.stale for neighbor in finding.neighbors] == [True, True, False]
    assert finding.consistent is True
    only_stale = await layer(Index(("a", 0.99, verdict("low", "old"))))(item("high"))
    assert (only_stale.consistent, len(only_stale.neighbors)) == (None, 1)


async def test_stale_entries_do_not_crowd_out_those_in_force():
    entries = [(f"s{at}", 0.99, verdict("low", "old")) for at in range(2)] + [("f", 0.95, verdict("high"))]
    finding = await layer(Index(*entries), top_k=1)(item("high"))
    assert finding.majority_label == "high"


async def test_nothing_is_stale_where_the_epoch_in_force_is_unknown():
    index = Index(("a", 0.99, verdict("low", "old")))
    finding = await Consistency(Embedding(), index, lambda _: NeighborSpace("t"))(item("low"))
    assert (finding.neighbors[0].stale, finding.consistent) == (False, True)


async def test_old_entries_without_a_risk_level_say_threat_or_not():
    old = {"analysis": {"isThreat": True}, "policy_epoch": "now"}
    assert (await layer(Index(("a", 0.95, old)))(item("high"))).majority_label == "high"


@pytest.mark.parametrize("metadata", [{}, {"analysis": "x"}, verdict("skipped")])
async def test_entries_without_a_verdict_are_no_neighbours(metadata):
    assert (await layer(Index(("a", 0.99, metadata)))(item())).neighbors == ()


def test_the_majority_is_weighted_by_similarity():
    assert majority_label([near("low", 0.99), near("high", 0.91), near("high", 0.91)], PROFILE) == "high"
    assert majority_label([near("low", 0.95), near("high", 0.94)], PROFILE) == "low"


@pytest.mark.parametrize("labels", [["low", "high"], ["low", "high", "high", "low"], ["a", "b", "c"]])
def test_a_tie_is_no_majority(labels):
    assert majority_label([near(label) for label in labels], PROFILE) is None


def test_labels_are_compared_as_the_profile_folds_them():
    folding = PROFILE.model_copy(update={"fold_case": True})
    assert majority_label([near("High"), near("high"), near("low")], folding) == "high"
    assert majority_label([near("High"), near("high")], PROFILE) is None


neighbours = st.builds(near, st.sampled_from(["low", "medium", "high"]), st.floats(0.9, 1), st.booleans())


@given(st.lists(neighbours, max_size=8), st.randoms())
def test_the_order_of_neighbours_decides_nothing(found, random):
    shuffled = random.sample(found, len(found))
    assert majority_label(shuffled, PROFILE) == majority_label(found, PROFILE)


@pytest.mark.parametrize("input", [None, {}])
async def test_without_the_input_there_is_no_fingerprint(input):
    with pytest.raises(Skip) as skipped:
        await layer(Index())(item(input=input))
    assert skipped.value.reason is SkipReason.NO_INPUT


async def test_a_system_whose_items_are_kept_nowhere_is_skipped_without_degrading():
    with pytest.raises(Skip) as skipped:
        await Consistency(Embedding(), Index(), lambda _: None)(item())
    assert skipped.value.reason is SkipReason.DISABLED


async def test_failures_of_embedder_and_index_are_the_layers():
    failure = DependencyUnavailable("upstash", "timeout")
    for broken in (layer(Index(error=failure)), layer(Index(), Embedding(error=failure))):
        with pytest.raises(DependencyUnavailable):
            await broken(item())


async def test_a_vector_of_another_dimension_is_a_configuration_error_by_name_and_number():
    index = Index()
    with pytest.raises(ConfigurationError, match=r"lexical-4.*\b4\b.*\b768\b"):
        await layer(index, Embedding(dimension=768))(item())
    assert index.asked == []


async def test_how_it_was_retrieved_is_noted():
    notes = Notes()
    await layer(Index(("txn_7", 1.0, verdict("low")), ("a", 0.95, verdict("low"))), top_k=3)(item(trace=notes))
    (plan_stage, plan), (found_stage, found) = notes.found
    assert (plan_stage, found_stage) == ("retrieval_plan", "neighbors")
    assert plan["queries"] == [transaction_fingerprint(INPUT)]
    assert (plan["namespace"], plan["task"], plan["top_k"], plan["over_fetch"]) == ("transactions", "document", 3, 5)
    assert found["matches"] == [{"id": "txn_7", "score": 1.0}, {"id": "a", "score": 0.95}]
    assert [neighbor["id"] for neighbor in found["neighbors"]] == ["a"]
