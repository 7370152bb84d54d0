"""Vision models out of folders, as encoders: read, trained or left alone, exported, refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from policies.bundle import load_bundle
from policies.export import export_bundle
from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.images import (
    ImageConfig,
    ImageEncoder,
    ImageEncoderKind,
    ImagePolicy,
    ImageTrunk,
)
from policies.networks.pretrained import PretrainedModel, _colours
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import ConfigError
from robot_rl.learners.images import ImageLearning
from robot_rl.learners.optimization import Optimizer
from robot_rl.learners.sac import SACConfig
from tests.policies.conftest import OBS_SIZE, export_arguments
from tests.policies.test_cameras import CAMERAS
from tests.vision_models import save_model, small_model

pytestmark = pytest.mark.slow

EYE = GroupSpec(shape=(2, 20, 24, 3), dtype=torch.uint8, stack=2)
SPEC = EnvSpec(
    num_envs=1, device=torch.device("cpu"), groups={"image/eye": EYE}, action_size=1, control_dt=0.1
)


def config(weights: str, **settings: Any) -> ImageConfig:
    return ImageConfig(encoder=ImageEncoderKind.pretrained, weights=weights, **settings)


@pytest.mark.parametrize(("kind", "places"), [("vit", 5), ("resnet", 9)])
def test_features_are_those_of_the_model_frame_by_frame(tmp_path, kind, places):
    encoder = ImageEncoder(config(save_model(tmp_path, kind)), SPEC).train()
    images = torch.randint(0, 256, (3, *EYE.shape), dtype=torch.uint8)
    got = encoder({"image/eye": images})["image/eye"].unflatten(1, (2, 8, 16))
    model = small_model(kind).from_pretrained(tmp_path).eval()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    for stack in range(2):
        frame = ((images[:, stack] / 255 - mean) / std).permute(0, 3, 1, 2)
        if kind == "vit":  # the size that it was made for
            frame = nn.functional.interpolate(frame, (16, 16), mode="bilinear")
            found = model(frame).last_hidden_state.transpose(1, 2)
        else:
            found = model(frame).last_hidden_state.flatten(2)
        assert found.shape[1:] == (16, places)
        kernel = next(iter(encoder.cameras.values())).kernel
        expected = torch.einsum("bcp,ecp->bec", found, kernel)
        assert torch.allclose(got[:, stack], expected, atol=1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_model_stays_and_its_embeddings_are_trained(tmp_path, frozen):
    learning = ImageLearning(config(save_model(tmp_path, "resnet"), frozen=frozen), SPEC)
    optimizer = Optimizer(learning.params(of_actor=False), 0.1, SACConfig())
    assert (len(optimizer.params) == 1) is frozen
    before = {name: one.clone() for name, one in learning.encoder.state_dict().items()}
    images = torch.randint(0, 256, (3, *EYE.shape), dtype=torch.uint8)
    optimizer.step(learning.encoder({"image/eye": images})["image/eye"].square().sum())
    moved = [n for n, one in learning.encoder.state_dict().items() if not one.equal(before[n])]
    assert "cameras.image/eye.kernel" in moved
    assert (len(moved) == 1) is frozen
    assert not any("running" in name for name in moved), "batch norm is that of evaluation"


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_weights_in_half_precision_are_read_in_single(tmp_path, kind):
    small_model(kind).half().save_pretrained(tmp_path)
    model = PretrainedModel(str(tmp_path), frozen=False)
    assert {param.dtype for param in model.parameters()} == {torch.float32}
    assert model(torch.rand(2, 3, 16, 16)).dtype is torch.float32


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_a_policy_behind_it_is_one_bundle(tmp_path, kind):
    groups = {
        f"image/{name}": GroupSpec(shape=one.shape, dtype=torch.uint8)
        for name, one in CAMERAS.items()
    }
    spec = EnvSpec(num_envs=1, device=SPEC.device, groups=groups, action_size=4, control_dt=0.01)
    encoder = ImageEncoder(config(save_model(tmp_path / "model", kind)), spec)
    actor = DeterministicActor(
        DeterministicActorConfig(hidden=[16]), OBS_SIZE, 4, trunk=ImageTrunk(encoder.sizes, 5)
    )
    policy = ImagePolicy(encoder, actor, actor.groups)
    folder = export_bundle(tmp_path / "bundle", **export_arguments(policy=policy, cameras=CAMERAS))
    assert np.isfinite(load_bundle(folder, pictures=True).last_action).all()


def test_colours_are_left_alone_where_the_file_says_so(tmp_path):
    told = {"do_normalize": False, "image_mean": [0.5] * 3, "image_std": [0.2] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(told))
    assert _colours(tmp_path) == ([0.0] * 3, [1.0] * 3)


def test_what_is_no_vision_model_is_refused(tmp_path):
    from transformers import BertConfig, BertModel

    with pytest.raises(ConfigError, match=r"got learner.images.weights=\(nothing\)"):
        PretrainedModel("", frozen=True)
    with pytest.raises(ConfigError, match=r"with config.json and model.safetensors; got .*nowhere"):
        PretrainedModel(str(tmp_path / "nowhere"), frozen=True)
    words = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        vocab_size=20,
    )  # fmt: skip
    BertModel(words).save_pretrained(tmp_path / "words")
    with pytest.raises(ConfigError, match="a BertModel, which reads input_ids; expected a model"):
        PretrainedModel(str(tmp_path / "words"), frozen=True)
    damaged = Path(save_model(tmp_path / "damaged", "resnet"))
    (damaged / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match="damaged: transformers cannot read it"):
        PretrainedModel(str(damaged), frozen=True)
    other = Path(save_model(tmp_path / "other", "vit"))
    (other / "config.json").write_bytes((damaged / "config.json").read_bytes())
    with pytest.raises(
        ConfigError, match=r"other: model.safetensors lacks .* weights of the ResNet"
    ):
        PretrainedModel(str(other), frozen=True)
    plain = Path(save_model(tmp_path / "plain", "resnet"))
    for told, why in (
        ("{bad", "cannot be read"), ("[]", "cannot be read"),
        ('{"image_mean": 0.5}', "cannot be read"),
        ('{"image_mean": [0.5], "image_std": [0.5]}', "expected three numbers each"),
        ('{"image_std": [0.5, 0.5, 0]}', "no std of 0 or less"),
    ):  # fmt: skip
        (plain / "preprocessor_config.json").write_text(told)
        with pytest.raises(ConfigError, match=why):
            PretrainedModel(str(plain), frozen=True)
    (plain / "preprocessor_config.json").write_text('{"image_mean": null}')
    PretrainedModel(str(plain), frozen=True)
    with pytest.raises(ConfigError, match="is read by encoder=pretrained, got encoder=conv"):
        ImageConfig(encoder=ImageEncoderKind.conv, weights="somewhere")
