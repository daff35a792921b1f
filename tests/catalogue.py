"""Named runs of every kind, with every option and every class of losses, for tests to share.

They are written by public constructors and numbers alone, so that they say the same whatever the
classes behind the constructors become. They are short, so that every bound answers soon.
"""

from __future__ import annotations

from typing import Any

from dplateau import (
    Ball,
    Body,
    Box,
    Checkpoints,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
)
from dplateau.algorithms import Run

Options = dict[str, Any]

# ---- classes of losses --------------------------------------------------------------------------

SMOOTH = LossGeometry(lipschitz=2.0, convex=True, smoothness=0.5)
STRONGLY_CONVEX = LossGeometry(lipschitz=2.0, convex=True, smoothness=0.5, strong_convexity=0.1)
NONSMOOTH = LossGeometry(lipschitz=1.0, convex=True)
HOLDER = LossGeometry(lipschitz=1.0, convex=True, holder=(0.5, 0.3))
WEAKLY_SMOOTH = LossGeometry(lipschitz=1.0, convex=True, holder=(0.5, 0.01))
TWO_PAIRS = LossGeometry(lipschitz=1.0, convex=True, holder=[(0.0, 2.0), (0.5, 0.01)])
SADDLE = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.02, saddle=True)
NONCONVEX = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.02)
DISSIPATIVE = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.5, dissipativity=(1e-6, 0.2))
ONLY_LIPSCHITZ = LossGeometry(lipschitz=1.0, convex=False)

# ---- options that many runs share ---------------------------------------------------------------

STEPS: Options = {"learning_rate": 0.4, "l2": 0.1, "loss": SMOOTH, "release": "last"}
NO_RIDGE: Options = {"learning_rate": 0.4, "loss": SMOOTH, "release": "last"}
STOPPED: Options = {**STEPS, "release": "random_stop"}
SAMPLED: Options = {"n": 400, "batch_size": 8, "steps": 150, "noise_multiplier": 2.0, **STEPS}
LONG: Options = {**SAMPLED, "steps": 2000, "domain": Ball(0.03)}
FIXED: Options = {"neighbors": "replace", "sampling": "fixed"}
LAPLACE: Options = {"noise_kind": "laplace", "dimension": 1}
PASSES: Options = {"n": 43, "batch_size": 5, "noise_multiplier": 2.0, **STEPS}

