"""What a sampler drew, with its description, its certificate and its diagnostics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.sampling.mixing_certificate import MixingCertificate
from dplateau.sampling.sampler import LangevinSampler, LangevinState

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False)
class Samples:
    """Draws of shape (chains, draws, d), and how they came about.

    Draws are not private: every iterate that is kept is a release (``sampler.run`` says "all" and
    describes one of the chains). ``warmup`` steps were thrown away; ``certificate`` bounds the
    total variation between what is left and the chain's stationary law, if one was asked for.
    """

    draws: FloatArray
    sampler: LangevinSampler
    warmup: int
    thin: int
    last: LangevinState
    certificate: MixingCertificate | None = None

    @property
    def flat(self) -> FloatArray:
        """All draws as rows."""
        return self.draws.reshape(-1, self.draws.shape[-1])

    def to_datatree(self, name: str = "x") -> xr.DataTree:
        """Return the draws as ArviZ data: a tree with the group "posterior"."""
        base, _ = _arviz()
        run = self.sampler.run
        attributes = {
            "inference_library": "dplateau",
            "algorithm": run.kind,
            "learning_rate": str(run.learning_rate),
            "warmup_steps": self.warmup,
            "thinning": self.thin,
        }
        tree: xr.DataTree = base.from_dict(
            {"posterior": {name: np.ascontiguousarray(self.draws)}},
            attrs={"posterior": attributes},
        )
        return tree

    to_arviz = to_datatree

    def r_hat(self) -> FloatArray:
        """Return the rank-normalised R-hat of each coordinate (near 1: the chains agree)."""
        _, stats = _arviz()
        if self.draws.shape[0] < 2 or self.draws.shape[1] < 4:
            raise InvalidInput(
                f"R-hat compares chains: it needs at least 2 chains of 4 draws; these are "
                f"{self.draws.shape[0]} of {self.draws.shape[1]}"
            )
        return self._by_coordinate(lambda one: stats.rhat(one))

    def effective_sample_size(self) -> FloatArray:
        """Return how many independent draws each coordinate's mean is worth (bulk)."""
        _, stats = _arviz()
        return self._by_coordinate(lambda one: stats.ess(one))

    def _by_coordinate(self, measure: Any) -> FloatArray:
        size = self.draws.shape[-1]
        one = [np.ascontiguousarray(self.draws[:, :, j]) for j in range(size)]
        return np.array([float(measure(values)) for values in one])

    def __str__(self) -> str:
        """Say how many draws there are and what is known of them."""
        chains, draws, size = self.draws.shape
        claim = "" if self.certificate is None else f"; {self.certificate}"
        return (
            f"{chains} chains of {draws} draws in {size} dimensions, {self.warmup} steps of "
            f"warm-up, every {self.thin} steps kept{claim}"
        )


def _arviz() -> tuple[Any, Any]:
    """Load the two packages of the extra, or refuse in one line."""
    try:
        import arviz_base
        import arviz_stats
    except ImportError:
        raise NotApplicable(
            "ArviZ export and diagnostics need the extra sampling: pip install 'dplateau[sampling]'"
        ) from None
    return arviz_base, arviz_stats
