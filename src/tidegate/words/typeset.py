"""Lays words and numbers out for a terminal: never wider than asked, and the same without one.

Nothing here knows what the words say. A table that does not fit its width is turned: one line for each
of its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from textwrap import wrap

from tidegate.units import MILLI, US_PER_S, decimal_text, div_ceil

GAP = "  "
_STEPS: tuple[tuple[str, int], ...] = (
    ("day", 86_400 * US_PER_S),
    ("h", 3_600 * US_PER_S),
    ("min", 60 * US_PER_S),
    ("s", US_PER_S),
)


def number(value: Fraction | int) -> str:
    """Tokens for a reader: thousands apart, at most three decimals, never more than it is."""
    thousandths = Fraction(value) * MILLI // 1
    whole, rest = divmod(abs(thousandths), MILLI)
    decimals = f".{rest:03d}".rstrip("0") if rest else ""
    return f"{'-' if thousandths < 0 else ''}{whole:,}{decimals}"


def span(us: int) -> str:
    """A length of time for a reader, never shorter than it is: "200 ms", "3.8 s", "2 h 46 min 40 s"."""
    if us < 1_000:
        return f"{us} us" if us else "0 s"
    if us < US_PER_S:
        return f"{decimal_text(Fraction(us, 1_000))} ms"
    if us < 120 * US_PER_S:
        return f"{decimal_text(Fraction(div_ceil(us, 1_000), 1_000))} s"
    left_us, parts = div_ceil(us, US_PER_S) * US_PER_S, []
    for unit, length_us in _STEPS:
        count, left_us = divmod(left_us, length_us)
        if count:
            parts.append(f"{count:,} {unit}{'s' if unit == 'day' and count > 1 else ''}")
    return " ".join(parts)


def brief(us: int) -> str:
    """A length of time in its two largest units, for a narrow column; never shorter than it is."""
    for (_, length_us), (_, finest_us) in pairwise(_STEPS):
        if us > length_us and us >= 120 * US_PER_S:
            return span(div_ceil(us, finest_us) * finest_us)
    return span(us)


def listed(words: Sequence[str], last: str = "and") -> str:
    """Words as a sentence counts them: "a", "a and b", "a, b and c"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def paragraph(text: str, width: int, *, indent: str = "", hanging: str | None = None) -> list[str]:
    """The text in lines of at most `width`, the first behind `indent` and the others behind `hanging`."""
    return wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def labelled(pairs: Iterable[tuple[str, str]], width: int, *, indent: str = "") -> list[str]:
    """Labels in a column, and what belongs to each beside it."""
    rows = list(pairs)
    across = max((len(label) for label, _ in rows), default=0)
    lines = []
    for label, text in rows:
        head = f"{indent}{label:<{across}}{GAP}"
        lines += paragraph(text, width, indent=head, hanging=" " * len(head)) or [head.rstrip()]
    return lines


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, indent: str = "", left: int = 1
) -> list[str]:
    """Rows below a header; the first `left` columns are set to the left, the others to the right.

    A table wider than `width` is turned: for each row, its columns below one another.
    """
    sizes = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    if len(indent) + sum(sizes) + len(GAP) * (len(sizes) - 1) > width:
        return _turned(header, rows, width, indent)
    return [
        (indent + GAP.join(_cell(text, size, place < left) for place, (text, size) in line)).rstrip()
        for line in (enumerate(zip(row, sizes, strict=True)) for row in (header, *rows))
    ]


def _cell(text: str, size: int, is_left: bool) -> str:
    return text.ljust(size) if is_left else text.rjust(size)


def _turned(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, indent: str) -> list[str]:
    lines: list[str] = []
    for row in rows:
        lines += [""] if lines else []
        lines += labelled(zip(header, row, strict=True), width, indent=indent)
    return lines
