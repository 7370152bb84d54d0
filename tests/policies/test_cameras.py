"""A bundle of a policy that sees cameras keeps the frames as training did, and refuses others."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies.bundle import load_bundle, read_bundle
from policies.c99.source import write_c99
from policies.cameras import CameraInput, PixelContent
from policies.export import export_bundle
from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.frozen import CorrectedGraph, CorrectedPolicy, read_base
from policies.networks.images import (
    ImageConfig,
    ImageEncoder,
    ImageEncoderKind,
    ImagePolicy,
    ImageTrunk,
    KeypointEncoder,
)
from policies.networks.residual import FrozenBaseConfig, ResidualActor, ResidualActorConfig
from policies.runner import PolicyRunner
from robot_rl.core.action import ActionMap
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import BundleError, ConfigError, ShapeError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.pixels import brightness, depth_bytes
from robot_rl.core.robot_command import CommandKind
from tests.bases import frozen
from tests.policies.conftest import OBS_SIZE, TERMS, export_arguments, make_robot

FRONT = CameraInput(
    picture=[20, 24], crop=[2, 4, 12, 16], channels=["red", "green", "blue"], stack=3
)
WRIST = CameraInput(
    picture=[9, 9], crop=[0, 0, 9, 9], channels=["depth"], stack=1, near=0.1, far=0.5
)
CAMERAS = {"front": FRONT, "wrist": WRIST}


GROUPS = {f"image/{n}": GroupSpec(shape=c.shape, dtype=torch.uint8) for n, c in CAMERAS.items()}
SPEC = EnvSpec(
    num_envs=2, device=torch.device("cpu"), action_size=4, control_dt=0.01,
    groups={"actor": GroupSpec(shape=(OBS_SIZE,)), **GROUPS},
)  # fmt: skip


def image_policy(kind: ImageEncoderKind = ImageEncoderKind.conv) -> ImagePolicy:
    torch.manual_seed(0)
    encoder = ImageEncoder(ImageConfig(encoder=kind, channels=[8, 8], strides=[2, 1]), SPEC)
    actor = DeterministicActor(
        DeterministicActorConfig(hidden=[16]), OBS_SIZE, 4, trunk=ImageTrunk(encoder.sizes, 5)
    )
    return ImagePolicy(encoder, actor, actor.groups)


POLICY = image_policy()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "seeing"
    return export_bundle(folder, **export_arguments(policy=POLICY, cameras=CAMERAS))


def pictures(count: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        name: random.integers(0, 256, (count, *camera.picture, len(camera.channels)), np.uint8)
        for name, camera in CAMERAS.items()
    }


def act(runner: PolicyRunner, seen: dict[str, Any], seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    count = len(runner.last_action)
    state = {
        name: random.standard_normal((count, width)).astype(np.float32)
        for name, width in runner.spec.robot.state_widths.items()
    }
    goal = {"position_w": np.zeros((count, 3), np.float32)}
    runner.act(RobotState(state), goal, pictures=seen)
    return runner.last_action


def expected(
    runner: PolicyRunner, fronts: list[Tensor], wrist: Any, policy: nn.Module = POLICY
) -> np.ndarray:
    """Result of torch with the cropped frames of a film."""
    obs = {
        "actor": torch.from_numpy(runner.last_observation.copy()),
        "image/front": torch.stack([f[:, 2:14, 4:20] for f in fronts], dim=1),
        "image/wrist": torch.from_numpy(wrist)[:, None],
    }
    with torch.no_grad():
        return policy(obs).numpy()


def film(count: int, resets: dict[int, int]) -> Iterator[tuple[dict[str, Any], np.ndarray, Any]]:
    """Pictures, mask of the episodes that begin, and the last three front pictures."""
    stacks: list[Tensor] = []
    for t in range(9):
        seen = pictures(count, seed=t)
        mask = np.array([t == 0 or resets.get(t) == robot for robot in range(count)])
        newest = torch.from_numpy(seen["front"])
        stacks = [*stacks, newest][-3:] if stacks else [newest] * 3
        fresh = torch.from_numpy(mask)[:, None, None, None]
        stacks = [torch.where(fresh, newest, frame) for frame in stacks]
        yield seen, mask, stacks


def test_a_bundle_acts_as_torch_with_whole_and_with_cropped_pictures(written):
    whole, cropped = (load_bundle(written, num_robots=2, pictures=True) for _ in range(2))
    for t, (seen, mask, fronts) in enumerate(film(2, {4: 1, 7: 0})):
        for runner in (whole, cropped):
            runner.reset(mask)
        action = act(whole, seen, t)
        part = {**seen, "front": np.ascontiguousarray(seen["front"][:, 2:14, 4:20])}
        assert np.array_equal(act(cropped, part, t), action)
        assert np.abs(action - expected(whole, fronts, seen["wrist"])).max() < 1e-5


def seeing_residual() -> ImagePolicy:
    """A correction that sees the front camera alone, and corrects by much."""
    torch.manual_seed(1)
    images = ImageConfig(
        encoder=ImageEncoderKind.conv, channels=[8, 8], strides=[2, 1], cameras=["front"]
    )
    encoder = ImageEncoder(images, SPEC)
    config = ResidualActorConfig(hidden=[16], scale=0.5)
    actor = ResidualActor(config, OBS_SIZE, 4, ImageTrunk(encoder.sizes, 5))
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.normal_(std=0.5)
    return ImagePolicy(encoder, actor, actor.groups)


@pytest.mark.parametrize("sees", [True, False])
def test_a_correction_of_a_base_that_sees_is_one_bundle(tmp_path, written, sees):
    base = frozen([written / "policy.onnx"], SPEC, 2)
    assert base.groups == ("actor", "image/front", "image/wrist")
    seeing = seeing_residual()
    blind = ResidualActor(ResidualActorConfig(hidden=[16], scale=0.5), OBS_SIZE, 4)
    policy = CorrectedPolicy(seeing if sees else blind, base).eval()
    graph = CorrectedGraph(policy.actor, base.policies, base.action_size)
    folder = export_bundle(tmp_path / "corrected", **export_arguments(
        policy=graph, initial_state=graph.initial_state, cameras=CAMERAS,
        inner=[one.onnx for one in base.policies],
    ))  # fmt: skip
    runner = load_bundle(folder, num_robots=2, pictures=True)
    base_alone = load_bundle(written, num_robots=2, pictures=True)
    for t, (seen, mask, fronts) in enumerate(film(2, {4: 1, 7: 0})):
        runner.reset(mask)
        policy.begin(torch.from_numpy(mask))
        action = act(runner, seen, t)
        assert np.abs(action - expected(runner, fronts, seen["wrist"], policy)).max() < 1e-5
        if t == 0:  # then their last actions, which both observe, part
            corrected = float(np.abs(action - act(base_alone, seen, t)).max())
            assert corrected > 0.1 if sees else corrected < 1e-5, "an untrained one changes nothing"


def test_worlds_without_the_camera_of_a_base_are_refused(written):
    drawn = {name: group for name, group in SPEC.groups.items() if name != "image/wrist"}
    with pytest.raises(SpecMismatchError, match=r"sees the cameras wrist, and .* draw image/front"):
        frozen([written / "policy.onnx"], replace(SPEC, groups=drawn), 2)
    small = GroupSpec(shape=(1, 4, 4, 1), dtype=torch.uint8)
    other = replace(SPEC, groups={**SPEC.groups, "image/wrist": small})
    with pytest.raises(SpecMismatchError, match=r"expected actor .*image/wrist \(N, 1, 4, 4, 1\)"):
        frozen([written / "policy.onnx"], other, 2)


def test_a_base_of_other_cameras_is_refused(written):
    config = FrozenBaseConfig(paths=[str(written)])
    spec = replace(SPEC, control_dt=0.01, robot=make_robot())
    read_base(config, spec, TERMS, CAMERAS)
    for changed, why in (
        (replace(FRONT, channels=["blue", "green", "red"]), "of channels"),
        (replace(FRONT, crop=[0, 0, 12, 16]), "of crop"),
        (replace(FRONT, latency=0.1), "of latency 0.0, and that of these worlds has 0.1"),
    ):
        with pytest.raises(SpecMismatchError, match=f"trained with a camera 'front' {why}"):
            read_base(config, spec, TERMS, {**CAMERAS, "front": changed})
    read_base(config, spec, TERMS, {**CAMERAS, "front": replace(FRONT, period=0.01)})  # untold


def test_the_spec_says_how_frames_must_look(written):
    spec = json.loads((written / "spec.json").read_bytes())["policy"]
    assert spec["cameras"]["front"] == {
        "picture": [20, 24], "crop": [2, 4, 12, 16], "channels": ["red", "green", "blue"],
        "stack": 3, "near": 0.0, "far": 0.0, "period": 0.0, "latency": 0.0, "field_of_view": 0.0,
    }  # fmt: skip
    told, network = read_bundle(written, verify=True)
    assert told.cameras == CAMERAS
    shapes = {node.name: node.shape[1:] for node in network.get_inputs()}
    assert shapes["image/front"] == [3, 12, 16, 3]


def test_keypoints_tell_where_something_is_to_a_fraction_of_a_pixel():
    group = GroupSpec(shape=(1, 21, 41, 3), dtype=torch.uint8)
    config = ImageConfig(encoder=ImageEncoderKind.keypoints, channels=[2], strides=[2])
    encoder = KeypointEncoder("image/front", group, config)
    layer = encoder.layers[0]
    assert isinstance(layer, torch.nn.Conv2d)
    with torch.no_grad():  # the first channel looks for red, the second for what is not blue
        layer.weight.zero_()
        layer.weight[0, 0], layer.weight[1, 2] = 10.0, -10.0

    def seen(row: int, column: int, width: int) -> list[float]:
        image = torch.zeros(1, *group.shape, dtype=torch.uint8)
        image[..., 2] = 255
        image[0, 0, row, column : column + width] = torch.tensor([255, 0, 0], dtype=torch.uint8)
        return encoder(image).tolist()[0]

    # Kernels stand at the pixels 1, 3, ... 19 of 21, and to 39 of 41.
    row, column = (5 - 10) / 9, (17 - 20) / 19
    assert seen(5, 17, 1) == pytest.approx([row, column] * 2, abs=1e-3)
    assert seen(5, 17, 3) == pytest.approx([row, column + 1 / 19] * 2, abs=1e-3)


KINDS = [ImageEncoderKind.resnet, ImageEncoderKind.keypoints, ImageEncoderKind.vit]


@pytest.mark.parametrize("kind", KINDS)
def test_other_encoders_are_written_as_they_act(tmp_path, kind):
    policy = image_policy(kind)
    export_bundle(tmp_path / "seeing", **export_arguments(policy=policy, cameras=CAMERAS))


def test_sharp_keypoints_whose_sums_round_otherwise_are_written(tmp_path):
    """Policies that swing a cart-pole up had no bundle: ONNX differed by 1.5e-5 to 3e-4."""
    policy = image_policy(ImageEncoderKind.keypoints)
    with torch.no_grad():
        for module in policy.modules():
            if isinstance(module, KeypointEncoder):
                module.sharpness.mul_(2000.0)
    folder = export_bundle(tmp_path / "sharp", **export_arguments(policy=policy, cameras=CAMERAS))
    far = ActionMap(kind=CommandKind.rotors, low=[0.0] * 4, high=[2e4] * 4)
    export_bundle(
        tmp_path / "far", **export_arguments(policy=policy, cameras=CAMERAS, action_map=far)
    )
    runner = load_bundle(folder, pictures=True)
    assert runner.spec.cameras == CAMERAS


def test_who_hands_no_pictures_is_told_so(written, tmp_path):
    with pytest.raises(SpecMismatchError, match="sees the cameras front, wrist, and nothing here"):
        load_bundle(written)
    with pytest.raises(SpecMismatchError, match="nothing here hands it pictures"):
        write_c99(written, tmp_path / "c", "seeing")
    runner = load_bundle(written, pictures=True)
    with pytest.raises(SpecMismatchError, match=r"pictures of the camera 'wrist', .*given: front"):
        act(runner, {"front": pictures(1, 0)["front"]})


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((1, 20, 24, 3), np.float32),
        np.zeros((1, 24, 20, 3), np.uint8),
        np.zeros((2, 20, 24, 3), np.uint8),
    ],
)
def test_pictures_of_another_shape_or_type_are_refused(written, wrong):
    runner = load_bundle(written, pictures=True)
    with pytest.raises(ShapeError, match=r"camera 'front': expected uint8 pictures \(1, 20, 24, 3"):
        act(runner, {**pictures(1, 0), "front": wrong})


@pytest.mark.parametrize(
    "changes",
    [
        {"crop": [10, 4, 12, 16]}, {"crop": [0, 0, 0, 5]}, {"stack": 0}, {"channels": []},
        {"picture": [4000, 4000]}, {"crop": [0, 0]}, {"stack": 10**9},
    ],
)  # fmt: skip
def test_a_camera_that_cannot_be_is_refused(changes):
    with pytest.raises(ConfigError, match=r"policy\.cameras\.front"):
        replace(FRONT, **changes).check("front")


def test_damaged_golden_frames_are_found(written, tmp_path):
    bundle = Path(shutil.copytree(written, tmp_path / "seeing"))
    raw = bytearray((bundle / "golden.npz").read_bytes())
    raw[len(raw) // 2] ^= 1
    (bundle / "golden.npz").write_bytes(raw)
    with pytest.raises(BundleError, match=r"golden\.npz is not what was exported"):
        load_bundle(bundle, pictures=True)


SMALL = np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)


def test_a_picture_of_the_trained_size_is_only_put_in_order():
    turned = replace(FRONT, channels=["blue", "green", "red"])
    colour = PixelContent.colour
    assert np.array_equal(FRONT.whole_picture(SMALL, colour), SMALL)
    assert np.array_equal(turned.whole_picture(SMALL, colour), SMALL[..., ::-1])
    dull = replace(FRONT, channels=["brightness"])
    assert np.array_equal(dull.whole_picture(SMALL, colour), brightness(SMALL))
    assert np.array_equal(dull.whole_picture(SMALL[..., :1], PixelContent.grey), SMALL[..., :1])


def test_a_larger_picture_of_the_same_shape_is_made_smaller():
    twice = SMALL.repeat(2, axis=0).repeat(2, axis=1)
    assert np.array_equal(FRONT.whole_picture(twice, PixelContent.colour), SMALL)
    depth = np.linspace(0.05, 0.6, 81, dtype=np.float32).reshape(9, 9, 1)
    thrice = depth.repeat(3, axis=0).repeat(3, axis=1)
    one, three = (WRIST.whole_picture(each, PixelContent.depth) for each in (depth, thrice))
    assert np.array_equal(one, three)
    assert np.array_equal(one, depth_bytes(depth, 0.1, 0.5))


@pytest.mark.parametrize(
    ("pixels", "content", "error", "why"),
    [
        (SMALL[:12, :16], PixelContent.colour, ShapeError, "have 16 x 12 pixels.* with 24 x 20"),
        (np.zeros((40, 40, 3), np.uint8), PixelContent.colour, ShapeError, "40 x 40 pixels"),
        (SMALL[..., :1], PixelContent.grey, SpecMismatchError, "hold grey.* red, green, blue"),
        (SMALL[..., :1], PixelContent.depth, SpecMismatchError, "hold depth"),
    ],
)
def test_pictures_of_another_size_shape_or_content_are_refused(pixels, content, error, why):
    with pytest.raises(error, match=why):
        FRONT.whole_picture(pixels, content)


@pytest.mark.parametrize(
    "changes", [{"period": -0.1}, {"latency": float("nan")}, {"field_of_view": 4.0}]
)
def test_a_camera_of_impossible_times_or_angles_is_refused(changes):
    with pytest.raises(ConfigError, match="period and latency of 0 s or more"):
        replace(FRONT, **changes).check("front")
