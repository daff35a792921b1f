"""scikit-learn's own checks, at the default parameters of every estimator."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

from dplateau import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning"),
]

ESTIMATORS = [
    PrivateLogisticRegression(),
    PrivateLinearSVC(),
    PrivateRidge(),
    PrivateHuberRegressor(),
]
# SciPy reads this switch when it is imported, so the check has a process of its own below.
NEEDS_ARRAY_API = "check_array_api_input"


def checks() -> Iterator[Any]:
    for estimator in ESTIMATORS:
        for instance, check in estimator_checks_generator(estimator):
            if check.func.__name__ != NEEDS_ARRAY_API:
                yield pytest.param(instance, check, id=f"{estimator}-{name_of(check)}")


def name_of(check: partial[None]) -> str:
    options = [f"{name}={value}" for name, value in check.keywords.items()]
    return "-".join([check.func.__name__, *options])


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn_accepts(estimator: Any, check: partial[None]) -> None:
    check(estimator)


def test_array_api_dispatch_changes_nothing() -> None:
    names = [type(estimator).__name__ for estimator in ESTIMATORS]
    script = f"""
import warnings
import dplateau
from sklearn.utils.estimator_checks import estimator_checks_generator
warnings.simplefilter("ignore", dplateau.PrivacyLeakWarning)
warnings.simplefilter("ignore", dplateau.PoorPlanWarning)
for name in {names}:
    for instance, check in estimator_checks_generator(getattr(dplateau, name)()):
        if check.func.__name__ == {NEEDS_ARRAY_API!r}:
            check(instance)
            print(name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == names


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_only_a_poor_score_is_declared(estimator: Any) -> None:
    tags = get_tags(estimator)
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert tags.requires_fit
    assert tags.input_tags.sparse
    if is_classifier(estimator):
        assert tags.classifier_tags.multi_class
        assert tags.classifier_tags.poor_score
    else:
        assert is_regressor(estimator)
        assert tags.regressor_tags.poor_score
