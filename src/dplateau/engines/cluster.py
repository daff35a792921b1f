"""Training on several machines (extra ``ray``): workers hold shards, the driver adds the noise.

Every step the driver sends the weights out, each worker sends back the sum of gradients over its
shards, and the driver adds the sums up, draws the noise once, from its own source, and steps. What
the driver does is the loop of one machine, so the law of what is released, and the certificate, are
those of one machine: this file is one more kind of :class:`Records` and nothing else.

**One model, whatever the workers.** Shards are row groups of files, or runs of rows, and do not
depend on the number of workers. Sums are whole numbers of units (see ``ruler``), so no order of
adding them changes anything. A Poisson batch is a function of a secret key of the run, the shard
and the step: every shard draws its own part, by coins that are independent of all others. A worker
gets the keys of its own shards only: the batches of others stay secret to it.

**Workers die.** Their shards go to the workers that are left (or to new ones if none are), which
load them and are asked again. No step's noise is drawn twice for different sums:

1. The noise of a step is drawn by the driver, after the last sum of that step has come in, in the
   loop that every engine shares; a worker never sees any of it. Nothing after that can be redone:
   the next thing sent out are the weights of the next step.
2. Before that, sums of the step may be asked for again. They are those of the same records, the
   same batch and the same weights, hence the same whole numbers; each shard is counted once, since
   a dead worker's answer was not counted and others are not asked again.
3. If the driver dies, weights and key die with it: they were nowhere else. A run that fails to get
   its sums ends with a refusal and releases nothing.

**What may not be seen.** Weights, sums and keys travel as small messages between driver and worker:
small enough that Ray keeps them in the memory of the two processes, and never in its object store,
which may spill to disk. Workers log nothing; what they say about records that they cannot use is in
words of this library, and shows no value. A cluster that is started here has no dashboard and sends
no usage statistics. docs/scale.md says who learns what.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dplateau.algorithms import Cyclic, FixedSize, FullBatch, OnePass, Poisson, Run, refuse_batches
from dplateau.engines import records as local
from dplateau.engines.moments import check_sum_of_squares, with_noise
from dplateau.engines.randomness import Randomness
from dplateau.engines.records import ALL, Records, Sum, Terms
from dplateau.engines.shards import (
    Gradients,
    Job,
    Moments,
    Shard,
    Worker,
    pieces,
    shard_key,
    shards_of,
)
from dplateau.engines.sources import Rows, Source, check_count, opened
from dplateau.errors import InvalidInput, MissingExtra, NotApplicable
from dplateau.ground import checks
from dplateau.ground.types import FloatArray, IntArray

# Ray passes values below 100 kB inside its messages, up to 10 MB of them in one: weights and sums
# travel in pieces of ``shards.PIECE`` numbers, and so many of them in all.
MOST = 1 << 20
# Reloads of one shard after deaths before the run gives up.
MOST_LOADS = 5
# How long an address may take to answer at all.
ANSWER_SECONDS = 10.0


class WorkersLost(InvalidInput):
    """The workers did not answer; nothing was released."""


@dataclass(frozen=True)
class Ray:
    """A Ray cluster to train on.

    Parameters
    ----------
    address
        Of a cluster that runs already, "host:port", or "auto" for the one on this machine; None
        starts one here for the time of a call, unless this process is connected to one. Files must
        have the same paths on every machine.
    workers
        How many processes hold shards; None: one for every processor of the cluster.
    in_memory
        Whether workers keep their rows in memory, or read them from their files at every step.
    patience
        Seconds to wait for an answer before the run gives up.
    """

    address: str | None = None
    workers: int | None = None
    in_memory: bool = True
    patience: float = 600.0

    def __post_init__(self) -> None:
        """Refuse what names no cluster, or no number of workers or seconds."""
        _host_of(self.address)
        if self.workers is not None:
            checks.put(self, "workers", checks.whole("workers", self.workers))
        checks.put(self, "patience", checks.positive("patience", self.patience))


def engine_of(engine: object) -> Ray | None:
    """Return the cluster that a user's choice of an engine stands for; None: this process."""
    if engine is None or isinstance(engine, Ray):
        return engine
    checks.choice("engine", engine, ("ray",))
    return Ray()


