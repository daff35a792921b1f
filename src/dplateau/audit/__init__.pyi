"""The names of this room and their homes: read by type checkers, and by the door."""

from .adversary import search_adversary as search_adversary
from .walks import (
    Always as Always,
    Bernoulli as Bernoulli,
    Inclusion as Inclusion,
    Once as Once,
    Periodic as Periodic,
    Reshuffled as Reshuffled,
    Shuffled as Shuffled,
    Until as Until,
)
from .laws import (
    HalfLine as HalfLine,
    TailBracket as TailBracket,
    delta_from_brackets as delta_from_brackets,
    epsilon_from_brackets as epsilon_from_brackets,
)
from .lower_bounds import lower_bound as lower_bound, problems_of as problems_of
from .lower_curves import (
    LowerPoints as LowerPoints,
    lower_over_records as lower_over_records,
    lower_over_steps as lower_over_steps,
)
from .monte_carlo import AuditReport as AuditReport, audit_trainer as audit_trainer
from .monte_carlo_rates import CanaryPair as CanaryPair, worst_case_pair as worst_case_pair
from .problems import (
    LowerBound as LowerBound,
    WalkProblem as WalkProblem,
    final_laws as final_laws,
    lower_delta as lower_delta,
    lower_epsilon as lower_epsilon,
    solve as solve,
)
from .against_claims import (
    Findings as Findings,
    findings_against as findings_against,
    Tightness as Tightness,
    TightnessOverSteps as TightnessOverSteps,
    tightness as tightness,
    tightness_over_steps as tightness_over_steps,
)
