"""Foreign environments as ours: true successors, what is refused, and how their worlds are made."""

import copy
import signal
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from robot_rl.core.errors import ConfigError, NonFiniteError, SpecMismatchError
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.adapters.gymnasium_env import GymnasiumEnv
from sim.adapters.gymnasium_make import make_gymnasium_env
from tests.fakes import CPU, copied
from tests.gymnasium_worlds import LIMIT, Drift

WORLDS = 5


def vector(mode=AutoresetMode.SAME_STEP, num_envs=WORLDS, **kwargs):
    return SyncVectorEnv([lambda: Drift(**kwargs)] * num_envs, autoreset_mode=mode)


def wrapped(worlds, seed=0, **config):
    return GymnasiumEnv(worlds, GymnasiumConfig(**config), device=CPU, seed=seed)


def actions(count, seed=3):
    unit = torch.rand(count, WORLDS, 2, generator=torch.Generator().manual_seed(seed))
    return 2 * unit - 1


@pytest.mark.parametrize("mode", AutoresetMode)
def test_every_step_is_that_of_the_bare_environment_bit_for_bit(mode):
    worlds = vector(mode)
    env = wrapped(worlds)
    obs = copied(env.reset(seed=7)["actor"])
    twins, waiting = copy.deepcopy(worlds.envs), [False] * WORLDS
    ends = 0
    for action in actions(4 * LIMIT):
        native = (-0.5 + 1.25 * (action.double() + 1)).float().numpy()
        step = env.step(action)
        for i, twin in enumerate(twins):
            if waiting[i]:
                waiting[i] = False
                assert not step.valid[i]
                assert np.array_equal(step.obs["actor"][i], twin.reset()[0])
                continue
            seen, reward, terminated, truncated, _ = twin.step(native[i])
            assert step.valid[i]
            assert np.array_equal(step.next_obs["actor"][i], seen)
            assert float(step.reward[i]) == np.float32(reward)
            assert bool(step.terminated[i]) == terminated
            assert bool(step.truncated[i]) == (truncated and not terminated)
            if terminated or truncated:
                ends += 1
                waiting[i] = mode is AutoresetMode.NEXT_STEP
                seen = seen if waiting[i] else twin.reset()[0]
            assert np.array_equal(step.obs["actor"][i], seen)
        assert not torch.equal(obs, step.obs["actor"])
        obs = copied(step.obs["actor"])
    assert ends > 10


def test_keys_that_the_last_info_of_an_episode_lacks_are_named_once(caplog):
    env = wrapped(vector(), success=["is_succes", "is_success"], metrics=["distance"])
    while not env.step(torch.zeros(env.spec.num_envs, env.spec.action_size)).ended.any():
        assert not caplog.messages, "no episode has ended"
    for _ in range(30):
        env.step(torch.zeros(env.spec.num_envs, env.spec.action_size))
    (told,) = caplog.messages
    assert told == (
        "env.success: 'is_succes' was not in the info when the first episode ended (there: "
        "distance, is_success); it counts as 0 until an episode tells it"
    )


def test_success_and_metrics_are_those_of_the_last_step():
    env = wrapped(vector(), success=["nothing", "is_success"], metrics=["distance"])
    assert env.spec.judges_success
    found = {True: 0, False: 0}
    for action in actions(4 * LIMIT):
        step = env.step(action)
        distance = step.next_obs["actor"][:, :2].abs().amax(-1)
        torch.testing.assert_close(step.metrics["distance"], distance)
        for i in step.ended.nonzero()[:, 0].tolist():
            assert bool(step.success[i]) == bool(distance[i] < 0.8)
            found[bool(step.success[i])] += 1
        assert not (step.success & ~step.ended).any()
    assert min(found.values()) > 3


