"""The three ways to state a noise level, converted into each other here and nowhere else.

With b the batch size that the step divides by, L the Lipschitz constant and eta the learning rate:

* ``noise_multiplier`` z: standard deviation of the noise on the *sum* of gradients, in units of L
  (the convention of Opacus, TensorFlow Privacy, JAX Privacy and dp-accounting);
* ``noise_std`` sigma: standard deviation of the noise on the *averaged* gradient, sigma = z L / b;
* ``iterate_std`` nu: standard deviation of the noise in parameter space, nu = eta sigma.

For Laplace noise the same names still mean standard deviations: the Laplace scale is std / sqrt(2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplateau.algorithms.schedule import PerStep, Schedule, over, times
from dplateau.errors import InvalidInput, NotApplicable

CONVENTIONS = ("noise_multiplier", "noise_std", "iterate_std")


@dataclass(frozen=True)
class Given:
    """A quantity as the user stated it: the name of the convention, and its value."""

    name: str
    value: PerStep

    def to_json(self) -> float | list[list[float]]:
        """Return a number, or ``[[value, count], ...]`` for a schedule."""
        return self.value.to_json() if isinstance(self.value, Schedule) else self.value


def as_noise_std(
    given: Given,
    *,
    batch_size: float,
    lipschitz: float | None,
    learning_rate: PerStep | None,
) -> PerStep:
    """Return sigma, the standard deviation of the noise on the averaged gradient."""
    match given.name:
        case "noise_std":
            return given.value
        case "noise_multiplier":
            return times(given.value, _lipschitz("noise_std", given, lipschitz) / batch_size)
        case "iterate_std":
            return over(given.value, _learning_rate("noise_std", given, learning_rate))
    raise InvalidInput(f"unknown noise convention {given.name!r}; use one of {CONVENTIONS}")


def as_noise_multiplier(
    given: Given,
    *,
    batch_size: float,
    lipschitz: float | None,
    learning_rate: PerStep | None,
) -> PerStep:
    """Return z, the noise on the sum of gradients in units of L."""
    if given.name == "noise_multiplier":
        return given.value
    scale = batch_size / _lipschitz("noise_multiplier", given, lipschitz)
    sigma = as_noise_std(
        given, batch_size=batch_size, lipschitz=lipschitz, learning_rate=learning_rate
    )
    return times(sigma, scale)


def as_iterate_std(
    given: Given,
    *,
    batch_size: float,
    lipschitz: float | None,
    learning_rate: PerStep | None,
) -> PerStep:
    """Return nu, the standard deviation of the noise in parameter space."""
    if given.name == "iterate_std":
        return given.value
    eta = _learning_rate("iterate_std", given, learning_rate)
    sigma = as_noise_std(
        given, batch_size=batch_size, lipschitz=lipschitz, learning_rate=learning_rate
    )
    return times(sigma, eta)


def _lipschitz(wanted: str, given: Given, lipschitz: float | None) -> float:
    if lipschitz is None or math.isinf(lipschitz):
        raise NotApplicable(
            f"{wanted} follows from {given.name} only with the Lipschitz constant: "
            "pass loss=LossGeometry(lipschitz=..., convex=...)"
        )
    return lipschitz


def _learning_rate(wanted: str, given: Given, learning_rate: PerStep | None) -> PerStep:
    if learning_rate is None:
        raise NotApplicable(
            f"{wanted} follows from {given.name} only with the learning rate: "
            "pass learning_rate=..."
        )
    return learning_rate