class Workers:
    """All workers of a call, which shards each holds, and what happens when one dies."""

    def __init__(self, engine: Ray, shards: list[Shard], job: Job) -> None:
        self.engine, self.job = engine, job
        self.shards = {shard.number: shard for shard in shards}
        self.loads = dict.fromkeys(self.shards, 0)
        self.placed: dict[Any, set[int]] = {}
        self._closing = ExitStack()
        self.ray = _ray()
        try:
            self._connect()
            self._place()
        except BaseException:
            self.close()
            raise

    def total(self, key: bytes, step: int, weights: FloatArray) -> IntArray:
        """Return the sum over all shards, asking again for those of workers that died."""
        sent = pieces(np.asarray(weights, dtype=np.float64))
        total = np.zeros(weights.size, dtype=np.int64)
        missing = set(self.shards)
        while missing:
            self._place()
            asked = {
                worker: numbers
                for worker, mine in self.placed.items()
                if (numbers := tuple(sorted(missing & mine)))
            }
            refs = {
                worker: worker.total.options(num_returns=1 + len(sent)).remote(
                    {i: shard_key(key, i) for i in numbers}, step, weights.shape, *sent
                )
                for worker, numbers in asked.items()
            }
            for worker, numbers in asked.items():
                answer = self._answer(worker, refs[worker])
                if answer is not None:
                    total += np.concatenate(answer[1:])
                    missing -= set(numbers)
        return total.reshape(weights.shape)

    def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        for worker in self.placed:
            with suppress(Exception):
                self.ray.kill(worker)
        self.placed = {}
        self._closing.close()

    def _connect(self) -> None:
        ray = self.ray
        if ray.is_initialized():
            return
        address = self.engine.address
        _check_answers(address, min(self.engine.patience, ANSWER_SECONDS))
        # No dashboard, no statistics, no lines of workers, no objects on disk.
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            quiet |= {
                "include_dashboard": False,
                "num_cpus": self.engine.workers or local.processors(),
                "object_store_memory": 80 << 20,
                "_system_config": {"automatic_object_spilling_enabled": False},
            }
        self._closing.callback(ray.shutdown)
        try:
            ray.init(address=address or "local", **quiet)
        except Exception as error:
            where = "start on this machine" if address is None else f"be reached at {address}"
            raise InvalidInput(f"a Ray cluster cannot {where}: {type(error).__name__}") from None

    def _place(self) -> None:
        """Have workers load the shards that none of them holds, the least busy first."""
        while homeless := sorted(set(self.shards).difference(*self.placed.values())):
            if not self.placed:
                self._start()
            held = {w: sum(self.shards[i].n for i in mine) for w, mine in self.placed.items()}
            given: dict[Any, list[Shard]] = {}
            for number in homeless:
                self._count_load(number)
                least = min(held, key=lambda worker: held[worker])
                given.setdefault(least, []).append(self.shards[number])
                held[least] += self.shards[number].n
            refs = {worker: worker.hold.remote(some, self.job) for worker, some in given.items()}
            for worker, some in given.items():
                if self._answer(worker, [refs[worker]]) is not None:
                    self.placed[worker] |= {shard.number for shard in some}

    def _count_load(self, number: int) -> None:
        self.loads[number] += 1
        if self.loads[number] > MOST_LOADS:
            raise WorkersLost(
                f"workers died {MOST_LOADS} times with the same shard (out of memory? dplateau not "
                "installed where they run?); nothing was released"
            )

    def _start(self) -> None:
        cpus = int(self.ray.cluster_resources().get("CPU", 1))
        count = min(self.engine.workers or cpus, len(self.shards))
        each = max(1, cpus // count)
        kind = self.ray.remote(Worker).options(
            num_cpus=min(1.0, cpus / count),
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        self.placed = {kind.remote(each): set() for _ in range(count)}

    def _answer(self, worker: Any, refs: Iterable[Any]) -> list[Any] | None:
        """Return what a worker answered; None if it is dead."""
        errors = self.ray.exceptions
        try:
            answer: list[Any] = self.ray.get(list(refs), timeout=self.engine.patience)
        except errors.GetTimeoutError:
            raise WorkersLost(
                f"a worker did not answer within {self.engine.patience:g} s; nothing was released"
            ) from None
        except _deaths(errors):
            # Also one that cannot be reached: it must not answer later, beside who takes its place.
            with suppress(Exception):
                self.ray.kill(worker)
            self.placed.pop(worker, None)
            return None
        except errors.RayError as error:
            # What Ray says may be long, and is not ours.
            raise WorkersLost(
                f"a worker could not be asked ({type(error).__name__}); nothing was released"
            ) from None
        if answer[0] is not None:
            raise InvalidInput(str(answer[0]))
        return answer


def _deaths(errors: Any) -> tuple[type[Exception], ...]:
    """Return what Ray raises where a worker is gone, for whatever reason."""
    return (
        errors.RayActorError,
        errors.WorkerCrashedError,
        errors.NodeDiedError,
        errors.OutOfMemoryError,
    )


def _host_of(address: object) -> tuple[str, int] | None:
    """Return host and port of an address; None for a cluster on this machine."""
    if address is None or address == "auto":
        return None
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    # A client's connection (ray://) would pass weights and sums through one process more.
    if not host or "/" in host or not port.isdecimal():
        raise InvalidInput(
            f"address must be 'host:port' of a Ray cluster, or 'auto'; got {address!r}"
        )
    return host.strip("[]"), int(port)


def _check_answers(address: str | None, seconds: float) -> None:
    """Refuse an address where nobody listens: Ray itself would try for minutes."""
    place = _host_of(address)
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=seconds).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidInput(f"no Ray cluster answers at {address}: {why}") from None


def _check_message(numbers: int, instead: str) -> None:
    """Refuse sums that would not travel as messages, before any worker is started."""
    if numbers > MOST:
        raise NotApplicable(
            f"engine='ray' sends at most {MOST} numbers in a message, and a sum here has "
            f"{numbers}; {instead}"
        )


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingExtra("engine='ray' needs Ray: pip install 'dplateau[ray]'") from None
    return ray


class ClusterRecords(Records):
    """Records that workers hold. Batches are drawn where the records are, by the run's key."""

    def __init__(
        self, source: Source, terms: Terms, run: Run, engine: Ray, randomness: Randomness
    ) -> None:
        _check_batches(run)
        shards = shards_of(source)
        self.n = run.n
        _check_count(source, shards, run.n)
        _, (row, _) = opened(source)
        self.n_features = int(row.shape[1])
        _check_message(
            self.n_features * terms.loss.n_outputs, "without engine= this process reads the files"
        )
        self.ruler = terms.ruler(run.n, self.n_features)
        self.key = randomness.words(4).tobytes()
        job = Gradients(run, terms, self.ruler, engine.in_memory)
        self.workers = Workers(engine, shards, job)

    def units(self, weights: FloatArray, rows: Rows) -> IntArray:
        """Return the sum over all records."""
        if rows != ALL:
            raise InvalidInput("records of a cluster are added up all together, or by its batches")
        return self.workers.total(self.key, 0, weights)

    def in_turn(self, batches: Iterable[Rows]) -> Iterator[Sum]:
        """Yield for every step what gives its sum; the driver's own batches are not drawn."""
        del batches
        for step in itertools.count():
            yield partial(self.workers.total, self.key, step)

    def close(self) -> None:
        """End the workers."""
        self.workers.close()


def cluster_moments(
    run: Run, source: Source, *, feature_norm: float, randomness: Randomness, engine: Ray
) -> FloatArray:
    """Return noisy second moments as :func:`dplateau.engines.moments.noisy_moments` does."""
    check_sum_of_squares(run.n)
    shards = shards_of(source)
    _check_count(source, shards, run.n)
    _, (row, _) = opened(source)
    shape = (row.shape[1],) * 2
    _check_message(shape[0] * shape[1], "whitening='never' does without these")
    workers = Workers(engine, shards, Moments(feature_norm))
    try:
        total = workers.total(b"", 0, np.zeros(shape))
    finally:
        workers.close()
    return with_noise(run, total, feature_norm=feature_norm, randomness=randomness)


def _check_batches(run: Run) -> None:
    match run.batches:
        case FullBatch() | Poisson():
            return
        case FixedSize() | Cyclic() | OnePass():
            raise NotApplicable(
                f"engine='ray' takes full and Poisson batches; {run.described} has others"
            )
        case _ as unknown:
            refuse_batches(unknown)


def _check_count(source: Source, shards: list[Shard], n: int) -> None:
    check_count(source, sum(shard.n for shard in shards), n)
    if not shards:
        raise InvalidInput("the source holds no records at all")