def test_ends_of_the_action_range_are_the_bounds_exactly():
    seen = []

    class Watched(Drift):
        def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            seen.append(action.copy())
            return super().step(action)

    env = wrapped(Watched())  # a single environment
    env.step(torch.tensor([[-1.0, 1.0]]))
    assert seen[0].tolist() == [-0.5, 2.0]
    narrow = wrapped(Watched(), action_low=[0.0], action_high=[0.5, 1.0])
    narrow.step(torch.tensor([[-1.0, 1.0]]))
    narrow.step(torch.tensor([[1.0, 0.0]]))
    assert [action.tolist() for action in seen[1:]] == [[0.0, 1.0], [0.5, 0.5]]


def test_dict_observations_are_laid_out_as_asked():
    worlds = vector(kind="dict")
    flat, picked = wrapped(worlds), wrapped(vector(kind="dict"), groups={"actor": ["inner/clock"]})
    assert flat.spec.groups["actor"].shape == (3,)
    step = flat.step(actions(1)[0])
    clock = [1.0] * WORLDS
    # Dict spaces order their keys: inner, then place.
    assert step.obs["actor"][:, 0].tolist() == clock
    assert picked.step(actions(1)[0]).obs["actor"][:, 0].tolist() == clock
    both = wrapped(vector(kind="goal")).spec.groups["actor"]
    assert both.shape == (4,)


def test_control_period_is_the_environments_own():
    assert wrapped(vector()).spec.control_dt == 1 / 20
    assert wrapped(vector(), control_dt=0.5).spec.control_dt == 0.5
    pendulum = make_gymnasium_env(GymnasiumConfig(id="Pendulum-v1"), num_envs=1, device=CPU, seed=0)
    assert pendulum.spec.control_dt == 0.05  # its `dt`; its render_fps says 30
    assert not pendulum.spec.judges_success