FULL_BATCH: dict[str, Run] = {
    "full batch": NoisyGD(n=100, steps=300, noise_multiplier=5.0, **STEPS),
    "full batch, one step": NoisyGD(n=10, steps=1, noise_std=1.5, **STEPS),
    "full batch, no ridge": NoisyGD(n=100, steps=30, noise_multiplier=8.0, **NO_RIDGE),
    "full batch, strongly convex": NoisyGD(
        n=100, epochs=50, noise_std=0.1, **{**NO_RIDGE, "loss": STRONGLY_CONVEX}
    ),
    "full batch, replace": NoisyGD(
        n=100, steps=60, noise_multiplier=9.0, neighbors="replace", **STEPS
    ),
    "full batch, domain, replace": NoisyGD(
        n=100, steps=400, iterate_std=0.02, neighbors="replace", domain=Ball(0.2), **STEPS
    ),
    "full batch, body, no ridge": NoisyGD(
        n=100, steps=500, iterate_std=0.02, domain=Body(diameter=0.15), **NO_RIDGE
    ),
    "full batch, schedules": NoisyGD(
        n=50,
        steps=40,
        noise_multiplier=[2.0 + 0.1 * t for t in range(40)],
        domain=Box([0.0, 0.0], [0.1, 0.2]),
        **{**STEPS, "learning_rate": [0.5 / (1 + 0.1 * t) for t in range(40)]},
    ),
    "full batch, learning rate in two blocks": NoisyGD(
        n=100,
        steps=60,
        noise_std=0.12,
        neighbors="replace",
        **{**STEPS, "learning_rate": [0.5] * 40 + [0.2] * 20},
    ),
    "full batch, released": NoisyGD(n=100, steps=25, noise_multiplier=12.0, release="all"),
    "full batch, released, schedule": NoisyGD(
        n=100, steps=12, noise_multiplier=[9.0] * 8 + [5.0] * 4, neighbors="replace", release="all"
    ),
    "full batch, momentum": NoisyGD(n=100, steps=40, noise_multiplier=9.0, momentum=0.9, **STEPS),
    "full batch, heavy ball": NoisyGD(
        n=100,
        steps=200,
        noise_multiplier=9.0,
        momentum=0.3,
        momentum_kind="heavy_ball",
        neighbors="replace",
        **STEPS,
    ),
    "full batch, averaged": NoisyGD(
        n=100, steps=40, noise_multiplier=9.0, average_last=10, domain=Ball(1.0), **STEPS
    ),
    "Langevin": ProjectedLangevin(
        n=60, steps=30, inverse_temperature=0.001, domain=Ball(1.0), **STEPS
    ),
    "Langevin, no domain": ProjectedLangevin(
        n=60, steps=50, inverse_temperature=0.01, neighbors="replace", **STEPS
    ),
    "Langevin, schedule, released": ProjectedLangevin(
        n=60,
        steps=20,
        learning_rate=[0.4] * 10 + [0.1] * 10,
        inverse_temperature=0.01,
        loss=SMOOTH,
        release="all",
    ),
    "Langevin, dissipative": ProjectedLangevin(
        n=60,
        steps=40,
        inverse_temperature=0.05,
        domain=Box([-0.2, -0.2, -0.2], [0.2, 0.2, 0.2]),
        **{**STEPS, "loss": DISSIPATIVE},
    ),
    "Laplace": NoisyGD(n=50, steps=12, noise_multiplier=9.0, **LAPLACE, **STEPS),
    "Laplace, replace, released": NoisyGD(
        n=50, steps=5, noise_std=0.4, neighbors="replace", loss=SMOOTH, release="all", **LAPLACE
    ),
    "nonsmooth": NoisyGD(
        n=50,
        steps=200,
        noise_multiplier=300.0,
        domain=Ball(0.3),
        **{**STEPS, "loss": NONSMOOTH},
    ),
    "nonconvex, body": NoisyGD(
        n=50,
        steps=150,
        noise_std=0.5,
        domain=Body(diameter=0.2),
        neighbors="replace",
        **{**NO_RIDGE, "loss": NONCONVEX},
    ),
    "weakly smooth, full batch": NoisyGD(
        n=50, steps=150, noise_std=0.8, domain=Ball(0.1), **{**NO_RIDGE, "loss": WEAKLY_SMOOTH}
    ),
    "saddle, full batch": NoisyGD(
        n=50, steps=150, noise_std=0.8, domain=Ball(0.1), **{**NO_RIDGE, "loss": SADDLE}
    ),
    "two Hölder pairs": NoisyGD(
        n=50, steps=150, noise_std=0.8, domain=Ball(0.1), **{**NO_RIDGE, "loss": TWO_PAIRS}
    ),
    "dissipative": NoisyGD(
        n=50,
        steps=100,
        noise_multiplier=40.0,
        domain=Ball(0.3),
        **{**STEPS, "loss": DISSIPATIVE},
    ),
    "only Lipschitz": NoisyGD(
        n=50, steps=20, noise_multiplier=20.0, domain=Ball(0.3), **{**STEPS, "loss": ONLY_LIPSCHITZ}
    ),
}

