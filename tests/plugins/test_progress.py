"""Progress in a task's log: readable lines, and not too many of them."""

from __future__ import annotations

from typing import Any

from trainyard_airflow.progress import ProgressLines


def event(time: float, done: float, total: float = 20, **figures: Any) -> dict[str, Any]:
    return {
        "kind": "progress",
        "time": time,
        "stage": "train",
        "done": done,
        "total": total,
        "unit": "epoch",
        "figures": figures,
    }


def test_a_line_has_share_figures_and_time_left() -> None:
    lines = ProgressLines()
    assert list(lines.lines([event(0, 0)])) == ["train    0% epoch 0/20"]
    assert list(lines.lines([event(27, 9, loss=0.31234, accuracy=0.91)])) == [
        "train   45% epoch 9/20  loss 0.3123 accuracy 0.91  about 33 s left"
    ]


def test_the_time_left_of_a_resumed_stage_counts_from_where_it_resumed() -> None:
    lines = ProgressLines()
    texts = list(lines.lines([event(100, 10), event(110, 11)]))
    assert texts[-1].endswith("about 90 s left") or texts[-1].endswith("about 2 min left")


def test_a_fast_stage_does_not_fill_the_log_and_its_end_is_shown() -> None:
    texts = list(ProgressLines().lines([event(0.1 * done, done) for done in range(21)]))
    assert texts == ["train    0% epoch 0/20", "train  100% epoch 20/20"]


def test_large_and_broken_counts_are_readable() -> None:
    texts = list(ProgressLines().lines([event(0, 0.0714, 3000000, rows_per_second=11440.5)]))
    assert texts == ["train    0% epoch 0.1/3,000,000  rows_per_second 11,440"]


def test_notes_are_shown_and_metrics_are_not() -> None:
    events: list[dict[str, Any]] = [
        {"kind": "note", "time": 0, "text": "3 rows were rejected"},
        {"kind": "metric", "time": 0, "step": 1, "values": {"loss": 1.0}},
    ]
    assert list(ProgressLines().lines(events)) == ["3 rows were rejected"]


def test_a_stage_of_nothing_and_a_figure_that_is_none_have_a_line() -> None:
    texts = list(ProgressLines().lines([event(0, 0, total=0, loss=None)]))
    assert texts == ["train  100% epoch 0/0  loss not a number"]
