"""Simulated multirotors: engine, sensors, command delays, and parameters drawn per env."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import Mirrored
from robot_rl.core.robot_command import BodyRateCommand, RobotCommand, RotorCommand
from robot_rl.core.seeding import derive_seed
from sim import draws
from sim.physics.multirotor_model import (
    NOISE_WIDTH,
    PARAM_COLUMNS,
    ROTOR_SPEED,
    STATE_COLUMNS,
    MultirotorModel,
    latency_steps,
    sensing_row,
    state_views,
)
from sim.randomization import CurriculumConfig, widening
from sim.robots.multirotor_robot import (
    START_SPEED,
    FlightAction,
    MultirotorConfig,
    MultirotorRandomization,
)
from sim.robots.rate_loop import RateLoop
from sim.task import InitialState


class CommandDelay:
    """Body rates and thrusts of N worlds, kept for as many steps as the longest delay has."""

    def __init__(self, num_worlds: int, *, longest: int, device: torch.device) -> None:
        self._kept = torch.zeros(longest + 1, num_worlds, 4, device=device)  # rates, thrust
        self._worlds = torch.arange(num_worlds, device=device)
        self._newest = 0

    def begin(self, rows: EnvSelection, thrust: float) -> None:
        """No rates and some thrust, [0, 1], were said to the picked worlds up to now."""
        for kept in self._kept:
            rows.put(kept, 0.0)
            rows.put(kept[:, 3], thrust)

    def pass_on(self, command: BodyRateCommand, delay: Tensor) -> BodyRateCommand:
        """Take what is said in this step; returns what each world hears in it.

        Args:
            delay: Of each world, (N,), [steps], at most the longest; between two steps a world
                hears the mean of what both say, by how long each holds.
        """
        depth = len(self._kept)
        self._newest = (self._newest + 1) % depth
        self._kept[self._newest, :, :3] = command.rates_b
        self._kept[self._newest, :, 3:] = command.thrust
        whole = delay.long()
        part = (delay - whole)[:, None]
        newer, older = (
            self._kept[(self._newest - steps) % depth, self._worlds]
            for steps in (whole, (whole + 1).clamp(max=depth - 1))
        )
        heard = (1 - part) * newer + part * older
        return BodyRateCommand(rates_b=heard[:, :3], thrust=heard[:, 3:])

    def state_dict(self) -> dict[str, Any]:
        """Commands on their way."""
        return {"kept": self._kept.clone(), "newest": self._newest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._kept.copy_(state["kept"])
        self._newest = state["newest"]


class _Inner(NamedTuple):
    """Delay and loop between body rates and rotors, which have no delay of their own then."""

    on_the_way: CommandDelay
    loop: RateLoop


class MultirotorSimulation:
    """N multirotors behind the `Simulation` protocol."""

    def __init__(
        self,
        config: MultirotorConfig,
        randomization: MultirotorRandomization,
        *,
        num_worlds: int,
        device: torch.device,
        seed: int,
        curriculum: CurriculumConfig | None = None,
    ) -> None:
        """Build the worlds; `reset` must place the robots before the first step.

        Args:
            curriculum: How the ranges widen; None draws from all of them.
        """
        # Warp takes half a second to import: not for all.
        from sim.physics.multirotor_engine import MultirotorEngine

        self.config, self.robot = config, config.spec
        self.randomization = randomization
        self.device = device
        self.num_worlds = num_worlds
        self.curriculum = widening(curriculum, device)
        """Curriculum of the ranges; None where they are whole."""
        dt, decimation = config.physics_dt, config.decimation
        self.control_dt = dt * decimation
        delay = randomization.action_delay or [config.model.action_delay * dt] * 2
        self._delay_steps = (delay[0] / dt, delay[1] / dt)  # need not be whole
        self._delay_unit = max(self._delay_steps[1], 1.0)  # of what a critic reads
        engine_delay = self._delay_steps[1]
        self._inner: _Inner | None = None
        self._engine_steps = 1
        if config.action is FlightAction.body_rates:  # which measures in every integration step
            self._inner = _Inner(
                CommandDelay(num_worlds, longest=math.ceil(engine_delay), device=device),
                RateLoop(
                    config.model, config.rate_loop, num_worlds=num_worlds, dt=dt, device=device
                ),
            )
            self._engine_steps, decimation, engine_delay = decimation, 1, 0
        latency = latency_steps(self.robot, dt * decimation)
        self.engine = MultirotorEngine(
            num_worlds,
            physics_dt=dt,
            decimation=decimation,
            max_action_delay=engine_delay,
            max_latency=latency,
            device=device,
        )
        self._nominal = sensing_row(config.model, self.robot, latency).to(device)
        self._ranges = _DrawnRanges.of(randomization, self._nominal)
        plants = _family(config, randomization)
        rows = [sensing_row(plant, self.robot, latency) for plant in plants]
        self._family = _Family.of(torch.stack(rows).to(device)) if rows else None
        self._scales = _PlantScales.of(self._nominal, self._delay_unit)
        self._plant = self._describe(self._nominal.expand(num_worlds, -1))
        self._minus_one = torch.tensor(-1.0).to(device)
        self._noise_generator = torch.Generator(device=device)
        self._noise_generator.manual_seed(derive_seed(seed, "sensor noise"))
        self._normals = torch.randn(  # of one measurement
            (num_worlds, NOISE_WIDTH), generator=self._noise_generator, device=device
        )
        self.sensed: Mapping[str, Tensor] = {}
        self.fault = self.engine.fault
        self.rotor_speed = self.engine.state[:, ROTOR_SPEED]
        """True rotor speeds, (N, 4), fraction of the largest, live."""
        self.true_state = state_views(self.engine.state, list(STATE_COLUMNS))
        self.measured = state_views(self.engine.measured, list(self.robot.sensors))

    @property
    def privileged(self) -> Mapping[str, Tensor]:
        """Rotor speeds, disturbances and drawn parameters, scaled to about one."""
        speed = torch.add(self._minus_one, self.rotor_speed, alpha=2)
        return {"rotor_speed": speed, "plant": self._plant}

    def sensor_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """Mirrors of rotor speeds, disturbances and drawn parameters."""
        kinds = ((Mirrored.vector, 3), (Mirrored.pseudovector, 3), (Mirrored.same, 6))
        plant = SignedPermutation.joined(robot.kind(kind, width) for kind, width in kinds)
        return {"rotor_speed": robot.unsigned(robot.robot.rotors), "plant": plant}

    def check(self) -> None:
        """Does nothing: this engine leaves nothing out."""

    def step(self, command: RobotCommand) -> None:
        """Simulate one control period."""
        for _ in range(self._engine_steps):
            speed = self._rotor_speed_of(command)
            self._normals.normal_(generator=self._noise_generator)
            self.engine.step(speed, self._normals)

    def reset(self, rows: EnvSelection, start: InitialState, generator: torch.Generator) -> None:
        """Place the picked robots and draw their physical parameters."""
        speed = torch.full((rows.count, 4), START_SPEED, device=self.device)
        fields = start.robot.fields
        state = torch.cat([*(fields[name] for name in STATE_COLUMNS), speed], dim=-1)
        rows.put(self.engine.state, state)
        params = self._draw(rows.count, generator)
        rows.put(self.engine.params, params)
        rows.put(self._plant, self._describe(params))
        rows.put(self.engine.fault, False)
        hold = torch.full((self.num_worlds, 4), START_SPEED, device=self.device)
        # The normals of the last step serve again: they belonged to an episode that has ended.
        self.engine.settle(rows.mask, hold, self._normals)
        if self._inner is not None:
            self._inner.loop.begin(rows, self.measured.angular_velocity_b)
            self._inner.on_the_way.begin(rows, START_SPEED)

    def reseed(self, seed: int) -> None:
        """Restart the stream of sensor noise."""
        self._noise_generator.manual_seed(derive_seed(seed, "sensor noise"))
        self._normals.normal_(generator=self._noise_generator)

    def state_dict(self) -> dict[str, Any]:
        """Engine state and the stream of the sensor noise."""
        return {
            "engine": self.engine.state_dict(),
            "rate_loop": {} if self._inner is None else self._inner.loop.state_dict(),
            "on_the_way": {} if self._inner is None else self._inner.on_the_way.state_dict(),
            "normals": self._normals.clone(),
            "noise": self._noise_generator.get_state(),
            "curriculum": {} if self.curriculum is None else self.curriculum.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.engine.load_state_dict(state["engine"])
        if self._inner is not None:
            self._inner.loop.load_state_dict(state["rate_loop"])
            self._inner.on_the_way.load_state_dict(state["on_the_way"])
        self._normals.copy_(state["normals"])
        self._noise_generator.set_state(state["noise"])
        self._plant.copy_(self._describe(self.engine.params))
        if self.curriculum is not None and state.get("curriculum"):
            self.curriculum.load_state_dict(state["curriculum"])

    def _rotor_speed_of(self, command: RobotCommand) -> Tensor:
        """Rotor setpoints of this integration step, (N, 4)."""
        if isinstance(command, RotorCommand):
            return command.speed
        if isinstance(command, BodyRateCommand) and self._inner is not None:
            delay = self.engine.params[:, PARAM_COLUMNS["action_delay"]].squeeze(-1)
            heard = self._inner.on_the_way.pass_on(command, delay)
            return self._inner.loop.update(heard, self.measured.angular_velocity_b)
        raise SpecMismatchError(
            f"a multirotor with robot.action={self.config.action.value} takes rotor commands, got "
            f"{type(command).__name__}; body rates want robot.action=body_rates"
        )

    def _draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Parameters of `count` worlds, (count, P)."""
        # All columns at once: single ones would take three times as many operations.
        ranges, lag = self._ranges, self.randomization.rotor_lag
        factors = draws.uniform((count, 3), -1.0, 1.0, generator)
        base = self._nominal
        if self._family is not None:
            base = self._family.draw(count, generator)
        params = base * (1 + ranges.width * factors[:, ranges.drawn])
        if lag and self._family is not None:
            bounds = math.log(lag[0]), math.log(lag[1])
            params[:, _LAGS] = draws.uniform((count, 2), *bounds, generator).exp()
        elif lag:
            params[:, _LAGS] = draws.uniform((count, 1), lag[0], lag[1], generator)
        disturbance = ranges.weight * draws.normal((count, 6), 1.0, generator)
        params[:, _DISTURBANCES].add_(ranges.disturbance * disturbance)
        low, high = self._delay_steps
        delay = PARAM_COLUMNS["action_delay"]
        if high > 0:
            params[:, delay] = draws.uniform((count, 1), low, high, generator)
        if self.curriculum is not None:
            params = torch.lerp(self._undisturbed(), params, self.curriculum.level)
        return params

    def _undisturbed(self) -> Tensor:
        """Parameters that ranges widen from, (P,): as described, or the nearest that is drawn."""
        params = self._nominal.clone()
        delay = PARAM_COLUMNS["action_delay"]
        params[delay] = params[delay].clamp(*self._delay_steps)
        if self.randomization.rotor_lag:
            for name in ("rotor_rise_time", "rotor_fall_time"):
                params[PARAM_COLUMNS[name]] = params[PARAM_COLUMNS[name]].clamp(
                    *self.randomization.rotor_lag
                )
        return params

    def _describe(self, params: Tensor) -> Tensor:
        """Disturbances and parameters of worlds as a critic reads them, (count, 12), about one."""
        scales = self._scales
        return (params[:, scales.columns] / scales.divisor - scales.offset) * scales.factor


