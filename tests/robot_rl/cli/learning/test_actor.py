"""The actor records what it did, waits where it must, and files labels under the right step."""

import contextlib
import dataclasses
import time
import uuid

import numpy as np
import pytest
import torch

from robot_rl.cli.learning import actor as actor_module
from robot_rl.cli.learning.actor import Actor
from robot_rl.cli.learning.environment import SimulatedRobot
from robot_rl.cli.learning.parts import frame_spec
from robot_rl.core.errors import StorageError
from robot_rl.link.client import LinkClient
from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame, decode
from robot_rl.link.spool import Spool
from robot_rl.link.store import Begun
from robot_rl.link.transitions import Ended, TransitionAssembler
from robot_rl.link.transport import Security
from robot_rl.link.weights import Weights, WeightStore
from robot_rl.training.config import OnlineConfig
from robot_rl.training.online import CHECK, POLICY
from robot_rl.training.reporting.statistics import wilson_interval
from tests.fakes import PointMass, ToyEnv, small_sac

LIMIT = 6


class Person:
    """A console whose commands are given by a test."""

    def __init__(self):
        self.given, self.answers, self.snapshots, self._count = [], {}, [], 0
        self.labelled = {}

    def ask(self, do, **arguments):
        self._count += 1
        self.given.append({"id": str(self._count), "do": do, "operator": "ann", **arguments})
        return str(self._count)

    def poll(self):
        given, self.given = self.given, []
        return given

    def answer(self, command_id, ok, why="", episode=""):
        assert command_id not in self.answers or self.answers[command_id] == (ok, why)
        self.answers[command_id] = (ok, why)
        self.labelled[command_id] = episode

    def tell(self, snapshot):
        self.snapshots.append(snapshot)


def weights_of(learner, version, *, wrong=0.0):
    """A version as the learner publishes it."""
    policy, obs = learner.policy(), {"actor": torch.full((1, 2), 0.3)}
    with torch.no_grad():
        arrays = {POLICY + name: one for name, one in policy.state_dict().items()}
        arrays |= {f"{CHECK}obs/actor": obs["actor"], CHECK + "action": policy(obs) + wrong}
    return Weights(version=version, arrays={n: t.numpy().copy() for n, t in arrays.items()})


class Scene:
    """An actor over a point mass, a spool on disk, and a link that nobody answers."""

    def __init__(self, folder, quota=64 << 20, **online):
        env = ToyEnv(PointMass(), num_envs=1, limit=LIMIT, seed=3)
        self.taken, self.person_acts, self.lost = [], False, False
        step = env.step

        def look(action):
            made = step(action)
            made = dataclasses.replace(made, intervened=torch.tensor([self.person_acts]))
            made = dataclasses.replace(made, valid=made.valid & (not self.lost))
            self.taken.append((made.action.clone(), made.reward.clone(), made.next_obs["actor"]))
            return made

        env.step = look
        self.robot = SimulatedRobot(env, pace=False)
        self.teacher, acting = small_sac(env.spec, seed=5), small_sac(env.spec, seed=6)
        self.spool = Spool(folder / "spool", quota_bytes=quota)
        self.link = LinkClient(
            self.spool, WeightStore(folder / "weights"), address="127.0.0.1:1", robot="arm",
            spec=frame_spec(env.spec, acting), security=Security(),
        )  # fmt: skip
        self.wishes = []

        def ask(wish, do, arguments, *, lasting=False):
            self.wishes.append((wish, do, arguments))

        self.link.ask = ask
        self.person = Person()
        self.actor = Actor(
            self.robot, acting, self.spool, self.link, config=OnlineConfig(**online),
            console=self.person,
        )  # fmt: skip
        self.actor.start()

    def go(self, ticks=1):
        for _ in range(ticks):
            self.actor.tick()

    def records(self):
        spool = self.spool
        return [decode(one) for one in spool.batch(spool.session, 0, most_bytes=1 << 30)]

    def frames(self, episode):
        return [r for r in self.records() if isinstance(r, Frame) and r.episode == episode]

    def corrections(self):
        return [r for r in self.records() if isinstance(r, Correction)]

    def transitions(self):
        """Outcomes by episode and index, as the learner will see them."""
        assembler, found = TransitionAssembler(), {}
        assembler.take(Begun(self.spool.session, "arm"))
        for record in self.records():
            for event in assembler.take(record):
                if not isinstance(event, Ended):
                    found[event.episode[1], event.index] = event.outcome
        return found


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path)
    with contextlib.closing(scene.spool):
        scene.link.newest = weights_of(scene.teacher, 1)
        yield scene


