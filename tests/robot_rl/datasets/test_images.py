"""Images of cameras, stored as video: each frame in its place, to the last bit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robot_rl.cli.main import main
from robot_rl.core.env import GroupSpec
from robot_rl.core.errors import DatasetError
from robot_rl.datasets.edit import merge
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.files.manifest import MANIFEST
from robot_rl.datasets.files.parquet import read_all
from robot_rl.datasets.files.video import decode
from robot_rl.datasets.foreign.assembly import ImportChoices
from robot_rl.datasets.foreign.catalog import read_any
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.recorder import EpisodeRecorder, left_out, spec_of
from robot_rl.datasets.repair import repair
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import DatasetWriter
from tests.fakes import LinearWorld, ToyEnv
from tests.robot_rl.datasets.samples import SPEC, episode, same

SEEN = replace(SPEC, images={"front": (48, 64, 3), "wrist": (32, 32, 3), "depth": (15, 9, 1)})
VIDEO = Path("videos/observation.images.wrist/chunk-000/file-001.mp4")


def pictures(seed: int, frames: int, shape: tuple[int, ...]) -> np.ndarray:
    """Noise: the hardest for a codec."""
    return np.random.default_rng(seed).integers(0, 256, (frames, *shape), dtype=np.uint8)


def seen(seed: int, steps: int, spec: DatasetSpec = SEEN) -> Episode:
    images = {name: pictures(seed, steps + 1, shape) for name, shape in spec.images.items()}
    return episode(seed, steps, spec, images=images, source=f"camera {seed}")


TOLD = [seen(i, 4 + i) for i in range(5)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five episodes in three files."""
    with DatasetWriter.create(tmp_path / "set", SEEN) as writer:
        writer.add(TOLD[0])
        writer.add(*TOLD[1:4])
        writer.add(TOLD[4])
    return tmp_path / "set"


def equal(one: Episode, two: Episode) -> bool:
    """True where all is the same, images included."""
    for name, frames in two.images.items():
        assert one.images[name].dtype == np.uint8
        if not np.array_equal(one.images[name], frames):
            return False
    return same(one, two) and set(one.images) == set(two.images)


@pytest.mark.slow
def test_every_frame_comes_back_in_its_place(folder, tmp_path):
    merge([folder], tmp_path / "merged")
    merged = EpisodeDataset(tmp_path / "merged")
    assert all(equal(one, told) for one, told in zip(merged, TOLD, strict=True))
    dataset = EpisodeDataset(folder)
    assert dataset.spec == SEEN
    for number in (3, 0, 2, 4, 1):
        assert equal(dataset.episode(number), TOLD[number])
        assert not equal(dataset.episode(number), replace(TOLD[number], images=shifted(number)))


def shifted(number: int) -> dict[str, np.ndarray]:
    """The images of an episode, one frame late: what a wrong count would read."""
    return {name: np.roll(one, 1, axis=0) for name, one in TOLD[number].images.items()}


def test_the_layout_is_that_of_lerobot(folder):
    info = json.loads((folder / "meta/info.json").read_text())
    feature = info["features"]["observation.images.front"]
    assert (feature["dtype"], feature["shape"]) == ("video", [48, 64, 3])
    assert feature["info"]["video.fps"] == 50
    path = info["video_path"].format(
        video_key="observation.images.wrist", chunk_index=0, file_index=1
    )
    assert Path(path) == VIDEO
    table = read_all(folder / "meta/episodes/chunk-000/file-001.parquet")
    since = table["videos/observation.images.wrist/from_timestamp"]
    until = table["videos/observation.images.wrist/to_timestamp"]
    np.testing.assert_allclose(since, [0.0, 0.12, 0.26])  # 6, 7 and 8 frames at 50 Hz
    np.testing.assert_allclose(until, [0.12, 0.26, 0.42])
    assert list(table["videos/observation.images.wrist/file_index"]) == [1, 1, 1]


def test_without_images_nothing_is_decoded(folder):
    (folder / VIDEO).rename(folder / "elsewhere.mp4")
    dataset = EpisodeDataset(folder, images=False)
    assert dataset.episode(0).images == {}
    with pytest.raises(DatasetError, match="is missing"):
        dataset.episode(1)


