"""The mean of a policy's weights."""

import torch
from torch import nn

from robot_rl.training.averaging import PolicyAverage


class Policy(nn.Module):
    """One weight, and a normaliser of one number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen = nn.Buffer(torch.zeros(1))


def weight_of(average: PolicyAverage) -> float:
    return average.policy.get_parameter("weight").item()


def test_weights_count_alike_at_first_and_fade_later():
    policy = Policy()
    average = PolicyAverage(policy, 40)
    values = torch.linspace(1.0, 30.0, 30, dtype=torch.float64)
    means = list[float]()
    for value in values.tolist():
        policy.weight.data.fill_(value)
        average.take(4)
        means.append(weight_of(average))
    # Up to 44 updates, which are 11 values, all alike; then 1 / 11 of every new one.
    expected = list[float]()
    for i, value in enumerate(values.tolist(), 1):
        before = expected[-1] if expected else 0.0
        expected.append(before + (value - before) / min(i, 11))
    torch.testing.assert_close(means, expected, rtol=1e-5, atol=0)
    assert means[10] == 6.0  # of 1 to 11


def test_the_mean_has_the_normaliser_of_the_policy_and_no_gradient():
    policy = Policy()
    average = PolicyAverage(policy, 100)
    policy.seen.fill_(7.0)
    assert average.policy.get_buffer("seen").item() == 7.0
    assert policy.weight.requires_grad
    assert not average.policy.get_parameter("weight").requires_grad


def test_beginning_anew_forgets_what_was_before():
    policy = Policy()
    average = PolicyAverage(policy, 100)
    for value in (100.0, 5.0):
        policy.weight.data.fill_(value)
        average.begin_anew()
    assert weight_of(average) == 5.0
    policy.weight.data.fill_(3.0)
    average.take(1)
    assert weight_of(average) == 3.0