def test_every_step_is_recorded_as_it_was_and_an_episode_has_one_frame_more(scene):
    scene.go(1 + 2 * LIMIT)
    for episode in (0, 1):
        frames = scene.frames(episode)
        assert [one.index for one in frames] == list(range(LIMIT + 1))
        assert [one.action is None for one in frames] == [False] * LIMIT + [True]
        for k, frame in enumerate(frames[:-1]):
            action, reward, after = scene.taken[episode * LIMIT + k]
            assert np.array_equal(frame.action, action[0])
            assert frame.reward == pytest.approx(reward.item())
            assert np.array_equal(frames[k + 1].obs["actor"], after[0])
            assert (frame.truncated, frame.policy_version) == (k == LIMIT - 1, 1)
    assert len(scene.transitions()) == 2 * LIMIT
    assert [one.seq for one in scene.records()] == list(range(2 * (LIMIT + 1)))


def test_without_weights_no_step_is_taken_and_the_prompt_says_so(tmp_path):
    scene = Scene(tmp_path)
    with contextlib.closing(scene.spool):
        scene.go(5)
        assert scene.taken == []
        assert scene.person.snapshots[-1]["phase"] == "waiting"
        assert scene.actor.waits_for == "no weights have come yet"
        scene.link.newest = weights_of(scene.teacher, 4)
        scene.go(3)
        assert [one.policy_version for one in scene.frames(0)] == [4, 4, 4]


def test_weights_that_act_otherwise_than_at_the_learner_move_nothing(tmp_path):
    scene = Scene(tmp_path)
    with contextlib.closing(scene.spool):
        scene.link.newest = weights_of(scene.teacher, 1, wrong=0.01)
        scene.go(4)
        assert scene.taken == []
        assert "acts by 0.01 otherwise than at the learner" in scene.actor.waits_for
        scene.link.newest = weights_of(scene.teacher, 2)
        scene.go(2)
        scene.link.newest = weights_of(small_sac(scene.robot.spec, actor={"hidden": [8]}), 3)
        scene.go(2)  # of another size: the ones that are good stay
        assert [one.policy_version for one in scene.frames(0)] == [2] * 4


def test_weights_are_swapped_between_steps_or_between_episodes_as_configured(tmp_path, scene):
    scene.go(3)
    scene.link.newest = weights_of(small_sac(scene.robot.spec, seed=7), 2)
    scene.go(2)
    assert [one.policy_version for one in scene.frames(0)] == [1, 1, 2, 2]
    patient = Scene(tmp_path / "patient", swap_between_episodes=True)
    with contextlib.closing(patient.spool):
        patient.link.newest = weights_of(patient.teacher, 1)
        patient.go(3)
        patient.link.newest = weights_of(patient.teacher, 2)
        patient.go(LIMIT)
        assert {one.policy_version for one in patient.frames(0)} == {1}
        assert {one.policy_version for one in patient.frames(1)} == {2}


def test_consoles_are_told_how_likely_success_is_and_what_the_present_is_worth(scene):
    assert not {"success_probability", "q"} & set(scene.actor.snapshot()), "not known, not told"
    scene.robot.probability = 0.25
    scene.link.learner = {"q": -1.5, "updates": 7}
    told = scene.actor.snapshot()
    assert (told["success_probability"], told["q"]) == (0.25, -1.5)
    assert told["learner"] == {"updates": 7}


