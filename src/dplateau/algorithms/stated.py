"""What is read off a run that may leave it out: the loss, learning rates, numbers of equal steps.

A run states what its user knows, and composition needs little of it. Whoever needs more asks here:
it is there, or refused in words that continue "this bound ...".
"""

from __future__ import annotations

from dataclasses import dataclass

from dplateau.algorithms.base import Run
from dplateau.algorithms.geometry import LossGeometry
from dplateau.algorithms.schedule import PerStep, Schedule
from dplateau.errors import NotApplicable

CHANGING_STEPS = "needs the same learning rate and noise at every step; yours has a schedule"


def loss_of(run: Run) -> LossGeometry:
    """Return what is declared of one record's loss, or refuse."""
    if run.loss is None:
        raise NotApplicable(
            "needs the loss: pass loss=LossGeometry(lipschitz=..., convex=..., smoothness=...)"
        )
    return run.loss


def learning_rate_of(run: Run) -> PerStep:
    """Return the learning rate or its schedule, or refuse."""
    if run.learning_rate is None:
        raise NotApplicable("needs the learning rate: pass learning_rate=...")
    return run.learning_rate


def learning_rates(run: Run) -> tuple[float, ...]:
    """Return the distinct learning rates, or refuse."""
    match learning_rate_of(run):
        case Schedule(blocks=blocks):
            return tuple({rate for rate, _ in blocks})
        case rate:
            return (rate,)


@dataclass(frozen=True)
class EqualSteps:
    """The numbers of a run whose steps are all alike, in parameter space.

    ``eta`` is the learning rate, ``nu`` the standard deviation of the noise, ``step`` how far one
    gradient can move a step (eta L / b), ``reach`` how far exchanging the record can.
    """

    eta: float
    nu: float
    step: float
    reach: float


def equal_steps(run: Run) -> EqualSteps:
    """Return the numbers of equal steps, or refuse."""
    eta, nu = rate_and_noise(run)
    match run.record_step:
        case float(step):
            return EqualSteps(eta, nu, step, run.neighbor_factor * step)
        case _:
            raise NotApplicable(CHANGING_STEPS)


def rate_and_noise(run: Run) -> tuple[float, float]:
    """Return the learning rate and the noise in parameter space of equal steps, or refuse."""
    match (learning_rate_of(run), run.iterate_std):
        case (float(eta), float(nu)):
            return eta, nu
        case _:
            raise NotApplicable(CHANGING_STEPS)
