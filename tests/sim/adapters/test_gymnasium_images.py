"""Images of Gymnasium environments as groups: stacks, true successors, sizes, refusals."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from robot_rl.core.errors import ConfigError
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.adapters.gymnasium_env import GymnasiumEnv, world_seeds
from sim.adapters.gymnasium_film import film_gymnasium
from sim.adapters.gymnasium_make import make_gymnasium_env
from tests.fakes import CPU, copied

EPISODE = 4
EYE = "image/eye"


class Clock(gymnasium.Env[Any, np.ndarray]):
    """Pictures that count: 10 times the episode's number plus the step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, form: str = "dict", render_mode: str | None = None) -> None:
        """Observe a dict with an image, an image alone (`image`), or a vector (`vector`)."""
        self.render_mode, self._form = render_mode, form
        picture = gymnasium.spaces.Box(0, 255, (4, 6, 3), np.uint8)
        vector = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        both = gymnasium.spaces.Dict({"eye": picture, "inner": vector})
        spaces: dict[str, Any] = {"dict": both, "image": picture, "vector": vector}
        self.observation_space = spaces[form]
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self._episode, self._step = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode, self._step = self._episode + 1, 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return self._observe(), 0.0, False, self._step >= EPISODE, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), 10 * self._episode + self._step, np.uint8)

    def _observe(self) -> Any:
        inner = np.array([self._step], np.float32)
        parts = {"eye": self.render(), "inner": inner}
        return {"dict": parts, "image": parts["eye"], "vector": inner}[self._form]


gymnasium.register("robot_rl_tests/Clock-v0", f"{__name__}:Clock")


def clocks(mode: AutoresetMode, form: str = "dict", **config: Any) -> GymnasiumEnv:
    worlds = SyncVectorEnv([lambda: Clock(form)] * 2, autoreset_mode=mode)
    return GymnasiumEnv(worlds, GymnasiumConfig(**config), device=CPU, seed=0)


def numbers(stack: Tensor) -> list[int]:
    """Step within its episode of every frame of the first world, tens tell the episode."""
    return stack[0, :, 0, 0, 0].tolist()