def test_a_label_belongs_to_the_step_that_the_key_means(scene):
    scene.go(5)  # a reset and four steps
    stamps = [one.stamp for one in scene.frames(0)]
    event = (stamps[1] + stamps[2]) / 2  # people press 0.3 s later, at the earliest
    pressed = scene.person.ask("success", t=event + 0.3)
    scene.go(2)  # read a step later, which is the episode's last
    assert scene.person.answers[pressed] == (True, "episode 0 ends with success at step 1")
    outcomes = scene.transitions()
    ends = [outcomes[0, k] for k in range(5)]
    assert [one.terminated for one in ends] == [False, True, False, False, False]
    assert [one.success for one in ends] == [False, True, False, False, False]
    assert [one.valid for one in ends] == [True, True, False, False, False]
    assert ends[1].reward == 1.0
    assert [one.index for one in scene.frames(1)] == [0]
    assert scene.actor.snapshot()["success_rate"] == 1.0, "the person's word counts"
    assert scene.actor.snapshot()["success_interval"] == wilson_interval(1, 1)
    scene.person.ask("undo")
    scene.go()
    assert scene.actor.snapshot()["success_rate"] == 0.0


def test_what_was_said_before_the_label_that_is_undone_counts_again(scene):
    scene.go(5)
    pressed = scene.frames(0)[-1].stamp + 1e-6
    said = []
    scene.actor.judge = lambda episode, success, discarded: said.append((success, discarded))
    for later, label in enumerate(("success", "fail", "discard", "undo", "undo", "undo")):
        scene.person.ask(label, t=pressed + later * 1e-6)
        scene.actor.commands.poll()
    assert said == [
        (True, False), (False, False), (False, True), (False, False), (True, False), (None, False)
    ]  # fmt: skip


def test_the_same_command_twice_is_done_once_and_labels_can_be_undone(scene):
    scene.go(4)
    pressed = scene.frames(0)[-1].stamp + 1e-6
    label = {"id": "x", "do": "fail", "operator": "ann", "t": pressed}
    for _ in range(3):
        scene.person.given.append(label)
        scene.go()
    assert len(scene.corrections()) == 1
    assert scene.corrections()[0].operator == "ann"
    undone = scene.person.ask("undo", t=pressed - 1.0)  # by another page, whose message was late
    scene.go()
    assert scene.person.answers[undone] == (True, "fail of episode 0 is undone")
    assert not any(one.terminated for one in scene.transitions().values())
    again = scene.person.ask("undo")
    scene.go()
    assert scene.person.answers[again] == (False, "there is no label of this session to undo")


def test_a_command_that_was_refused_may_be_asked_for_again(scene):
    """The refusal came again, whatever had become of its reason: a full disk, say."""
    scene.go(4)
    undo = {"id": "x", "do": "undo", "operator": "ann"}
    scene.person.given.append(undo)
    scene.go()
    assert scene.person.answers.pop("x") == (False, "there is no label of this session to undo")
    scene.person.ask("fail", t=scene.frames(0)[-1].stamp + 1e-6)
    scene.person.given.append(undo)
    scene.go()
    assert scene.person.answers["x"] == (True, "fail of episode 0 is undone")


@pytest.mark.parametrize("ends", [False, True])
def test_an_episode_ends_when_a_person_hands_back_where_that_is_wanted(tmp_path, ends):
    scene = Scene(tmp_path, end_with_intervention=ends)
    with contextlib.closing(scene.spool):
        scene.link.newest = weights_of(scene.teacher, 1)
        for acts in (False, False, True, False, False):  # the first is the reset
            scene.person_acts = acts
            scene.go()
        flags = [one.truncated for one in scene.frames(0)]
        assert flags[:4] == [False, False, False, ends]


def test_episodes_are_discarded_relabelled_and_named(scene):
    scene.go(1 + LIMIT)
    scene.person.ask("discard", what="episode")
    scene.go()
    scene.person_acts = True
    scene.go()
    scene.person.ask("segment", kind="recovery")
    scene.go()
    scene.person_acts = False
    scene.go(2)
    label = {
        "id": "f" * 32, "session": scene.spool.session, "episode": 1, "kind": "reward", "from": 4,
        "value": 2.5,
    }  # fmt: skip
    scene.person.ask("relabel", correction=label)
    scene.go(2)
    outcomes = scene.transitions()
    assert not any(outcomes[0, k].valid for k in range(LIMIT))
    parts = ["policy", "human", "recovery", "policy", "policy"]
    assert [outcomes[1, k].segment for k in range(5)] == parts
    assert [outcomes[1, k].reward == 2.5 for k in range(6)] == [False] * 4 + [True] * 2
    thrown = scene.person.ask("discard", what="intervention")
    scene.go()
    assert scene.person.answers[thrown][1] == "steps 1 to 2 of episode 1 are not learned from"
    assert [scene.transitions()[1, k].valid for k in range(4)] == [True, False, False, True]
    for wrong in (
        scene.person.ask("segment", kind="dance"), scene.person.ask("rewind"),
        scene.person.ask("relabel", correction={**label, "kind": "good"}),
        scene.person.ask("relabel", correction={**label, "value": "much"}),
        scene.person.ask("relabel"), scene.person.ask("evaluate", episodes=-1),
    ):  # fmt: skip
        scene.go()
        assert not scene.person.answers[wrong][0]
        assert scene.person.answers[wrong][1]


