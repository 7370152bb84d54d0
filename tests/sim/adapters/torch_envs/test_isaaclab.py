"""Isaac Lab's episodes as ours, over a contract double of both kinds of both releases."""

from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.adapters.torch_envs.config import FinalObs, IsaacLabConfig
from sim.adapters.torch_envs.env import RandomStreams, TorchLayout, TorchWorldsEnv
from sim.adapters.torch_envs.isaaclab import IsaacLabWorlds, Release
from sim.adapters.torch_envs.isaaclab_make import quaternion_orders
from tests.contracts.batch_env import BatchEnvContract, EnvCase
from tests.fakes import CPU, copied
from tests.isaaclab_double import HISTORY, KINDS, LIMIT, Episodes, make_cfg

WORLDS = 5
EVERY = [(kind, modern) for kind in KINDS for modern in (False, True)]
every = pytest.mark.parametrize(("kind", "modern"), EVERY)
IDENTITY = {True: torch.tensor([0.0, 0.0, 0.0, 1.0]), False: torch.tensor([1.0, 0.0, 0.0, 0.0])}


@pytest.fixture(autouse=True)
def no_simulation_is_left():
    yield
    Episodes.open = 0


def made(
    kind: str, modern: bool, num_envs: int = WORLDS, *, seed: int = 0, told: bool = True,
    cfg: dict[str, Any] | None = None, stagger: bool = False, **config: Any,
) -> Any:  # fmt: skip
    """The adapter over the double; `told`: a 3.0 that tells last observations by itself."""
    settings = make_cfg(num_envs, modern=modern)
    vars(settings).update(cfg or {})
    asked = IsaacLabConfig(**config)
    if modern and asked.final_obs is FinalObs.exact:
        settings.compute_final_obs = told
    Episodes.open = 0  # the contract compares instances, which the original keeps apart
    env = KINDS[kind](settings, modern)
    release = Release.of(IDENTITY[modern])
    worlds = IsaacLabWorlds(env, release, asked.final_obs)
    orders = quaternion_orders(env, asked.quaternions, scalar_last=release.scalar_last)
    layout = TorchLayout(env.single_observation_space, asked.groups, orders)
    return TorchWorldsEnv(
        worlds, layout, asked, device=CPU, seed=seed, stagger=stagger, streams=RandomStreams(CPU)
    )


def case(kind: str, modern: bool, *, full: bool = True, **more: Any) -> EnvCase:
    name = f"{kind} {3 if modern else 2}.x {' '.join(more)}".strip()
    return EnvCase(
        name, lambda count, seed, _: made(kind, modern, count, seed=seed, **more), LIMIT,
        resumable=False, full=full,
    )  # fmt: skip


class TestContract(BatchEnvContract):
    cases = (
        case("manager", False, full=False),
        case("direct", True, full=False),
        *(case(kind, True, told=False) for kind in KINDS),  # before compute_final_obs
        *(case(kind, modern, cfg={"noise": 0.1}) for kind, modern in EVERY),
    )


def actions(count: int) -> torch.Tensor:
    return 2 * torch.rand(count, WORLDS, 2, generator=torch.Generator().manual_seed(1)) - 1


def places(obs: dict[str, torch.Tensor]) -> torch.Tensor:
    return obs["actor"][:, :2]


@every
@pytest.mark.parametrize("told", [True, False])
def test_last_observation_is_where_the_action_led_and_never_the_reset_one(kind, modern, told):
    env = made(kind, modern, told=told)
    before = copied(env.reset(seed=0))
    ends = 0
    for action in actions(4 * LIMIT):
        step = env.step(action)
        torch.testing.assert_close(places(step.next_obs), places(before) + 0.4 * action)
        assert torch.equal(step.next_obs["critic"][:, :2], places(step.next_obs))
        assert bool((step.next_obs["critic"][step.ended, 2] > 0).all())
        assert bool((step.obs["critic"][step.ended, 2] == 0).all())
        assert bool(step.valid.all())
        before = copied(step.obs)
        ends += int(step.ended.sum())
    assert ends > 10


@pytest.mark.parametrize("modern", [False, True])
def test_history_of_a_last_observation_holds_the_last_frame_and_others_keep_theirs(modern):
    env = made("manager", modern, told=False)
    env.reset(seed=0)
    frames = slice(6, 6 + 2 * HISTORY)
    trail = [env._worlds.env.place.clone()] * HISTORY
    ends = 0
    for action in actions(4 * LIMIT):
        step = env.step(action)
        trail = [*trail[1:], places(step.next_obs).clone()]
        torch.testing.assert_close(step.next_obs["actor"][:, frames], torch.cat(trail, -1))
        ends += int(step.ended.sum())
        begun = places(step.obs)
        trail = [torch.where(step.ended[:, None], begun, frame) for frame in trail]
        assert torch.equal(step.obs["actor"][:, frames], torch.cat(trail, -1))
    assert ends > 10


def test_reset_of_some_worlds_gives_the_others_no_second_frame():
    env, twin = made("manager", False), made("manager", False)
    for each in (env, twin):
        each.reset(seed=0)
    for action in actions(3):
        env.step(action)
        twin.step(action)
    mask = torch.arange(WORLDS) == 2
    env.reset(mask=mask)
    action = actions(4)[3]
    got, expected = env.step(action), twin.step(action)
    assert torch.equal(got.next_obs["actor"][~mask], expected.next_obs["actor"][~mask])
    assert not torch.equal(got.next_obs["actor"][mask], expected.next_obs["actor"][mask])


