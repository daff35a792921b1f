"""Opacus with our accountant: importing this module registers it as "dplateau".

``PrivacyEngine(accountant="dplateau")`` then reports a proved upper bound of releasing every
iterate. For a ridge-regularized linear head whose iterates stay hidden, :func:`certify_head` makes
the claim of the last iterate, after checking that what Opacus ran is what the theorems are about:

    step(w) = w - lr * ( (sum of clipped gradients + noise) / b + weight_decay * w ),

with b the optimizer's ``expected_batch_size`` (Opacus rounds it down, so it is not the loader's
batch size), noise of deviation ``noise_multiplier * max_grad_norm`` on the sum, and SGD's weight
decay, which Opacus leaves outside clipping and noise: the ridge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dplateau.algorithms import LossGeometry, NoisySGD, Release
from dplateau.algorithms.release import ReleaseName
from dplateau.algorithms.schedule import PerStep, Schedule, in_order
from dplateau.bounds.base import Assumption
from dplateau.certificates import Certificate, certify
from dplateau.curves import LossCurve, PoissonPair
from dplateau.errors import InvalidInput, MissingExtra, NotApplicable
from dplateau.ground import checks
from dplateau.ground.shown import rounded_up
from dplateau.losses import Huber, Logistic, Softmax

try:
    import torch
    from opacus.accountants import IAccountant, create_accountant, register_accountant
    from opacus.data_loader import DPDataLoader
    from opacus.grad_sample import AbstractGradSampleModule
    from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
    from torch import nn
except ImportError as error:
    raise MissingExtra("dplateau.opacus needs Opacus: pip install 'dplateau[opacus]'") from error

__all__ = ["Accountant", "BoundedRows", "Epsilons", "certify_head", "certify_released"]

# Opacus divides by the norm plus this, so clipping acts a little below the clip norm. A scalar
# slope u becomes u min(1, C / (|u| + this)): increasing and nowhere steeper than before, so the
# clipped loss of a linear score is convex and as smooth as without.
_CLIP_ROOM = 1e-6
# BoundedRows stays this far below its norm, more than single precision can lose again.
_ROW_ROOM = 1e-6
_UNIFORMS = 2.0**24  # torch.rand draws multiples of 2^-24
_UP = 1 + 1e-15
_NOBODY = -100  # torch's default ignore_index: no class

ASSUMED = (
    Assumption(
        "every step is one batch of the loader, an empty one too: criterion(module(rows), "
        "targets).backward(), then optimizer.step(); a record's loss depends on no other record, "
        "none is ignored, and targets are numbers, classes or their probabilities",
        "declared",
    ),
    Assumption(
        "torch's generator is random, and rounding in torch costs nothing: neither is charged",
        "declared",
    ),
    Assumption("the start of the weights does not depend on the data", "declared"),
)
CHECKED = (
    Assumption("Opacus drew Poisson batches and divided by a constant", "checked"),
    Assumption("plain SGD with weight decay on every weight, the bias included", "checked"),
    Assumption("one linear layer behind BoundedRows, and a loss that is convex in it", "checked"),
)


class BoundedRows(nn.Module):
    """Scales every row of features that is longer than ``norm`` down to it, each on its own.

    Put it in front of the head: ``nn.Sequential(BoundedRows(1.0), nn.Linear(64, 2))``. The norm is
    a public number, never the longest row of the data, and stays what it is: claims read it at the
    end. Entries that are no number count as 0.
    """

    def __init__(self, norm: float) -> None:
        super().__init__()
        self._norm = checks.positive("norm", norm)

    @property
    def norm(self) -> float:
        """The bound on the length of every row."""
        return self._norm

    def forward(self, rows: Any) -> Any:
        """Return the rows, none longer than the norm."""
        # Single precision at least: what half of it rounds away is more than the room above.
        whole = rows.flatten(1).to(torch.promote_types(rows.dtype, torch.float32))
        whole = torch.nan_to_num(whole, nan=0.0, posinf=0.0, neginf=0.0)
        lengths = whole.to(torch.float64).norm(dim=1).clamp_min(self.norm)
        shares = torch.where(
            lengths > self.norm, self.norm * (1 - _ROW_ROOM) / lengths, torch.ones_like(lengths)
        )
        return whole * shares.to(whole.dtype)[:, None]

    def extra_repr(self) -> str:
        """Show the norm in the module's print."""
        return f"norm={self.norm:g}"


