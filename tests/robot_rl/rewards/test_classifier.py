"""Losses, calibration, the hold rule and the decision, against plain accounts of them."""

import math

import numpy as np
import pytest
import torch

from policies.networks.images import ImageConfig, ImageEncoderKind
from robot_rl.core.errors import ConfigError
from robot_rl.datasets.writer import DatasetWriter
from robot_rl.rewards.classifier import ClassifierConfig, SuccessClassifier
from robot_rl.rewards.hold import HoldWindow, held_frames
from robot_rl.rewards.labels import Frames, LabelConfig, read_frames
from robot_rl.rewards.mining import find_false_positives
from robot_rl.rewards.training import FitConfig, Minibatches, evaluate, fit, fit_scale, masked_loss
from tests.robot_rl.rewards.points import SPEC, of_places, point_set

FAST = FitConfig(updates=400, batch_size=64, interval=50)


def small(stages: int = 1, **config) -> SuccessClassifier:
    made = ClassifierConfig(**{"members": 2, "hidden": [8], **config})
    return SuccessClassifier(made, {"actor": (2,)}, stages, seed=0)


def test_loss_equals_the_plain_sum_in_float64():
    random = np.random.default_rng(0)
    logits = random.normal(0, 3, (2, 5, 3))
    label = random.random((5, 3)) < 0.5
    known = random.random((5, 3)) < 0.7
    total, count = 0.0, 0
    for member in range(2):
        for row in range(5):
            for stage in range(3):
                if known[row, stage]:
                    p = 1 / (1 + math.exp(-logits[member, row, stage]))
                    total -= math.log(p if label[row, stage] else 1 - p)
                    count += 1
    got = masked_loss(
        torch.from_numpy(logits).float(), torch.from_numpy(label).float(), torch.from_numpy(known)
    )
    assert float(got) == pytest.approx(total / count, rel=1e-6)


def test_unknown_frames_pull_on_nothing():
    logits = torch.randn(2, 4, 1, requires_grad=True)
    known = torch.tensor([[True], [False], [True], [False]])
    masked_loss(logits, torch.ones(4, 1), known).backward()
    assert logits.grad is not None
    assert (logits.grad[:, [1, 3]] == 0).all()
    assert (logits.grad[:, [0, 2]] != 0).all()


