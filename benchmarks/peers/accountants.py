"""Ask one accountant for epsilons, noise and curves of Poisson-sampled Gaussian noise.

    python benchmarks/peers/accountants.py NAME < tasks.json

Runs in the environment of that accountant. Prints a line of JSON for its version, then one for each
task as it is done: the value and the seconds (wall and processor) of each repetition, or the error.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import sys
import time

EXAMPLES = 60_000


def dp_accounting(kind):
    import dp_accounting as dpa

    accountant = dpa.pld.PLDAccountant if kind == "PLD" else dpa.rdp.RdpAccountant

    def event(q, sigma, steps):
        step = dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(sigma))
        return dpa.SelfComposedDpEvent(step, steps)

    def epsilon(q, sigma, steps, delta):
        return accountant().compose(event(q, sigma, steps)).get_epsilon(delta)

    def noise(q, steps, delta, epsilon):
        return dpa.calibrate_dp_mechanism(accountant, lambda s: event(q, s, steps), epsilon, delta)

    return epsilon, noise


def opacus(kind):
    from opacus.accountants import create_accountant
    from opacus.accountants.utils import get_noise_multiplier

    def epsilon(q, sigma, steps, delta):
        accountant = create_accountant(kind)
        accountant.history = [(sigma, q, steps)]
        return accountant.get_epsilon(delta)

    def noise(q, steps, delta, epsilon):
        return get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=q, steps=steps, accountant=kind
        )

    return epsilon, noise


def jax_privacy(kind):
    from jax_privacy.accounting import accountants, analysis, calibrate

    config = {"PLD": accountants.PldAccountantConfig, "RDP": accountants.RdpAccountantConfig}
    accountant = analysis.DpsgdTrainingAccountant(config[kind]())

    def epsilon(q, sigma, steps, delta):
        params = analysis.DpParams(
            noise_multipliers=sigma,
            num_samples=EXAMPLES,
            delta=delta,
            batch_size=round(q * EXAMPLES),
        )
        return accountant.compute_epsilon(steps, params)

    def noise(q, steps, delta, epsilon):
        return calibrate.calibrate_noise_multiplier(
            target_epsilon=epsilon,
            accountant=accountant,
            batch_sizes=round(q * EXAMPLES),
            num_updates=steps,
            num_samples=EXAMPLES,
            target_delta=delta,
        )

    return epsilon, noise


def prv_accountant(kind):
    from prv_accountant.dpsgd import DPSGDAccountant, find_noise_multiplier

    def epsilon(q, sigma, steps, delta):
        accountant = DPSGDAccountant(
            noise_multiplier=sigma,
            sampling_probability=q,
            max_steps=steps,
            eps_error=0.1,
            delta_error=delta / 1000,
        )
        return accountant.compute_epsilon(delta, steps)[2]

    def noise(q, steps, delta, epsilon):
        return find_noise_multiplier(
            sampling_probability=q, num_steps=steps, target_epsilon=epsilon, target_delta=delta
        )

    return epsilon, noise


def autodp(kind):
    from autodp.calibrator_zoo import generalized_eps_delta_calibrator
    from autodp.mechanism_zoo import NoisySGD_Mechanism, SubsampleGaussianMechanism

    def epsilon(q, sigma, steps, delta):
        return NoisySGD_Mechanism(prob=q, sigma=sigma, niter=steps).get_approxDP(delta)

    def noise(q, steps, delta, epsilon):
        found = generalized_eps_delta_calibrator()(
            SubsampleGaussianMechanism,
            epsilon,
            delta,
            [0.5, 10],
            params={"prob": q, "sigma": None, "coeff": steps},
            para_name="sigma",
        )
        return found.params["sigma"]

    return epsilon, noise


def riskcal(kind):
    from riskcal.accountants import CTDAccountant
    from riskcal.calibration.blackbox import find_noise_multiplier_for_epsilon_delta

    def epsilon(q, sigma, steps, delta):
        accountant = CTDAccountant()
        accountant.history = [(sigma, q, steps)]
        return accountant.get_epsilon(delta=delta)

    def noise(q, steps, delta, epsilon):
        return find_noise_multiplier_for_epsilon_delta(
            CTDAccountant, sample_rate=q, num_steps=steps, epsilon=epsilon, delta=delta
        )

    return epsilon, noise


def dplateau(kind):
    from dplateau import NoisySGD, calibrate, certify

    def run(q, sigma, steps):
        return NoisySGD(
            n=EXAMPLES, sampling_rate=q, noise_multiplier=sigma, steps=steps, release="all"
        )

    def epsilon(q, sigma, steps, delta):
        return certify(run(q, sigma, steps), delta).claimed_epsilon

    def noise(q, steps, delta, epsilon):
        return calibrate(run(q, 1.0, steps), epsilon, delta).value

    return epsilon, noise


def our_curve(q, sigma, delta, points):
    from dplateau import NoisySGD, epsilon_over_steps

    run = NoisySGD(
        n=EXAMPLES, sampling_rate=q, noise_multiplier=sigma, steps=max(points), release="all"
    )
    return epsilon_over_steps(run, delta, points).best.tolist()


MAKERS = {
    "dplateau": dplateau,
    "dp-accounting": dp_accounting,
    "opacus": opacus,
    "jax-privacy": jax_privacy,
    "prv-accountant": prv_accountant,
    "autodp": autodp,
    "riskcal": riskcal,
}


def forget() -> None:
    """Empty our caches, so that a repeated call does its work again."""
    if "dplateau.curves.composed" in sys.modules:
        from dplateau.curves import composed

        composed._composed.cache_clear()
        composed._composed_family.cache_clear()


def timed(call, repeats):
    wall, processor, value = [], [], None
    for _ in range(repeats):
        forget()
        start, begun = time.perf_counter(), time.process_time()
        value = call()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - begun)
    return {"value": plain(value), "wall": wall, "cpu": processor}


def plain(value):
    if isinstance(value, list):
        return [plain(one) for one in value]
    number = float(value)
    return number if math.isfinite(number) else str(number)


def main() -> None:
    package, _, kind = sys.argv[1].partition(" ")
    print(json.dumps({"package": package, "version": importlib.metadata.version(package)}))
    tasks = json.loads(sys.stdin.read())
    begun = time.perf_counter()
    epsilon, noise = MAKERS[package](kind)
    print(json.dumps({"import": time.perf_counter() - begun}), flush=True)
    for task in tasks:
        repeats, asked = task.pop("repeats", 1), task.pop("asked")

        def call(asked=asked, task=task):
            if asked == "epsilon":
                return epsilon(**task)
            if asked == "noise":
                return noise(**task)
            if package == "dplateau":
                return our_curve(**task)
            points = task["points"]
            return [epsilon(task["q"], task["sigma"], steps, task["delta"]) for steps in points]

        try:
            found = timed(call, repeats)
        except Exception as error:
            text = str(error).strip().splitlines() or [""]
            found = {"error": f"{type(error).__name__}: {text[0][:60]}"}
        print(json.dumps(found), flush=True)


main()
