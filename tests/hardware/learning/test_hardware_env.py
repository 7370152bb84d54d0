"""A robot's loop under a learning environment: people, pauses, sensors, tasks, and late callers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hardware.control.safety import Condition, SafetyState
from hardware.learning.hardware_env import HardwareEnvConfig, Phase
from hardware.learning.reset import ResetConfig, TaskReset
from hardware.learning.rewards import PersonReward, SparseWorldReward, WorldReward
from robot_rl.core.errors import ConfigError, NonFiniteError, SpecMismatchError
from tests.hardware.control.loops import to
from tests.hardware.learning.worlds import (
    CONTROL_DT,
    PERIOD,
    SCALE,
    TICKS,
    point_env,
    port_of,
    world_of,
)

C, S = Condition, SafetyState
ACTION = torch.tensor([[0.3, -0.4]])


def running(**settings):
    env = point_env(limit=settings.pop("limit", 50), **settings)
    env.reset(seed=0)
    return env


def speaking(env, *action):
    """A person who is there, and leads the joints to where these actions would."""
    port = port_of(env)
    target = np.array([0.2, -0.5]) + SCALE * np.array(action)

    def speak():
        port.loop.requests.heartbeat = port.now()
        port.human.send(to(*target), port.now())

    return speak


def until(env, ready, limit=100):
    for _ in range(limit):
        step = env.step(ACTION)
        if ready():
            return step
    raise AssertionError(f"it did not come to that: {env.phase}, {env.prompt}")


class TestPeople:
    def test_a_person_who_takes_over_in_the_middle_of_a_period_is_the_one_whose_action_it_was(self):
        env = running()
        port, speak, ticks = port_of(env), speaking(env, 0.8, 0.6), []

        def on_tick():
            speak()
            ticks.append(1)
            if len(ticks) == 2 * TICKS + 2:  # the second of three ticks of the third period
                port.request(C.HAND_TO_HUMAN)

        port.on_tick = on_tick
        flags = [bool(env.step(ACTION).intervened) for _ in range(2)]
        step = env.step(ACTION)
        assert [*flags, bool(step.intervened)] == [False, False, True]
        assert step.valid
        assert not torch.equal(step.action, ACTION)  # on its way to the person's
        for _ in range(8):
            step = env.step(ACTION)
        torch.testing.assert_close(step.action, torch.tensor([[0.8, 0.6]]))
        np.testing.assert_allclose(step.next_obs["actor"][0, 4:], [0.8, 0.6], rtol=1e-6)
        port.request(C.ENABLE_POLICY)
        assert not env.step(ACTION).intervened
        assert env.episode == 1

    def test_a_person_who_leaves_the_gripper_alone_repeats_what_was_asked_of_it_last(self):
        """Raised out of `step`: a person's command says nothing of a gripper that they left."""
        env = running(gripper=True)
        port, speak = port_of(env), speaking(env, 0.8, 0.6)
        port.on_tick = speak
        grip = torch.tensor([[0.3, -0.4, 0.9]])
        for _ in range(3):
            env.step(grip)
        port.request(C.HAND_TO_HUMAN)
        steps = [env.step(torch.tensor([[0.3, -0.4, -1.0]])) for _ in range(10)]
        step = steps[-1]
        assert step.intervened
        torch.testing.assert_close(step.action, torch.tensor([[0.8, 0.6, 0.9]]))

    def test_an_action_that_is_no_number_keeps_the_gripper_as_it_is(self):
        env = running(gripper=True)
        env.step(torch.tensor([[0.3, -0.4, 0.9]]))
        step = env.step(torch.full((1, 3), torch.nan))
        torch.testing.assert_close(step.action, torch.tensor([[0.3, -0.4, 0.9]]))

    def test_a_person_whose_setpoints_no_action_makes_leaves_rows_that_are_not_learned_from(self):
        env = running()
        read = port_of(env).read

        def other_kind():
            found = read()
            executed = found.executed
            assert executed is not None
            count = executed.human_ticks + executed.policy_ticks
            changed = replace(executed, setpoint=None, human_ticks=count, policy_ticks=0)
            return replace(found, executed=changed)

        env._readings = other_kind()
        port_of(env).read = other_kind
        step = env.step(ACTION)
        assert step.intervened
        assert not step.valid
        assert not step.ended

    def test_a_lease_that_is_lost_pauses_and_the_prompt_asks_for_the_policy(self):
        env = running()
        port, speak = port_of(env), speaking(env, 0.0, 0.0)
        port.on_tick = speak
        env.step(ACTION)
        port.request(C.HAND_TO_HUMAN)
        assert env.step(ACTION).intervened
        port.on_tick = lambda: None
        step = until(env, lambda: env.phase is not Phase.running)
        assert step.truncated
        assert not step.valid
        assert "lease_lost" in env.reason
        assert env.phase is Phase.waiting
        assert "in 'hold'" in env.prompt
        port.request(C.ARM)
        env.step(ACTION)
        port.request(C.ENABLE_POLICY)
        until(env, lambda: env.phase is Phase.running)
        assert env.episode == 2

    def test_in_a_reset_a_person_may_lead_the_robot_and_the_reset_goes_on_after(self):
        env = running(limit=2, steps=[{"wait": {"seconds": 2 * CONTROL_DT}}])
        port = port_of(env)
        port.on_tick = speaking(env, 0.5, 0.5)
        until(env, lambda: env.phase is Phase.reset)
        port.request(C.HAND_TO_HUMAN)
        for _ in range(6):
            step = env.step(ACTION)
            assert not step.valid
            assert not step.intervened
        assert "hand it back" in env.prompt
        port.request(C.ENABLE_POLICY)
        until(env, lambda: env.phase is Phase.running)


