"""tanh of a normal: the density by the change of variables, the gradient by finite differences."""

import torch

from policies.networks.gaussian_actor import squashed_normal


def test_the_log_probability_is_that_of_the_normal_less_the_logarithm_of_the_slope() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_std, noise = torch.randn(3, 64, 5, generator=generator).double()
    action, log_prob = squashed_normal(mean, log_std, noise)
    u = mean + noise * log_std.exp()
    normal = torch.distributions.Normal(mean, log_std.exp()).log_prob(u)
    slope = 1 / torch.cosh(u) ** 2
    torch.testing.assert_close(action, torch.tanh(u))
    torch.testing.assert_close(log_prob, (normal - slope.log()).sum(-1))


def test_the_gradient_is_that_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(1)
    mean, log_std, noise = torch.randn(3, 7, 3, generator=generator).double()
    inputs = mean.requires_grad_(), log_std.requires_grad_(), noise
    assert torch.autograd.gradcheck(squashed_normal, inputs)


def test_far_out_the_gradient_is_that_of_the_tails() -> None:
    mean = torch.tensor([[-60.0, 60.0]], requires_grad=True)
    action, log_prob = squashed_normal(mean, torch.zeros(1, 2), torch.zeros(1, 2))
    (action.sum() + log_prob.sum()).backward()
    assert mean.grad is not None
    assert mean.grad.tolist() == [[-2.0, 2.0]]  # log(1 - tanh(u)^2) falls by 2 per unit of |u|
