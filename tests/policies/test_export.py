"""Export writes the policy that torch runs, whole or not at all."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies import export
from policies.bundle import load_bundle, replay
from policies.export import export_bundle
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import (
    BundleError,
    ConfigError,
    MissingExtraError,
    ShapeError,
    SpecMismatchError,
    StorageError,
)
from tests.matrices import some
from tests.policies.conftest import SmallPolicy, export_arguments
from tests.policies.test_bundle import GOAL, measured

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@pytest.fixture
def network(exported, monkeypatch):
    """ONNX of the policy as it was written before: writing it takes most of an export's time."""
    monkeypatch.setattr(export, "_to_onnx", lambda *_: (exported / "policy.onnx").read_bytes())


def test_recurrent_state_is_kept_and_starts_anew(tmp_path):
    initial = [0.5, -0.5, 0.0]
    policy = SmallPolicy(29, 4, memory=3)
    folder = export_bundle(
        tmp_path / "b", **export_arguments(policy=policy, initial_state=initial, seed=5)
    )
    with np.load(folder / "golden.npz") as archive:
        golden = dict(archive)
    got = replay(load_bundle(folder, num_robots=4), golden)
    np.testing.assert_allclose(got["action"], golden["action"], atol=1e-5)
    # The same by hand for world 1, which starts anew at step 6.
    state = torch.tensor([initial])
    for t in range(8):
        if t == 6:
            state = torch.tensor([initial])
        with torch.no_grad():
            obs = torch.from_numpy(golden["observation"][t, 1:2])
            action, state = policy({"actor": obs}, state)
        np.testing.assert_allclose(golden["action"][t, 1:2], action.numpy(), atol=1e-6)
    check_rehearsal(folder)


def check_rehearsal(folder: Path, recurrent: bool = True) -> None:
    plain, rehearsing = load_bundle(folder), load_bundle(folder)
    rng = np.random.default_rng(0)
    for step in range(6):
        if step == 4:
            plain.reset()
            rehearsing.reset()
        state = measured(linear_velocity_w=rng.normal(size=(1, 3)))
        expected = plain.act(state, GOAL)
        command = rehearsing.act(state, GOAL)
        np.testing.assert_array_equal(vars(command)["speed"], vars(expected)["speed"])
        np.testing.assert_array_equal(rehearsing.last_observation, plain.last_observation)
        again = rehearsing.rehearse()
        if not recurrent:  # else the network has another memory already
            np.testing.assert_array_equal(vars(again)["speed"], vars(expected)["speed"])
        rehearsing.rehearse()


def test_a_rehearsal_does_the_same_and_is_not_remembered(exported):
    check_rehearsal(exported, recurrent=False)


def test_export_is_silent_replaces_an_older_bundle_and_leaves_the_policy_alone(
    bundle, exported, capfd
):
    policy = export_arguments()["policy"].train()
    export_bundle(bundle, **export_arguments(policy=policy, control_dt=0.005))
    assert capfd.readouterr() == ("", "")
    assert policy.training
    assert all(parameter.requires_grad for parameter in policy.parameters())
    load_bundle(bundle, control_dt=0.005)
    assert [path.name for path in bundle.parent.iterdir()] == ["hover"]
    # The same seed draws the same golden sequences.
    assert (bundle / "golden.npz").read_bytes() == (exported / "golden.npz").read_bytes()


def test_provenance_and_network_tell_nothing_about_the_machine(exported):
    provenance = json.loads((exported / "provenance.json").read_text())
    assert provenance["seed"] == 7
    assert {"torch", "onnxruntime", "numpy", "python"} <= provenance["versions"].keys()
    assert str(Path(__file__).parents[2]).encode() not in (exported / "policy.onnx").read_bytes()


@pytest.mark.parametrize("kill_at", some([3], [0, 1, 4]))
def test_killed_export_leaves_the_older_bundle_and_no_false_one(
    bundle, network, monkeypatch, kill_at
):
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        if len(synced) == kill_at:
            raise Killed
        synced.append(descriptor)

    def rename(self: Path, target: Path) -> None:
        raise Killed

    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)  # a kill cleans nothing
    with pytest.raises(Killed):
        export_bundle(bundle, **export_arguments(control_dt=0.005))
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
    load_bundle(bundle, control_dt=0.01)
    (leftover,) = (path for path in bundle.parent.iterdir() if path != bundle)
    assert leftover.name.startswith(".")
    with pytest.raises(BundleError, match="left by an export that did not finish"):
        load_bundle(leftover)


