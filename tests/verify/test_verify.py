"""Honest certificates are confirmed, and whatever is not one is refused without a traceback."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import forging
from catalogue import RUNS, STEPS
from dplateau.algorithms import Ball, CyclicSGD, LossGeometry, NoisyGD, Run
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.certificates import Certificate, certify, compose
from dplateau.certificates.certify import ask, certificate_of
from dplateau.cli import main
from dplateau.errors import InvalidInput
from dplateau.ground.sealed import resealed
from dplateau.verify import Verification, read_certificate, verify
from dplateau.verify.verdict import THEOREMS

Found = dict[str, Any]


def certificate(run: Run, bound: str, delta: float = 1e-5) -> Certificate:
    return certify(run, delta, bounds=[bound_named(bound)])


def applicable() -> list[tuple[str, str]]:
    return [
        (name, bound.name)
        for name, run in RUNS.items()
        for bound in BOUNDS
        if bound.sound and bound.refusal(run) is None
    ]


@pytest.mark.parametrize(("name", "bound"), applicable())
def test_honest_certificates_are_confirmed(name: str, bound: str) -> None:
    verdict = certificate(RUNS[name], bound).verify()
    assert verdict.ok, str(verdict)
    assert verdict.rederived_epsilon is not None
    assert verdict.bound == bound


def test_every_bound_has_its_theorem_and_its_run() -> None:
    names = {bound.name for bound in BOUNDS if bound.sound}
    assert names == set(THEOREMS)
    assert names == {bound for _, bound in applicable()}


@pytest.mark.parametrize("delta", [1e-2, 1e-8, 1e-13])
@pytest.mark.parametrize("bound", ["pld_composition", "poisson_blocks", "rdp_composition"])
def test_other_deltas_are_confirmed(bound: str, delta: float) -> None:
    verdict = certificate(RUNS["Poisson"], bound, delta).verify()
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("steps", [10**4, 10**6])
def test_long_runs_are_confirmed(steps: int) -> None:
    ridge = NoisyGD(n=1000, steps=steps, noise_multiplier=30.0, **STEPS)
    bounded = ridge.replace(l2=0.0, domain=Ball(0.5))
    pass_by_pass = CyclicSGD(n=40, batch_size=1, steps=steps, noise_multiplier=3.0, **STEPS)
    for run, bound in (
        (ridge, "gd_contraction"),
        (bounded, "gd_bounded"),
        (pass_by_pass, "cyclic_contraction"),
    ):
        verdict = certificate(run, bound).verify()
        assert verdict.ok, str(verdict)


def test_nothing_stands_beside_a_certificate_in_its_envelope() -> None:
    found = certificate(RUNS["cyclic"], "cyclic_contraction").to_dict()
    assert failed(verify({**found, "total_epsilon": 0.01})) == "envelope"
    assert failed(verify(resealed({**found, "total_epsilon": 0.01}))) == "envelope"


def test_a_certificate_that_claims_nothing_fails_with_its_reason() -> None:
    honest = certificate(RUNS["cyclic"], "cyclic_contraction")
    verdict = honest.without_claim("not private (seeded run)").verify()
    assert failed(verdict) == "claim"
    assert verdict.checks[-1].detail == "not private (seeded run)"
    assert "NOT verified" in str(verdict)
    both = forging.forged(honest.to_dict(), no_claim="not private (seeded run)")
    assert failed(verify(both)) == "claim"
    released = compose([honest, honest], 1e-5).without_claim("not private (seeded run)")
    assert failed(released.verify()) == "claim"
    assert "(0.5" not in str(released)


# ---- what is not to be confirmed ----------------------------------------------------------------


def forged(run: str, bound: str, /, **changes: Any) -> Found:
    """Return a certificate with other contents and a digest to match."""
    found = json.loads(certificate(RUNS[run], bound).to_json())
    return forging.forged(found, **changes)


def failed(verdict: Verification) -> str:
    assert not verdict.ok
    last = verdict.checks[-1]
    assert not last.ok
    assert all(check.ok for check in verdict.checks[:-1])
    return last.name


def test_a_bound_for_another_kind_of_run_is_refused() -> None:
    elsewhere = json.loads(json.dumps(RUNS["cyclic"].to_dict()))
    assert failed(verify(forged("full batch", "gd_contraction", run=elsewhere))) == "algorithm"
    released = {**RUNS["full batch"].to_dict(), "release": "all"}
    assert failed(verify(forged("full batch", "gd_contraction", run=released))) == "release"
    swapped = {**RUNS["Poisson"].to_dict(), "neighbors": "replace"}
    assert failed(verify(forged("Poisson", "poisson_blocks", run=swapped))) == "neighbors"
    nonconvex = {**RUNS["full batch"].to_dict(), "loss": {"convex": False, "lipschitz": 2.0}}
    assert failed(verify(forged("full batch", "gd_contraction", run=nonconvex))) == "losses"


def test_contraction_bounds_for_other_runs_are_refused() -> None:
    stopped, walled = RUNS["random stop"].to_dict(), RUNS["one pass, domain"].to_dict()
    name = "one pass, domain"
    for bound in ("one_pass_hockey_stick", "one_pass_hybrid", "mixing_rdp"):
        assert failed(verify(forged(name, bound, run=stopped))) == "release"
        fast = {**walled, "momentum": 0.5}
        assert failed(verify(forged(name, bound, run=fast))) == "plain steps"
        loud = {**walled, "noise_kind": "laplace", "dimension": 1}
        assert failed(verify(forged(name, bound, run=loud))) == "noise kind"
    open_space = {key: value for key, value in walled.items() if key != "domain"}
    assert failed(verify(forged(name, "one_pass_hybrid", run=open_space))) == "domain"
    rough = {**stopped, "loss": {"convex": True, "lipschitz": 2.0}}
    for bound in ("random_stop_contraction", "random_stop_mean"):
        assert failed(verify(forged("random stop", bound, run=rough))) == "class of losses"


def test_steps_that_expand_are_refused() -> None:
    fast = {**RUNS["full batch"].to_dict(), "learning_rate": 4.0}
    assert failed(verify(forged("full batch", "gd_contraction", run=fast))) == "contraction"


def test_a_cut_off_epoch_of_a_reshuffled_run_is_refused() -> None:
    """Its uses may be neighbors: delta at the cyclic claim is 22 times what was claimed.

    Three records, one per batch, four steps, each record with a direction of its own: the others
    show where the record stood, and it may have stood at the last two steps.
    """
    contraction, noise, reach = 0.6, 0.25, 1.0
    uses = 1 + contraction**4 * (1 - contraction**2) / (1 - contraction**6)
    assert uses < 1.1 < (1 + contraction) ** 2 * (1 - contraction**2) < 1.7
    run = CyclicSGD(
        n=3,
        batch_size=1,
        steps=4,
        order="reshuffle",
        learning_rate=1.0,
        l2=1 - contraction,
        loss=LossGeometry(lipschitz=reach, convex=True, smoothness=0.05),
        noise_multiplier=noise,
        release="last",
    )
    cyclic = run.replace(order="cyclic")
    found = certificate(cyclic, "cyclic_contraction").to_dict()
    assert failed(verify(forging.forged(found, run=run.to_dict()))) == "whole epochs"


@pytest.mark.parametrize("run", ["full batch", "Poisson, short"])
def test_smaller_claims_are_refused(run: str) -> None:
    bound = "gd_contraction" if run == "full batch" else "poisson_blocks"
    claimed = certificate(RUNS[run], bound).claimed_epsilon
    for factor in (0.0, 0.5, 0.98):
        verdict = verify(forged(run, bound, claimed_epsilon=claimed * factor))
        assert failed(verdict) == "epsilon is proved"
    # A larger claim is true too.
    assert verify(forged(run, bound, claimed_epsilon=claimed * 1.2)).ok


@pytest.mark.parametrize(
    "changes",
    [
        {"claimed_epsilon": "1"},
        {"claimed_epsilon": None},
        {"claimed_epsilon": math.nan},
        {"claimed_epsilon": math.inf},
        {"claimed_epsilon": -1.0},
        {"claimed_epsilon": True},
        {"claimed_epsilon": 10**400},
        {"claimed_delta": 0.0},
        {"claimed_delta": 1.0},
        {"claimed_delta": [1e-5]},
        {"format": 1},
        {"format": 3},
        {"format": True},
        {"date": "yesterday"},
        {"library": 2},
        {"content": []},
        {"no_claim": "not private (seeded run)"},
        {"claim": None},
        {"claim": [1.0, 1e-5]},
        {"files": {"model.json": "abc"}},
        {"files": None},
        {"bound": "magic"},
        {"bound": 3},
        {"bound": ["gd_contraction"]},
        {"run": None},
        {"run": {}},
        {"run": {"algorithm": "NoisyGD"}},
        {"run": {"algorithm": "NoisyGD", "n": "many", "steps": 3}},
        {"run": {"algorithm": ["NoisyGD"]}},
        {"witness": None},
        {"witness": {}},
        {"witness": []},
        {"assumptions": []},
        {"assumptions": [{"text": "hope", "status": "sure"}]},
        {"citation": 1},
    ],
)
def test_malformed_contents_are_a_failed_check(changes: Found) -> None:
    verdict = verify(forged("full batch", "gd_contraction", **changes))
    failed(verdict)
    assert "NOT verified" in str(verdict)
    json.dumps(verdict.to_dict(), allow_nan=False)


DERIVED = {
    *("period", "trailing", "uses", "bounded", "sum_of_squares", "extra_delta", "start_distance"),
    *("reach", "rate"),
}
JUNK = (None, "x", [], {}, True, math.nan, -1, 1.5, [[1]], [["a", 1, 1]], {"blocks": 3})


@pytest.mark.parametrize(
    ("run", "bound"),
    [
        ("full batch", "gd_contraction"),
        ("Poisson", "rdp_composition"),
        ("Poisson, short", "poisson_blocks"),
        ("Poisson, nonconvex", "poisson_modulus"),
        ("Poisson, replace, short", "poisson_blocks_replace"),
        ("fixed size, nonconvex", "fixed_size_modulus"),
        ("shuffled once", "shuffle_once_average"),
        ("random stop, no domain", "random_stop_mean"),
        ("random stop", "random_stop_lipschitz"),
        ("narrow domain", "poisson_recursion"),
    ],
)
def test_junk_in_the_witness_is_a_failed_check(run: str, bound: str) -> None:
    """What is only a copy of something derived is not read: then junk changes nothing."""
    honest = json.loads(certificate(RUNS[run], bound).to_json())["content"]
    # Contractive losses are of the one class that the description says.
    derived = DERIVED | (
        {"losses"} if bound in ("gd_contraction", "shuffle_once_average") else set()
    )
    for place, name in enumerate(honest["witness"]):
        # Split noise takes a second to derive: each of its numbers meets other junk, not all of it.
        split = bound in ("poisson_blocks_replace", "fixed_size_modulus")
        for junk in JUNK[place % 4 :: 4] if split else JUNK:
            verdict = verify(forged(run, bound, witness={**honest["witness"], name: junk}))
            if name in derived:
                assert verdict.ok, name
            elif junk != honest["witness"][name]:
                failed(verdict)
        shorter = {key: value for key, value in honest["witness"].items() if key != name}
        verdict = verify(forged(run, bound, witness=shorter))
        assert verdict.ok == (name in derived)


@pytest.mark.parametrize("found", [None, 3, "text", [], {}, {"kind": "dplateau/certificate"}])
def test_what_is_no_certificate_is_a_failed_check(found: Any) -> None:
    failed(verify(found))


# ---- the command --------------------------------------------------------------------------------


def called(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["verify", *words])
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "certificate.json"
    path.write_text(certificate(RUNS["cyclic"], "cyclic_contraction").to_json(), encoding="utf-8")
    return path


def test_the_command_confirms(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(str(file)) == 0
    assert capsys.readouterr().out.startswith("VERIFIED: epsilon ")
    assert called(str(file), "--json") == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_the_command_rejects(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    found["content"]["claim"]["epsilon"] *= 0.5
    file.write_text(json.dumps(found), encoding="utf-8")
    assert called(str(file)) == 1
    assert "FAIL digest" in capsys.readouterr().out
    file.write_text(json.dumps(resealed(found)), encoding="utf-8")
    assert called(str(file), "--json") == 1
    assert json.loads(capsys.readouterr().out)["checks"][-1]["name"] == "epsilon is proved"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[1, 2, 3]",
        '{"kind": "other"}',
        '{"kind": "dplateau/certificate", "format": NaN}',
        '{"kind": "dplateau/certificate", "format": ' + "9" * 5000 + "}",
        "[" * 100_000,
    ],
)
def test_the_command_refuses_other_files(
    text: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text, encoding="utf-8")
    assert called(str(file)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.partition("certificate.json: ")[2].startswith("not a certificate")
    assert shown.err.count("\n") == 1


def test_the_command_refuses_truncated_files(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for share in (0.1, 0.5, 0.9):
        file.write_text(text[: int(len(text) * share)], encoding="utf-8")
        assert called(str(file)) == 2
    assert called(str(file.with_name("missing.json"))) == 2
    file.write_bytes(b"\xff\xfe\x00")
    assert called(str(file)) == 2


def test_reading_refuses_in_words() -> None:
    with pytest.raises(InvalidInput, match="no JSON"):
        read_certificate("{")


# ---- no tolerance -------------------------------------------------------------------------------


def one_run_of_each_bound() -> list[tuple[str, str]]:
    return list({bound: (name, bound) for name, bound in reversed(applicable())}.values())


@pytest.mark.parametrize(("name", "bound"), one_run_of_each_bound())
def test_no_claim_below_the_derived_epsilon_is_accepted(name: str, bound: str) -> None:
    """A claim a millionth below what is derived for that very claim is refused."""
    claimed = certificate(RUNS[name], bound).claimed_epsilon
    for _ in range(12):
        found = verify(forged(name, bound, claimed_epsilon=claimed))
        assert found.rederived_epsilon is not None
        assert found.ok == (claimed >= found.rederived_epsilon), str(found)
        if not found.ok:
            break
        # Finer grids derive less for smaller claims, until nothing is left to gain.
        claimed = found.rederived_epsilon * (1 - 1e-6)
    assert failed(found) == "epsilon is proved"


@pytest.mark.parametrize("name", ["full batch", "Poisson", "cyclic", "one pass, domain"])
def test_claims_about_groups_are_rederived(name: str) -> None:
    run = RUNS[name].replace(group_size=3)
    for bound in (b for b in BOUNDS if b.sound and b.refusal(run) is None):
        found = ask(bound, run, 1e-5)
        if found.epsilon is None or found.epsilon > 100:
            continue  # e^epsilon times any delta is more than one
        made = certificate_of(run, 1e-5, [found])
        verdict = made.verify()
        assert verdict.ok, str(verdict)
        assert verdict.rederived_epsilon is not None
        lower = forging.forged(made.to_dict(), claimed_epsilon=verdict.rederived_epsilon * 0.99)
        refused = verify(lower)
        assert failed(refused) == "epsilon is proved", bound.name


@pytest.mark.parametrize(
    "changes", [{"steps": 10**308}, {"steps": 10**12}, {"n": 10**300}, {"noise_multiplier": 1e-200}]
)
@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("Poisson", "pld_composition"),
        ("cyclic", "cyclic_contraction"),
        ("full batch", "gd_contraction"),
    ],
)
def test_hostile_sizes_end_with_a_verdict(name: str, bound: str, changes: Found) -> None:
    described = {**RUNS[name].to_dict(), **changes}
    failed(verify(forged(name, bound, run=described)))


# --- how long a file may keep the verifier -------------------------------------------------------


def test_who_has_no_time_confirms_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files from strangers may ask for hours: the verdict is then that nothing was confirmed."""
    assert called(str(file), "--seconds", "1e-9") == 1
    shown = capsys.readouterr().out
    assert shown.startswith("NOT VERIFIED")
    assert "FAIL time: given up after 1e-09 seconds of processor time" in shown
    assert "--seconds" in shown
    assert called(str(file), "--seconds", "inf") == 0
    assert called(str(file), "--seconds", "0") == 2
    assert "seconds must be above 0; got 0" in capsys.readouterr().err


def test_compositions_and_mixing_certificates_have_a_limit_too() -> None:
    """A part is not started when the time is over, and no law is put on a grid."""
    parts = [certify(RUNS[name], 1e-5) for name in ("Poisson", "Poisson, short")]
    composed = compose(parts, delta=1e-5)
    both = composed.to_dict()
    assert verify(both, seconds=math.inf).ok
    assert composed.verify().ok
    assert not composed.verify(seconds=1e-9).ok
    late = verify(both, seconds=1e-9)
    assert (late.ok, late.checks[-1].name, late.rederived_epsilon) == (False, "time", None)
    with pytest.raises(InvalidInput, match="seconds must be above 0"):
        verify(both, seconds=0.0)
