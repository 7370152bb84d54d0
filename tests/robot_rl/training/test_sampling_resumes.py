"""What is drawn, and how it is weighed, goes on where a run was interrupted, bit for bit."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_rl.buffers.priorities import ReplayConfig
from tests.equality import assert_same
from tests.fakes import copied
from tests.robot_rl.training.loop import Loop


class Errs:
    """A learner that tells how far each reward is from nothing."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def update(self, batch: Any) -> tuple[dict[str, Tensor], Tensor]:
        metrics, _ = self._learner.update(batch)
        return metrics, batch.reward - 0.1


def final_state(loop: Loop) -> dict[str, Any]:
    trainer = loop.trainer
    return copied(
        {
            "learner": trainer.learner.state_dict(),
            "collector": trainer.collector.state_dict(),
            "next batch": trainer.replay.sample(200, progress=0.5),
        }
    )


def ends_as_if_uninterrupted(folder: Path, stops: list[int], **settings: Any) -> dict[str, Any]:
    """Final state of a run that was stopped and resumed; asserts that it is the one of a run that
    was not."""
    whole = Loop(folder / "whole", **settings)
    whole.trainer.run()
    for stop in stops:
        loop = Loop(
            folder / "parts", seed=0 if stop == stops[0] else stop, stop_at=stop, **settings
        )
        if stop != stops[0]:
            loop.resume()
        assert loop.trainer.run() is False
    loop = Loop(folder / "parts", seed=99, **settings).resume()
    assert loop.trainer.run() is True
    state = final_state(loop)
    assert_same(state, final_state(whole))
    return state


def test_a_run_with_priorities_resumes_bit_equal(tmp_path: Path) -> None:
    state = ends_as_if_uninterrupted(
        tmp_path, [52, 120, 176], wrap=Errs, replay=ReplayConfig(priority=0.6)
    )
    assert len(torch.unique(state["next batch"].weight)) > 10  # priorities were at work