@pytest.mark.parametrize("manifest", [True, False])
def test_a_damaged_video_costs_its_own_episodes_only(folder, manifest):
    content = bytearray((folder / VIDEO).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / VIDEO).write_bytes(content)
    with pytest.raises(DatasetError, match="SHA-256"):
        EpisodeDataset(folder).episode(2)
    if not manifest:
        (folder / MANIFEST).unlink()
    done = repair(folder)
    assert (done.episodes, len(done.lost)) == (2, 1)
    assert f"the video {folder / VIDEO} is damaged" in done.lost[0]
    saved = EpisodeDataset(done.folder)
    assert equal(saved.episode(0), TOLD[0])
    assert equal(saved.episode(1), TOLD[4])


def test_a_video_that_is_too_short_is_told(folder):
    short = folder / "videos/observation.images.wrist/chunk-000/file-000.mp4"
    assert len(decode(short, SEEN.rate, 3, 2)) == 2
    with pytest.raises(DatasetError, match="ends 7 frames too early"):
        decode(short, SEEN.rate, 3, 9)


def test_other_formats_take_the_episodes_without_their_images(folder, tmp_path, capsys):
    main(["data", "convert", str(folder), str(tmp_path / "set.npz")])
    assert "the images of front, wrist, depth are left out" in capsys.readouterr().out
    spec, back, _ = read_any(tmp_path / "set.npz", ImportChoices())
    assert spec == SPEC
    assert all(same(one, told) for one, told in zip(back, TOLD, strict=True))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"front": np.zeros((5, 48, 64, 3), np.float32)}, "is float32 of shape"),
        (
            {"front": np.zeros((4, 48, 64, 3), np.uint8)},
            r"expected uint8 of shape \(5, 48, 64, 3\)",
        ),
        ({"back": np.zeros((5, 48, 64, 3), np.uint8)}, "the cameras"),
    ],
)
def test_images_that_do_not_fit_are_refused(folder, changes, words):
    wrong = replace(TOLD[0], images={**TOLD[0].images, **changes})
    with DatasetWriter.append_to(folder) as writer, pytest.raises(DatasetError, match=words):
        writer.add(wrong)


def test_images_of_a_live_environment_are_recorded(tmp_path):
    world = LinearWorld(groups={
        "actor": GroupSpec(shape=(4,)),
        "image/wrist": GroupSpec(shape=(16, 16, 3), dtype=torch.uint8),
        "image/odd": GroupSpec(shape=(15, 17, 1), dtype=torch.uint8),
        "image/flow": GroupSpec(shape=(16, 16, 2), dtype=torch.uint8),
        "image/past": GroupSpec(shape=(2, 16, 16, 3), dtype=torch.uint8, stack=2),
    })  # fmt: skip
    env = ToyEnv(world, num_envs=2, limit=4)
    spec = spec_of(env.spec)
    assert dict(spec.images) == {"wrist": (16, 16, 3), "odd": (15, 17, 1), "past": (16, 16, 3)}
    assert list(left_out(env.spec)) == ["image/flow"]
    recorder = EpisodeRecorder(spec)
    obs = env.reset(seed=0)
    recorder.begin(obs)
    frames = [obs["image/wrist"][1].clone().numpy()]
    newest = [obs["image/past"][1, -1].clone().numpy()]
    found = []
    for _ in range(4):
        step = env.step(torch.zeros(2, 2))
        frames.append(step.next_obs["image/wrist"][1].clone().numpy())
        newest.append(step.next_obs["image/past"][1, -1].clone().numpy())
        found += recorder.add(step)
    one = next(each.episode for each in found if each.world == 1)
    np.testing.assert_array_equal(one.images["wrist"], np.stack(frames[: one.num_steps + 1]))
    np.testing.assert_array_equal(one.images["past"], np.stack(newest[: one.num_steps + 1]))
    with DatasetWriter.create(tmp_path / "set", spec) as writer:
        writer.add(one)
    (again,) = EpisodeDataset(tmp_path / "set")
    for name, images in one.images.items():
        np.testing.assert_array_equal(again.images[name], images)