MODES = [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


@pytest.mark.parametrize("mode", MODES)
def test_stacks_end_with_the_true_successor_and_begin_with_the_first_frame(mode: AutoresetMode):
    env = clocks(mode, stack=3)
    assert env.spec.groups[EYE].shape == (3, 4, 6, 3)
    assert (env.spec.groups[EYE].dtype, env.spec.groups[EYE].stack) == (torch.uint8, 3)
    assert env.spec.groups["actor"].shape == (1,)
    begun = numbers(env.reset(seed=0)[EYE])
    first = begun[0]
    assert begun == [first] * 3
    steps = [copied(env.step(torch.zeros(2, 1))) for _ in range(EPISODE + 1)]
    assert [numbers(step.next_obs[EYE]) for step in steps[:EPISODE]] == [
        [first, first, first + 1], [first, first + 1, first + 2],
        [first + 1, first + 2, first + 3], [first + 2, first + 3, first + 4],
    ]  # fmt: skip
    assert steps[EPISODE - 1].truncated.all()
    assert numbers(steps[EPISODE - 1].obs[EYE]) == [first + 10] * 3
    assert numbers(steps[EPISODE].next_obs[EYE]) == [first + 10, first + 10, first + 11]
    assert torch.equal(steps[1].obs[EYE], steps[1].next_obs[EYE])


def test_a_world_that_begins_late_shows_no_frame_of_the_episode_before():
    env = clocks(AutoresetMode.NEXT_STEP, stack=2)
    first = numbers(env.reset(seed=0)[EYE])[0]
    steps = [copied(env.step(torch.zeros(2, 1))) for _ in range(EPISODE + 2)]
    assert numbers(steps[EPISODE - 1].next_obs[EYE]) == [first + 3, first + 4]
    assert not steps[EPISODE].valid.any()
    assert numbers(steps[EPISODE].obs[EYE]) == [first + 10, first + 10]
    assert numbers(steps[EPISODE + 1].next_obs[EYE]) == [first + 10, first + 11]


def test_a_masked_reset_fills_the_stacks_of_the_masked_worlds_alone():
    env = clocks(AutoresetMode.SAME_STEP, stack=2)
    env.reset(seed=0)
    before = copied(env.step(torch.zeros(2, 1)))
    obs = env.reset(mask=torch.tensor([True, False]))
    first = numbers(obs[EYE])
    assert first[0] == first[1]
    assert first[0] != numbers(before.obs[EYE])[1]
    assert torch.equal(obs[EYE][1], before.obs[EYE][1])


def test_an_image_alone_is_a_group_and_there_is_no_vector():
    env = clocks(AutoresetMode.SAME_STEP, "image", stack=1, image_size=[2, 3])
    assert list(env.spec.groups) == ["image/observation"]
    obs = env.reset(seed=0)["image/observation"]
    assert obs.shape == (2, 1, 2, 3, 3)
    value = int(obs[0, 0, 0, 0, 0])
    assert (obs[0] == value).all()
    env.step(torch.zeros(2, 1))
    env.check()


def test_images_are_brought_to_a_size_by_means_over_areas():
    class Halves(Clock):
        def render(self) -> Any:
            picture = np.zeros((4, 6, 3), np.uint8)
            picture[:, 3:] = 200
            picture[0, :, 0] += 40
            return picture

    worlds = SyncVectorEnv([Halves] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    config = GymnasiumConfig(image_size=[2, 2], stack=1)
    env = GymnasiumEnv(worlds, config, device=CPU, seed=0)
    picture = env.reset()[EYE][0, 0]
    assert picture[..., 1].tolist() == [[0, 200], [0, 200]]
    assert picture[..., 0].tolist() == [[20, 220], [0, 200]]


@pytest.mark.parametrize("form", ["vector", "image"])
def test_pixels_are_what_the_environment_renders_successors_included(form: str):
    config = GymnasiumConfig(
        id="robot_rl_tests/Clock-v0", pixels=True, stack=2, kwargs={"form": form}
    )
    env = make_gymnasium_env(config, num_envs=2, device=CPU, seed=0)
    obs = env.reset(seed=0)
    name = "image/pixels"
    first = numbers(obs[name])[0]
    assert ("actor" in obs) == (form == "vector")
    steps = [copied(env.step(torch.zeros(2, 1))) for _ in range(EPISODE)]
    assert numbers(steps[-1].next_obs[name]) == [first + 3, first + 4]
    assert numbers(steps[-1].obs[name]) == [first + 10, first + 10]
    env.close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"groups": {"actor": ["inner", "eye"]}}, "image/<name>"),
        ({"groups": {"actor": ["inner"], "image/eye": ["inner"]}}, "one uint8 image"),
        ({"groups": {"critic": ["inner"]}}, "expected `actor` or `image/<name>`"),
        ({"stack": 0}, "env.stack"),
        ({"image_size": [64]}, "env.image_size"),
    ],
)
def test_what_is_no_image_is_refused_in_a_sentence(config: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        clocks(AutoresetMode.SAME_STEP, **config)


def test_an_environment_that_renders_nothing_is_refused_in_a_sentence():
    config = GymnasiumConfig(
        id="robot_rl_tests/Clock-v0", pixels=True, kwargs={"render_mode": None, "form": "vector"}
    )
    with pytest.raises(ConfigError, match=r"env\.pixels: .* renders nothing here"):
        make_gymnasium_env(config, num_envs=1, device=CPU, seed=0)


def test_pixels_of_an_engine_that_draws_nothing_are_refused():
    for engine in ("batch", "envpool"):
        config = GymnasiumConfig(id="Hopper-v5", pixels=True)
        config.engine = type(config.engine)(engine)
        with pytest.raises(ConfigError, match=r"env\.pixels"):
            make_gymnasium_env(config, num_envs=1, device=CPU, seed=0)


@pytest.mark.slow
def test_a_policy_that_sees_pictures_is_filmed_from_the_episode_that_it_played(tmp_path):
    config = GymnasiumConfig(id="CartPole-v1", pixels=True, image_size=[20, 30])
    seen: list[tuple[int, ...]] = []

    def act(obs: dict[str, Tensor]) -> Tensor:
        seen.append(tuple(obs["image/pixels"].shape))
        return torch.tensor([[1.0, -1.0]])  # to the left, until the pole falls

    path = film_gymnasium(config, act, tmp_path / "film.mp4", seed=3)
    assert path.stat().st_size > 1000
    assert 8 <= len(seen) <= 11
    assert set(seen) == {(1, 3, 20, 30, 3)}

    bare = gymnasium.make("CartPole-v1")
    bare.reset(seed=world_seeds((3,), 1)[0])
    length, ended = 0, False
    while not ended:
        length, ended = length + 1, bare.step(0)[2]
    assert length == len(seen), "the film draws the episode that was played"
