"""Curves: the numbers under them, and that pictures come out without touching anything global."""

import math

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread

from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.curves import (
    comparison_table,
    plot_comparison,
    plot_run,
    weight_moves,
)


def run(level, num=20, **more):
    return [
        {
            "step": 100 * i,
            "seconds": 2.0 * i,
            "rollout/success": level * i / num,
            "train/critic_loss": 1 / i,
            **more,
        }
        for i in range(1, num + 1)
    ]


def is_drawn(path):
    picture = imread(path)
    return picture.shape[0] > 200 and len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 20


def test_the_table_holds_iqm_and_interval_best_first():
    groups = {"low": [run(0.1)], "high": [run(level) for level in (0.5, 0.6, 0.7, 0.8)], "x": [[]]}
    high, low = comparison_table(groups, metric="rollout/success")
    assert (high.group, high.runs, low.runs) == ("high", 4, 1)
    assert high.iqm == pytest.approx(0.65 * 0.95)  # middle two of four; the last tenth is 0.95
    assert high.worst == pytest.approx(0.5 * 0.95)
    assert 0.47 < high.low < high.iqm < high.high < 0.77
    assert low.low == low.high == low.iqm
    assert high.steps == 2000


@pytest.mark.slow
def test_a_comparison_is_drawn_and_nothing_global_changes(tmp_path):
    before = (dict(mpl.rcParams), mpl.get_backend(auto_select=False))
    path = tmp_path / "new" / "comparison.png"
    gaps = [{"step": 1, "seconds": 0.0}, {"step": 2, "seconds": 0.2, "rollout/success": math.nan}]
    groups = {"a": [run(0.9), run(0.8, num=15)], "b": [gaps + run(0.4)]}
    assert plot_comparison(groups, path, metric="rollout/success")[0].group == "a"
    assert is_drawn(path)
    assert before == (dict(mpl.rcParams), mpl.get_backend(auto_select=False))


def test_nothing_to_draw_is_said_with_what_there_is(tmp_path):
    with pytest.raises(ConfigError, match="'a run' has no metrics"):
        plot_run([], tmp_path / "run.png", title="a run")
    with pytest.raises(ConfigError, match="'eval/x'; known: rollout/success, train/critic_loss"):
        plot_comparison({"a": [run(1.0)]}, tmp_path / "x.png", metric="eval/x")


@pytest.mark.slow
def test_a_curve_is_shaded_where_a_curriculum_moves_the_reward_weights(tmp_path):
    """Returns fell where the ramp of hover moved weights, and nothing said so."""
    changes = [None, None, 0.1, 0.2, 0.2, 0.3]
    records = [
        {"step": 100 * (i + 1), "seconds": i, "rollout/return": 1.0}
        | ({} if change is None else {"rollout/reward_weight_change": change})
        for i, change in enumerate(changes)
    ]
    assert weight_moves(records) == [(200, 400), (500, 600)]
    assert weight_moves(run(1.0)) == []
    for told in (records, run(0.9, 1, **{"train/temperature": 0.1})):  # however short
        plot_run(told, tmp_path / "run.png", title="a run")
        assert is_drawn(tmp_path / "run.png")


@pytest.mark.slow
def test_experts_and_dormant_units_have_panels_of_their_own(tmp_path):
    plain, more = tmp_path / "plain.png", tmp_path / "more.png"
    metrics = {
        "dormant": 0.1, "dormant_trunk": 0.0, "dormant_experts": 0.2, "expert_use_max": 0.5,
        "expert_use_min": 0.1, "gate_entropy": 1.5,
    }  # fmt: skip
    plot_run(run(0.5), plain, title="without")
    shown = {f"train/{name}": x for name, x in metrics.items()}
    plot_run([{**record, **shown} for record in run(0.5)], more, title="with")
    assert is_drawn(more)
    assert imread(more).shape[0] > 1.5 * imread(plain).shape[0]  # two rows of panels, not one


@pytest.mark.slow
def test_a_run_that_was_evaluated_under_changes_has_a_panel_of_those_that_cost_most(tmp_path):
    changes = {f"eval/change_{i}/success": 0.9 - 0.1 * i for i in range(7)}
    evaluated = {"eval/success": 0.95, "eval/worst_success": 0.3, **changes}
    for name, more in (("plain", {"eval/success": 0.95}), ("changed", evaluated)):
        records = [{**record, **more} for record in run(1.0)]
        plot_run(records, tmp_path / f"{name}.png", title="x")
        assert is_drawn(tmp_path / f"{name}.png")
    plain, changed = (imread(tmp_path / f"{name}.png").shape for name in ("plain", "changed"))
    assert changed[1] > plain[1]  # a panel more
