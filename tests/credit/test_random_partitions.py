"""The token balancing of SCPO's default order against a naive form of the same algorithm."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.credit import reference
from turncredit.credit.parts.visit_order import balanced_partition


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 30), min_size=4, max_size=40) | st.lists(st.integers(1, 2), min_size=4, max_size=40),
    st.integers(1, 4),
)
def test_the_partition_is_that_of_the_naive_form(lengths: list[int], parts: int) -> None:
    lengths = lengths[: len(lengths) // parts * parts]
    got = [part.tolist() for part in balanced_partition(np.array(lengths), parts)]
    assert got == reference.partition(lengths, parts)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 5))
def test_every_item_is_in_one_part_and_the_parts_are_of_equal_size(lengths: list[int], parts: int) -> None:
    got = balanced_partition(np.array(lengths), min(parts, len(lengths)))
    assert sorted(np.concatenate(got).tolist()) == list(range(len(lengths)))
    assert max(map(len, got)) <= -(-len(lengths) // len(got))
