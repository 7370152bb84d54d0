"""A replay of images hands out the stacks that were added, whatever episodes and cameras do."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.buffers.frames import image_bytes, num_frames
from robot_rl.buffers.minibatches import Minibatches
from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs
from robot_rl.core.errors import ConfigError, ShapeError
from tests.equality import assert_same
from tests.fakes import copied
from tests.robot_rl.buffers.test_replay_saving import MemorySegments

GROUPS = {
    "actor": GroupSpec(shape=(2,)),
    "image/front": GroupSpec(shape=(3, 4, 5, 3), dtype=torch.uint8, stack=3),
    "image/wrist": GroupSpec(shape=(1, 2, 2, 1), dtype=torch.uint8),
}
NAMES = tuple(GROUPS)
CAMERAS = NAMES[1:]


def make_spec(num_envs: int, groups: dict[str, GroupSpec] = GROUPS) -> EnvSpec:
    return EnvSpec(
        num_envs=num_envs, device=torch.device("cpu"), groups=groups, action_size=1, control_dt=0.1
    )


@dataclass
class Film:
    """Envs whose every frame is drawn at random, and the list of all that was added: the oracle."""

    num_envs: int
    seed: int
    ends: float = 0.2
    """Chance of an episode's end in a step, half of them terminations."""
    held: float = 0.0
    """Chance that no camera of an env takes a picture in a step."""
    jumps: float = 0.0
    """Chance that the frames of a stack are all new in the middle of an episode."""
    steps: list[tuple[Obs, EnvStep]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec = make_spec(self.num_envs)
        self._generator = torch.Generator().manual_seed(self.seed)
        self._obs = self._start()

    def film(self, count: int) -> Iterator[tuple[Obs, EnvStep]]:
        """Further steps."""
        for _ in range(count):
            obs, count_envs = self._obs, self.num_envs
            next_obs = {name: self._moved(name, group) for name, group in obs.items()}
            ended, terminated, valid = (self._chance(p) for p in (self.ends, 0.5, 0.95))
            fresh = self._start()
            after = {
                name: torch.where(_like(ended, group), fresh[name], group)
                for name, group in next_obs.items()
            }
            step = EnvStep(
                obs=after, next_obs=next_obs, reward=torch.randn(count_envs),
                terminated=ended & terminated, truncated=ended & ~terminated, valid=valid,
                success=torch.zeros(count_envs, dtype=torch.bool),
                intervened=torch.zeros(count_envs, dtype=torch.bool),
                action=torch.zeros(count_envs, 1),
            )  # fmt: skip
            self.steps.append((copied(obs), step))
            self._obs = after
            yield obs, step

    def _start(self) -> Obs:
        return {
            name: self._drawn(name)[:, -1:].expand(-1, GROUPS[name].shape[0], -1, -1, -1)
            if name in CAMERAS
            else torch.randn(self.num_envs, 2, generator=self._generator)
            for name in NAMES
        }

    def _moved(self, name: str, group: Tensor) -> Tensor:
        if name not in CAMERAS:
            return torch.randn(self.num_envs, 2, generator=self._generator)
        drawn = self._drawn(name)
        moved = torch.cat([group[:, 1:], drawn[:, -1:]], dim=1)
        moved = torch.where(_like(self._chance(self.jumps), group), drawn, moved)
        return torch.where(_like(self._chance(self.held), group), group, moved)

    def _drawn(self, name: str) -> Tensor:
        shape = (self.num_envs, *GROUPS[name].shape)
        return torch.randint(0, 256, shape, generator=self._generator).to(torch.uint8)

    def _chance(self, p: float) -> Tensor:
        return torch.rand(self.num_envs, generator=self._generator) < p

    def replay(self, capacity: int, **changes: Any) -> ReplayBuffer:
        return ReplayBuffer(
            self.spec, NAMES, capacity=capacity, **{"gamma": 0.9, "seed": 3, **changes}
        )

    def successor(self, step: int, env: int, n_step: int) -> int:
        """Step whose successor a transition of up to n steps bootstraps from."""
        last = step
        for k in range(n_step):
            if step + k >= len(self.steps):
                break
            now = self.steps[step + k][1]
            if k and not now.valid[env]:
                break
            last = step + k
            if not now.valid[env] or now.terminated[env] or now.truncated[env]:
                break
        return last

    def check(self, replay: ReplayBuffer, n_step: int, samples: int = 200) -> set[tuple[int, int]]:
        """Compare samples with what was added; the (step, env) that they begin with."""
        batch = replay.sample(samples)
        found: set[tuple[int, int]] = set()
        assert "last" not in batch.extra
        for i, index in enumerate(batch.extra["index"].tolist()):
            slot, env = divmod(index, self.num_envs)
            newest = len(self.steps) - 1
            step = newest - (newest - slot) % replay.num_steps
            last = self.successor(step, env, n_step)
            found.add((step, env))
            for name in CAMERAS:
                assert torch.equal(batch.obs[name][i], self.steps[step][0][name][env])
                assert torch.equal(batch.next_obs[name][i], self.steps[last][1].next_obs[name][env])
        return found


def _like(mask: Tensor, values: Tensor) -> Tensor:
    return mask.reshape(-1, *[1] * (values.ndim - 1))


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(
    "habits",
    [{}, {"held": 0.4}, {"jumps": 0.1, "held": 0.2}, {"ends": 0.02}, {"ends": 0.9}],
    ids=["plain", "slow camera", "jumps", "long episodes", "short episodes"],
)
def test_every_sample_is_what_was_added(habits, n_step, compile):
    for seed in range(3):
        film = Film(num_envs=1 + seed, seed=seed, **habits)
        replay = film.replay(12 * film.num_envs, n_step=n_step, compile=compile)
        for count in (2, 7, 5, 31):
            for obs, step in film.film(count):
                replay.add(obs, step)
            if len(replay):
                film.check(replay, n_step)


def test_all_rows_are_drawn_while_their_frames_are_there():
    film = Film(num_envs=2, seed=1, ends=0.05)
    replay = film.replay(40)
    for obs, step in film.film(60):
        replay.add(obs, step)
    assert len(replay) == 40
    assert film.check(replay, 1, samples=2000) == {(t, n) for t in range(40, 60) for n in range(2)}


@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_rows_whose_frames_are_overwritten_are_never_drawn(priority):
    film = Film(num_envs=1, seed=2, ends=1.0)  # a first frame for every step: twice as many
    replay = film.replay(64, config=ReplayConfig(priority=priority))
    for obs, step in film.film(100):
        replay.add(obs, step)
    kept = num_frames(64, 1, 1)  # of the camera that has room for the fewest
    assert len(replay) == kept // 2
    drawn = film.check(replay, 1, samples=4000)
    assert min(step for step, _ in drawn) == 100 - kept // 2
    assert len(drawn) > 20


def test_a_frame_is_kept_once():
    film = Film(num_envs=3, seed=4, ends=0.1)
    replay = film.replay(300)
    for obs, step in film.film(50):
        replay.add(obs, step)
    starts = 3 + sum(int(step.ended.sum()) for _, step in film.steps[:-1])
    assert replay._frames["image/front"].total == 150 + starts


@pytest.mark.parametrize("saves", [(5,), (3, 20, 45), (45,)])
@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_a_restored_replay_goes_on_bit_equal(saves, priority):
    film, segments, state, done = Film(num_envs=2, seed=5, held=0.2), MemorySegments(), {}, 0
    made = {"n_step": 3, "config": ReplayConfig(priority=priority)}
    replay = film.replay(24, **made)
    for stop in saves:
        for obs, step in film.film(stop - done):
            replay.add(obs, step)
        state, done = copied(replay.state_dict(segments)), stop
    other = film.replay(24, **made)
    other.load_state_dict(state, segments)
    assert_same(other.sample(64), replay.sample(64))
    for obs, step in film.film(9):
        replay.add(obs, step)
        other.add(obs, step)
    assert_same(other.sample(64), replay.sample(64))
    for each in (replay, other):
        film.check(each, 3)
    assert_same(other.state_dict(MemorySegments()), replay.state_dict(MemorySegments()))


def test_each_save_writes_new_frames_only():
    film, segments = Film(num_envs=1, seed=6, ends=0.0), MemorySegments()
    replay = film.replay(100)
    for count in (4, 3):
        for obs, step in film.film(count):
            replay.add(obs, step)
        replay.state_dict(segments)
    front = [len(held["rows"]) for name, held in segments.held.items() if "front" in name]
    assert front == [5, 3]  # the first save has the episode's first frame as well


def test_without_saved_rows_it_begins_empty():
    film = Film(num_envs=1, seed=7)
    replay = film.replay(10)
    for obs, step in film.film(5):
        replay.add(obs, step)
    other = film.replay(10)
    other.load_state_dict(copied(replay.state_dict(None)), None)
    assert len(other) == 0
    film.steps.clear()
    for obs, step in film.film(6):
        other.add(obs, step)
    assert len(film.check(other, 1)) == 6


def test_memory_is_what_was_said():
    for num_envs, capacity in ((1, 500), (8, 1000)):
        spec = make_spec(num_envs)
        replay = ReplayBuffer(spec, NAMES, capacity=capacity, gamma=0.9)
        said = image_bytes(spec, NAMES, capacity)
        rings = replay._frames.values()
        held = [tensor for ring in rings for tensor in (ring._frames, ring._places)]
        assert said == sum(tensor.untyped_storage().nbytes() for tensor in held)
        assert replay.num_bytes == said + capacity * replay.layout.row_bytes


def test_two_cameras_of_100k_transitions_take_less_than_ten_gibibytes():
    camera = GroupSpec(shape=(3, 128, 128, 3), dtype=torch.uint8, stack=3)
    spec = make_spec(1, {"actor": GroupSpec(shape=(32,)), "image/a": camera, "image/b": camera})
    assert 100_000 * 2 * 128 * 128 * 3 < image_bytes(spec, tuple(spec.groups), 100_000) < 10 << 30


def test_minibatches_of_images_are_cut_as_others_are():
    film = Film(num_envs=2, seed=8)
    replay = film.replay(60)
    for obs, step in film.film(20):
        replay.add(obs, step)
    batches = list(Minibatches(replay, 8).draw(3, 1.0))
    assert [batch.obs["image/front"].shape for batch in batches] == [(8, 3, 4, 5, 3)] * 3


def test_frames_of_another_shape_are_refused():
    film = Film(num_envs=1, seed=9)
    replay = film.replay(10)
    obs, step = next(film.film(1))
    with pytest.raises(ShapeError, match="'image/front': expected"):
        replay.add(obs | {"image/front": obs["image/front"].float()}, step)


def test_a_data_set_of_rows_holds_no_images():
    film = Film(num_envs=1, seed=9)
    with pytest.raises(ConfigError, match="no images"):
        film.replay(10).export(MemorySegments())


def test_a_camera_that_shows_the_same_for_ever_costs_no_rows_of_other_envs():
    """Its frame is kept again before the others' frames reach it."""
    num_steps, group = 32, {"image/wrist": GROUPS["image/wrist"]}
    spec = make_spec(2, group)
    replay = ReplayBuffer(spec, ("image/wrist",), capacity=2 * num_steps, gamma=0.99)
    none, pictures = torch.zeros(2, dtype=torch.bool), torch.Generator().manual_seed(0)
    seen = torch.randint(0, 256, (2, 1, 2, 2, 1), generator=pictures).to(torch.uint8)
    for t in range(300):
        after = torch.randint(0, 256, seen.shape, generator=pictures).to(torch.uint8)
        after[0] = seen[0]  # of the first env nothing ever changes
        step = EnvStep(
            obs={"image/wrist": after}, next_obs={"image/wrist": after}, reward=torch.zeros(2),
            terminated=none, truncated=none, success=none, valid=~none, intervened=none,
            action=torch.zeros(2, 1),
        )  # fmt: skip
        replay.add({"image/wrist": seen}, step)
        seen = after
        assert len(replay) == 2 * min(t + 1, num_steps)
    drawn = replay.sample(64).obs["image/wrist"]
    assert bool((drawn == seen[0]).flatten(1).all(1).any())