def test_scale_and_offset_of_logits_are_found_again():
    """Labels drawn from sigmoid(l / 3 - 1) of one member: overconfident by three, and shifted."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(1, 10_000, generator=generator, dtype=torch.float64)
    target = torch.bernoulli(torch.sigmoid(logits[0] / 3 - 1), generator=generator)
    scale, offset = fit_scale(logits, target.clamp(1e-4, 1 - 1e-4))
    assert scale == pytest.approx(1 / 3, rel=0.06)
    assert offset == pytest.approx(-1, abs=0.1)


def test_hold_window_equals_counting_the_last_frames():
    random = np.random.default_rng(0)
    said = random.random((40, 3, 2)) < 0.6
    begins = random.random((40, 3)) < 0.1
    window = HoldWindow(2, 3, 3, 2, torch.device("cpu"))
    seen: list[list[np.ndarray]] = [[] for _ in range(3)]
    for step in range(40):
        got = window.add(torch.from_numpy(said[step]))
        for env in range(3):
            seen[env].append(said[step, env])
            expected = np.sum(seen[env][-3:], axis=0) >= 2
            assert got[env].tolist() == expected.tolist()
        window.begin(torch.from_numpy(begins[step]))
        for env in np.flatnonzero(begins[step]):
            seen[env] = []


def test_hold_over_stored_episodes_is_the_same():
    random = np.random.default_rng(1)
    said = torch.from_numpy(random.random((30, 2)) < 0.6)
    episode = torch.tensor([0] * 9 + [1] * 2 + [5] * 19)
    window, expected = HoldWindow(3, 4, 1, 2, torch.device("cpu")), []
    for row in range(30):
        if row and episode[row] != episode[row - 1]:
            window.begin(torch.ones(1, dtype=torch.bool))
        expected.append(window.add(said[row : row + 1])[0])
    assert torch.equal(held_frames(said, episode, 3, 4), torch.stack(expected))


def test_members_that_disagree_are_uncertain_and_no_success():
    classifier = small()
    members = torch.tensor([[[0.99], [0.99]], [[0.97], [0.35]]])  # (E, N, S)
    found = classifier.decide(members)
    assert found.probability[:, 0].tolist() == pytest.approx([0.98, 0.67])
    assert found.uncertain.tolist() == [False, True]
    assert found.reached[:, 0].tolist() == [True, False]


def test_a_stage_is_reached_only_behind_those_before_it():
    classifier = small(stages=3)
    found = classifier.decide(torch.tensor([[0.9, 0.2, 0.9], [0.9, 0.9, 0.2]]).expand(2, 2, 3))
    assert found.reached.tolist() == [[True, False, False], [True, True, False]]


def test_hard_negatives_are_those_that_are_taken_for_successes():
    frames = Frames(
        obs={"actor": torch.linspace(-1, 1, 200)[:, None].repeat(1, 2)},
        label=torch.zeros(200, 1), known=torch.ones(200, 1, dtype=torch.bool),
        episode=torch.zeros(200, dtype=torch.int64), valid=torch.ones(200, dtype=torch.bool),
    )  # fmt: skip
    classifier = small()
    batches = Minibatches(classifier, frames, FitConfig(batch_size=8, hard_share=0.5))
    batches.find_hard()
    probability = classifier.probabilities(frames.obs).mean(0)[:, 0]
    worst = probability.topk(8).indices
    assert set(batches.hard.tolist()) == set(worst.tolist())


def test_points_are_told_apart_on_episodes_that_were_held_out(tmp_path):
    config = LabelConfig(labels=["half", "near"])
    data = read_frames([point_set(tmp_path / "set")], config, ["actor"], ())
    fitted = fit(data, config, ClassifierConfig(hidden=[32], hold=2, hold_window=3), FAST)
    assert fitted.parts == {"train": 24, "validation": 6, "holdout": 10}
    for stage in fitted.holdout.stages:
        assert stage.frames.precision.value > 0.95
        assert stage.frames.recall.value > 0.85
        assert stage.calibration_error < 0.1
        assert stage.episodes.true_positive >= 5
    assert fitted.losses[-1][2] < fitted.losses[0][2]


def test_same_seed_same_classifier(tmp_path):
    config = LabelConfig(labels=["near"])
    data = read_frames([point_set(tmp_path / "set")], config, ["actor"], ())
    quick = FitConfig(updates=20, interval=10, batch_size=32)
    one, two = (fit(data, config, ClassifierConfig(hidden=[8]), quick) for _ in range(2))
    for name, value in one.classifier.state_dict().items():
        assert torch.equal(value, two.classifier.state_dict()[name]), name


def test_images_are_read_and_told_apart():
    """A bright frame is a success; each member has an encoder of its own."""
    images = ImageConfig(
        encoder=ImageEncoderKind.conv, cameras=["front"], channels=[4], strides=[2], features=4,
        shift=1,
    )  # fmt: skip
    config = ClassifierConfig(groups=[], images=images, hidden=[8], members=2)
    classifier = SuccessClassifier(config, {"image/front": (1, 8, 8, 3)}, 1, seed=0)
    label = (torch.arange(64) % 2).float()[:, None]
    bright = (200 * label.to(torch.uint8) + 20)[:, :, None, None, None]
    pictures = bright.expand(64, 1, 8, 8, 3).contiguous()
    frames = Frames(
        obs={"image/front": pictures}, label=label, known=torch.ones(64, 1, dtype=torch.bool),
        episode=torch.arange(64) // 8, valid=torch.ones(64, dtype=torch.bool),
    )  # fmt: skip
    batches = Minibatches(classifier, frames, FitConfig(batch_size=16))
    optimizer = torch.optim.Adam(classifier.parameters(), 1e-2)
    for _ in range(60):
        obs, wanted, known = batches.draw()
        optimizer.zero_grad()
        masked_loss(classifier.logits(obs), wanted, known).backward()
        optimizer.step()
    stacked = torch.cat([torch.zeros_like(pictures), pictures], dim=1)  # the newest is last
    found = classifier.judge({"image/front": stacked})
    assert torch.equal(found.reached, label > 0)


def test_an_exploited_false_positive_is_found_and_mended_by_hard_negatives(tmp_path):
    """Data that never left the diagonal leave the second coordinate without a meaning.

    A policy that stays at (0, 2) is paid by the first classifier; its own episodes, with the true
    label, teach the second one.
    """
    config, labels = ClassifierConfig(hidden=[32], hold=2, hold_window=3), LabelConfig()
    labels = LabelConfig(labels=["near"])
    random = np.random.default_rng(0)

    def episode(until: tuple[float, float], start: tuple[float, float]) -> np.ndarray:
        way = np.clip(np.linspace(0, 2, 31), 0, 1)[:, None]
        return (1 - way) * np.array(start) + way * np.array(until) + random.normal(0, 0.03, (31, 2))

    with DatasetWriter.create(tmp_path / "narrow", SPEC) as writer:
        for _ in range(20):  # only the first coordinate ever says anything
            writer.add(of_places(episode((0.0, 0.0), (random.uniform(1, 2), 0.0))))
            writer.add(of_places(episode((1.2, 0.0), (random.uniform(1, 2), 0.0))))
    with DatasetWriter.create(tmp_path / "played", SPEC) as writer:
        for _ in range(20):
            writer.add(of_places(episode((0.0, 2.0), (random.uniform(1, 2), 0.0))))

    narrow = read_frames([tmp_path / "narrow"], labels, ["actor"], ())
    first = fit(narrow, labels, config, FAST)
    assert first.holdout.stages[0].frames.precision.value > 0.95, "its own data do not show it"
    played = read_frames([tmp_path / "played"], labels, ["actor"], ())
    fooled = find_false_positives(first.classifier, played.frames)
    assert len(fooled.episodes) > 10
    assert fooled.held > 50

    both = read_frames([tmp_path / "narrow", tmp_path / "played"], labels, ["actor"], ())
    second = fit(both, labels, config, FAST)
    mended = find_false_positives(second.classifier, played.frames)
    assert mended.held == 0
    quality = evaluate(second.classifier, narrow.frames, labels)
    assert quality.stages[0].frames.recall.value > 0.85, "true successes are still seen"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"groups": []}, "needs something to read"),
        ({"hold": 5, "hold_window": 4}, "hold must lie in"),
        ({"members": 0}, "members must lie in"),
        ({"max_disagreement": 0.0}, "max_disagreement in"),
        ({"images": ImageConfig(encoder=ImageEncoderKind.conv)}, "name the cameras"),
    ],
)  # fmt: skip
def test_settings_that_make_no_classifier_are_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        ClassifierConfig(**changes)