RANDOM_BATCHES: dict[str, Run] = {
    "Poisson": NoisySGD(**SAMPLED),
    "Poisson, short": NoisySGD(**{**SAMPLED, "steps": 15}),
    "Poisson, one step": NoisySGD(n=400, sampling_rate=0.05, steps=1, noise_std=0.1, **STEPS),
    "Poisson, every record": NoisySGD(n=20, batch_size=20, steps=30, noise_multiplier=4.0, **STEPS),
    "Poisson, domain, no ridge": NoisySGD(**{**SAMPLED, "l2": 0.0, "domain": Ball(0.05)}),
    "Poisson, schedule": NoisySGD(
        **{**SAMPLED, "steps": 40, "noise_multiplier": [1.5] * 20 + [2.5] * 20}
    ),
    "Poisson, momentum": NoisySGD(**{**SAMPLED, "steps": 400}, momentum=0.5),
    "Poisson, heavy ball": NoisySGD(
        **{**SAMPLED, "steps": 400}, momentum=0.5, momentum_kind="heavy_ball"
    ),
    "Poisson, momentum, averaged": NoisySGD(
        **{**SAMPLED, "steps": 40}, momentum=0.5, average_last=20
    ),
    "Poisson, released, rare": NoisySGD(
        n=5000, sampling_rate=0.01, epochs=3, noise_multiplier=1.0, release="all"
    ),
    "Poisson, replace": NoisySGD(**SAMPLED, neighbors="replace"),
    "Poisson, replace, short": NoisySGD(**{**SAMPLED, "steps": 15}, neighbors="replace"),
    "Poisson, replace, released": NoisySGD(
        n=5000,
        sampling_rate=0.01,
        epochs=3,
        noise_multiplier=1.0,
        neighbors="replace",
        release="all",
    ),
    "Poisson, nonconvex": NoisySGD(**{**LONG, "l2": 0.0, "loss": NONCONVEX}),
    "Poisson, nonsmooth": NoisySGD(
        **{**LONG, "steps": 100, "noise_multiplier": 9.0, "loss": NONSMOOTH}
    ),
    "Poisson, dissipative": NoisySGD(**{**LONG, "steps": 400, "loss": DISSIPATIVE}),
    "Poisson, replace, weakly smooth": NoisySGD(
        **{**LONG, "loss": WEAKLY_SMOOTH}, neighbors="replace"
    ),
    "Poisson, replace, loud": NoisySGD(
        n=400,
        batch_size=8,
        steps=600,
        noise_multiplier=16.0,
        neighbors="replace",
        domain=Ball(0.03),
        **{**NO_RIDGE, "loss": WEAKLY_SMOOTH},
    ),
    "sampled Laplace": NoisySGD(**SAMPLED, **LAPLACE),
    "narrow domain": NoisySGD(**{**SAMPLED, "l2": 0.0, "domain": Ball(0.005)}),
    "narrow domain, replace, Laplace": NoisySGD(
        **{**SAMPLED, "neighbors": "replace", "domain": Box(0.0, 0.01)}, **LAPLACE
    ),
    "fixed size": NoisySGD(**SAMPLED, **FIXED),
    "fixed size, released": NoisySGD(
        n=400, batch_size=8, epochs=1, noise_multiplier=1.5, release="all", **FIXED
    ),
    "fixed size, schedule": NoisySGD(
        **{**SAMPLED, "steps": 30, "learning_rate": [0.5] * 15 + [0.3] * 15}, **FIXED
    ),
    "fixed size, nonconvex": NoisySGD(**{**LONG, "l2": 0.0, "loss": NONCONVEX}, **FIXED),
    "fixed size, weakly smooth": NoisySGD(**{**LONG, "loss": WEAKLY_SMOOTH}, **FIXED),
    "fixed size, loud, no ridge": NoisySGD(
        n=400,
        sampling_rate=0.02,
        steps=600,
        noise_multiplier=13.0,
        domain=Ball(0.03),
        **NO_RIDGE,
        **FIXED,
    ),
    "fixed size, loud, ridge": NoisySGD(
        n=400, batch_size=8, steps=200, noise_multiplier=13.0, domain=Ball(0.05), **STEPS, **FIXED
    ),
    "fixed size, loud, nonconvex": NoisySGD(
        n=400,
        batch_size=8,
        steps=600,
        noise_multiplier=16.0,
        domain=Ball(0.03),
        **{**NO_RIDGE, "loss": NONCONVEX},
        **FIXED,
    ),
    "narrow domain, fixed size": NoisySGD(**{**SAMPLED, "domain": Ball(0.005)}, **FIXED),
}

