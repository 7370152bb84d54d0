"""Laws of every simulation: what begins anew, what is restored, what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import SupportsStateReset
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot_command import BodyRateCommand
from sim.experts import scripted_expert
from sim.rendering.player import HeldGoals
from sim.simulation import WorldStates
from tests.equality import assert_same
from tests.fakes import copied
from tests.matrices import some
from tests.sim import arms, flying
from tests.sim.hands import hand_envs

MODEL_FIELDS = (
    "body_mass", "dof_damping", "dof_frictionloss", "body_inertia", "body_ipos", "geom_friction",
    "actuator_forcerange",
)  # fmt: skip


@pytest.mark.parametrize(
    ("make", "begin", "parameters", "takes"),
    [
        (
            lambda count: arms.arms(count, robot=arms.panda(), randomization=arms.EVERYTHING),
            arms.begin,
            lambda made: [made.engine.model_field(name).clone() for name in MODEL_FIELDS],
            "joint",
        ),
        (flying.multirotors, flying.begin, lambda made: [made.engine.params.clone()], "rotor"),
    ],
    ids=["arms", "multirotors"],
)
def test_only_the_worlds_that_begin_anew_draw_new_parameters_and_rows_of_nobody_change_nothing(
    make, begin, parameters, takes
):
    simulation = make(6)
    before = parameters(simulation)
    mask = torch.tensor([False, True, False, False, True, False])
    begin(simulation, mask, seed=9)
    for new, old in zip(parameters(simulation), before, strict=True):
        assert torch.equal((new != old).flatten(1).any(-1), mask)
    state = simulation.state_dict()
    begin(simulation, torch.zeros(6, dtype=torch.bool), seed=5)
    assert_same(simulation.state_dict(), state)
    command = BodyRateCommand(rates_b=torch.zeros(6, 3), thrust=torch.zeros(6, 1))
    with pytest.raises(SpecMismatchError, match=f"takes {takes} commands, got BodyRateCommand"):
        simulation.step(command)


WORLDS = 3
EXACT = 1e-6
"""States are kept in float32: joints turn by radians, things lie within metres."""


class Given:
    """The same states over and over, world by world."""

    def __init__(self, states: dict[str, Tensor], until: int = 10**9, steps: int = 4) -> None:
        self.states, self.until, self.episode_steps = states, until, steps
        self.draws = 0

    def draw(self, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Those of the first worlds."""
        self.draws += 1
        return {name: part[:count] for name, part in self.states.items()}


def played(name: str, steps: int = 8, **changes: Any) -> Any:
    """Worlds in which an expert has been busy."""
    env = hand_envs(name, WORLDS, **changes)
    env.reset(seed=3, mask=torch.ones(WORLDS, dtype=torch.bool))
    expert = scripted_expert(env)
    for _ in range(steps):
        env.step(expert.act())
    return env


def resumed(states: dict[str, Tensor], name: str, **source: Any) -> tuple[Any, Given]:
    """Other worlds, of another seed, that begin in states."""
    env, given = hand_envs(name, WORLDS, seed=9), Given(states, **source)
    begins: SupportsStateReset = env
    begins.set_reset_states(given)
    env.reset(seed=11, mask=torch.ones(WORLDS, dtype=torch.bool))
    return env, given


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["lift", "peg"], ["reach", "drawer"]))
def test_a_world_that_begins_in_a_state_is_in_it_with_its_goal_and_its_scene(name: str) -> None:
    one = played(name)
    states = one.world_states()
    assert {n: part.shape[1] for n, part in states.items()} == dict(one.state_widths)
    two, _ = resumed(states, name)
    engines = [env.simulation.engine for env in (one, two)]
    for part in ("qpos", "qvel"):
        here, there = (getattr(engine, part) for engine in engines)
        torch.testing.assert_close(there, here, atol=EXACT, rtol=EXACT)
        assert not torch.equal(here, torch.zeros_like(here))
    for goal in one.task.goal:
        assert torch.equal(two.task.goal[goal], one.task.goal[goal])
    for sensor in ("peg_position", "cube_position", "drawer_opening", "hand_position"):
        if sensor in one.simulation.sensors:
            here, there = (env.simulation.sensors[sensor] for env in (one, two))
            torch.testing.assert_close(there, here, atol=1e-5, rtol=1e-5)
    assert_same(two.world_states().keys(), states.keys())