def test_a_label_after_the_clock_was_set_back_still_overrides_the_one_before(scene):
    scene.go(1 + LIMIT)
    label = {"session": scene.spool.session, "episode": 0, "from": LIMIT - 1}
    for kind, late in (("fail", 0.0), ("success", -60.0)):
        asked = {**label, "id": uuid.uuid4().hex, "kind": kind}
        scene.person.ask("relabel", correction=asked, t=time.time() + late)
        scene.go()
    assert scene.transitions()[0, LIMIT - 1].success


def test_the_last_episode_is_discarded_while_the_next_one_runs(scene):
    scene.go(1 + LIMIT + 2)
    scene.person.ask("discard", what="last")
    scene.go(2)
    outcomes = scene.transitions()
    assert not any(outcomes[0, k].valid for k in range(LIMIT))
    assert all(outcomes[1, k].valid for k in range(3))
    assert scene.actor.running
    assert "success_rate" not in scene.actor.snapshot()


def test_rates_are_of_episodes_that_are_neither_discarded_nor_void(scene):
    """They counted among successes and interventions."""

    def rates():
        told = scene.actor.snapshot()
        return told.get("success_rate"), told.get("intervention_rate")

    scene.go(1 + LIMIT)
    scene.actor.judge(0, True)
    scene.person_acts = True
    scene.go(LIMIT)
    fail = {"id": "e" * 32, "episode": 1, "kind": "fail", "from": LIMIT - 1}
    scene.person.ask("relabel", correction=fail)
    scene.go()
    assert rates() == (0.5, 0.5)
    discard = {"id": "d" * 32, "episode": 1, "kind": "discard"}
    scene.person.ask("relabel", correction=discard)
    scene.go()
    assert rates() == (1.0, 0.0)
    scene.person.ask("undo")
    scene.go()
    assert rates() == (0.5, 0.5)
    scene.lost = True
    scene.go(2 * LIMIT - 3)  # the first of these two episodes has three valid steps
    assert (scene.actor.episode, scene.actor.running) == (3, False)
    scene.actor.judge(2, False)
    assert rates() == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    scene.person.ask("relabel", correction={**discard, "id": "f" * 32})
    scene.go()
    assert rates() == (0.5, 0.5)


def test_an_evaluation_counts_no_episode_that_is_discarded(scene):
    scene.person.ask("evaluate", episodes=2)
    scene.go(1 + 2 * LIMIT)
    scene.actor.judge(0, None, discarded=True)
    scene.actor.judge(1, None, discarded=True)
    assert [told["episodes"] for _, _, told in scene.wishes] == [2, 1]


def test_an_evaluation_acts_without_exploration_and_tells_the_learner(scene):
    scene.person.ask("evaluate", episodes=2)
    scene.go(1 + 2 * LIMIT)
    for frame in scene.frames(0)[:-1]:
        obs = {"actor": torch.tensor(frame.obs["actor"])[None]}
        best = scene.teacher.act(obs, explore=False)
        assert np.allclose(frame.action, best[0].detach(), atol=1e-6)
    ((_, do, arguments),) = scene.wishes
    assert do == "evaluated"
    assert arguments["episodes"] == 2
    assert arguments["return"] == pytest.approx(
        sum(reward.item() for _, reward, _ in scene.taken) / 2, rel=1e-5
    )
    scene.go(1)
    frame = scene.frames(2)[0]
    best = scene.teacher.act({"actor": torch.tensor(frame.obs["actor"])[None]}, explore=False)
    assert not np.allclose(frame.action, best[0].detach(), atol=1e-6)


