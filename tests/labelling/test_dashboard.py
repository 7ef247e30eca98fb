"""The dashboard: curves, the learned reward as it was shown, and agreement, from the files of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ubp2.labelling.dashboard import POINTS, Dashboard


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def test_of_a_run_that_has_not_begun(place: Any):
    here = place()
    data = Dashboard(here.folder, here.store).data()
    assert data["curves"] == {"points": []} and data["lambda"] == {"points": []} and data["reward"] == {"clips": []}
    assert data["agreement"]["model"] == {"agree": 0, "of": 0}


def test_curves_are_of_episodes_until_there_is_an_evaluation(place: Any):
    here = place()
    board = Dashboard(here.folder, here.store)
    train = {"kind": "train", "labels/used": 4.0, "episode/return": 1.0, "lambda/reward": 2.0, "bonus/reward": 0.5}
    write(here.folder, [{**train, "decision": 10 * i, "episode/success_any": float(i > 4)} for i in range(10)])
    points = board.data()["curves"]["points"]
    assert points[-1] == {"decision": 90, "labels": 4, "success": 0.5, "return": 1.0}
    assert board.data()["lambda"]["points"][0] == {
        "decision": 0, "lambda": 2.0, "bonus": 0.5, "lambda/reward": 2.0, "bonus/reward": 0.5,
    }  # fmt: skip
    scores = {"policy/success_any": 0.1, "policy/return": 1.0, "planner/success_any": 0.8, "planner/return": 7.0}
    write(here.folder, [{"kind": "eval", "decision": 100, **scores}])
    assert board.data()["curves"]["points"] == [{"decision": 100, "labels": 4, "success": 0.8, "return": 7.0}]


def test_long_runs_are_thinned_and_end_with_the_newest(place: Any):
    here = place()
    rows = [{"kind": "eval", "decision": i, "policy/success_any": 0.5, "policy/return": 1.0} for i in range(5000)]
    write(here.folder, rows)
    points = Dashboard(here.folder, here.store).data()["curves"]["points"]
    assert POINTS / 2 < len(points) <= POINTS + 1 and points[-1]["decision"] == 4999


def test_rewards_of_answered_questions_as_they_were_shown(place: Any):
    here = place(questions=12)
    for i, question in enumerate(here.store.pending()):
        here.store.note({f"reward:{question.id}": {"left": [1.0], "right": [0.0]}, f"judged:{question.id}": 0.9})
        if i < 8:
            pair = here.desk.next("ann").pair
            here.desk.answer("ann", pair["id"], "left", f"key-{i:05}", 1.0)
    data = Dashboard(here.folder, here.store).data()
    clips, given = data["reward"]["clips"], here.store.given()
    assert len(clips) == 6 and {clip["choice"] for clip in clips} == {"left"}
    assert [clip["left"] for clip in clips] == [[0.0] if answer.swapped else [1.0] for answer in given[2:]]
    assert data["agreement"]["model"] == {"agree": sum(not answer.swapped for answer in given), "of": 8}
