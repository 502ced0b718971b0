"""A thinned curve looks like the whole: its ends, its least and its greatest are there."""

from __future__ import annotations

import math
from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard_airflow.ui.thinning import rounded, thin

NUMBERS = st.floats(-1e6, 1e6) | st.just(math.nan)


@settings(max_examples=500)
@given(values=st.lists(NUMBERS, min_size=1, max_size=300), most=st.integers(2, 40))
def test_what_stands_out_is_kept(values: list[float], most: int) -> None:
    steps, kept = thin(array("d", values), most)
    assert steps == sorted(set(steps))
    known = dict(zip(steps, kept, strict=True))
    assert all(known[step] == rounded(values[step - 1]) for step in steps)
    if len(values) > most:
        assert len(steps) <= most + 2
    numbers = [value for value in values if not math.isnan(value)]
    if numbers:
        for value in (min(numbers), max(numbers)):
            assert rounded(value) in kept
        ends = (values[0], values[-1])
        assert all(rounded(end) in kept for end in ends if not math.isnan(end))


def test_few_values_stay_with_their_gaps() -> None:
    assert thin([1.0, math.nan, 3.0], 10) == ([1, 2, 3], [1.0, None, 3.0])
