"""A bundle deploys without torch, finds damage, and refuses robots that it was not made for."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.bundle import SEALED_FILES, load_bundle, replay, seal
from robot_rl.core.errors import BundleError, NonFiniteError, ShapeError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import RotorCommand
from tests.policies.conftest import make_robot

ROOT = Path(__file__).parents[2]
GOAL = {"position_w": np.array([[0.0, 0.0, 1.0]])}


def measured(num_robots: int = 1, **changes: Any) -> RobotState:
    values = {
        "position_w": np.full((num_robots, 3), 0.1),
        "orientation_w": np.tile([1.0, 0.0, 0.0, 0.0], (num_robots, 1)),
        "linear_velocity_w": np.full((num_robots, 3), 0.2),
        "angular_velocity_b": np.zeros((num_robots, 3)),
        "joint_position": np.zeros((num_robots, 2)),
    }
    return RobotState(values | changes)


def golden_of(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "golden.npz", allow_pickle=False) as archive:
        return dict(archive)


def reseal(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite spec.json with a valid digest, as another version of robot_rl would have."""
    policy = json.loads((folder / "spec.json").read_text())["policy"]
    change(policy)
    files = {name: (folder / name).read_bytes() for name in SEALED_FILES}
    (folder / "spec.json").write_bytes(seal(policy, files))


def rewrite_golden(folder: Path, golden: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **golden)
    (folder / "golden.npz").write_bytes(buffer.getvalue())
    reseal(folder, lambda policy: None)


DEPLOY = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "mujoco", "warp", "onnx", "onnxscript"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
import numpy as np
from policies.bundle import load_bundle
from robot_rl.core.observation import RobotState
runner = load_bundle(sys.argv[1], control_dt=0.01)
widths = runner.spec.robot.state_widths
state = RobotState({name: np.full((1, width), 0.5) for name, width in widths.items()})
for _ in range(3):
    command = runner.act(state, {"position_w": np.zeros((1, 3))})