@pytest.mark.slow
def test_a_cube_that_was_held_is_held() -> None:
    """The fingers' motors press on: begun where the fingers were, they would press no more."""
    one = played("lift", 85)
    lifted = one.simulation.sensors["cube_position"][:, 2] > 0.1
    assert bool(lifted.any())
    two, _ = resumed(one.world_states(), "lift", steps=50)
    presses = [env.simulation.engine.control[lifted, -1] for env in (one, two)]
    torch.testing.assert_close(presses[1], presses[0], atol=1e-4, rtol=1e-5)
    expert = scripted_expert(two)
    for _ in range(10):
        step = two.step(expert.act())
        assert bool(step.valid.all())
        assert bool((two.simulation.sensors["cube_position"][lifted, 2] > 0.1).all())


@pytest.mark.slow
def test_such_an_episode_is_truncated_early_and_has_a_future() -> None:
    env, given = resumed(played("peg").world_states(), "peg", steps=4)
    still = torch.zeros(WORLDS, env.spec.action_size)
    steps = [env.step(still) for _ in range(4)]
    assert [bool(step.truncated.any()) for step in steps[:3]] == [False] * 3
    assert bool(steps[3].truncated.all())
    assert not bool((steps[3].terminated | steps[3].success).any())
    assert given.draws == 2


def test_after_so_many_steps_episodes_begin_as_the_task_lets_them() -> None:
    states = played("peg").world_states()
    env, given = resumed(states, "peg", steps=4, until=10)
    still = torch.zeros(WORLDS, env.spec.action_size)
    for _ in range(4):  # 12 steps of all worlds
        env.step(still)
    assert given.draws == 1
    assert not torch.allclose(env.world_states()["fixture.hole"], states["fixture.hole"])
    assert not bool(torch.stack([env.step(still).truncated for _ in range(10)]).any())


@pytest.mark.slow
def test_what_begins_in_states_goes_on_bit_equal_from_a_saved_state() -> None:
    states = played("lift").world_states()
    (one, _), (two, _) = (resumed(states, "lift", steps=3) for _ in range(2))
    still = torch.zeros(WORLDS, one.spec.action_size)
    one.step(still)
    two.load_state_dict(copied(one.state_dict()))
    for _ in range(5):
        here, there = one.step(still), two.step(still)
        assert_same(here.obs, there.obs)
        assert torch.equal(here.truncated, there.truncated)


def test_what_cannot_begin_anywhere_says_why() -> None:
    env = hand_envs("peg", 1)
    with pytest.raises(ConfigError, match="a curriculum follows successes"):
        _ = WorldStates(env.simulation, env.task, has_curriculum=True).widths
    with pytest.raises(ConfigError, match="remembers more of an episode than its goals"):
        _ = WorldStates(env.simulation, HeldGoals(env.task), has_curriculum=False).widths
    with pytest.raises(ConfigError, match="expected a robot with joints"):
        _ = WorldStates(object(), env.task, has_curriculum=False).widths


def test_worlds_that_begin_in_states_end_in_groups_and_not_all_at_once() -> None:
    states = played("peg").world_states()
    given = Given({name: part.repeat(3, 1) for name, part in states.items()}, steps=50)
    env = hand_envs("peg", 8, evaluation=False)
    env.set_reset_states(given)
    env.reset(seed=11)
    ends = [int(env.step(torch.zeros(8, env.spec.action_size)).ended.sum()) for _ in range(50)]
    assert sum(ends) >= 8
    assert max(ends) < 7
