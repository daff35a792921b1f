"""Real Opacus runs under our accountant: epsilons, certificates of heads, and every refusal."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import create_accountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.data_loader import DPDataLoader
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn

import dplateau.opacus as bridge
from dplateau import InvalidInput, NoisyGD, NoisySGD, NotApplicable, certify, verify
from dplateau.opacus import BoundedRows, certify_head, certify_released

torch.set_num_threads(1)  # tiny heads: a second thread only waits
pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::RuntimeWarning:opacus"
)
N, WIDTH, DELTA = 600, 5, 1e-5
TWO_CLASSES = nn.CrossEntropyLoss()


def records(n: int = N, targets: str = "classes") -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(n, WIDTH, generator=generator) * 3
    signs = (rows[:, 0] > 0).long()
    return torch.utils.data.TensorDataset(
        rows, signs if targets == "classes" else signs.float()[:, None]
    )


def trained(
    head: Any = None,
    criterion: Any = TWO_CLASSES,
    *,
    steps: int = 12,
    sgd: dict[str, Any] | None = None,
    batch: int = 50,
    before_step: Any = None,
    data: Any = None,
    added_up: int = 1,
    physical: int | None = None,
    optimizer_class: Any = torch.optim.SGD,
    **private: Any,
) -> tuple[PrivacyEngine, dict[str, Any]]:
    """Train with real Opacus and return the engine and what certify_head asks for."""
    head = head or nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 2))
    classes = isinstance(criterion, nn.CrossEntropyLoss)
    data = data or records(targets="classes" if classes else "numbers")
    engine = PrivacyEngine(accountant="dplateau")
    options = {"lr": 0.5, "weight_decay": 0.1, **(sgd or {})}
    groups = options.pop("groups", None)
    optimizer = optimizer_class(groups(head) if groups else head.parameters(), **options)
    loader = torch.utils.data.DataLoader(data, batch_size=batch)
    module, optimizer, loader = engine.make_private(
        module=head,
        optimizer=optimizer,
        data_loader=loader,
        **{"noise_multiplier": 2.0, "max_grad_norm": 1.0, **private},
    )[:3]
    if added_up > 1:
        module.allow_grad_accumulation()
    done = 0
    with (
        BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=physical, optimizer=optimizer
        )
        if physical
        else nullcontext(loader)
    ) as batches:
        while done < steps:
            for rows, targets in batches:
                if before_step:
                    before_step(done, optimizer)
                if done % added_up == 0:
                    optimizer.zero_grad()
                criterion(module(rows), targets).backward()
                done += not optimizer._check_skip_next_step(pop_next=False)
                if done % added_up == 0:
                    optimizer.step()
                if done == steps:
                    break
    return engine, {"module": module, "data_loader": loader, "criterion": criterion}


# ---- any network ---------------------------------------------------------------------------------


def test_a_network_gets_our_upper_bound_beside_their_number() -> None:
    network = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 2))
    engine, found = trained(network, sgd={"momentum": 0.9}, steps=20)
    ours, theirs = engine.accountant.beside(DELTA)
    assert engine.get_epsilon(DELTA) == ours
    # Theirs is an upper end too, a hundredth above; the rate of torch.rand is ours alone.
    assert theirs - 0.02 < ours <= theirs + 1e-3
    certificate = certify_released(engine, data_loader=found["data_loader"], delta=DELTA)
    assert certificate.claimed_epsilon == pytest.approx(ours, rel=4e-3)
    assert certificate.run.steps == len(engine.accountant) == 20
    assert verify(certificate.to_dict()).ok


def test_where_their_accountant_is_wrong_ours_is_not() -> None:
    """q = sigma = .01, one step: the truth is near 5303; the default of Opacus says 705."""
    ours, theirs = create_accountant("dplateau"), create_accountant("prv")
    ours.history = theirs.history = [(0.01, 0.01, 1)]
    assert theirs.get_epsilon(DELTA) < 1000 < 5300 < ours.get_epsilon(DELTA) < 5400


def test_their_calibration_works_with_our_accountant() -> None:
    sigma = get_noise_multiplier(
        target_epsilon=1.0, target_delta=DELTA, sample_rate=0.05, epochs=5, accountant="dplateau"
    )
    exact = certify(
        NoisySGD(n=1000, sampling_rate=0.05, steps=100, noise_multiplier=sigma, release="all"),
        DELTA,
    )
    assert 0.95 < exact.claimed_epsilon <= 1.003


def test_a_state_survives_saving() -> None:
    engine, _ = trained(steps=3)
    state = engine.accountant.state_dict()
    again = create_accountant("dplateau")
    again.load_state_dict(state)
    assert again.get_epsilon(DELTA) == engine.get_epsilon(DELTA) > 0
    assert create_accountant("dplateau").get_epsilon(DELTA) == 0.0
    again.history = [(0.0, 0.1, 1)]
    assert again.get_epsilon(DELTA) == math.inf


def test_batches_that_are_added_up_before_a_step_are_counted_each() -> None:
    """Three batches of everybody under one noise: a record moves the sum by three clip norms."""
    engine, found = trained(steps=12, batch=N, added_up=3)
    assert engine.accountant.history == [(2.0 / math.sqrt(3), 1.0, 12)]
    exact = certify(NoisyGD(n=N, steps=4, noise_multiplier=2.0 / 3, release="all"), DELTA)
    assert engine.get_epsilon(DELTA) == pytest.approx(exact.claimed_epsilon, rel=1e-3)
    assert engine.get_epsilon(DELTA) >= exact.claimed_epsilon * (1 - 1e-6)
    with pytest.raises(NotApplicable, match="several batches were added up"):
        certify_head(engine, **found, delta=DELTA, release="last")


def test_large_batches_in_small_parts_are_one_batch() -> None:
    whole, _ = trained(steps=12)
    parts, found = trained(steps=12, physical=16)
    assert parts.accountant.history == whole.accountant.history
    run = certify_head(parts, **found, delta=DELTA, release="last").run
    assert (run.steps, run.batch_size) == (12, 50)


def test_adaptive_clipping_has_no_epsilon() -> None:
    engine, found = trained(
        steps=1,
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=2.0,
        min_clipbound=0.1,
        unclipped_num_std=10.0,
    )
    for claim in (
        lambda: engine.get_epsilon(DELTA),
        lambda: certify_released(engine, data_loader=found["data_loader"], delta=DELTA),
    ):
        with pytest.raises(NotApplicable, match="divides by the true size of a batch"):
            claim()


def test_batches_of_another_size_later_are_a_schedule() -> None:
    engine = PrivacyEngine(accountant="dplateau")
    head = nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 2))
    optimizer, module = torch.optim.SGD(head.parameters(), lr=0.5, weight_decay=0.1), head
    for batch in (50, 200):
        module, private, loader = engine.make_private(
            module=module,
            optimizer=optimizer,
            data_loader=torch.utils.data.DataLoader(records(), batch_size=batch),
            noise_multiplier=2.0,
            max_grad_norm=1.0,
        )
        for rows, targets in loader:
            private.zero_grad()
            TWO_CLASSES(module(rows), targets).backward()
            private.step()
    certificate = certify_released(engine, data_loader=loader, delta=DELTA)
    assert certificate.run.batches.rate.blocks == tuple(
        (bridge.drawn_rate(1 / count), count) for count in (12, 3)
    )
    assert certificate.claimed_epsilon == pytest.approx(engine.get_epsilon(DELTA), rel=4e-3)
    wider = DPDataLoader.from_data_loader(torch.utils.data.DataLoader(records(), batch_size=300))
    with pytest.raises(NotApplicable, match="pass the one that make_private returned"):
        certify_released(engine, data_loader=wider, delta=DELTA)


def test_the_sampler_draws_with_the_rate_we_account_for() -> None:
    """A record is taken if a multiple of 2^-24 lies below the rate, read in single precision."""
    rate = 1.5 * 2.0**-24
    assert bridge.drawn_rate(rate) == 2.0**-23
    grid = torch.arange(4, dtype=torch.float32) * 2.0**-24
    assert int((grid < rate).sum()) / 2**24 == bridge.drawn_rate(rate)


# ---- heads ---------------------------------------------------------------------------------------


def test_a_head_is_certified_as_what_opacus_ran() -> None:
    engine, found = trained(batch=47, steps=40)
    certificate = certify_head(engine, **found, delta=DELTA, release="last")
    run = certificate.run
    length = len(found["data_loader"])
    assert run.batch_size == int(N / length) == 46  # not 47: Opacus rounds down
    assert run.sampling_rate == bridge.drawn_rate(1 / length)
    assert (run.n, run.steps, run.l2, run.learning_rate) == (N, 40, 0.1, 0.5)
    # Two scores of one row and its constant: M = |(x, 1)|^2 / 2.
    assert (run.loss.lipschitz, run.loss.convex) == (1.0, True)
    assert run.loss.smoothness == pytest.approx(1.0)
    assert run.noise_multiplier == 2.0
    assert verify(certificate.to_dict()).ok
    texts = [one.text for one in certificate.assumptions]
    assert any("weight decay on every weight" in text for text in texts)


def test_hiding_the_iterates_of_a_head_pays() -> None:
    engine, found = trained(steps=240, sgd={"weight_decay": 0.5})
    hidden = certify_head(engine, **found, delta=DELTA, release="last")
    assert hidden.bound == "poisson_blocks"
    assert hidden.claimed_epsilon < 0.6 * engine.get_epsilon(DELTA)
    shown = certify_head(engine, **found, delta=DELTA, release="all")
    assert shown.claimed_epsilon == pytest.approx(engine.get_epsilon(DELTA), rel=4e-3)


def test_one_step_of_opacus_is_the_described_map() -> None:
    """Without noise worth the name: w - lr (sum of clipped gradients / b + weight_decay w)."""
    head = nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 2))
    start = torch.cat([head[1].weight.detach(), head[1].bias.detach()[:, None]], dim=1).double()
    data = records(n=40)
    engine, found = trained(head, steps=1, batch=40, data=data, noise_multiplier=1e-9)
    rows = head[0](data.tensors[0]).double()
    rows = torch.cat([rows, torch.ones(40, 1)], dim=1)
    slopes = torch.softmax(rows @ start.T, dim=1) - nn.functional.one_hot(data.tensors[1], 2)
    gradients = slopes[:, :, None] * rows[:, None, :]
    lengths = gradients.flatten(1).norm(dim=1)
    clipped = (gradients / lengths.clamp_min(1.0)[:, None, None]).sum(dim=0)
    run = certify_head(engine, **found, delta=DELTA, release="last").run
    expected = start - run.learning_rate * (clipped / run.batch_size + run.l2 * start)
    after = torch.cat([head[1].weight.detach(), head[1].bias.detach()[:, None]], dim=1).double()
    assert float((lengths > 1.0).double().mean()) > 0.05
    assert torch.allclose(after, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("criterion", "smoothness"),
    [
        (nn.BCEWithLogitsLoss(), 0.5),  # |(x, 1)|^2 / 4
        (nn.MSELoss(), 4.0),
        (nn.HuberLoss(delta=0.3), 2.0),
        (nn.SmoothL1Loss(beta=0.5), 4.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_losses_of_one_score(criterion: Any, smoothness: float) -> None:
    head = nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 1))
    engine, found = trained(head, criterion, steps=2, sgd={"lr": 0.1})
    run = certify_head(engine, **found, delta=DELTA, release="last").run
    assert run.loss.smoothness == pytest.approx(smoothness)
    # The loss itself, by second derivatives in the score: M = largest of them * |(x, 1)|^2.
    scores = torch.linspace(-4, 4, 2001, dtype=torch.double, requires_grad=True)
    total = criterion(scores, torch.zeros(2001, dtype=torch.double)) * 2001
    slope = torch.autograd.grad(total, scores, create_graph=True)[0]
    curvature = torch.diff(slope.detach()) / torch.diff(scores.detach())
    assert float(curvature.max()) * 2.0 == pytest.approx(smoothness, rel=1e-3)


def test_a_head_without_bias_has_shorter_rows() -> None:
    head = nn.Sequential(BoundedRows(0.5), nn.Linear(WIDTH, 2, bias=False))
    engine, found = trained(head, steps=2)
    run = certify_head(engine, **found, delta=DELTA, release="last").run
    assert run.loss.smoothness == pytest.approx(0.125)


def test_learning_rates_may_change() -> None:
    def halve(done: int, optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] = 0.5 if done < 6 else 0.25

    engine, found = trained(before_step=halve)
    run = certify_head(engine, **found, delta=DELTA, release="last").run
    assert run.has_schedule
    assert run.steps == 12


def test_rows_are_bounded_and_others_left_alone() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    bounded = BoundedRows(1.0)(rows)
    assert torch.equal(bounded[1:], rows[1:])
    assert 1 - 2e-6 < float(bounded[0].double().norm()) <= 1.0
    many = BoundedRows(2.0)(torch.randn(1000, 50) * 10)
    assert float(many.double().norm(dim=1).max()) <= 2.0
    assert BoundedRows(1.0)(torch.empty(0, 3)).shape == (0, 3)
    broken = BoundedRows(1.0)(torch.tensor([[float("nan"), 3.0], [float("inf"), 0.5]]))
    assert broken[:, 0].tolist() == [0.0, 0.0]
    assert float(broken.double().norm(dim=1).max()) <= 1.0
    halves = BoundedRows(1.0)(torch.randn(1000, 50).half() * 10)
    assert float(halves.double().norm(dim=1).max()) <= 1.0
    with pytest.raises(InvalidInput, match="norm must be"):
        BoundedRows(-1.0)
    with pytest.raises(AttributeError, match="norm"):
        BoundedRows(5.0).norm = 1.0  # claims read it when all is over


def test_many_classes_only_if_clipping_never_acts() -> None:
    head = nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 3))
    engine, found = trained(head, steps=2)
    with pytest.raises(NotApplicable, match=r"clipping at 1 may act.*max_grad_norm=2\.001 or more"):
        certify_head(engine, **found, delta=DELTA, release="last")
    head = nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 3))
    engine, found = trained(head, steps=2, max_grad_norm=2.001)
    assert certify_head(engine, **found, delta=DELTA, release="last").run.lipschitz == 2.001


# ---- refusals ------------------------------------------------------------------------------------


def split(head: Any) -> list[dict[str, Any]]:
    return [{"params": [head[1].weight]}, {"params": [head[1].bias], "weight_decay": 0.0}]


def hooked() -> Any:
    head = nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 2))
    head[1].register_forward_pre_hook(lambda layer, rows: (rows[0] * 5,))
    return head


def uphill(done: int, optimizer: Any) -> None:
    optimizer.max_grad_norm = 1.0 + done


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sgd": {"weight_decay": 0.0}}, "there is no ridge"),
        ({"sgd": {"groups": split}}, "cover every weight, the bias too"),
        ({"sgd": {"momentum": 0.9}}, "SGD with momentum"),
        ({"sgd": {"maximize": True}}, "uphill"),
        ({"optimizer_class": torch.optim.AdamW}, "plain torch.optim.SGD"),
        ({"optimizer_class": type("SGD", (torch.optim.SGD,), {})}, "plain torch.optim.SGD"),
        ({"head": nn.Linear(WIDTH, 2)}, r"nn.Sequential\(BoundedRows"),
        (
            {"head": nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 4), nn.Linear(4, 2))},
            "and nothing else",
        ),
        ({"criterion": nn.CrossEntropyLoss(label_smoothing=0.1)}, "label_smoothing"),
        ({"criterion": nn.CrossEntropyLoss(weight=torch.ones(2))}, "weight has other constants"),
        ({"criterion": nn.CrossEntropyLoss(reduction="sum")}, "reduction='sum'"),
        ({"criterion": nn.CrossEntropyLoss(ignore_index=1)}, "how many records count"),
        ({"head": hooked()}, "a hook in front of the linear layer"),
        ({"loss_reduction": "sum", "criterion": nn.CrossEntropyLoss(reduction="sum")}, "'mean'"),
        ({"poisson_sampling": False}, "poisson_sampling=True"),
        ({"rand_on_empty": True}, "twice the sensitivity"),
        ({"clipping": "per_layer", "max_grad_norm": [1.0, 1.0]}, "only flat clipping"),
        ({"before_step": uphill}, "clip changed between steps"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_is_not_the_theorems_run_is_refused(options: dict[str, Any], reason: str) -> None:
    engine, found = trained(steps=2, **options)
    with pytest.raises(NotApplicable, match=reason):
        certify_head(engine, **found, delta=DELTA, release="last")


@pytest.mark.parametrize("criterion", [nn.L1Loss(), nn.PoissonNLLLoss(), nn.SmoothL1Loss(beta=0)])
def test_other_losses_are_refused_by_name(criterion: Any) -> None:
    head = nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 1))
    engine, found = trained(head, criterion, steps=1)
    with pytest.raises(NotApplicable, match=f"{type(criterion).__name__} on 1 outputs: known are"):
        certify_head(engine, **found, delta=DELTA, release="last")


def test_another_module_than_the_trained_one_is_refused() -> None:
    engine, found = trained(steps=1)
    found["module"] = nn.Sequential(BoundedRows(1.0), nn.Linear(WIDTH, 2))
    with pytest.raises(NotApplicable, match="all weights of this head and no others"):
        certify_head(engine, **found, delta=DELTA, release="last")


def test_engines_of_others_and_idle_ones_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, idle = PrivacyEngine(), PrivacyEngine(accountant="dplateau")
    with pytest.raises(InvalidInput, match='accountant="dplateau"'):
        certify_released(theirs, data_loader=None, delta=DELTA)
    with pytest.raises(InvalidInput, match="nothing was trained"):
        certify_released(idle, data_loader=None, delta=DELTA)


def test_two_heads_of_one_engine_are_refused() -> None:
    engine, found = trained(steps=1)
    other, _ = trained(steps=1)
    hook = engine.accountant.get_optimizer_hook_fn(0.5)
    hook(other.accountant.optimizers[0])
    with pytest.raises(NotApplicable, match="steps of 2 optimizers; give each head an engine"):
        certify_head(engine, **found, delta=DELTA, release="last")


def test_a_learning_rate_that_changes_in_place_is_remembered() -> None:
    rate = torch.tensor(0.5)

    def halve(done: int, optimizer: Any) -> None:
        rate.fill_(0.5 if done < 6 else 0.25)

    engine, found = trained(before_step=halve, sgd={"lr": rate, "foreach": False})
    run = certify_head(engine, **found, delta=DELTA, release="last").run
    assert run.learning_rate.blocks == ((0.5, 6), (0.25, 6))


def test_a_learning_rate_of_zero_is_refused_by_name() -> None:
    def warm_up(done: int, optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] = 0.1 * done

    engine, found = trained(before_step=warm_up, steps=3)
    with pytest.raises(InvalidInput, match=r"learning_rate: .* above 0; got 0"):
        certify_head(engine, **found, delta=DELTA, release="last")


@pytest.mark.parametrize("criterion", [nn.functional.cross_entropy, nn.Module()])
def test_a_loss_without_a_known_kind_is_refused(criterion: Any) -> None:
    engine, found = trained(steps=1)
    found["criterion"] = criterion
    with pytest.raises(
        NotApplicable, match=r"no hidden-state claim for .* on 2 outputs: known are"
    ):
        certify_head(engine, **found, delta=DELTA, release="last")


def test_steps_that_were_not_seen_are_refused() -> None:
    engine, found = trained(steps=2)
    engine.accountant.history = [(2.0, 0.1, 50)]
    with pytest.raises(NotApplicable, match="certify_released covers them"):
        certify_head(engine, **found, delta=DELTA, release="last")


def test_shuffled_batches_get_no_certificate() -> None:
    engine, found = trained(steps=2, poisson_sampling=False)
    with pytest.raises(NotApplicable, match="does not draw every record on its own"):
        certify_released(engine, data_loader=found["data_loader"], delta=DELTA)
