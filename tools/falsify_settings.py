"""Random runs to attack: every algorithm and option that some bound speaks about.

A setting is a function of ``(seed, index)`` alone, so any of them can be replayed by its two
numbers. The index also walks through the algorithms and the classes of losses in turn: a short
campaign meets all of them. Sizes are drawn in the units that matter (the record's step, the noise,
the contraction's memory), so that most runs have an epsilon between .05 and 20.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from dplateau.algorithms import (
    Ball,
    Body,
    Box,
    Checkpoints,
    Cyclic,
    CyclicSGD,
    FullBatch,
    LastIterate,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    Poisson,
    ProjectedLangevin,
    Run,
    Schedule,
)

Item = TypeVar("Item")

KINDS = (
    "full_batch",
    "poisson",
    "cyclic",
    "poisson_replace",
    "langevin",
    "poisson",
    "fixed",
    "shuffle_once",
    "poisson",
    "one_pass",
    "reshuffle",
    "poisson",
    "narrow_pass",
    "random_stop",
    "narrow_poisson",
    "laplace_pass",
    "shuffled_pass",
    "narrow_fixed",
)
# Domains no wider than some noise, where the contraction of the hockey stick matters most.
_NARROW = {
    "narrow_pass": "one_pass",
    "random_stop": "one_pass",
    "laplace_pass": "one_pass",
    "shuffled_pass": "shuffle_once",
    "narrow_poisson": "poisson",
    "narrow_fixed": "fixed",
}
LOSSES = (
    "smooth",
    "smooth",
    "nonsmooth",
    "smooth",
    "holder",
    "smooth",
    "nonconvex",
    "smooth",
    "dissipative",
    "smooth",
    "strong",
)
# The bounds for these kinds are about contractions; other losses meet only composition there.
_CONTRACTIVE_KINDS = ("shuffle_once", "reshuffle")
_CONTRACTIVE = ("smooth", "smooth", "strong")
_ORDERS = ("cyclic", "shuffle_once", "reshuffle")
LONGEST = 3000
_VERY_LONG = 100_000


@dataclass(frozen=True)
class Setting:
    """A run and the delta at which its claims are attacked."""

    seed: int
    index: int
    kind: str
    run: Run
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as JSON-ready data."""
        return {
            "seed": self.seed,
            "index": self.index,
            "delta": self.delta,
            "run": self.run.to_dict(),
        }

    def __str__(self) -> str:
        """Show one line that replays the setting."""
        return json.dumps(self.to_dict())


def settings(seed: int, count: int, start: int = 0) -> Iterator[Setting]:
    """Yield the settings with indices from ``start`` on.

    >>> first, second = settings(1, 2)
    >>> first.kind, second.kind
    ('full_batch', 'poisson')
    """
    for index in range(start, start + count):
        yield setting(seed, index)


