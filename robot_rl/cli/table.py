"""Tables of plain text."""

from collections.abc import Sequence


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> None:
    """Aligned columns, the first `left` to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in [titles, *rows]:
        cells = zip(row, widths, strict=True)
        aligned = [f"{c:<{w}}" if i < left else f"{c:>{w}}" for i, (c, w) in enumerate(cells)]
        print("  ".join(aligned).rstrip())