@every
def test_dropped_last_observations_leave_time_limits_invalid_and_never_the_reset_one(kind, modern):
    env = made(kind, modern, final_obs=FinalObs.drop)
    before = copied(env.reset(seed=0))
    seen = {"terminated": 0, "truncated": 0}
    for action in actions(6 * LIMIT):
        step = env.step(action)
        assert torch.equal(step.valid, ~step.truncated)
        ended = step.ended
        assert torch.equal(step.next_obs["actor"][ended], before["actor"][ended])
        for name in seen:
            seen[name] += int(getattr(step, name).sum())
        before = copied(step.obs)
    assert min(seen.values()) > 3


@every
def test_quaternions_come_out_scalar_first_whatever_the_release(kind, modern):
    env = made(kind, modern, quaternions=[] if kind == "manager" else ["policy:2"])
    env.reset(seed=0)
    native = env._worlds.env
    for action in actions(3):
        step = env.step(action)
        turn = 0.5 * native.turn
        assert native.quaternion()[0, 3 if modern else 0] == turn.cos()[0]
        none = torch.zeros_like(turn)
        expected = torch.stack([turn.cos(), none, none, turn.sin()], -1)
        assert torch.equal(step.obs["actor"][:, 2:6], expected)


def test_quaternion_is_named_by_its_term_or_column():
    env = made("manager", True, quaternions=["policy/past:1", "policy:8"])._worlds.env
    orders = quaternion_orders(env, ["policy/past:1", "critic:0"][:1], scalar_last=True)
    assert orders == {"policy": [0, 1, 5, 2, 3, 4, 6, 10, 7, 8, 9, 11]}
    assert quaternion_orders(env, ["policy/past:1"], scalar_last=False) == {}
    parts = ("policy", "policy/quat:0", "policy:9", "policy/past:3", "policy/past:x", "critic:0")
    for wrong in parts:
        with pytest.raises(ConfigError, match=r"env\.quaternions"):
            quaternion_orders(env, [wrong], scalar_last=True)


def test_groups_terms_and_bounds_are_read_as_asked():
    env = made(
        "manager", False, groups={"actor": ["critic/steps", "policy"], "critic": ["critic"]},
        action_low=[-2.0], action_high=[0.0, 2.0], metrics=["Episode/length"], success=["out"],
    )  # fmt: skip
    shapes = {name: group.shape for name, group in env.spec.groups.items()}
    assert shapes == {"actor": (13,), "critic": (3,)}
    before = copied(env.reset(seed=0))
    step = env.step(torch.ones(WORLDS, 2))
    moved = step.next_obs["critic"][:, :2] - before["critic"][:, :2]
    torch.testing.assert_close(moved, torch.tensor([0.0, 0.8]).expand(WORLDS, 2))
    assert torch.equal(step.next_obs["actor"][:, 0], torch.ones(WORLDS))
    for action in actions(3 * LIMIT):
        step = env.step(action)
        assert torch.equal(step.success, step.terminated)
    assert env.spec.judges_success
    assert 1 <= float(step.metrics["Episode/length"][0]) <= LIMIT
    env.check()


def test_direct_task_tells_success_in_its_log():
    env = made("direct", True, success=["near"])
    env.reset(seed=0)
    seen = 0
    for action in actions(4 * LIMIT):
        step = env.step(0.3 * action)
        near = env._worlds.env.extras["log"]["near"]
        assert torch.equal(step.success, near & step.ended)
        seen += int(step.success.sum())
    assert seen > 0
    with pytest.raises(ConfigError, match="'nearer', which the task's log does not tell"):
        made("direct", True, success=["nearer"]).step(torch.zeros(WORLDS, 2))


def test_what_a_finite_horizon_ends_is_terminated():
    env = made("manager", False, cfg={"is_finite_horizon": True})
    env.reset(seed=0)
    ends = torch.stack([env.step(torch.zeros(WORLDS, 2)).terminated for _ in range(LIMIT)])
    assert ends.any(dim=1).tolist() == [False] * (LIMIT - 1) + [True]


def test_last_observation_in_the_memory_of_the_next_is_refused():
    env = made("direct", True, cfg={"reused": True})
    env.reset(seed=0)
    for _ in range(LIMIT - 1):
        env.step(torch.zeros(WORLDS, 2))
    with pytest.raises(SpecMismatchError, match="which has overwritten it"):
        env.step(torch.zeros(WORLDS, 2))


def test_environment_that_tells_no_last_observation_is_refused():
    class Silent:
        cfg, num_envs = make_cfg(1, modern=False), 1

    with pytest.raises(ConfigError, match=r"say env\.final_obs=drop"):
        IsaacLabWorlds(Silent(), Release.of(IDENTITY[False]))

    class Agents(Silent):
        possible_agents = ("left", "right")

    with pytest.raises(ConfigError, match="has several agents"):
        IsaacLabWorlds(Agents(), Release.of(IDENTITY[False]))