def test_an_evaluation_begins_with_the_next_episode_and_help_is_no_success(scene):
    scene.go(3)
    scene.person.ask("evaluate", episodes=1)
    scene.go(LIMIT - 3 + 1)
    assert scene.actor.episode == 0
    assert scene.wishes == [], "the episode that ran had explored"
    scene.person_acts = True
    scene.go(LIMIT)
    scene.actor.judge(1, True)
    found = [arguments for _, _, arguments in scene.wishes]
    assert [one["episodes"] for one in found] == [1] * len(found)
    assert [one["success"] for one in found] == [0.0] * len(found)
    assert found


def test_between_two_episodes_consoles_see_no_step_of_the_last_one(scene):
    """Its picture would be of the next episode's start."""
    scene.go(1 + LIMIT)
    told = scene.actor.snapshot()
    assert (told["episode"], told["step"], told["phase"]) == (0, 0, "reset")
    scene.go(1)
    told = scene.actor.snapshot()
    assert (told["episode"], told["step"], told["phase"]) == (1, 1, "running")


def test_labels_of_a_long_evaluation_count_and_late_ones_correct_what_was_told(scene):
    episodes = 25  # more than the rates look back on
    scene.person.ask("evaluate", episodes=episodes)
    scene.go(1)
    for number in range(episodes):
        scene.go(LIMIT)
        if number < episodes - 1:
            scene.actor.judge(number, number < 3)
    (first,) = scene.wishes
    assert round(first[2]["success"] * episodes) in (3, 4)  # the last by the robot's own rule
    scene.actor.judge(episodes - 1, True)
    scene.actor.judge(1, False)
    scene.actor.judge(20, True)
    later = scene.wishes[1:]
    assert [round(one[2]["success"] * episodes) for one in later] == [4, 3, 4]
    assert len({wish for wish, _, _ in scene.wishes}) == 4, "each is fulfilled once"
    scene.go(LIMIT)
    scene.actor.judge(episodes, True)
    assert len(scene.wishes) == 4, "of another episode"


def test_a_full_spool_stops_the_robot_between_episodes_until_the_learner_has_stored(tmp_path):
    scene = Scene(tmp_path, quota=200_000)
    with contextlib.closing(scene.spool):
        scene.link.newest = weights_of(scene.teacher, 1)
        for _ in range(300):
            scene.go()
            if scene.actor.waits_for and not scene.actor.running:
                break
        scene.go(3)
        taken = len(scene.taken)
        assert 0 < taken < 280
        assert taken % LIMIT == 0  # no episode was torn
        assert "the learner must store" in scene.actor.waits_for
        assert scene.spool.num_bytes < 200_000
        kept = len(scene.records())
        assert kept == taken // LIMIT * (LIMIT + 1)
        scene.spool.acknowledge(scene.spool.session, kept)
        scene.spool.sync()
        scene.go(5)
        assert len(scene.taken) == taken + 5


def test_wishes_for_the_learner_are_answered_when_it_has_answered(scene):
    wish = scene.person.ask("pause_learning")
    scene.go(2)
    assert wish not in scene.person.answers
    assert scene.wishes == [(wish, "pause_learning", {})]


def test_a_disk_that_refuses_a_step_ends_the_episode_and_the_robot_waits(scene, monkeypatch):
    scene.go(3)
    append = scene.spool.append

    def refuse(record):
        raise StorageError("cannot append to the log: no space is left on the disk")

    monkeypatch.setattr(scene.spool, "append", refuse)
    monkeypatch.setattr(actor_module, "_DISK_REST_SECONDS", 0.2)
    scene.go(3)
    assert "no space is left" in scene.actor.waits_for
    taken = len(scene.taken)
    scene.go(2)
    assert len(scene.taken) == taken, "it waits"
    monkeypatch.setattr(scene.spool, "append", append)
    time.sleep(0.25)
    assert scene.actor.waits_for == ""
    before = scene.actor.episode
    scene.go(LIMIT + 1)
    assert len(scene.frames(before + 1)) == LIMIT + 1
    outcomes = scene.transitions()
    assert {episode for episode, _ in outcomes} >= {before + 1}
    kept = [index for episode, index in outcomes if episode == 0]
    assert kept == list(range(len(kept))), "no step leads over the gap"
