"""What a fit tells its user: assumptions in the certificate, and warnings of what leaks.

Both follow from parameters and sizes alone; nothing here sees a record.
"""

from __future__ import annotations

from typing import Any

from dplateau.bounds.base import Assumption
from dplateau.engines import Randomness


def fixed_seed(name: str) -> str:
    """Return the warning of noise that can be repeated."""
    return (
        f"random_state is set in {name}: whoever knows it can subtract the noise; "
        "leave it None for private data"
    )


def inferred_classes(name: str) -> str:
    """Return the warning of labels that were read off the data."""
    return (
        f"{name} takes its classes from y, so which labels occur becomes public; "
        "declare them with classes=[...]"
    )


def about_sizes(n_public: Any, n: int, neighbors: str) -> Assumption:
    """Return what the claim says about the number of records."""
    if n_public is None:
        text = f"the number of records is public: {n}, as counted in X"
        return Assumption(text, "declared" if neighbors == "add_remove" else "by construction")
    text = f"the number of records is hidden below n_public={n}, chosen without looking at the data"
    return Assumption(text, "declared")


def about_rows(dtype: Any, randomness: Randomness) -> tuple[Assumption, ...]:
    """Return what the claim says about parameters, rows, precision and noise."""
    return (
        Assumption("parameters and bounds were chosen without looking at the data", "declared"),
        Assumption("each row is scaled down to data_norm on its own", "by construction"),
        Assumption(
            f"gradients are computed in {dtype} and noise in float64"
            + (", each noise value built from several" if randomness.safe_noise else ""),
            "by construction",
        ),
        Assumption(randomness.statement, "by construction" if randomness.private else "declared"),
    )


def about_classes(declared: bool) -> Assumption:
    """Return what the claim says about the classes."""
    if declared:
        return Assumption("the classes were declared without looking at the data", "declared")
    return Assumption("which labels occur is public: the classes were taken from y", "declared")
