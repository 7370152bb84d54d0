"""The collector: what is stored, who is told, and statistics worked out by hand."""

from typing import Any

import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvStep
from robot_rl.training.collector import Collector
from robot_rl.training.ranks import Ranks
from tests.fakes import LinearWorld, ToyEnv, small_sac
from tests.robot_rl.training.countdown import Countdown, Listener


def collector(
    env: ToyEnv, learner: Any, *, random_steps: int = 0, seed: int = 0, **settings: Any
) -> tuple[Collector, ReplayBuffer]:
    groups = (*learner.actor_groups, *learner.critic_groups)
    replay = ReplayBuffer(env.spec, groups, capacity=400, gamma=0.9)
    made = Collector(env, learner, replay, random_steps=random_steps, seed=seed, **settings)
    return made, replay


def collected(
    env: ToyEnv, steps: int, learner: Any = None, **settings: Any
) -> tuple[Collector, ReplayBuffer]:
    """A collector that has begun and gone so many steps."""
    made, replay = collector(env, learner or Listener(), **settings)
    made.start()
    for _ in range(steps):
        made.collect()
    return made, replay


def test_episodes_are_averaged_by_hand():
    env = ToyEnv(Countdown((2.0, 3.0)), 2, limit=10)
    made, _ = collected(env, 0)
    assert made.statistics() == {"rollout/invalid_steps": 0.0}  # no episode has ended
    made.collect()
    made.collect()
    assert made.statistics() == {
        "rollout/invalid_steps": 0.0,
        "rollout/return": 2.0,
        "rollout/episode_seconds": pytest.approx(0.2),
        "rollout/success": 0.0,
        "rollout/terminated": 1.0,
    }
    made.collect()
    # With two worlds an episode's weight falls to 2/3 with each that follows it.
    assert made.statistics()["rollout/return"] == pytest.approx((2 / 3 * 2 + 3) / (2 / 3 + 1))
    assert made.env_steps == 6


class Counting(ToyEnv):
    """Counts as worlds with a curriculum do: by its own steps, unless it is told of others'."""

    def set_global_step(self, env_steps: int) -> None:
        self.counted = env_steps

    def step(self, action: torch.Tensor) -> EnvStep:
        self.counted += self.spec.num_envs
        return super().step(action)


def test_a_curriculum_follows_the_worlds_of_all_ranks():
    class Three(Ranks):
        count = 3

    env = Counting(Countdown((2.0, 3.0)), 2)
    made, _ = collected(env, 0, ranks=Three(), set_global_step=env.set_global_step)
    for steps in (1, 2, 3):
        made.collect()
        assert env.counted == made.env_steps == steps * 2 * 3


def test_a_truncated_episode_may_succeed_and_is_no_termination():
    env = ToyEnv(Countdown((9.0, 1.0)), 2, limit=4)
    made, _ = collected(env, 4)
    short, weight = 0.0, 0.0
    for ended in (1, 1, 1):  # world 1 ends in every step, in the fourth both
        short, weight = short * (2 / 3) + ended, weight * (2 / 3) + ended
    short, weight = short * (2 / 3) ** 2 + 1, weight * (2 / 3) ** 2 + 2
    statistics = made.statistics()
    assert statistics["rollout/terminated"] == pytest.approx(short / weight)
    assert statistics["rollout/success"] == pytest.approx(1 - short / weight)


def test_a_nan_in_an_invalid_row_does_not_stay_in_the_statistics():
    env = ToyEnv(Countdown((3.0, 3.0)), 2, limit=10, invalid_at={(1, 0)})
    made, _ = collected(env, 6)
    # World 0: one step and a fault, then three, then one more; world 1: three and three.
    keep = 2 / 3
    returns = ((1 * keep + 3) * keep + 3) * keep + 3
    weights = ((1 * keep + 1) * keep + 1) * keep + 1
    assert made.statistics()["rollout/return"] == pytest.approx(returns / weights)


def test_the_random_phase_asks_the_learner_for_nothing_but_lets_it_watch():
    env, learner = ToyEnv(LinearWorld(), 3), Listener()
    learner.critic_groups = ("critic",)
    made, replay = collector(env, learner, random_steps=100)
    made.start()
    while made.exploring_at_random:
        made.collect()
    assert made.env_steps == 102
    assert learner.acted == []
    assert len(learner.observed) == 34
    action = replay.sample(2000).action
    # Uniform on [-1, 1]: mean 0 and variance 1/3; 102 draws of two entries.
    assert action.abs().max() <= 1
    assert abs(float(action.mean())) < 0.15
    assert abs(float(action.var()) - 1 / 3) < 0.08


def test_the_learner_hears_of_every_start_and_acts_on_what_follows():
    env, learner = ToyEnv(Countdown((2.0, 9.0)), 2, limit=3), Listener()
    _, replay = collected(env, 3, learner)
    assert learner.begun == [[True, True], [False, False], [True, False], [False, True]]
    acted_on = [obs["actor"].flatten().tolist() for obs in learner.acted]
    assert acted_on == [[2.0, 9.0], [1.0, 8.0], [2.0, 7.0]]
    batch = replay.sample(200)  # what was acted on, and its true successor
    assert torch.equal(batch.next_obs["actor"], batch.obs["actor"] - 1)


def test_new_episodes_in_the_middle_of_a_run_are_kept_apart_by_an_invalid_row():
    env = ToyEnv(LinearWorld(action_size=4, reward_names=("one", "two")), 2, limit=10)
    made, replay = collected(env, 1)
    made.begin_anew()
    made.collect()
    assert (len(replay), made.env_steps) == (6, 4)
    batch = replay.sample(300)
    row = batch.extra["index"] // 2
    assert torch.equal(batch.weight, (row != 1).float())
    # The row after the seam acts on what the reset showed.
    assert not torch.equal(batch.obs["actor"][row == 2][0], batch.next_obs["actor"][row == 0][0])
    assert made.statistics().keys() == {"rollout/invalid_steps"}  # what was cut short is none


def test_statistics_say_how_far_a_curriculum_has_moved_the_reward_weights():
    world = LinearWorld(reward_names=("first", "second"))
    env = ToyEnv(world, 2, reward_weights=lambda step: [3.0, 1.0 + max(0, step - 1)])
    made, _ = collected(env, 0, small_sac(env.spec))
    told, last = [], []
    for _ in range(3):
        made.collect()
        told.append(made.statistics().get("rollout/reward_weight_change", 0.0))
        last.append(made.weighs_as([3.0, 2.0]))
    assert told == [0.0, 0.0, 0.25]
    assert last == [False, False, True]
    assert made.weighs_as([3.0, 2.03])
    assert made.weighs_as([])
