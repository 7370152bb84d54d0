"""The safety state machine: a table, and a pure function of (state, conditions) that reads it.

Nothing here knows of time, robots or transports. What is wrong and what a person asks for are both
conditions of a tick; `SafetyMonitor` finds the former, the loop adds the latter. The machine is a
software stop: it is no safety-rated emergency stop (ISO 13850), which a robot needs besides.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum


class SafetyState(Enum):
    """States of the safety machine: what the robot is allowed to do."""

    PASSIVE = "passive"
    """Not armed: damping without stiffness, rotors off."""
    ARMING = "arming"
    """On its way from the measured pose to the one to arm in: the default pose, or the policy's."""
    HOLD = "hold"
    """Stands at the pose commanded last; goes on by a person's request only."""
    READY = "ready"
    """Stands like HOLD, and may be handed to a policy or a person."""
    POLICY = "policy"
    """Follows the commands of a policy."""
    HUMAN = "human"
    """Follows the commands of a person."""
    SAFE_STOP = "safe_stop"
    """Controlled stop, then damping (stop category 1 of IEC 60204-1 in kind); a drone descends."""
    ESTOP = "estop"
    """Latched: damping or off at once."""


class Condition(Enum):
    """Facts of one tick: requests of a person, and what is wrong."""

    # Requests of a person, true for one tick.
    ARM = "arm"
    DISARM = "disarm"
    ENABLE_POLICY = "enable_policy"
    HAND_TO_HUMAN = "hand_to_human"
    HOLD = "hold"
    RESET = "reset"
    ESTOP_PRESSED = "estop_pressed"
    """The only request that may last: a button that is still down."""
    # Emergencies.
    STATE_LOST = "state_lost"
    """The newest sample is too old to act on."""
    OUTSIDE_RANGE = "outside_range"
    """A joint is measured outside its hard limits by more than the tolerance."""
    TUMBLE = "tumble"
    """A flying robot is upside down."""
    DRIVER_FAULT = "driver_fault"
    """Reading from or writing to the driver failed."""
    # Faults.
    COMMAND_INVALID = "command_invalid"
    """NaN, another shape, kind, joint or gain set, or a stamp of the future."""
    COMMAND_LOST = "command_lost"
    """A policy in charge has been silent for too long."""
    CONTROLLER_FAULT = "controller_fault"
    """A controller or limiter raised or made something that is no number."""
    OVERSPEED = "overspeed"
    OVERTORQUE = "overtorque"
    TRACKING_ERROR = "tracking_error"
    """A joint does not follow its commanded position."""
    TILT = "tilt"
    """The base leans further than a walking robot can."""
    # Reasons to pause.
    STATE_LATE = "state_late"
    STATE_INVALID = "state_invalid"
    """The newest sample has NaN, another shape, no attitude where one belongs, or a stamp that is
    no time or lies in the future; the one before is used."""
    COMMAND_LATE = "command_late"
    """A policy in charge has missed its period."""
    LEASE_LOST = "lease_lost"
    """The person in charge is no longer there."""
    OVERRUN = "overrun"
    """The loop misses its deadlines, or its clock goes back."""
    SECOND_PUBLISHER = "second_publisher"
    """Another node sends commands too, or measurements come from more than one."""
    OUTSIDE_WORKSPACE = "outside_workspace"
    EXTERNAL_FORCE = "external_force"
    # Reasons to refuse a request; they stop nothing by themselves.
    LEASE_LATE = "lease_late"
    """The person in charge was not heard in time: their velocity becomes zero."""
    POLICY_SILENT = "policy_silent"
    """No fresh command of a policy to switch to."""
    POLICY_JUMP = "policy_jump"
    """A policy's newest command is far from the measured pose."""
    HUMAN_JUMP = "human_jump"
    """A person's newest command is far from the measured pose."""
    STOPPING = "stopping"
    """The controlled stop is still under way."""
    RAMPED = "ramped"
    """The ramp to the pose to arm in is complete."""


_S, _C = SafetyState, Condition

OPERATOR_REQUESTS = frozenset({_C.ARM, _C.DISARM, _C.ENABLE_POLICY, _C.HAND_TO_HUMAN, _C.HOLD,
                               _C.RESET, _C.ESTOP_PRESSED})  # fmt: skip
"""Requests that a person can make."""
WITHHOLDING = frozenset({_C.HOLD, _C.DISARM, _C.ESTOP_PRESSED})
"""Requests after which only a person may let a policy go on."""
EMERGENCIES = frozenset({_C.STATE_LOST, _C.OUTSIDE_RANGE, _C.TUMBLE, _C.DRIVER_FAULT})
FAULTS = frozenset({_C.COMMAND_INVALID, _C.COMMAND_LOST, _C.CONTROLLER_FAULT, _C.OVERSPEED,
                    _C.OVERTORQUE, _C.TRACKING_ERROR, _C.TILT})  # fmt: skip