class Epsilons(NamedTuple):
    """Our upper bound and what Opacus' default accountant says, for the same steps."""

    dplateau: float
    opacus: float


@dataclass(frozen=True)
class _Settings:
    """What a DPOptimizer did at one step, as it stands in its own fields."""

    optimizer: type
    inner: type
    noise_multiplier: float
    clip: float | None
    divisor: float | None
    reduction: str
    accumulated: int
    groups: tuple[tuple[tuple[str, Any], ...], ...]

    @classmethod
    def of(cls, optimizer: DPOptimizer) -> _Settings:
        clip, divisor = optimizer.max_grad_norm, optimizer.expected_batch_size
        return cls(
            optimizer=type(optimizer),
            inner=type(optimizer.original_optimizer),
            noise_multiplier=float(optimizer.noise_multiplier),
            clip=float(clip) if isinstance(clip, int | float) else None,
            divisor=None if divisor is None else float(divisor),
            reduction=optimizer.loss_reduction,
            accumulated=optimizer.accumulated_iterations,
            groups=tuple(
                tuple(
                    (key, _plain(value)) for key, value in sorted(group.items()) if key != "params"
                )
                for group in optimizer.param_groups
            ),
        )

    def option(self, name: str) -> set[Any]:
        return {dict(group).get(name) for group in self.groups}


def _plain(value: Any) -> Any:
    """Return a number that stays as it is now: a tensor may be changed in place later."""
    return float(value) if isinstance(value, torch.Tensor) else value


