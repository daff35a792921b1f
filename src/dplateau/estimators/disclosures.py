"""What a fit tells its user: assumptions in the certificate, warnings, and its progress.

All of it follows from parameters and sizes alone; nothing here sees a record.
"""

from __future__ import annotations

import numbers
from typing import Any

from dplateau.bounds.base import Assumption
from dplateau.engines import Randomness
from dplateau.errors import InvalidInput
from dplateau.ground.progress import Progress

# What a certificate says in place of a claim when the noise can be repeated.
SEEDED = "not private (seeded run)"
PUBLIC_WEIGHTS = Assumption("the class weights were chosen without looking at the data", "declared")
PUBLIC_VALIDATION = Assumption("the validation records are public", "declared")


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


def undeclared_rows(name: str) -> str:
    """Return the warning of rows of which nothing is known."""
    return (
        f"{name} knows nothing about the size of rows: columns stay as they are, and rows longer "
        "than 1 are cut to 1, which spoils most data. Declare feature_bounds=(low, high) from what "
        "is publicly known, or data_norm=1 if rows are that short"
    )


def undeclared_targets(name: str) -> str:
    """Return the warning of targets of which nothing is known."""
    return (
        f"{name} knows nothing about the targets, which are cut to [-1, 1]; declare "
        "target_bound=(low, high) from what is publicly known"
    )


def about_sizes(n_public: Any, n: int, neighbors: str) -> Assumption:
    """Return what the claim says about the number of records."""
    if n_public is None:
        text = f"the number of records is public: {n}, as counted in the data"
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


def about_engine(engine: object) -> tuple[Assumption, ...]:
    """Return what the claim says about other machines that took part."""
    if engine is None:
        return ()
    text = "the cluster's machines keep weights and sums of gradients to themselves (docs/scale.md)"
    return (Assumption(text, "declared"),)


def about_classes(declared: bool) -> Assumption:
    """Return what the claim says about the classes."""
    if declared:
        return Assumption("the classes were declared without looking at the data", "declared")
    return Assumption("which labels occur is public: the classes were taken from y", "declared")


def progress_of(verbose: Any) -> Progress | None:
    """Return what to call with (steps done, steps in all), if it is to be other than a bar."""
    if callable(verbose):
        call: Progress = verbose
        return call
    if not isinstance(verbose, numbers.Integral):
        raise InvalidInput(
            "verbose must be True, False or a function of (steps done, steps in all); "
            f"got {verbose!r}"
        )
    return None