def setting(seed: int, index: int, *, losses: str | None = None) -> Setting:
    """Return the setting of these two numbers (of a given class of losses, if one is named).

    >>> setting(7, 3) == setting(7, 3)
    True
    """
    draw = _Draw(seed, index)
    kind = KINDS[index % len(KINDS)]
    if losses is None:
        losses = LOSSES[(index // len(KINDS) + index) % len(LOSSES)]
        if kind in _CONTRACTIVE_KINDS and draw.chance(0.8):
            losses = draw.pick(_CONTRACTIVE)
    more = _Draw(seed, index, 1)
    run = _with_momentum(_with_checkpoints(_Sketch(draw, kind, losses).run(), more), more)
    run = _with_rates_and_groups(
        _with_other_losses(run, _Draw(seed, index, 3)), _Draw(seed, index, 2)
    )
    return Setting(seed, index, kind, run, float(f"{10 ** draw.uniform(-8.0, -3.0):.3g}"))


def _with_checkpoints(run: Run, draw: _Draw) -> Run:
    """Return the run, and one time in eight with a few iterates of the way released too."""
    if run.release != LastIterate() or run.steps < 2 or not draw.chance(0.125):
        return run
    step = 1
    if isinstance(run.batches, Cyclic) and (run.batches.order == "reshuffle" or draw.chance(0.5)):
        step = min(run.batches_per_epoch, run.steps)
    match draw.pick(("every", "every", "every", "last", "at")):
        case "every":
            chosen = Checkpoints(every=step * draw.whole(1, max(1, run.steps // step)))
        case "last":
            chosen = Checkpoints(last=draw.whole(1, min(run.steps, 20)))
        case _:
            times = {draw.whole(1, run.steps) for _ in range(draw.whole(1, 4))}
            chosen = Checkpoints(at=sorted(times))
    return run.replace(release=chosen)


def _with_momentum(run: Run, draw: _Draw) -> Run:
    """Return the run, and often with momentum if a bound may speak of that."""
    simple = isinstance(run.batches, FullBatch | Poisson) and run.inverse_temperature is None
    simple = simple and run.release == LastIterate() and not run.has_schedule and run.l2 > 0
    if run.domain is not None or not simple or not draw.chance(0.2):
        return run
    kind = draw.pick(("heavy_ball", "nesterov"))
    return run.replace(momentum=float(f"{draw.scale(0.02, 0.8):.3g}"), momentum_kind=kind)


def _with_rates_and_groups(run: Run, draw: _Draw) -> Run:
    """Return the run, at times with rates of its own or neighbors several records apart."""
    match run.batches:
        case Poisson(rate=float(rate)) if run.steps <= LONGEST and draw.chance(0.15):
            top, bottom = rate * draw.uniform(0.5, 1.0), rate * draw.uniform(0.1, 1.0)
            pieces = draw.pick((1, 2, 3, run.steps))
            place = np.arange(run.steps) * pieces // run.steps / max(pieces - 1, 1)
            rates = top * (bottom / top) ** np.minimum(place, 1.0)
            changed = top if pieces == 1 else rates.tolist()
            run = run.replace(batch_size=run.batch_size, sampling_rate=changed)
        case _:
            pass
    if run.n > 8 and draw.chance(0.06):
        run = run.replace(group_size=draw.whole(2, 4))
    return run


def _with_other_losses(run: Run, draw: _Draw) -> Run:
    """Return the run, at times with convex-concave losses, or with several Hölder pairs.

    Losses that are convex in all weights are concave in none of them, so that every attack on
    such losses is one on a game too.
    """
    loss = run.loss
    if loss is None or not loss.convex or loss.strong_convexity > 0 or run.momentum > 0:
        return run
    if loss.holders and draw.chance(0.5):
        (exponent, constant), *_ = loss.holders
        other = min(0.95, exponent + draw.uniform(0.02, 0.5))
        pairs = [(exponent, constant), (other, constant * draw.scale(0.3, 3.0))]
        return run.replace(loss=replace(loss, holder=pairs if other > exponent else pairs[:1]))
    if loss.holders or not draw.chance(0.08):
        return run
    return run.replace(loss=replace(loss, convex=False, saddle=True))


class _Draw:
    """Random choices, all from one stream."""

    def __init__(self, *numbers: int) -> None:
        self._stream = np.random.default_rng(numbers)

    def uniform(self, low: float, high: float) -> float:
        return float(self._stream.uniform(low, high))

    def scale(self, low: float, high: float) -> float:
        """Return a number of uniform logarithm."""
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number of about uniform logarithm, both ends included."""
        return min(high, max(low, math.floor(self.scale(low, high + 1))))

    def chance(self, probability: float) -> bool:
        return self.uniform(0.0, 1.0) < probability

    def pick(self, items: tuple[Item, ...]) -> Item:
        return items[int(self._stream.integers(len(items)))]


class _Sketch:
    """Sizes drawn one after the other; what comes later uses what came before."""

    def __init__(self, draw: _Draw, named: str, losses: str) -> None:
        kind = _NARROW.get(named, named)
        self.draw, self.named, self.kind, self.losses = draw, named, kind, losses
        self.poisson = kind.startswith("poisson")
        self.laplace = kind in ("full_batch", "cyclic", "one_pass", "poisson") and draw.chance(0.04)
        often = kind in ("full_batch", "langevin", "one_pass", *_ORDERS)
        self.scheduled = draw.chance(0.25 if often else 0.07)
        self.replace = kind in ("poisson_replace", "fixed") or (
            kind != "poisson" and draw.chance(0.4)
        )
        if named in _NARROW:
            self.laplace, self.scheduled = named == "laplace_pass", False
            self.replace = kind == "fixed" or draw.chance(0.4)
        self.factor = 2.0 if self.replace else 1.0
        self._draw_sizes()
        self.eta, self.lipschitz = draw.scale(0.02, 5.0), draw.scale(0.2, 5.0)
        self.record_step = self.eta * self.lipschitz / self.batch
        self.gap = self._draw_gap()
        walls = 0.25 if kind == "reshuffle" else 0.5
        self.noise_steps = draw.scale(0.3, 60.0) if draw.chance(walls) else math.inf
        if losses in ("dissipative", "strong"):
            self.noise_steps = min(self.noise_steps, draw.scale(0.3, 20.0))
        if named in _NARROW:
            self.noise_steps = draw.scale(0.01, 10.0)
        self.multiplier = self._draw_multiplier()
        self.nu = self.multiplier * self.record_step
        self.diameter = self.noise_steps * self.nu

    def _draw_sizes(self) -> None:
        """Draw records, batch and number of steps."""
        draw = self.draw
        longest = 40 if self.laplace else 300 if self.scheduled else LONGEST
        self.steps = draw.whole(1, longest)
        if longest == LONGEST and self.kind != "reshuffle" and draw.chance(0.03):
            self.steps = _VERY_LONG
        self.n, self.batch = draw.whole(2, 100_000), 0.0
        if self.kind in _ORDERS:
            batch, batches = draw.whole(1, 100), draw.whole(1, 60)
            if draw.chance(0.4):  # short epochs, where one order differs much from another
                batches, self.steps = draw.whole(2, 4), min(self.steps, draw.whole(1, 30))
            self.n = max(batch, batches * batch - draw.whole(1, batch) * draw.chance(0.4))
            self.batch = float(batch)
            if draw.chance(0.5):  # whole epochs
                length = -(-self.n // batch)
                self.steps = max(length, self.steps // length * length)
            if self.named == "shuffled_pass":
                self.steps = min(self.steps, -(-self.n // batch))
        elif self.kind == "one_pass":
            self.n = draw.whole(1, 8 if self.laplace else 60 if self.named in _NARROW else 300)
            self.batch = float(draw.whole(1, min(10, self.n)))
            self.steps = -(-self.n // int(self.batch))
        elif self.kind in ("full_batch", "langevin"):
            self.batch = float(self.n)
        elif self.kind == "fixed":
            self.batch = float(draw.whole(1, max(1, self.n // 2)))
        else:
            rate = 1.0 if draw.chance(0.04) else draw.scale(1e-3, 0.7)
            self.batch = rate * self.n

    def _draw_gap(self) -> float:
        """Draw eta * l2, the distance of the contraction from 1."""
        if self.draw.chance(0.25):
            return 0.0
        if self.draw.chance(0.3):
            return self.draw.uniform(0.2, 0.95)
        return self.draw.scale(1e-4, 0.5)

    def _draw_multiplier(self) -> float:
        """Draw the noise from a wanted Gaussian parameter, by the usual rough formulas."""
        wanted = self.draw.scale(0.02, 2.0)
        memory = (2.0 - self.gap) / self.gap if self.gap > 0 else math.inf
        length = self.steps
        if self.kind in (*_ORDERS, "one_pass"):
            each = -(-self.n // int(self.batch))
            length, memory = -(-self.steps // each), 1 + memory / each
        rate = self.batch / self.n if self.poisson or self.kind == "fixed" else 1.0
        found = 1.0
        for _ in range(6):
            plateau = 4 * self.noise_steps * found / self.factor + 1
            uses = max(1.0, min(length, memory, plateau / rate))
            found = self.factor / math.sqrt(math.log1p(wanted**2 / (uses * rate**2)))
        return max(found, 0.2)

    def run(self) -> Run:
        """Return the description."""
        options = self._options()
        if self.kind == "full_batch":
            return NoisyGD(n=self.n, steps=self.steps, **options)
        if self.kind == "langevin":
            heat = 2 * self.eta / self.nu**2
            return ProjectedLangevin(
                n=self.n, steps=self.steps, inverse_temperature=heat, **options
            )
        if self.kind == "one_pass":
            return OnePassSGD(n=self.n, batch_size=self.batch, **options)
        if self.kind == "fixed":
            return NoisySGD(
                n=self.n, batch_size=self.batch, steps=self.steps, sampling="fixed", **options
            )
        if self.poisson:
            rate = self.batch / self.n
            return NoisySGD(n=self.n, sampling_rate=rate, steps=self.steps, **options)
        order: Any = self.kind
        return CyclicSGD(n=self.n, batch_size=self.batch, steps=self.steps, order=order, **options)

    def _options(self) -> Any:
        draw = self.draw
        options: dict[str, Any] = {
            "learning_rate": self.eta,
            "l2": self.gap / self.eta,
            "loss": self._loss(),
            "domain": self._domain(),
            "neighbors": "replace" if self.replace else "add_remove",
            "release": "all" if draw.chance(0.04) else "last",
        }
        if self.kind == "one_pass" and self.n <= 60 and draw.chance(0.2):
            options["release"] = "random_stop"
        if self.named == "random_stop" or (self.named == "laplace_pass" and draw.chance(0.5)):
            options["release"] = "random_stop"
        if self.laplace:
            options |= {"noise_kind": "laplace", "dimension": 1}
        name = draw.pick(("noise_multiplier", "noise_std", "iterate_std"))
        if self.kind != "langevin":
            options[name] = {
                "noise_multiplier": self.multiplier,
                "noise_std": self.nu / self.eta,
                "iterate_std": self.nu,
            }[name]
        if self.scheduled:
            changed = "learning_rate" if self.kind == "langevin" else None
            options |= self._schedule(changed or draw.pick(("learning_rate", name)), options)
        return options

    def _schedule(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Let one value fall to a part of itself: in a few blocks, or a little every step."""
        bottom = self.draw.uniform(0.3, 1.0)
        pieces = self.draw.pick((2, 3, self.steps))
        place = np.arange(self.steps) * pieces // self.steps / max(pieces - 1, 1)
        return {name: Schedule.of(options[name] * bottom ** np.minimum(place, 1.0))}

    def _domain(self) -> Ball | Box | Body | None:
        if math.isinf(self.diameter):
            return None
        half = self.diameter / 2
        match self.draw.pick(("ball", "box", "body")):
            case "ball":
                return Ball(half)
            case "box":
                return Box(-half, half)
            case _:
                return Body(self.diameter)

    def _loss(self) -> LossGeometry:
        draw = self.draw
        if self.losses == "nonsmooth":
            return LossGeometry(lipschitz=self.lipschitz, convex=True)
        if self.losses == "holder":
            holder = (draw.pick((0.0, 0.3, 0.5, 0.9)), draw.scale(0.05, 2.0) * self.lipschitz)
            return LossGeometry(lipschitz=self.lipschitz, convex=True, holder=holder)
        # A batch may be larger than its mean: the curvature leaves room for that, mostly.
        largest = 1 + (9 / math.sqrt(self.batch) + 30 / self.batch if self.poisson else 0.0)
        level = draw.uniform(0.02, 1.0)
        if draw.chance(0.3):
            level = 1.0 if draw.chance(0.5) else draw.uniform(1.0, 2.0)
        room = 2 * (1 - self.gap) / self.eta / min(largest, self.n / self.batch)
        smoothness = level * max(room, 1e-3 / self.eta)
        if self.losses == "smooth":
            return LossGeometry(lipschitz=self.lipschitz, convex=True, smoothness=smoothness)
        if self.losses == "strong":
            # No loss is more curved than this and Lipschitz on the whole domain.
            most = min(smoothness, 2 * self.lipschitz / self.diameter)
            return LossGeometry(
                lipschitz=self.lipschitz,
                convex=True,
                smoothness=smoothness,
                strong_convexity=draw.uniform(0.01, 0.99) * most,
            )
        dissipativity = None
        if self.losses == "dissipative":
            rate = draw.uniform(0.05, 1.0) * smoothness
            # With this offset linear losses are dissipative on the whole domain.
            dissipativity = (1.0001 * rate * self.diameter**2, rate)
        return LossGeometry(
            lipschitz=self.lipschitz,
            convex=False,
            smoothness=smoothness,
            dissipativity=dissipativity,
        )
