"""Products by oneDNN: the same digits, and the setting is left as it was."""

from typing import Any

import pytest
import torch

from policies.networks.mlp import OneDnnMatmul, is_exact

MATMUL: Any = torch.backends.mkldnn.matmul  # pyright: ignore[reportAttributeAccessIssue]
SHAPES = [(7, 5, 3), (256, 23, 256), (100, 300, 1), (512, 512, 64)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_products_have_the_digits_of_float32(m, k, n, turned):
    a, b = torch.randn(2, m, k), torch.randn(2, k, n)
    if turned:  # columns beside each other
        a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
    exact = a.double() @ b.double()
    with OneDnnMatmul():
        batched, single = a @ b, a[0] @ b[0]
    for got, expected in ((batched, exact), (single, exact[0])):
        assert float((got - expected).norm() / expected.norm()) < 1e-6


def test_the_setting_is_as_it_was_afterwards_and_after_an_error():
    before = MATMUL.fp32_precision
    with OneDnnMatmul(), OneDnnMatmul():
        assert (MATMUL.fp32_precision == "bf16") == is_exact()
    assert MATMUL.fp32_precision == before
    with pytest.raises(RuntimeError, match="shapes"), OneDnnMatmul():
        torch.mm(torch.randn(2, 3), torch.randn(2, 3))
    assert MATMUL.fp32_precision == before


def test_a_library_that_rounds_is_found_out(monkeypatch):
    plain = torch.Tensor.__matmul__

    def rounded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.dtype is torch.float32:
            a, b = a.bfloat16().float(), b.bfloat16().float()
        return plain(a, b)

    is_exact.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "__matmul__", rounded)
        with OneDnnMatmul():
            assert MATMUL.fp32_precision != "bf16"
    is_exact.cache_clear()