class TestPauses:
    @pytest.mark.parametrize(
        ("request_", "state"),
        [(C.HOLD, "hold"), (C.DISARM, "safe_stop"), (C.ESTOP_PRESSED, "estop")],
    )
    def test_whatever_stops_the_robot_truncates_in_an_invalid_row_with_its_reason(
        self, request_, state
    ):
        env = running()
        env.step(ACTION)
        port_of(env).request(request_)
        step = env.step(ACTION)
        assert step.truncated
        assert not step.terminated
        assert not step.valid
        assert float(step.reward) == 0.0
        assert f"paused in '{state}'" in env.reason
        for _ in range(40):
            assert not env.step(ACTION).valid
        assert port_of(env).loop.safety is not S.POLICY  # a person stopped it, a person goes on
        assert "enable the policy" in env.prompt
        for request in (C.RESET, C.ARM, C.ARM, C.ENABLE_POLICY):
            port_of(env).request(request)
            for _ in range(10):
                env.step(ACTION)
        until(env, lambda: env.phase is Phase.running)
        assert env.episode == 2
        assert env.step(ACTION).valid

    def test_a_simulated_robot_goes_on_by_itself_after_trouble(self):
        env = running()
        port = port_of(env)
        port.wait_until(port.now() + 20 * CONTROL_DT)  # nobody speaks: late, lost, stopped
        assert port.loop.safety is S.SAFE_STOP
        assert "command_lost" in port.loop.status.trip
        for _ in range(2):  # the same trouble twice
            step = env.step(ACTION)
            assert not step.valid
            until(env, lambda: env.phase is Phase.running)
            assert env.step(ACTION).valid
            port.wait_until(port.now() + 20 * CONTROL_DT)

    def test_a_sensor_that_is_too_old_spoils_both_steps_that_it_is_an_end_of(self):
        env = running(max_age={"way": 0.9 * PERIOD})
        read = port_of(env).read

        def old():
            found = read()
            return replace(found, sensed_stamps={"way": found.now - PERIOD})

        assert env.step(ACTION).valid
        port_of(env).read = old
        assert not env.step(ACTION).valid
        assert env.ages["way"] == pytest.approx(PERIOD)
        port_of(env).read = read
        assert not env.step(ACTION).valid
        assert env.step(ACTION).valid
        assert env.episode == 1  # nothing ended

    def test_an_episode_does_not_begin_before_every_sensor_is_fresh(self):
        env = running(limit=1)
        read = port_of(env).read
        port_of(env).read = lambda: replace(read(), sensed_stamps={"way": -np.inf})
        for _ in range(4):
            env.step(ACTION)
        assert env.phase is Phase.waiting
        assert env.prompt == "waits for new measurements of way"
        port_of(env).read = read
        until(env, lambda: env.phase is Phase.running)

    def test_a_status_that_is_silent_ends_the_episode(self):
        env = running()
        read = port_of(env).read

        def silent():
            found = read()
            assert found.status is not None
            return replace(found, status=replace(found.status, time=found.now - 1.0))

        port_of(env).read = silent
        step = env.step(ACTION)
        assert step.truncated
        assert not step.valid
        assert "has not answered for 1.0 s" in env.reason
        assert env.phase is Phase.waiting
        port_of(env).read = read
        until(env, lambda: env.phase is Phase.running)