def _span(first: str, last: str) -> slice:
    """Columns from those of one parameter to those of another."""
    return slice(PARAM_COLUMNS[first].start, PARAM_COLUMNS[last].stop)


_LAGS = _span("rotor_rise_time", "rotor_fall_time")
_DISTURBANCES = _span("disturbance_force", "disturbance_torque")


def _family(
    config: MultirotorConfig, randomization: MultirotorRandomization
) -> list[MultirotorModel]:
    """Plants that episodes lie between; none where there is one alone."""
    plants: list[MultirotorModel] = []
    for name in randomization.plants:
        if name not in config.plants:
            raise ConfigError(unknown_name("plant", name, config.plants))
        plants.append(config.plants[name])
        if plants[-1].rotor_yaw_sign != plants[0].rotor_yaw_sign:
            raise ConfigError(
                f"randomization.plants: rotors of '{name}' turn {plants[-1].rotor_yaw_sign}, those "
                f"of '{randomization.plants[0]}' {plants[0].rotor_yaw_sign}; expected the same"
            )
    return plants


class _Family(NamedTuple):
    """Plants that others lie between."""

    rows: Tensor
    """Their parameters, (K, P); the logarithm of those that are positive everywhere."""
    positive: Tensor
    """(P,) bool: parameters whose logarithm is in `rows`."""
    group: Tensor
    """Number of each column's parameter, (P,) int64: its columns are drawn together."""

    @classmethod
    def of(cls, rows: Tensor) -> "_Family":
        """Family of plants, (K, P)."""
        group = torch.zeros(rows.shape[1], dtype=torch.int64)
        positive = torch.zeros(rows.shape[1], dtype=torch.bool)
        for i, columns in enumerate(PARAM_COLUMNS.values()):
            group[columns] = i
            positive[columns] = bool((rows[:, columns] > 0).all())
        positive = positive.to(rows.device)
        logarithm = rows.clamp_min(torch.finfo(rows.dtype).tiny).log()
        return cls(torch.where(positive, logarithm, rows), positive, group.to(rows.device))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Parameters of plants, (count, P)."""
        shape = (count, len(PARAM_COLUMNS))
        unit = draws.uniform((3 * count, shape[1]), 0.0, 1.0, generator).view(3, *shape)
        unit = unit[:, :, self.group]  # (3, count, P): two plants, and the place between them
        which = (unit[:2] * len(self.rows)).long().clamp(max=len(self.rows) - 1)
        one, other = self.rows.gather(0, which[0]), self.rows.gather(0, which[1])
        between = torch.lerp(one, other, unit[2])
        return torch.where(self.positive, between.exp(), between)


class _DrawnRanges(NamedTuple):
    """Half-widths of what is drawn around the nominal plant."""

    drawn: Tensor
    """Factor (of mass, inertia, thrust) that a parameter follows, (P,) int64."""
    width: Tensor
    """Largest relative change of a parameter by it, (P,); 0 for those that follow none."""
    disturbance: Tensor
    """Deviation of forces and torques relative to the weight, (6,), torques in [m]."""
    weight: Tensor
    """Nominal weight, (1,), [N]."""

    @classmethod
    def of(cls, ranges: MultirotorRandomization, nominal: Tensor) -> "_DrawnRanges":
        """Ranges on the device of the nominal row, (P,)."""
        drawn = torch.zeros_like(nominal, dtype=torch.int64)
        width = torch.zeros_like(nominal)
        widths = {"mass": ranges.mass, "inertia": ranges.inertia, "thrust_curve": ranges.thrust}
        for i, (name, value) in enumerate(widths.items()):
            drawn[PARAM_COLUMNS[name]], width[PARAM_COLUMNS[name]] = i, value
        disturbance = torch.tensor([ranges.force] * 3 + [ranges.torque] * 3).to(nominal.device)
        return cls(drawn, width, disturbance, _weight(nominal))


class _PlantScales(NamedTuple):
    """Scales of what a critic reads of a plant: (value / divisor - offset) * factor, (12,) each."""

    columns: Tensor
    """Columns of the parameters, int64."""
    divisor: Tensor
    offset: Tensor
    factor: Tensor

    @classmethod
    def of(cls, nominal: Tensor, delay_unit: float) -> "_PlantScales":
        """Scales on the device of the nominal row, (P,)."""
        weight, one = _weight(nominal), torch.ones(1).to(nominal.device)
        rows: list[tuple[int, Tensor, float, float]] = []
        for name, unit in (("disturbance_force", 0.1), ("disturbance_torque", 2e-4)):  # 6
            columns = PARAM_COLUMNS[name]
            rows += [(i, unit * weight, 0, 1) for i in range(columns.start, columns.stop)]
        for name in ("mass", "inertia", "thrust_curve"):  # 3, the last column of each
            last = PARAM_COLUMNS[name].stop - 1
            rows.append((last, nominal[last : last + 1], 1, 10))
        for name in ("rotor_rise_time", "rotor_fall_time"):  # 2
            rows.append((PARAM_COLUMNS[name].start, one, 0, 10))
        rows.append((PARAM_COLUMNS["action_delay"].start, delay_unit * one, 0, 1))  # 1
        columns, divisors, offsets, factors = zip(*rows, strict=True)
        return cls(
            torch.tensor(columns).to(nominal.device),
            torch.cat(divisors),
            torch.tensor(offsets, dtype=torch.float32).to(nominal.device),
            torch.tensor(factors, dtype=torch.float32).to(nominal.device),
        )


def _weight(nominal: Tensor) -> Tensor:
    """Weight of a row of parameters, (P,) -> (1,), [N]."""
    return nominal[PARAM_COLUMNS["mass"]] * nominal[PARAM_COLUMNS["gravity"]]