assert command.speed.shape == (1, 4) and "torch" not in sys.modules
print("deployed")
"""


@pytest.mark.slow
def test_bundle_loads_and_runs_where_torch_cannot_be_imported(exported):
    done = subprocess.run(
        [sys.executable, "-c", DEPLOY, str(exported)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "deployed\n"), done.stderr


@pytest.mark.parametrize("name", ["spec.json", *SEALED_FILES])
def test_every_damage_is_refused_and_names_the_file(bundle, name):
    raw, rng = (bundle / name).read_bytes(), np.random.default_rng(0)
    damaged = [raw[:-1], raw + b"\0", b""] if name != "spec.json" else []
    for position in [0, len(raw) - 1, *rng.integers(len(raw), size=60)]:
        flipped = bytearray(raw)
        flipped[position] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(flipped))
    for content in damaged:
        (bundle / name).write_bytes(content)
        with pytest.raises(BundleError, match=f"damaged: {re.escape(name)}"):
            load_bundle(bundle, verify=False)


def test_what_is_not_a_bundle_of_this_version_is_refused(tmp_path, bundle, monkeypatch):
    with pytest.raises(BundleError, match=r"not a policy bundle: it has no spec\.json"):
        load_bundle(tmp_path)
    with pytest.raises(BundleError, match="not a policy bundle: it is not a folder"):
        load_bundle(tmp_path / "nowhere")
    with monkeypatch.context() as patch:
        patch.setattr("policies.bundle.SCHEMA_VERSION", 2)
        with pytest.raises(BundleError, match=r"has schema version 1, .* reads version 2"):
            load_bundle(bundle)
    (bundle / "policy.onnx").unlink()
    with pytest.raises(BundleError, match=r"lacks a readable policy\.onnx"):
        load_bundle(bundle)


def test_another_robot_or_control_period_is_refused(exported):
    load_bundle(exported, robot=make_robot(), verify=False)
    other = make_robot(rotors=["left", "front", "back", "right"])
    with pytest.raises(SpecMismatchError, match="rotor order"):
        load_bundle(exported, robot=other, verify=False)
    with pytest.raises(SpecMismatchError, match=r"period of 0.01 s, .* 0.02 s; .* at 100 Hz"):
        load_bundle(exported, control_dt=0.02, verify=False)


def term(place: int, **changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda policy: policy["groups"]["actor"][place].update(changes)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (term(2, term="linear_velocity_q"), BundleError, "did you mean 'linear_velocity_w'"),
        (term(1, width=6), SpecMismatchError, "'orientation_matrix' is 9 wide here, but was 6"),
        (lambda policy: policy.update(chunk_length=8), BundleError,
         r"chunks of 8 actions .* the network gives \{'action': .*, 4\]\)\}"),
        # What the spec alone cannot tell is found by the replay.
        (term(0, scale=0.51), BundleError,
         r"'position_error_w' \(3 entries, 1 frames\) is off by"),
        (lambda policy: policy["action_map"].update(high=[0.9, 0.9, 0.9, 0.8]), BundleError,
         "golden replay differs: command/speed is off by"),
    ],
)  # fmt: skip
def test_a_sealed_spec_that_does_not_fit_its_policy_is_refused(bundle, change, error, sentence):
    reseal(bundle, change)
    with pytest.raises(error, match=sentence):
        load_bundle(bundle)


def test_nothing_is_unpickled(bundle):
    rewrite_golden(bundle, golden_of(bundle) | {"reset": np.array([{"a": 1}], dtype=object)})
    with pytest.raises(BundleError, match=r"golden\.npz cannot be read"):
        load_bundle(bundle)


def test_runner_repeats_torch_step_by_step_through_a_reset(exported):
    golden = golden_of(exported)
    assert golden["reset"][1:].any()
    got = replay(load_bundle(exported, num_robots=golden["reset"].shape[1]), golden)
    for name in ("observation", "action", "command/speed"):
        np.testing.assert_allclose(got[name], golden[name], atol=1e-5)
    single = {name: values[:, 1:2] for name, values in golden.items()}  # one robot among many
    alone = replay(load_bundle(exported), single)["action"]
    np.testing.assert_allclose(alone, single["action"], atol=1e-5)


def test_accepted_command_is_the_next_last_action(exported):
    runner = load_bundle(exported)
    runner.act(measured(), GOAL)
    runner.accept(RotorCommand(speed=np.array([[0.1, 0.9, 0.5, 2.0]], np.float32)))
    np.testing.assert_allclose(runner.last_action, [[-1, 1, 0, 1]], atol=1e-6)
    runner.act(measured(), GOAL)
    np.testing.assert_allclose(runner.last_observation[0, -4:], [-1, 1, 0, 1], atol=1e-6)


def test_non_finite_measurement_names_term_and_robot(exported):
    runner = load_bundle(exported, num_robots=3)
    velocity = np.zeros((3, 3))
    velocity[2, 1] = np.nan
    goal = {"position_w": np.zeros((3, 3))}
    with pytest.raises(NonFiniteError, match="'linear_velocity_w' of robot 2 is nan"):
        runner.act(measured(3, linear_velocity_w=velocity), goal)
    runner.reset()
    assert np.isfinite(vars(runner.act(measured(3), goal))["speed"]).all()


def test_missing_and_misshapen_inputs_are_named(exported):
    runner = load_bundle(exported)
    with pytest.raises(SpecMismatchError, match=r"needs the goal 'position_w', .*: nothing"):
        runner.act(measured(), {})
    with pytest.raises(SpecMismatchError, match=r"state field 'position_w', .*: joint_position"):
        runner.act(RobotState({"joint_position": np.zeros((1, 2))}), GOAL)
    with pytest.raises(ShapeError, match=r"expected shape \(1, 3\) .*, got \(2, 3\)"):
        runner.act(measured(), {"position_w": np.zeros((2, 3))})