class Odd(Drift):
    """Other spaces on the same toy."""

    def __init__(self, **spaces: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.__dict__.update(spaces)


def box(*bounds: Any) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(*bounds)


SPACES = gymnasium.spaces
IMAGE = SPACES.Dict({"front": box(0, 255, (4, 4, 3), np.uint8), "place": box(-1, 1, (2,))})


@pytest.mark.parametrize(
    ("spaces", "config", "told"),
    [
        ({"action_space": SPACES.MultiDiscrete([3, 2])}, {}, "chooses several things at once"),
        ({"action_space": SPACES.Discrete(1)}, {}, "one Discrete of two or more"),
        ({"action_space": SPACES.Discrete(3)}, {"action_low": [0.0]}, "bound numbers, and the"),
        ({"action_space": box(-np.inf, np.inf, (2,))}, {}, "say what -1 and 1 mean"),
        ({"action_space": box(-np.inf, 1, (2,))}, {"action_low": [1.0]}, "every low below"),
        ({}, {"action_low": [0.0, 0.0, 0.0]}, "has 3 numbers; expected one, or one for each"),
        ({}, {"action_high": [99.0]}, "action_high is .99.0.; expected numbers within"),
        ({"observation_space": SPACES.Dict({"a/b": box(-1, 1, (2,))})}, {}, "names without '/'"),
        ({"observation_space": SPACES.Text(4)}, {}, "the observation is Text"),
        ({"observation_space": IMAGE}, {"groups": {"actor": ["front"]}}, "'front' is an image"),
        ({"observation_space": IMAGE}, {"groups": {"actor": ["plac"]}}, "did you mean 'place'"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_words(spaces, config, told):
    with pytest.raises(ConfigError, match=told):
        wrapped(Odd(**spaces), **config)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_discrete_observation_is_told_by_a_one_at_its_place(mode):
    class Counting(Odd):
        def reset(self, *, seed=None, options=None):
            self._at = 2
            return self._at, {}

        def step(self, action):
            self._at += 1
            return self._at, 0.0, self._at == 5, False, {}

    space = SPACES.Discrete(4, start=2)
    make = lambda: Counting(observation_space=space)  # noqa: E731
    env = wrapped(SyncVectorEnv([make] * 2, autoreset_mode=mode))
    rows = torch.eye(4)
    assert torch.equal(env.reset(seed=0)["actor"], rows[[0, 0]])
    for at in (1, 2, 3):
        step = env.step(torch.zeros(2, 2))
        assert torch.equal(step.next_obs["actor"], rows[[at, at]])
    assert step.terminated.all()
    if mode is AutoresetMode.NEXT_STEP:
        step = env.step(torch.zeros(2, 2))
    assert torch.equal(step.obs["actor"], rows[[0, 0]])


def test_a_choice_is_the_largest_entry_and_is_told_as_it_was_done():
    space = SPACES.Discrete(3, start=2)
    done = []

    class Choosing(Odd):
        def step(self, action):
            done.append(action)
            assert self.action_space.contains(action)
            return self.observation_space.sample(), 0.0, False, False, {}

    env = wrapped(Choosing(action_space=space))
    assert (env.spec.action_size, env.spec.discrete) == (3, True)
    step = env.step(torch.tensor([[0.1, 0.2, -0.9]]))
    assert [int(one) for one in done] == [3]
    assert step.action.tolist() == [[-1.0, 1.0, -1.0]]
    env.step(torch.tensor([[float("nan"), -0.2, -0.9]]))
    with pytest.raises(NonFiniteError, match="entry 0"):
        env.check()


def test_success_is_looked_for_where_actions_are_choices():
    class Telling(Odd):
        def step(self, action):
            return self.observation_space.sample(), 0.0, False, False, {"is_success": False}

    made: Any = lambda **_: Telling(action_space=SPACES.Discrete(2))  # noqa: E731
    gymnasium.register("robot_rl_tests/Telling-v0", made)
    config = GymnasiumConfig(id="robot_rl_tests/Telling-v0")
    assert make_gymnasium_env(config, num_envs=1, device=CPU, seed=0).spec.judges_success


def test_vector_environment_that_does_not_say_how_it_resets_is_refused():
    worlds = vector()
    del worlds.metadata["autoreset_mode"]
    with pytest.raises(SpecMismatchError, match=r"expected one of NEXT_STEP, SAME_STEP, DISABLED"):
        wrapped(worlds)


class Forgetful(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Loses final observations, and resets everybody."""

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        *rest, _ = self.env.step(actions)
        return (*rest, {})


def test_lost_final_observations_and_ignored_masks_are_noticed():
    env = wrapped(Forgetful(vector()))
    for action in actions(2):
        env.step(action)  # nothing has ended yet
    push = torch.ones(WORLDS, 2)
    with pytest.raises(SpecMismatchError, match="hold no 'final_obs'"):
        [env.step(push) for _ in range(LIMIT)]
    with pytest.raises(SpecMismatchError, match="honours options"):
        env.reset(mask=torch.arange(WORLDS) < 2)


def test_observation_that_is_not_a_number_is_an_invalid_row_and_named():
    class Broken(Drift):
        def _observe(self) -> Any:
            seen = super()._observe()
            seen[2] = np.nan if self._age == 3 else seen[2]
            return seen

    env = wrapped(Broken())
    valid = [bool(env.step(torch.zeros(1, 2)).valid) for _ in range(4)]
    assert valid == [True, True, False, False], "the next row begins with it"
    with pytest.raises(NonFiniteError, match=r"actor term 'observation\[2\]'"):
        env.check()


def test_first_observation_that_is_not_a_number_makes_its_row_invalid_and_is_named():
    class Broken(Drift):
        def reset(self, **how: Any) -> Any:
            seen, info = super().reset(**how)
            return np.full_like(seen, np.nan), info

    env = wrapped(Broken())
    assert [bool(env.step(torch.zeros(1, 2)).valid) for _ in range(2)] == [False, True]
    with pytest.raises(NonFiniteError, match=r"actor term 'observation\[0\]'"):
        env.check()


class Reused(gymnasium.Env[Any, Any]):
    """Hands out its state, which it changes in place."""

    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self._state = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._state[:] = 0
        return self._state, {}

    def step(self, action: Any) -> Any:
        self._state += 1
        return self._state, 1.0, False, bool(self._state[0] >= 3), {}


gymnasium.register("Reused-v0", lambda **how: Reused(**how), order_enforce=False)


@pytest.mark.parametrize("how", ["given", "loop", "processes"])
def test_true_successors_of_environments_that_change_their_array_in_place(how):
    config = GymnasiumConfig(id="Reused-v0", processes=how == "processes")
    env = wrapped(Reused()) if how == "given" else make_gymnasium_env(
        config, num_envs=2, device=CPU, seed=0
    )  # fmt: skip
    seen = [copied(env.step(torch.zeros(env.spec.num_envs, 1))) for _ in range(4)]
    assert [float(step.next_obs["actor"][-1]) for step in seen] == [1, 2, 3, 1]
    assert [float(step.obs["actor"][-1]) for step in seen] == [1, 2, 0, 1]
    assert [bool(step.truncated[-1]) for step in seen] == [False, False, True, False]
    env.close()


def test_an_info_that_is_no_number_is_refused_by_name():
    class Wordy(Drift):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {"stage": "reach"}

    env = wrapped(Wordy(), metrics=["stage"])
    with pytest.raises(ConfigError, match="'stage' of the info is 'reach'; expected a number"):
        env.step(torch.zeros(1, 2))


def test_restored_run_begins_episodes_that_it_has_not_seen_and_seeds_share_no_world():
    env, other = wrapped(vector(), seed=1), wrapped(vector(), seed=2)
    first = copied(env.reset(seed=1)["actor"])
    env.step(actions(1)[0])
    state = env.state_dict()
    assert not env.spec.resumable
    assert not torch.equal(env.reset(state=state)["actor"], first)
    assert torch.equal(env.reset(state=state)["actor"], other.reset(state=state)["actor"])
    env = wrapped(vector())
    one, two = copied(env.reset(seed=1)["actor"]), env.reset(seed=2)["actor"]
    assert not (one[:, None, 0] == two[None, :, 0]).any()


@pytest.mark.slow
def test_worlds_in_processes_are_the_same_and_deaf_to_the_ctrl_c_that_a_terminal_sends_to_all():
    """They ended in the middle of the step that was to be finished, and nothing was saved."""
    before = set(psutil.Process().children())
    envs = [
        make_gymnasium_env(
            GymnasiumConfig(id="Pendulum-v1", processes=processes, kwargs={"max_episode_steps": 6}),
            num_envs=2, device=CPU, seed=4,
        )
        for processes in (False, True)
    ]  # fmt: skip
    try:
        worlds = set(psutil.Process().children()) - before
        assert len(worlds) >= 2
        for process in worlds:
            process.send_signal(signal.SIGINT)
        for action in actions(20)[:, :2, :1]:
            one, two = (env.step(action) for env in envs)
            assert torch.equal(one.next_obs["actor"], two.next_obs["actor"])
            assert torch.equal(one.obs["actor"], two.obs["actor"])
            assert torch.equal(one.truncated, two.truncated)
    finally:
        for env in envs:
            env.close()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "heard here again"


@pytest.mark.slow
def test_id_of_a_module_imports_it_first():
    config = GymnasiumConfig(id="configs.gymnasium_ids:robot_rl/Hover-v0")
    env = make_gymnasium_env(config, num_envs=2, device=CPU, seed=0)
    assert env.step(torch.zeros(2, 4)).valid.all()
    assert env.spec.judges_success
    with pytest.raises(ConfigError, match="cannot be imported: No module named 'nowhere'"):
        make_gymnasium_env(GymnasiumConfig(id="nowhere:A-v0"), num_envs=1, device=CPU, seed=0)
