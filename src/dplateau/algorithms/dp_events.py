"""Runs from the events of dp-accounting.

An event says how often noise of which size is added to which sample. It does not say how many
records there are, what leaves, how long a step is or what the loss is like: that has to be added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dplateau.algorithms.base import Run
from dplateau.algorithms.release import AllIterates, Release, ReleaseName, release_of
from dplateau.algorithms.runs import NoisyGD, NoisySGD
from dplateau.algorithms.schedule import in_order
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# Settings may change this often.
_MOST_CHANGES = 1_000_000


@dataclass(frozen=True)
class _Steps:
    """``count`` equal steps: noise in units of one record's gradient, on samples of one kind.

    ``rate`` is the chance of a record to be in a Poisson sample; ``size`` records out of ``among``
    are drawn instead if those are stated.
    """

    noise: float
    count: int
    rate: float = 1.0
    size: int | None = None
    among: int | None = None

    def like(self, other: _Steps) -> bool:
        return replace(self, count=other.count) == other


def run_from_dp_event(
    event: DpEvent, *, n: int, release: Release | ReleaseName, **options: Any
) -> Run:
    """Return the run that ``event`` tells of; see :meth:`dplateau.Run.from_dp_event`."""
    groups = _steps(event)
    if not groups:
        raise InvalidInput("the event releases nothing, so it describes no run")
    _refuse_told(groups, options)
    stated = release_of(release)
    missing = [f"{name}=..." for name in ("learning_rate", "loss") if options.get(name) is None]
    if missing and not isinstance(stated, AllIterates):
        raise InvalidInput(
            f"an event does not say {' and '.join(missing)}, which release={stated.name!r} needs "
            "(and l2=... or domain=...); release='all' needs neither"
        )
    common = {
        "n": n,
        "steps": sum(group.count for group in groups),
        "noise_multiplier": in_order(
            "noise_multiplier", ((group.noise, group.count) for group in groups)
        ),
        "release": stated,
        **options,
    }
    if len({(group.size, group.among) for group in groups}) > 1:
        raise NotApplicable(
            "the event mixes batches of one size with others; a run has one kind of batches"
        )
    if groups[0].size is not None:
        if groups[0].among != n:
            raise InvalidInput(f"the event samples from {groups[0].among} records, but n={n}")
        return NoisySGD(sampling="fixed", batch_size=groups[0].size, **common)
    if all(group.rate == 1.0 for group in groups):
        return NoisyGD(**common)
    rate = in_order("sampling_rate", ((group.rate, group.count) for group in groups))
    return NoisySGD(sampling_rate=rate, **common)


def _refuse_told(groups: list[_Steps], options: dict[str, Any]) -> None:
    """Refuse options that would say again, or say otherwise, what the event says."""
    told = ["steps", "epochs", "noise_multiplier", "noise_std", "iterate_std", "noise_kind"]
    told += ["sampling", "sampling_rate"]
    if groups[0].size is not None:
        told.append("batch_size")
    again = [name for name in told if name in options]
    if again:
        raise InvalidInput(
            f"the event itself says {', '.join(again)}; leave it out, or describe the run by "
            "NoisyGD(...) or NoisySGD(...)"
        )


def _steps(event: DpEvent) -> list[_Steps]:
    """Unfold compositions into groups of equal steps."""
    import dp_accounting as dpa

    match event:
        case dpa.NoOpDpEvent():
            return []
        case dpa.SelfComposedDpEvent(event=inner, count=count):
            return _repeated(_steps(inner), _whole("count", count))
        case dpa.ComposedDpEvent(events=events):
            return _merged([group for inner in events for group in _steps(inner)])
        case dpa.GaussianDpEvent(noise_multiplier=noise):
            return [_Steps(_noise(noise), 1)]
        case dpa.PoissonSampledDpEvent(
            sampling_probability=rate, event=dpa.GaussianDpEvent(noise_multiplier=noise)
        ):
            return [_Steps(_noise(noise), 1, rate=checks.real("sampling_probability", rate))]
        case dpa.SampledWithoutReplacementDpEvent(
            source_dataset_size=among,
            sample_size=size,
            event=dpa.GaussianDpEvent(noise_multiplier=noise),
        ):
            sizes = {"size": _whole("sample_size", size), "among": _whole("dataset size", among)}
            return [_Steps(_noise(noise), 1, **sizes)]
        case _:
            raise NotApplicable(
                f"no run of this library does {event!r}: known are Gaussian noise on all records, "
                "on Poisson samples and on samples of one size; what an accountant says of another "
                "event joins a composition by foreign(...)"
            )


def _noise(value: Any) -> float:
    return checks.real("noise_multiplier", value)


def _whole(name: str, value: Any) -> int:
    """Read a number of repetitions or records, which may be zero; events check nothing."""
    return checks.whole(f"{name} of the event", value, least=0)


def _repeated(groups: list[_Steps], count: int) -> list[_Steps]:
    if len(groups) <= 1:
        return [replace(group, count=group.count * count) for group in groups if count]
    if len(groups) * count > _MOST_CHANGES:
        raise NotApplicable(
            f"the event changes its settings {len(groups) * count} times; "
            f"a run tells at most {_MOST_CHANGES} changes"
        )
    return _merged(groups * count)


def _merged(groups: list[_Steps]) -> list[_Steps]:
    merged: list[_Steps] = []
    for group in groups:
        if merged and merged[-1].like(group):
            group = replace(group, count=merged.pop().count + group.count)
        merged.append(group)
    return merged