ORDERED: dict[str, Run] = {
    "cyclic": CyclicSGD(**PASSES, steps=77),
    "cyclic, replace, box": CyclicSGD(
        **PASSES, epochs=4, neighbors="replace", domain=Box([0.0, -0.1], [0.1, 0.1])
    ),
    "cyclic, schedule": CyclicSGD(
        **{**PASSES, "noise_multiplier": [2.0] * 9 + [3.0] * 9, "learning_rate": 0.3}, steps=18
    ),
    "cyclic, released": CyclicSGD(
        n=40, batch_size=5, epochs=3, noise_multiplier=2.0, release="all"
    ),
    "cyclic, momentum": CyclicSGD(**PASSES, epochs=2, momentum=0.9),
    "weakly smooth, cyclic": CyclicSGD(
        n=20,
        batch_size=4,
        epochs=5,
        noise_multiplier=9.0,
        domain=Ball(0.3),
        **{**STEPS, "loss": HOLDER},
    ),
    "cyclic, Laplace": CyclicSGD(**PASSES, epochs=2, **LAPLACE),
    "shuffled once": CyclicSGD(**PASSES, steps=77, order="shuffle_once"),
    "shuffled once, replace, no ridge": CyclicSGD(
        n=20,
        sampling_rate=0.25,
        epochs=3,
        order="shuffle_once",
        iterate_std=0.4,
        neighbors="replace",
        domain=Ball(0.5),
        **NO_RIDGE,
    ),
    "reshuffled": CyclicSGD(**PASSES, epochs=8, order="reshuffle"),
    "reshuffled, cut off": CyclicSGD(**PASSES, steps=20, order="reshuffle", neighbors="replace"),
    "one shuffled epoch": CyclicSGD(
        n=43, batch_size=5, epochs=1, order="reshuffle", noise_std=2.0, domain=Ball(0.2), **STEPS
    ),
    "one epoch shuffled once": CyclicSGD(
        n=12,
        batch_size=2,
        epochs=1,
        order="shuffle_once",
        noise_std=1.5,
        neighbors="replace",
        domain=Ball(0.2),
        **{**STEPS, "loss": NONSMOOTH},
    ),
}

ONE_PASS: dict[str, Run] = {
    "one pass": OnePassSGD(n=30, batch_size=4, noise_std=1.0, **STEPS),
    "one pass, domain": OnePassSGD(
        n=30, batch_size=4, noise_std=1.0, neighbors="replace", domain=Ball(0.4), **STEPS
    ),
    "one pass, nonconvex": OnePassSGD(
        n=20, noise_std=2.0, domain=Ball(0.2), **{**NO_RIDGE, "loss": NONCONVEX}
    ),
    "one pass, schedule": OnePassSGD(
        n=12,
        noise_std=2.0,
        domain=Ball(0.2),
        **{**STEPS, "learning_rate": [0.5] * 6 + [0.25] * 6},
    ),
    "one pass, averaged, released": OnePassSGD(
        n=30, batch_size=4, noise_std=1.0, average_last=3, **{**STEPS, "release": "all"}
    ),
    "one pass, Laplace": OnePassSGD(n=9, noise_std=3.0, domain=Box(0.0, 2.0), **LAPLACE, **STEPS),
    "one pass, replace, Laplace": OnePassSGD(
        n=12,
        batch_size=2,
        noise_std=2.0,
        neighbors="replace",
        domain=Box(0.0, 1.0),
        **LAPLACE,
        **{**STEPS, "loss": NONSMOOTH},
    ),
    "random stop": OnePassSGD(n=400, noise_std=3.0, domain=Ball(0.3), **STOPPED),
    "random stop, no domain": OnePassSGD(n=30, batch_size=4, noise_std=1.0, **STOPPED),
    "random stop, nonconvex": OnePassSGD(
        n=25, noise_std=3.0, domain=Ball(0.1), **{**STOPPED, "loss": NONCONVEX}
    ),
    "random stop, replace, Hölder": OnePassSGD(
        n=25,
        noise_std=3.0,
        neighbors="replace",
        domain=Body(diameter=0.4),
        **{**STOPPED, "l2": 0.0, "loss": HOLDER},
    ),
    "random stop, only Lipschitz": OnePassSGD(
        n=15, noise_std=3.0, domain=Ball(0.1), **{**STOPPED, "loss": ONLY_LIPSCHITZ}
    ),
    "random stop, Laplace": OnePassSGD(
        n=9, noise_std=3.0, domain=Box(0.0, 2.0), **LAPLACE, **STOPPED
    ),
}

