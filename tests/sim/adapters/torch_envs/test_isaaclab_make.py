"""How Isaac Lab is started, which release it is, and how training and evaluation share it."""

import sys
from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError
from robot_rl.training.evaluation import evaluate
from sim.adapters.torch_envs.config import FinalObs, IsaacLabConfig
from sim.adapters.torch_envs.isaaclab_make import make_isaaclab_env
from tests.fakes import CPU, copied
from tests.isaaclab_double import LIMIT, Episodes, installed

TASK = "Isaac-Drift-Manager-v0"
WORLDS = 6


@pytest.fixture(params=[False, True], ids=["2.x", "3.x"])
def modern(request, tmp_path):
    """An Isaac Lab that looks installed."""
    with installed(tmp_path, modern=request.param):
        yield request.param


def made(num_envs=WORLDS, *, evaluation=False, seed=0, **config):
    asked = IsaacLabConfig(**{"id": TASK, **config})
    return make_isaaclab_env(asked, num_envs=num_envs, device=CPU, seed=seed, evaluation=evaluation)


def test_a_task_is_made_by_its_id_and_its_own_configuration(modern):
    asked: dict[str, Any] = {"presets": ["newton_mjwarp"]} if modern else {}
    if not modern:
        with pytest.raises(ConfigError, match=r"env\.presets has no meaning in Isaac Lab 2\.x"):
            made(presets=["newton_mjwarp"])
    env = made(settings={"episode_length_s": 0.1, "sim": {"dt": 0.005}}, **asked)
    native = env._worlds.env
    assert (native.cfg.episode_length_s, native.step_dt) == (0.1, 0.01)
    assert native.max_episode_length == 10
    assert env.spec.num_envs == native.num_envs == WORLDS
    assert env.spec.groups["actor"].shape == (12,)
    if modern:
        assert native.cfg.compute_final_obs
        utils = sys.modules["isaaclab_tasks.utils"]
        assert utils.RUNNING == [{"headless": True, "device": "cpu"}]
        assert [{"newton_mjwarp"}] == utils.PRESETS
    else:
        app = sys.modules["isaaclab.app"]
        assert app.AppLauncher.started == [{"headless": True, "device": "cpu"}]
    assert sys.argv == ["train.py", "env=isaaclab"]
    assert env.reset(seed=0)["actor"][0, 2:6].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert native.quaternion()[0].tolist() == ([0, 0, 0, 1] if modern else [1, 0, 0, 0])
    env.close()
    assert Episodes.open == 0
    env = made(final_obs=FinalObs.drop)  # a simulation may follow another one
    assert not getattr(env._worlds.env.cfg, "compute_final_obs", False)


def test_worlds_that_another_reset_some_of_begin_anew_for_both(modern):
    train, other = made(), made(4, evaluation=True, seed=1)
    train.reset(seed=0)
    train.step(torch.zeros(WORLDS, 2))
    other.reset(mask=torch.tensor([True, False, False, False]))
    seam = train.step(torch.zeros(WORLDS, 2))
    assert not bool(seam.valid.any())
    assert bool(train.step(torch.zeros(WORLDS, 2)).valid.all())
    other.reset(mask=torch.tensor([True, False, False, False]))
    assert not bool(other.step(torch.zeros(4, 2)).valid.any())
    assert not bool(train.step(torch.zeros(WORLDS, 2)).valid.any())
    other.close()
    train.close()


def test_evaluation_shares_the_simulation_and_training_goes_on_behind_an_invalid_row(modern):
    train, other = made(), made(4, evaluation=True, seed=1)
    assert Episodes.open == 1
    assert (train.spec.num_envs, other.spec.num_envs) == (WORLDS, 4)
    train.reset(seed=0)
    for _ in range(3):
        assert bool(train.step(torch.zeros(WORLDS, 2)).valid.all())
    result = evaluate(other, lambda obs: torch.zeros(4, 2), seed=5)
    assert result.seconds.tolist() == pytest.approx([LIMIT * 0.02] * 4)
    assert train.state_dict()["steps"] == 3

    seam = copied(train.step(torch.ones(WORLDS, 2)))
    assert not bool(seam.valid.any())
    assert bool(seam.truncated.all())
    assert not bool(seam.terminated.any())
    assert not bool(seam.reward.any())
    step = train.step(torch.ones(WORLDS, 2))  # goes on from what the seam handed out
    assert bool(step.valid.all())
    moved = step.next_obs["actor"][:, :2] - seam.obs["actor"][:, :2]
    torch.testing.assert_close(moved, torch.full((WORLDS, 2), 0.4))
    assert train.state_dict()["steps"] == 4

    again = evaluate(other, lambda obs: torch.zeros(4, 2), seed=5)
    assert torch.equal(again.returns, result.returns)
    other.close()
    other.close()
    assert Episodes.open == 1
    train.close()
    assert Episodes.open == 0


def test_evaluation_in_the_middle_leaves_the_random_streams_of_training_alone(modern):
    train, other = made(), made(4, evaluation=True, seed=1)

    def starts(evaluations):
        train.reset(seed=3)
        rows = []
        for _ in range(evaluations):
            evaluate(other, lambda obs: torch.zeros(4, 2), seed=5)
            rows.append(train.step(torch.zeros(WORLDS, 2)).obs["actor"][:, :2].clone())
        return rows

    one, two = starts(2)
    # Were the generators common, both would be the starts that follow the evaluation's seed.
    assert not torch.equal(one, two)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    starts(1)
    assert torch.equal(before, torch.get_rng_state())


def test_first_episodes_of_training_end_at_different_times_also_after_an_evaluation(modern):
    train, other = made(), made(4, evaluation=True)

    def ends():
        steps = [train.step(torch.zeros(WORLDS, 2)).truncated.clone() for _ in range(LIMIT)]
        return int(torch.stack(steps).any(dim=1).sum())

    train.reset(seed=0)
    assert ends() > 2
    other.reset(seed=0)
    train.step(torch.zeros(WORLDS, 2))
    assert ends() > 2


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"id": ""}, "env.id is empty"),
        ({"id": "Isaac-Drift-Manger-v0"}, "nearest: Isaac-Drift-Manager-v0"),
        ({"id": "nowhere:Task-v0"}, "names the module 'nowhere'"),
        ({"settings": {"decimaton": 3}}, "did you mean 'decimation'"),
        ({"groups": {"actor": ["critic/place", "image"]}}, "known: critic, critic/place, critic/"),
        ({"success": ["outt"]}, "did you mean 'out'"),
        ({"quaternions": ["policy/root:0"]}, "env.quaternions"),
    ],
)
def test_mistake_is_one_sentence_and_leaves_no_simulation(modern, config, told):
    with pytest.raises(ConfigError) as caught:
        made(**config)
    assert told in str(caught.value)
    assert Episodes.open == 0


def test_more_worlds_to_evaluate_in_or_another_task_beside_are_refused(modern):
    train = made()
    with pytest.raises(ConfigError, match=r"it has 6: lower training\.evaluation_episodes"):
        made(7, evaluation=True)
    with pytest.raises(ConfigError, match="one simulation in a process: close that one first"):
        made(id="Isaac-Drift-Direct-v0")
    train.close()
    made(id="Isaac-Drift-Direct-v0").close()


def test_missing_package_is_a_sentence(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the packages isaaclab and isaaclab_tasks"):
        made()