class Accountant(IAccountant):
    """An accountant for Opacus; its epsilons hold for Poisson batches and every iterate released.

    ``history`` is as Opacus keeps it, so that checkpoints, ``make_private_with_epsilon`` and
    ``get_noise_multiplier`` work. Beside it, what the optimizer was set to is kept for each step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[float, float, int]] = []
        self.settings: list[tuple[_Settings, int]] = []
        self.optimizers: list[DPOptimizer] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step."""
        _count(self.history, (noise_multiplier, sample_rate))

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """Return what the optimizer calls at every step."""

        def hook(optimizer: DPOptimizer) -> None:
            if not any(one is optimizer for one in self.optimizers):
                self.optimizers.append(optimizer)
            settings = _Settings.of(optimizer)
            _count(self.settings, (settings,))
            # A record may be in several batches of one step. Each batch under its share of the
            # noise's variance shows no less than all of them under all of it.
            share = settings.noise_multiplier / math.sqrt(settings.accumulated)
            for _ in range(settings.accumulated):
                self.step(noise_multiplier=share, sample_rate=sample_rate)

        return hook

    def get_epsilon(self, delta: float, **unused: Any) -> float:
        """Return an upper bound on the epsilon of all steps so far, every iterate released."""
        self.require_noise_alone()
        if any(noise == 0 for noise, _, _ in self.history):
            return math.inf
        parts = tuple(
            (PoissonPair(drawn_rate(rate), _UP / noise), steps)
            for noise, rate, steps in self.history
        )
        return LossCurve(parts).epsilon(checks.level("delta", delta)) if parts else 0.0

    def beside(self, delta: float) -> Epsilons:
        """Return our bound beside the number of Opacus' default accountant ("prv")."""
        theirs = create_accountant("prv")
        theirs.history = list(self.history)
        return Epsilons(self.get_epsilon(delta), float(theirs.get_epsilon(delta)))

    def require_noise_alone(self) -> None:
        """Refuse steps that show more of the data than their noisy gradient."""
        if any(issubclass(one.optimizer, AdaClipDPOptimizer) for one, _ in self.settings):
            raise NotApplicable(
                "adaptive clipping divides by the true size of a batch, which no noise covers, so "
                'no epsilon is proved; use clipping="flat" or "per_layer"'
            )

    def __len__(self) -> int:
        """Return the number of batches."""
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Return the name that engines know it by."""
        return "dplateau"


def _count(rows: list[Any], key: tuple[Any, ...]) -> None:
    """Add one step to the last row if it has the same key, else begin a row."""
    if rows and rows[-1][:-1] == key:
        rows[-1] = (*key, rows[-1][-1] + 1)
    else:
        rows.append((*key, 1))


def drawn_rate(sample_rate: float) -> float:
    """Return the chance that Opacus' sampler takes a record: that ``torch.rand`` is below the rate.

    >>> drawn_rate(0.5), drawn_rate(0.1) > 0.1
    (0.5, True)
    """
    single = math.ceil(float(np.float32(sample_rate)) * _UNIFORMS) / _UNIFORMS
    return min(1.0, max(single, float(sample_rate)))


def certify_released(engine: Any, *, data_loader: Any, delta: float) -> Certificate:
    """Return the certificate of any model trained so far, every iterate released.

    ``engine`` is the PrivacyEngine, ``data_loader`` the loader that ``make_private`` returned.
    """
    accountant = _accountant(engine)
    accountant.require_noise_alone()
    n, rates = len(data_loader.dataset), _booked_rates(accountant, data_loader)
    run = NoisySGD(
        n=n,
        sampling_rate=rates,
        # What a step divides by is public, and nothing to a claim about released iterates.
        batch_size=n * max(rates.values()) if isinstance(rates, Schedule) else None,
        steps=len(accountant),
        noise_multiplier=in_order(
            "noise_multiplier", ((noise, steps) for noise, _, steps in accountant.history)
        ),
        release="all",
    )
    return _with(certify(run, delta), (*ASSUMED[1:2], CHECKED[0]))


def certify_head(
    engine: Any,
    *,
    module: Any,
    data_loader: Any,
    criterion: Any,
    delta: float,
    release: Release | ReleaseName,
) -> Certificate:
    """Return the certificate of a linear head with ridge whose iterates stayed hidden.

    Parameters
    ----------
    engine, module, data_loader
        The ``PrivacyEngine(accountant="dplateau")``, and what its ``make_private`` returned. The
        module is ``nn.Sequential(BoundedRows(norm), nn.Linear(features, outputs))``.
    criterion
        The loss that was trained: ``CrossEntropyLoss`` for two outputs (or more, if the clip norm
        is so large that clipping never acts), or, for one output, ``BCEWithLogitsLoss``,
        ``MSELoss``, ``HuberLoss`` or ``SmoothL1Loss``.
    delta
        Where epsilon is claimed.
    release
        What leaves, a promise: "last" if nothing else did, not even a loss or an accuracy.

    Raises
    ------
    NotApplicable
        If the head cannot be certified, with the reason and what would work.
    """
    accountant = _accountant(engine)
    if sum(one.accumulated * steps for one, steps in accountant.settings) != len(accountant):
        raise NotApplicable(
            "some steps were not taken under this accountant (a history was loaded or set), so "
            "their settings are not known; certify_released covers them"
        )
    settings = [one for one, _ in accountant.settings]
    rates = _booked_rates(accountant, data_loader)
    for objection in (_objection(one) for one in settings):
        if objection:
            raise NotApplicable(f"no hidden-state claim: {objection}")
    clip, divisor = _same(settings, "clip"), _same(settings, "divisor")
    head, norm = _head(module, accountant)
    geometry = _geometry(criterion, head.out_features, norm, clip, _same(settings, "reduction"))
    run = NoisySGD(
        n=len(data_loader.dataset),
        sampling_rate=rates,
        batch_size=divisor,
        steps=len(accountant),
        learning_rate=in_order(
            "learning_rate", ((_only(one, "lr"), steps) for one, steps in accountant.settings)
        ),
        l2=_only(settings[0], "weight_decay"),
        noise_multiplier=in_order(
            "noise_multiplier", ((one.noise_multiplier, n) for one, n in accountant.settings)
        ),
        loss=geometry,
        release=release,
    )
    return _with(certify(run, delta), (*ASSUMED, *CHECKED))


def _with(certificate: Certificate, more: tuple[Assumption, ...]) -> Certificate:
    return replace(certificate, assumptions=(*certificate.assumptions, *more))


def _accountant(engine: Any) -> Accountant:
    accountant = getattr(engine, "accountant", engine)
    if not isinstance(accountant, Accountant):
        raise InvalidInput(
            f"the engine counts with {type(accountant).__name__}; make it with "
            'PrivacyEngine(accountant="dplateau")'
        )
    if not accountant.history:
        raise InvalidInput("nothing was trained yet, so there is nothing to certify")
    return accountant


def _booked_rates(accountant: Accountant, loader: Any) -> PerStep:
    """Return the chance of a record to be in a batch, of each step; refuse other loaders.

    Opacus books one over the batches that the loader yields, which may be one less than the loader
    was made for: then the booked rate is the larger one.
    """
    if not isinstance(loader, DPDataLoader):
        raise NotApplicable(
            f"batches come from a {type(loader).__name__}, which does not draw every record on its "
            "own; the accounting is about poisson_sampling=True of make_private"
        )
    if loader.distributed:
        raise NotApplicable("batches of several workers are not covered; train on one")
    if getattr(loader.collate_fn, "rand_on_empty", False):
        raise NotApplicable(
            "rand_on_empty=True puts a made-up record in place of an empty batch, which a record "
            "that joins takes away again: twice the sensitivity; leave it out"
        )
    booked = [(drawn_rate(rate), steps) for _, rate, steps in accountant.history]
    if not booked[-1][0] >= drawn_rate(loader.sample_rate):
        raise NotApplicable(
            f"the last steps were booked at a sampling rate of {booked[-1][0]:.6g}, and this "
            f"loader draws at {loader.sample_rate:.6g}: pass the one that make_private returned"
        )
    return in_order("sampling_rate", booked)


def _objection(one: _Settings) -> str | None:
    """Return why steps with these settings are not those of the theorems."""
    for value, wanted, problem in _checks(one):
        if value != wanted:
            return f"{problem} (got {value!r})"
    if len(one.option("lr")) > 1 or len(one.option("weight_decay")) > 1:
        return (
            "parameter groups differ; the ridge has to cover every weight, the bias too: give "
            "SGD one group with one lr and one weight_decay"
        )
    if not _only(one, "weight_decay") > 0:
        return "there is no ridge: give SGD weight_decay=... (it has to cover the bias too)"
    if one.clip is None or one.divisor is None or not one.divisor >= 1:
        return "one clip norm for all weights and an expected batch size of at least 1 are needed"
    return None


def _checks(one: _Settings) -> Iterator[tuple[Any, Any, str]]:
    yield one.optimizer, DPOptimizer, "only flat clipping on one worker, by hooks, is known"
    yield one.inner, torch.optim.SGD, "steps of plain torch.optim.SGD are needed"
    yield one.reduction, "mean", "only loss_reduction='mean' divides by a constant batch size"
    yield one.accumulated, 1, "gradients of several batches were added up before a step"
    for name in ("momentum", "dampening"):
        yield one.option(name), {0}, f"SGD with {name} is another recursion; set {name}=0"
    yield one.option("maximize"), {False}, "steps go uphill; set maximize=False"


def _only(one: _Settings, name: str) -> float:
    return float(next(iter(one.option(name))))


def _same(settings: list[_Settings], name: str) -> Any:
    values = {getattr(one, name) for one in settings}
    if name == "clip" and len({_only(one, "weight_decay") for one in settings}) > 1:
        raise NotApplicable("no hidden-state claim: weight_decay changed between steps")
    if len(values) > 1:
        raise NotApplicable(
            f"no hidden-state claim: {name} changed between steps, from one of {sorted(values)}"
        )
    return values.pop()


def _head(module: Any, accountant: Accountant) -> tuple[Any, float]:
    """Return the linear layer and the bound on the norm of what enters it (its constant too)."""
    inner = module._module if isinstance(module, AbstractGradSampleModule) else module
    parts = list(inner) if type(inner) is nn.Sequential else [inner]
    kinds = [type(part) for part in parts]
    if kinds != [BoundedRows, nn.Linear]:
        raise NotApplicable(
            "no hidden-state claim: the module has to be nn.Sequential(BoundedRows(norm), "
            f"nn.Linear(...)) and nothing else; got {', '.join(kind.__name__ for kind in kinds)} "
            "(what is frozen in front belongs into the data set)"
        )
    rows, head = parts
    # Opacus' own hooks stand behind the linear layer.
    if any(one._forward_pre_hooks for one in (inner, rows, head)) or rows._forward_hooks:
        raise NotApplicable(
            "no hidden-state claim: a hook in front of the linear layer may change its rows; "
            "remove it"
        )
    if len(accountant.optimizers) != 1:
        raise NotApplicable(
            f"no hidden-state claim: this engine counted steps of {len(accountant.optimizers)} "
            "optimizers; give each head an engine of its own, and compose their certificates"
        )
    trained = accountant.optimizers[0].params
    if {id(one) for one in head.parameters()} != {id(one) for one in trained}:
        raise NotApplicable(
            "no hidden-state claim: the optimizer has to hold all weights of this head and no "
            "others"
        )
    return head, math.hypot(rows.norm, 1.0) if head.bias is not None else rows.norm


def _geometry(
    criterion: Any, outputs: int, norm: float, clip: float, reduction: str
) -> LossGeometry:
    """Return the constants of one record's clipped loss; clipping keeps scalar links convex."""
    if getattr(criterion, "reduction", reduction) != reduction:
        raise NotApplicable(
            f"no hidden-state claim: the loss has reduction={criterion.reduction!r}, but Opacus "
            f"was told loss_reduction={reduction!r}"
        )
    for name in ("weight", "pos_weight", "label_smoothing"):
        value = getattr(criterion, name, None)
        if value is not None and not (isinstance(value, float) and value == 0):
            raise NotApplicable(
                f"no hidden-state claim: {type(criterion).__name__} with {name} has other "
                "constants; leave it out"
            )
    if getattr(criterion, "ignore_index", _NOBODY) != _NOBODY:
        raise NotApplicable(
            "no hidden-state claim: with ignore_index the loss divides by how many records count, "
            "so that each depends on the others; leave them out of the data instead"
        )
    smoothness = _smoothness(criterion, outputs, norm)
    if smoothness is None:
        raise NotApplicable(
            f"no hidden-state claim for {type(criterion).__name__} on {outputs} outputs: known are "
            "CrossEntropyLoss on two or more, and BCEWithLogitsLoss, MSELoss, HuberLoss and "
            "SmoothL1Loss on one"
        )
    longest = Softmax(outputs).geometry(norm).lipschitz if outputs > 2 else 0.0
    if outputs > 2 and clip < longest * (1 + 1e-5) + _CLIP_ROOM:
        raise NotApplicable(
            f"no hidden-state claim: clipping at {clip:g} may act on gradients of up to "
            f"{longest:.4g}, and with {outputs} classes clipped gradients belong to no convex "
            f"loss; set max_grad_norm={rounded_up(longest * 1.0001, 4)} or more, or bound "
            "the rows by less"
        )
    return LossGeometry(lipschitz=clip, convex=True, smoothness=smoothness)


def _smoothness(criterion: Any, outputs: int, norm: float) -> float | None:
    """Return M of one record's loss, before clipping; None if the loss is not known."""
    kind = type(criterion)
    if kind is nn.CrossEntropyLoss and outputs > 1:
        return Softmax(outputs).geometry(norm).smoothness
    if outputs > 1:
        return None
    residual = Huber(1.0).geometry(norm).smoothness  # of (score - y)^2 / 2
    if kind is nn.BCEWithLogitsLoss:
        return Logistic().geometry(norm).smoothness
    if kind is nn.MSELoss:
        return 2 * residual
    if kind is nn.HuberLoss:
        return residual
    if kind is nn.SmoothL1Loss and criterion.beta > 0:
        return residual / float(criterion.beta)
    return None


register_accountant("dplateau", Accountant, force=True)
