"""Which device a run lives on, on machines with and without CUDA."""

import pytest
import torch

from configs.builders import pick_device, run_device
from robot_rl.core.errors import DeviceError
from tests.compositions import composed

pytestmark = pytest.mark.slow


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that says it has two, of which the second is the present one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)


@pytest.mark.parametrize(
    ("chosen", "device"),
    [
        (["task=reach"], "cpu"),  # MuJoCo in C: nothing was asked for that it could refuse
        (["task=velocity", "robot=go2"], "cpu"),
        (["task=reach", "robot.engine=warp"], "cuda:1"),
        (["task=hover"], "cuda:1"),
        (["task=hover", "robot=x500"], "cuda:1"),
        (["env=gymnasium", "env.id=Hopper-v5"], "cuda:1"),
        (["task=reach", "device=cuda"], "cuda:1"),  # what is asked for is told, not passed over
        (["task=reach", "robot.engine=warp", "device=cuda:0"], "cuda:0"),
        (["task=hover", "device=cpu"], "cpu"),
    ],
)
def test_auto_is_the_gpu_where_the_worlds_can_live_there(two_gpus, chosen, device):
    assert run_device(composed(chosen).config) == torch.device(device)


def test_a_device_has_the_number_that_its_tensors_name(two_gpus):
    assert pick_device("auto") == pick_device("cuda") == torch.device("cuda:1")
    assert pick_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(DeviceError, match="this machine has 2 CUDA device"):
        pick_device("cuda:2")


def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == run_device(composed(["task=hover"]).config) == torch.device("cpu")
    with pytest.raises(DeviceError, match="finds no CUDA device"):
        pick_device("cuda")