def test_failed_last_step_puts_the_older_bundle_back(bundle, network, monkeypatch):
    rename = Path.rename

    def fail_for_draft(self: Path, target: Path) -> Path:
        if self.suffix == ".partial":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_draft)
    with pytest.raises(StorageError, match="cannot be written: No space left on device"):
        export_bundle(bundle, **export_arguments(control_dt=0.005))
    load_bundle(bundle, control_dt=0.01)
    assert [path.name for path in bundle.parent.iterdir()] == ["hover"]


def test_full_disk_leaves_nothing_behind(tmp_path, network, monkeypatch):
    def fsync(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match="No space left on device; free space"):
        export_bundle(tmp_path / "b", **export_arguments())
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_no_bundle_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BundleError, match="exists and is not a policy bundle"):
        export_bundle(tmp_path, **export_arguments())
    assert (tmp_path / "thesis.tex").exists()


def test_a_folder_with_a_spec_of_somebody_else_is_never_replaced(tmp_path):
    """A folder with any spec.json was replaced, and all that lay in it was gone."""
    (tmp_path / "spec.json").write_text("{}")
    with pytest.raises(BundleError, match="exists and is not a policy bundle"):
        export_bundle(tmp_path, **export_arguments())
    assert (tmp_path / "spec.json").read_text() == "{}"


def test_a_bundle_with_strangers_beside_it_is_never_replaced(bundle):
    (bundle / "sub").mkdir()
    (bundle / "sub" / "keep.txt").write_text("years of work")
    (bundle / "notes.md").write_text("more")
    before = (bundle / "spec.json").read_bytes()
    with pytest.raises(BundleError, match=r"holds notes\.md, sub beside .* give another path"):
        export_bundle(bundle, **export_arguments())
    assert (bundle / "sub" / "keep.txt").read_text() == "years of work"
    assert (bundle / "spec.json").read_bytes() == before


def test_every_file_of_an_export_may_be_replaced(bundle, network):
    written = {path.name for path in bundle.iterdir()}
    (bundle / "golden.npz").unlink()  # a damaged one is written anew
    export_bundle(bundle, **export_arguments())
    assert {path.name for path in bundle.iterdir()} == written
    assert [path.name for path in bundle.parent.iterdir()] == [bundle.name]


def test_files_that_come_while_a_bundle_is_replaced_are_not_deleted(bundle, network, monkeypatch):
    rename = Path.rename

    def with_a_late_file(self: Path, target: Path) -> Path:
        if self == bundle:
            (bundle / "late.txt").write_text("mine")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", with_a_late_file)
    export_bundle(bundle, **export_arguments())
    load_bundle(bundle, control_dt=0.01)
    (left,) = bundle.parent.rglob("late.txt")
    assert left.read_text() == "mine"


class Answer(nn.Module):
    def __init__(self, value: float, size: int = 4) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.full((size,), value))

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        return self.value + 0 * obs["actor"][:, :1]


class Branch(nn.Module):
    """Decides on a value in Python, which no graph can hold."""

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        actor = obs["actor"]
        return torch.tanh(actor[:, :4] if float(actor.sum()) > 0 else actor[:, 4:8])


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"policy": Answer(1.5)}, BundleError, r"action 1.5 leaves \[-1, 1\]"),
        ({"policy": Answer(float("nan"))}, BundleError, r"nan leaves \[-1, 1\] or is not a number"),
        ({"policy": Answer(0.0, size=3)}, BundleError, r"shape \(4, 3\), expected \(4, 4\)"),
        ({"policy": Branch()}, BundleError, "torch cannot write this policy as ONNX: .*; use"),
        ({"initial_action": [0.0]}, ShapeError, r"expected 4 entries .*, got 1"),
        ({"control_dt": 0.0}, ConfigError, "control_dt must be a time above 0"),
        ({"goal_widths": {}}, SpecMismatchError, "reads the goal 'position_w'"),
        (
            {"action_map": ActionMap(low=[0] * 3, high=[1] * 3), "initial_action": [0.0] * 3},
            SpecMismatchError,
            "has 3 entries, but a 'rotors' command",
        ),
    ],
)
def test_what_cannot_be_deployed_is_not_written(tmp_path, changes, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        export_bundle(tmp_path / "b", **export_arguments(**changes))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_network_that_onnxruntime_runs_differently_is_refused(tmp_path, network, monkeypatch):
    monkeypatch.setattr(export, "ONNX_TOLERANCE", -1.0)
    with pytest.raises(BundleError, match=r"differs from torch by .*nothing was written"):
        export_bundle(tmp_path / "b", **export_arguments())
    assert list(tmp_path.iterdir()) == []


def test_missing_exporter_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "EXPORT_PACKAGES", ("onnx_that_is_absent",))
    with pytest.raises(MissingExtraError, match=r"robot_rl\[train\]"):
        export_bundle(tmp_path / "b", **export_arguments())