EVERY: Options = {"release": Checkpoints(every=30)}

CHECKPOINTS: dict[str, Run] = {
    "checkpoints, full batch": NoisyGD(
        n=100, steps=100, noise_multiplier=5.0, **{**STEPS, **EVERY}
    ),
    "checkpoints, full batch, domain, no ridge": NoisyGD(
        n=100, steps=100, noise_multiplier=9.0, domain=Ball(0.01), **{**NO_RIDGE, **EVERY}
    ),
    "checkpoints, full batch, schedule": NoisyGD(
        n=100,
        steps=60,
        noise_std=0.12,
        neighbors="replace",
        **{**STEPS, "learning_rate": [0.5] * 40 + [0.2] * 20, "release": Checkpoints(at=[20, 50])},
    ),
    "checkpoints, weakly smooth": NoisyGD(
        n=50,
        steps=100,
        noise_std=0.8,
        domain=Ball(0.1),
        **{**NO_RIDGE, "loss": WEAKLY_SMOOTH, **EVERY},
    ),
    "checkpoints, Poisson": NoisySGD(**{**SAMPLED, **EVERY}),
    "checkpoints, Poisson, replace, last five": NoisySGD(
        **{**SAMPLED, "release": Checkpoints(last=5)}, neighbors="replace"
    ),
    "checkpoints, Poisson, domain, no ridge": NoisySGD(
        **{**SAMPLED, "l2": 0.0, "domain": Ball(0.02), **EVERY}
    ),
    "checkpoints, Poisson, schedule": NoisySGD(
        **{**SAMPLED, "steps": 40, "noise_multiplier": [1.5] * 20 + [2.5] * 20, **EVERY}
    ),
    "Poisson, averaged": NoisySGD(**{**SAMPLED, "steps": 40}, average_last=8),
    "checkpoints, fixed size": NoisySGD(**{**SAMPLED, "steps": 40, **EVERY}, **FIXED),
    "checkpoints, cyclic": CyclicSGD(**{**PASSES, **EVERY}, steps=77),
    "checkpoints, cyclic, replace, domain": CyclicSGD(
        **{**PASSES, **EVERY}, steps=77, neighbors="replace", domain=Ball(0.3)
    ),
    "checkpoints, shuffled once": CyclicSGD(**{**PASSES, **EVERY}, steps=77, order="shuffle_once"),
    "checkpoints, reshuffled": CyclicSGD(
        **{**PASSES, "release": Checkpoints(every=18)}, epochs=8, order="reshuffle"
    ),
    "checkpoints, one pass": OnePassSGD(
        n=30, batch_size=4, noise_std=1.0, **{**STEPS, "release": Checkpoints(every=3)}
    ),
    "checkpoints, momentum": NoisyGD(
        n=100, steps=40, noise_multiplier=9.0, momentum=0.9, **{**STEPS, **EVERY}
    ),
}

RUNS: dict[str, Run] = {**FULL_BATCH, **RANDOM_BATCHES, **ORDERED, **ONE_PASS, **CHECKPOINTS}