PAUSES = frozenset({_C.STATE_LATE, _C.STATE_INVALID, _C.COMMAND_LATE, _C.OVERRUN,
                    _C.SECOND_PUBLISHER, _C.OUTSIDE_WORKSPACE, _C.EXTERNAL_FORCE})  # fmt: skip

MOVING = frozenset({_S.ARMING, _S.READY, _S.POLICY, _S.HUMAN})
"""States that a pause ends."""
DRIVEN = MOVING | {_S.HOLD}
"""States in which the robot is armed: motion is possible, or one request away."""


@dataclass(frozen=True)
class Rule:
    """One row of the table."""

    when: frozenset[Condition]
    """Any of these, ..."""
    states: frozenset[SafetyState]
    """... in any of these states, ..."""
    to: SafetyState
    """... leads here, ..."""
    unless: frozenset[Condition] = frozenset()
    """... unless one of these holds too."""


_STOPS = frozenset({_C.ESTOP_PRESSED}) | EMERGENCIES | FAULTS
_ANY_TROUBLE = _STOPS | PAUSES


def _on(*conditions: Condition) -> frozenset[Condition]:
    return frozenset(conditions)


def _in(*states: SafetyState) -> frozenset[SafetyState]:
    return frozenset(states)


TABLE = (
    # The first row that fits decides: the most severe stand first, requests of a person last.
    # when                   in                        leads to        unless
    Rule(_on(_C.ESTOP_PRESSED), _in(*_S),               _S.ESTOP),
    Rule(EMERGENCIES,        DRIVEN | {_S.SAFE_STOP},   _S.ESTOP),
    Rule(FAULTS,             DRIVEN,                    _S.SAFE_STOP),
    Rule(_on(_C.DISARM),     DRIVEN,                    _S.SAFE_STOP),
    Rule(_on(_C.LEASE_LOST), _in(_S.HUMAN),             _S.HOLD),
    Rule(PAUSES,             MOVING,                    _S.HOLD),
    Rule(_on(_C.HOLD),       MOVING,                    _S.HOLD),
    Rule(_on(_C.RAMPED),     _in(_S.ARMING),            _S.HOLD),
    Rule(_on(_C.RESET),      _in(_S.ESTOP),             _S.PASSIVE,     _STOPS),
    Rule(_on(_C.RESET, _C.DISARM), _in(_S.SAFE_STOP),   _S.PASSIVE,     _STOPS | {_C.STOPPING}),
    Rule(_on(_C.ARM),        _in(_S.PASSIVE),           _S.ARMING,      _ANY_TROUBLE),
    Rule(_on(_C.ARM),        _in(_S.HOLD),              _S.READY,       _ANY_TROUBLE | {_C.HOLD}),
    Rule(_on(_C.HAND_TO_HUMAN), _in(_S.READY, _S.POLICY), _S.HUMAN,
         _ANY_TROUBLE | {_C.LEASE_LATE, _C.LEASE_LOST, _C.HUMAN_JUMP}),
    Rule(_on(_C.ENABLE_POLICY), _in(_S.READY, _S.HUMAN), _S.POLICY,
         _ANY_TROUBLE | {_C.POLICY_SILENT, _C.POLICY_JUMP}),
)  # fmt: skip
"""The whole behaviour. What no row names leaves the state as it is."""


def next_state(state: SafetyState, conditions: AbstractSet[Condition]) -> SafetyState:
    """State of the next tick. Real-time: pure, never blocks."""
    rule = deciding_rule(state, conditions)
    return state if rule is None else rule.to


def deciding_rule(state: SafetyState, conditions: AbstractSet[Condition]) -> Rule | None:
    """The row that decides a tick; None where nothing changes."""
    for rule in TABLE:
        if state in rule.states and rule.when & conditions and not rule.unless & conditions:
            return rule
    return None


def refusals(
    state: SafetyState, conditions: AbstractSet[Condition]
) -> dict[Condition, frozenset[Condition]]:
    """Requests of this tick that were not done, each with the conditions that forbid it.

    A request that the state does not know at all, such as `RESET` in `POLICY`, has none.
    """
    decided = deciding_rule(state, conditions)
    refused: dict[Condition, frozenset[Condition]] = {}
    for request in OPERATOR_REQUESTS & conditions:
        rows = [rule for rule in TABLE if request in rule.when and state in rule.states]
        if decided is not None and (
            request in decided.when or any(row.to is decided.to for row in rows)
        ):
            continue
        refused[request] = frozenset().union(*(row.unless & conditions for row in rows))
    return refused
