"""Whatever a person reads as an upper bound is one: texts round up, everywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dplateau.ground.shown import rounded_down, rounded_up

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "dplateau"
DIGITS = st.integers(min_value=1, max_value=12)
NUMBERS = st.floats(min_value=0, max_value=1e300, allow_infinity=False, allow_nan=False)


@given(NUMBERS, DIGITS, st.booleans())
@example(0.12345649999, 6, False)
@example(9.9999995, 6, False)
@example(1e-5, 1, False)
@example(5e-324, 3, True)
def test_what_is_shown_never_promises_too_much(value: float, digits: int, padded: bool) -> None:
    up, down = (rounded(value, digits, padded=padded) for rounded in (rounded_up, rounded_down))
    assert float(down) <= value <= float(up)
    # Not more than one unit of the last digit away.
    assert float(up) <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15) + 5e-324


@given(NUMBERS, DIGITS)
def test_a_number_of_so_many_digits_stays_itself(value: float, digits: int) -> None:
    typed = float(f"{value:.{digits}g}")
    assert float(rounded_up(typed, digits)) == float(rounded_down(typed, digits)) == typed


def test_infinite_bounds_are_none() -> None:
    assert rounded_up(float("inf")) == "none"


# Names of numbers that are proved upper bounds when a person reads them.
PROVED = re.compile(r"epsilon|claimed|rederived|\bdelta$")
# What a person typed comes back as it was typed, and a ratio is no bound.
TYPED = {
    "certificates/certify.py: delta",
    "certificates/compose.py: delta",
    "certificates/composition.py: delta",
    "cli/audit.py: delta",
    "curves/conversions.py: np.min(epsilon)",
    "curves/tabulated.py: delta",
    "ground/checks.py: epsilon",
    "ledger/filters.py: delta",
    "ledger/filters.py: epsilon",
    "ledger/ledger.py: budget.epsilon",
    "cli/ledger.py: budget.epsilon",
    "verify/precise.py: delta",
    "cli/demo.py: released / certificate.claimed_epsilon",
}


def formatted(tree: ast.AST) -> Iterator[str]:
    """Yield what f-strings format with a number of digits."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            spec = ast.unparse(node.format_spec)
            if re.search(r"[gfe]'$", spec):
                yield ast.unparse(node.value)


def test_no_epsilon_is_rounded_to_nearest_in_a_text() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {text}"
        for path in PACKAGE.rglob("*.py")
        for text in formatted(ast.parse(path.read_text(encoding="utf-8")))
        if PROVED.search(text)
    }
    assert found <= TYPED, sorted(found - TYPED)


@pytest.mark.parametrize("text", ["f'{self.claimed_epsilon:.4g}'", "f'{row.epsilon:.6f}'"])
def test_such_a_text_would_be_seen(text: str) -> None:
    assert [t for t in formatted(ast.parse(text)) if PROVED.search(t)]
