"""The public names and their homes: read by type checkers, and by the door when one is used."""

from . import losses as losses
from .algorithms import (
    Ball as Ball,
    Body as Body,
    Box as Box,
    Checkpoints as Checkpoints,
    CyclicSGD as CyclicSGD,
    Dissipativity as Dissipativity,
    Holder as Holder,
    LossGeometry as LossGeometry,
    NoisyGD as NoisyGD,
    NoisySGD as NoisySGD,
    OnePassSGD as OnePassSGD,
    ProjectedLangevin as ProjectedLangevin,
    Run as Run,
    Schedule as Schedule,
)
from .audit import (
    AuditReport as AuditReport,
    Tightness as Tightness,
    audit_trainer as audit_trainer,
    lower_bound as lower_bound,
    search_adversary as search_adversary,
    tightness as tightness,
    worst_case_pair as worst_case_pair,
)
from .certificates import (
    Calibration as Calibration,
    Certificate as Certificate,
    Comparison as Comparison,
    Composition as Composition,
    ForeignPart as ForeignPart,
    calibrate as calibrate,
    certify as certify,
    compare as compare,
    compose as compose,
    epsilon_over_releases as epsilon_over_releases,
    epsilon_over_steps as epsilon_over_steps,
    foreign as foreign,
    noise_needed as noise_needed,
    per_record as per_record,
)
from .engines import train as train, train_gradient as train_gradient
from .errors import (
    DplateauError as DplateauError,
    InvalidInput as InvalidInput,
    LedgerBroken as LedgerBroken,
    MissingExtra as MissingExtra,
    NotApplicable as NotApplicable,
    PoorPlanWarning as PoorPlanWarning,
    PrivacyLeakWarning as PrivacyLeakWarning,
    SpendRefused as SpendRefused,
)
from .estimators import (
    PrivateHuberRegressor as PrivateHuberRegressor,
    PrivateLinearSVC as PrivateLinearSVC,
    PrivateLogisticRegression as PrivateLogisticRegression,
    PrivateRidge as PrivateRidge,
    noisy_score as noisy_score,
)
from .ground.progress import progress as progress
from .ledger import Ledger as Ledger
from .planning import Plan as Plan, plan as plan
from .sampling import (
    LangevinSampler as LangevinSampler,
    MixingCertificate as MixingCertificate,
    OffCenterBall as OffCenterBall,
    Polytope as Polytope,
    Potential as Potential,
    Samples as Samples,
    Simplex as Simplex,
    certify_mixing as certify_mixing,
    largest_learning_rate as largest_learning_rate,
    sample as sample,
    tv_over_steps as tv_over_steps,
)
from .tables import load_model as load_model
from .verify import verify as verify

__version__: str
