"""What the losses with one score per class refuse."""

from __future__ import annotations

import numpy as np
import pytest

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.losses import Hinge, Huber, OneVersusRest, SmoothedHinge


def test_links_without_classes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="a link for targets -1 and 1"):
        OneVersusRest(Huber(), 3)
    with pytest.raises(InvalidInput, match="n_classes must be at least 2"):
        OneVersusRest(SmoothedHinge(), 1)


def test_constants_that_do_not_exist_are_refused() -> None:
    with pytest.raises(NotApplicable, match="a step may expand"):
        OneVersusRest(SmoothedHinge(), 3).geometry(1.0, clip=1.0)
    with pytest.raises(NotApplicable, match="has corners"):
        OneVersusRest(Hinge(), 3).geometry(1.0)


@pytest.mark.parametrize("targets", [[0, 3], [-1, 0], [0.0, 1.0], [[0], [1]]])
def test_targets_must_be_class_numbers(targets: list[object]) -> None:
    with pytest.raises(InvalidInput, match="from 0 to 2"):
        OneVersusRest(SmoothedHinge(), 3).check_targets(np.array(targets))
