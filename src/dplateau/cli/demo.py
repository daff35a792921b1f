"""The two-minute demonstration: private models of embedded data, and what hiding saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from dplateau.algorithms import LossGeometry, NoisySGD, Run
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.certificates.certify import certificate_of, comparison_of, survey
from dplateau.cli import show
from dplateau.errors import MissingExtra
from dplateau.ground.shown import rounded_up
from dplateau.planning import plan

if TYPE_CHECKING:
    from dplateau.estimators.examples import PublicData

DELTA = 1e-5
HIDDEN_STEPS = 4000
# The accountants in use, all of which charge for every iterate, and what a column calls them.
IN_USE = {
    "pld_composition": "PLD",
    "rdp_composition": "RDP",
    "advanced_composition": "advanced",
    "naive_composition": "naive",
}


def demo_run() -> Run:
    """Return DP-SGD for a ridge-regularized logistic head on 60000 rows of norm at most 1."""
    return NoisySGD(
        n=60_000,
        batch_size=600,
        epochs=50,
        learning_rate=2.0,
        l2=0.005,
        noise_multiplier=1.0,
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
        release="last",
    )


def run_demo() -> None:
    """Train on embedded data if that can be done, then account for a larger run by every bound."""
    try:
        train_demo()
    except MissingExtra as missing:
        show.console.print(f"No models here: {missing}\n", soft_wrap=True, markup=False)
    account_demo()


def train_demo() -> None:
    """Train private models of scikit-learn's digits, which are public, and show what they cost."""
    from dplateau.estimators.examples import digits

    data = digits()
    show.console.print(
        f"Handwritten digits: {data.n} training rows of 64 pixels, ten classes, every row scaled "
        "to norm 1. These data are public, so exact accuracies may be shown.",
        soft_wrap=True,
    )
    table = Table(title=f"test accuracy, delta = {DELTA:g}", title_justify="left")
    for name in ("model", "accuracy", "epsilon", *IN_USE.values()):
        table.add_column(name, justify="left" if name == "model" else "right")
    table.add_row("not private", f"{data.plain_accuracy():.3f}", "none")
    certificates: list[Any] = []
    for epsilon in (0.5, 1.0, 2.0, 8.0):
        model = data.fit(epsilon)
        certificates.append(model.certificate_)
        table.add_row(*_row("planned", data.accuracy(model), model))
    model = data.fit(2.0, algorithm=_hidden_run(data, 2.0))
    name = f"{HIDDEN_STEPS} hidden steps"
    table.add_row(*_row(name, data.accuracy(model), model))
    show.console.print(table)
    show.console.print(
        "epsilon: what is proved here, of noisy second moments (if rows are whitened by them) and "
        "of the training together. To its right: what the accountants in use report for the "
        "training alone. The last row trains until it no longer changes; its iterates stay hidden, "
        "so its length costs nothing, while they charge for every step.",
        soft_wrap=True,
    )
    show.console.print(f"certificate of the second: [bold]{certificates[1]}[/bold]\n")


def _hidden_run(data: PublicData, epsilon: float) -> Run:
    """Return a long run of which only the last iterate leaves; its noise is calibrated by fit."""
    planned = plan(
        data.n,
        data.rows.shape[1],
        n_classes=len(set(data.labels.tolist())),
        epsilon=epsilon,
        compute_budget=HIDDEN_STEPS,
        algorithm="gd",
        whitening="never",
    )
    return planned.run.replace(average_last=1, l2=0.004)


def _row(name: str, accuracy: float, model: Any) -> tuple[str, ...]:
    accountants = [bound_named(bound) for bound in IN_USE]
    findings = survey(model.plan_.run, DELTA, accountants)
    charged = {finding.bound.name: finding.epsilon for finding in findings}
    numbers = [model.certificate_.claimed_epsilon, *(charged[bound] for bound in IN_USE)]
    return name, f"{accuracy:.3f}", *("-" if e is None else rounded_up(e, 4) for e in numbers)


def account_demo() -> None:
    """Account for a realistic run by every bound, and say what the hidden state is worth."""
    run = demo_run()
    show.console.print(
        "Logistic regression on 60000 rows of norm <= 1, batches of 600, 50 epochs, "
        "noise multiplier 1, ridge 0.005; only the final model leaves."
    )
    findings = survey(run, DELTA, [bound for bound in BOUNDS if bound.sound])
    applicable = [finding for finding in findings if finding.epsilon is not None]
    certificate = certificate_of(run, DELTA, findings)
    show.show_comparison(comparison_of(run, DELTA, applicable), certificate)
    released = min(f.epsilon for f in applicable if f.epsilon and not f.bound.hidden_state)
    show.console.print(
        f"The best accountant that charges for every iterate reports {rounded_up(released, 4)}; "
        f"hiding the iterates gives [bold]{rounded_up(certificate.claimed_epsilon, 4)}[/bold], "
        f"{released / certificate.claimed_epsilon:.1f} times less for the same noise.",
        soft_wrap=True,
    )
    show.show_certificate(certificate)