class TestEpisodes:
    def test_a_forward_and_a_backward_task_take_turns_without_a_reset_between(self):
        tasks = [TaskReset(name="insert"), TaskReset(name="retract")]
        env = point_env(limit=10, reset=ResetConfig(tasks=tasks))  # longer than a hand-over blends
        env.reset()
        names = []
        for _ in range(4):
            names.append(env.task)
            until(env, lambda: env.phase is not Phase.running)
            end = world_of(env).q.copy()
            until(env, lambda: env.phase is Phase.running)
            np.testing.assert_allclose(world_of(env).q, end, atol=1e-12)  # it was held
        assert names == ["insert", "retract", "insert", "retract"]

    def test_an_episode_that_is_left_is_of_the_same_task_again(self):
        tasks = [TaskReset(name="insert"), TaskReset(name="retract")]
        env = point_env(limit=5, reset=ResetConfig(tasks=tasks))
        env.reset()
        env.step(ACTION)
        env.start_reset("the peg fell")
        assert env.reason == "the peg fell"
        until(env, lambda: env.phase is Phase.running)
        assert env.task == "insert"

    def test_a_caller_may_truncate(self):
        env = running()
        env.end_episode("the battery is low")
        step = env.step(ACTION)
        assert step.truncated
        assert step.valid
        assert env.reason == "the battery is low"

    def test_nothing_but_the_reset_happens_between_episodes_and_progress_is_told(self):
        env = running(limit=1, steps=[{"wait": {"seconds": 4 * CONTROL_DT}}])
        env.step(ACTION)
        seen = []
        for _ in range(3):
            before = world_of(env).q.copy()
            step = env.step(torch.ones(1, 2))
            seen.append(env.progress)
            np.testing.assert_allclose(world_of(env).q, before, atol=1e-12)
            assert not step.valid
        assert seen == [0.5, 0.75, 1.0]

    def test_the_step_of_a_reset_is_told_and_can_be_skipped_where_that_is_safe(self):
        steps = [{"wait": {"seconds": 1.0}}, {"confirm": {"prompt": "put it back"}}]
        env = point_env(limit=1, steps=steps)
        env.start_reset()
        assert env.reset_step is None
        until(env, lambda: env.reset_step is not None and env.reset_step.may_skip)
        env.skip_reset_step()
        until(env, lambda: env.phase is Phase.waiting)
        assert env.prompt == "put it back"
        assert env.reset_step is not None
        assert (env.reset_step.step, env.reset_step.asks) == ("confirm", True)
        env.confirm()
        until(env, lambda: env.phase is Phase.running)
        assert env.reset_step is None
        with pytest.raises(ConfigError, match="no reset is under way"):
            env.skip_reset_step()

    def test_a_caller_who_comes_too_late_loses_whole_periods_and_begins_one_then(self):
        env = running()
        port = port_of(env)
        port.wait_until(port.now() + 2 * CONTROL_DT)
        begin = port.now()
        step = env.step(ACTION)
        assert env.missed == 2
        assert port.now() - begin == pytest.approx(CONTROL_DT)
        torch.testing.assert_close(step.action, ACTION)

    def test_a_robot_is_asked_for_a_reset_before_a_step(self):
        with pytest.raises(ConfigError, match="call reset first"):
            point_env().step(ACTION)

    def test_the_stream_of_starts_goes_on_where_it_was_saved(self):
        one, other = running(), point_env()
        state = one.state_dict()
        expected = one.reset()["actor"]
        got = other.reset(state=state)["actor"]
        torch.testing.assert_close(got, expected)
        assert other.episode == one.episode


class TestRewards:
    def test_where_a_person_judges_the_robot_itself_pays_nothing_and_sees_no_success(self):
        env = running(rule=PersonReward(), limit=2)
        steps = [env.step(ACTION) for _ in range(2)]
        assert [float(step.reward) for step in steps] == [0.0, 0.0]
        assert bool(steps[1].truncated)
        assert not env.sees_success

    def test_the_rule_tells_of_success_that_ends_nothing(self):
        env = running(rule=SparseWorldReward(at_least=-1.0), limit=3, terminate_on_success=False)
        assert not env.step(ACTION).success
        assert env.sees_success

    def test_success_may_leave_the_episode_to_its_time_limit(self):
        rule = SparseWorldReward(at_least=-1.0)  # every step of this world
        env = running(rule=rule, limit=3, terminate_on_success=False)
        steps = [env.step(ACTION) for _ in range(3)]
        assert [float(step.reward) for step in steps] == [1.0] * 3
        assert [bool(step.success) for step in steps] == [False, False, True]
        assert [bool(step.truncated) for step in steps] == [False, False, True]

    def test_the_worlds_rewards_are_those_of_the_period(self):
        env = running(rule=WorldReward())
        for _ in range(3):
            step = env.step(ACTION)
            expected = -float(np.abs(world_of(env).q - world_of(env).default).sum())
            assert float(step.reward) == pytest.approx(expected)

    def test_a_robot_without_a_world_cannot_be_judged_by_one(self):
        env = running(rule=WorldReward())
        port = port_of(env)
        read = port.read
        port.read = lambda: replace(read(), outcome=None)
        with pytest.raises(SpecMismatchError, match="tells no outcome"):
            env.step(ACTION)

    def test_a_reward_that_is_no_number_is_told_and_not_learned_from(self):
        rule = PersonReward()
        env = running(rule=rule)
        judge = rule.judge
        rule.judge = lambda step: replace(judge(step), reward=np.nan)
        step = env.step(ACTION)
        assert not step.valid
        assert float(step.reward) == 0.0
        with pytest.raises(NonFiniteError, match="the reward"):
            env.check()
        env.check()


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"max_age": {"camera": 1.0}}, "max_age: sensor 'camera' is unknown"),
        ({"steps": [{"move_end_effector": {"position": [0, 0, 0]}}]}, "use move_joints"),
        ({"steps": [{"jump": {}}]}, "step of a reset 'jump'"),
    ],
)
def test_what_the_robot_cannot_do_is_refused_when_it_is_built(config, match):
    with pytest.raises(ConfigError, match=match):
        point_env(**config)


def test_times_and_ages_must_be_some():
    with pytest.raises(ConfigError, match="control_dt"):
        HardwareEnvConfig(control_dt=0.0)
    with pytest.raises(ConfigError, match="max_age"):
        HardwareEnvConfig(max_age={"state": 0.0})


def test_an_episode_waits_for_a_goal_that_nobody_has_told_yet():
    env = point_env(steps=[], rule=PersonReward())
    port = port_of(env)
    told, port.world_widths = port.world_widths, {**port.world_widths, "goal/place": 2}
    env.start_reset()
    until(env, lambda: env.prompt == "waits for goal/place")
    assert env.phase is Phase.waiting
    port.world_widths = told
    until(env, lambda: env.phase is Phase.running)
