"""Noise and batches have the laws they claim, and the tests of these laws reject wrong ones."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dplateau.algorithms import NoisySGD, Run
from dplateau.engines import Randomness, SecureRandomness, SeededRandomness
from dplateau.engines.randomness import BITS, binomial_thresholds
from dplateau.engines.training import batches
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray

N, RATE, STEPS = 40, 0.15, 20_000
POISSON = NoisySGD(
    n=N, sampling_rate=RATE, steps=STEPS, noise_multiplier=1.0, release="last", sampling="poisson"
)


# -- batches ------------------------------------------------------------------------------------


def inclusion(drawn: list[IntArray]) -> IntArray:
    """Return how often each record is in each batch."""
    return np.array([np.bincount(batch, minlength=N) for batch in drawn])


def size_p_value(counts: IntArray) -> float:
    """Test that the sizes of the batches are binomial."""
    sizes = counts.sum(axis=1)
    edges = np.arange(1, 14)
    seen = np.bincount(np.digitize(sizes, edges), minlength=edges.size + 1)
    below = stats.binom.cdf(edges - 1, N, RATE)
    expected = len(sizes) * np.diff(np.concatenate([[0], below, [1]]))
    return float(stats.chisquare(seen, expected).pvalue)


def pair_p_value(counts: IntArray, later: int = 0) -> float:
    """Test that two records meet in a step (or ``later`` steps apart) as often as coins would."""
    if counts.max() > 1:
        return 0.0  # no coin includes a record twice
    first, second = counts[: len(counts) - later], counts[later:]
    meetings = first.T @ second
    chosen = meetings[np.triu_indices(N, 1)] if not later else np.diag(meetings)
    mean = len(first) * RATE**2
    # Meetings of different pairs are uncorrelated; their sum of squares is nearly chi-square.
    spread = np.sum((chosen - mean) ** 2) / (mean * (1 - RATE**2))
    return float(2 * min(stats.chi2.sf(spread, chosen.size), stats.chi2.cdf(spread, chosen.size)))


def looks_poisson(drawn: list[IntArray], level: float = 1e-4) -> bool:
    counts = inclusion(drawn)
    found = (size_p_value(counts), pair_p_value(counts), pair_p_value(counts, later=1))
    return min(found) > level


def take(run: Run, seed: int) -> list[IntArray]:
    chosen = batches(run, SeededRandomness(seed))
    return [np.asarray(batch) for batch in itertools.islice(chosen, run.steps)]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_engine_draws_every_record_by_its_own_coin(seed: int) -> None:
    assert looks_poisson(take(POISSON, seed))


def test_a_schedule_of_rates_is_drawn_step_by_step() -> None:
    rates = np.repeat([0.3, 0.02, 1.0, 0.15], [3, 40, 1, 7])
    run = POISSON.replace(batch_size=6, sampling_rate=rates, steps=rates.size)
    turns = 1500
    joined = np.zeros((rates.size, N))
    for seed in range(turns):
        joined += inclusion(take(run, seed))
    # Each record of each step: binomial over the turns, with that step's rate.
    spread = np.sqrt(np.maximum(turns * rates * (1 - rates), 1e-9))
    scores = (joined - turns * rates[:, None]) / spread[:, None]
    assert np.all(joined[rates == 1] == turns)
    free = scores[rates < 1]
    assert np.abs(free).max() < 6
    assert free.std() == pytest.approx(1, abs=0.06)
    wrong = (joined - turns * 0.15) / np.sqrt(turns * 0.15 * 0.85)
    assert np.abs(wrong[:43]).min() > 3, "the mean rate would be told apart"


def test_a_constant_rate_of_its_own_is_the_one_drawn() -> None:
    own = POISSON.replace(batch_size=2, sampling_rate=RATE)
    assert own.has_own_rate
    assert looks_poisson(take(own, 3))
    assert not looks_poisson(take(own.replace(sampling_rate=None), 3))


def fixed_size(rng: np.random.Generator) -> list[IntArray]:
    return [rng.choice(N, 6, replace=False) for _ in range(STEPS)]


def shuffled(rng: np.random.Generator) -> list[IntArray]:
    orders = (rng.permutation(N) for _ in range(STEPS))
    parts = (np.array_split(order, 7) for order in orders)
    return list(itertools.islice(itertools.chain.from_iterable(parts), STEPS))


def with_replacement(rng: np.random.Generator) -> list[IntArray]:
    return [rng.integers(0, N, size) for size in rng.binomial(N, RATE, STEPS)]


def without_repeats(rng: np.random.Generator) -> list[IntArray]:
    return [np.unique(batch) for batch in with_replacement(rng)]


def in_neighborhoods(rng: np.random.Generator) -> list[IntArray]:
    """Right sizes, wrong sets: consecutive records."""
    sizes = rng.binomial(N, RATE, STEPS)
    return [(rng.integers(N) + np.arange(size)) % N for size in sizes]


def sticky(rng: np.random.Generator) -> list[IntArray]:
    """Right batches, but one in fifty is used twice in a row."""
    drawn: list[IntArray] = []
    for size in rng.binomial(N, RATE, STEPS):
        again = drawn and rng.random() < 0.02
        drawn.append(drawn[-1] if again else rng.choice(N, size, replace=False))
    return drawn


def slightly_too_often(rng: np.random.Generator) -> list[IntArray]:
    return [np.flatnonzero(row) for row in rng.random((STEPS, N)) < 1.03 * RATE]


@pytest.mark.parametrize(
    "sampler",
    [
        fixed_size,
        shuffled,
        with_replacement,
        without_repeats,
        in_neighborhoods,
        sticky,
        slightly_too_often,
    ],
)
def test_another_sampler_would_be_caught(
    sampler: Callable[[np.random.Generator], list[IntArray]],
) -> None:
    assert not looks_poisson(sampler(np.random.default_rng(3)))


def test_true_coins_pass() -> None:
    rng = np.random.default_rng(4)
    assert looks_poisson([np.flatnonzero(row) for row in rng.random((STEPS, N)) < RATE])


@pytest.mark.parametrize(("n", "size"), [(6, 3), (6, 2), (6, 5), (5, 4)])
def test_every_subset_is_equally_likely(n: int, size: int) -> None:
    source = SeededRandomness(7)
    seen = Counter(tuple(sorted(source.subsets(n, [size])[0].tolist())) for _ in range(12_000))
    assert len(seen) == math.comb(n, size)
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4


def test_subsets_at_the_edges() -> None:
    source = SeededRandomness(8)
    nothing, something, everything = source.subsets(9, [0, 4, 9])
    assert (nothing.size, something.size) == (0, 4)
    assert sorted(everything) == list(range(9))
    assert source.subsets(1, [1])[0].tolist() == [0]
    assert [part.size for part in source.subsets(50, [0, 25, 0, 1])] == [0, 25, 0, 1]
    large = source.subsets(10**9, [5000])[0]
    assert np.unique(large).size == 5000
    assert 0 <= large.min() < large.max() < 10**9


class Sparing(SeededRandomness):
    """Gives far fewer words than sets need, so that they have to be begun again and again."""

    def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return super().words(min(count, 5))


def test_sets_that_are_begun_again_are_uniform_too() -> None:
    source = Sparing(13)
    seen = Counter(
        tuple(sorted(part.tolist())) for _ in range(4000) for part in source.subsets(6, [2, 3])
    )
    for size in (2, 3):
        counts = [count for part, count in seen.items() if len(part) == size]
        assert len(counts) == math.comb(6, size)
        assert stats.chisquare(counts).pvalue > 1e-4


def test_every_order_is_equally_likely() -> None:
    source = SeededRandomness(9)
    seen = Counter(tuple(source.permutation(4).tolist()) for _ in range(24_000))
    assert len(seen) == 24
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 48])
def test_integers_below_a_bound_are_uniform(bound: int) -> None:
    seen = np.bincount(SeededRandomness(10).below(bound, 50_000), minlength=bound)
    assert seen.size == bound
    assert stats.chisquare(seen).pvalue > 1e-4 or bound == 1


@pytest.mark.parametrize(("n", "q"), [(5, 0.3), (12, 0.5), (7, 0.9999), (3, 1e-9), (4, 1.0)])
def test_binomial_thresholds_are_exact(n: int, q: float) -> None:
    p, total = Fraction(q), Fraction(0)
    thresholds = binomial_thresholds(n, q)
    for k in range(n):
        total += math.comb(n, k) * p**k * (1 - p) ** (n - k)
        here = thresholds[k] if k < len(thresholds) else 2**BITS
        assert abs(here - total * 2**BITS) <= 1


def test_binomial_thresholds_agree_with_scipy_at_scale() -> None:
    n, q = 60_000, 256 / 60_000
    thresholds = np.array([float(t) for t in binomial_thresholds(n, q)]) / 2.0**BITS
    expected = stats.binom.cdf(np.arange(thresholds.size), n, q)
    assert np.allclose(thresholds, expected, rtol=1e-9, atol=1e-15)
    drawn = SeededRandomness(1).binomials(n, q, 4000)
    assert np.mean(drawn) == pytest.approx(256, abs=1.0)
    assert np.var(drawn) == pytest.approx(n * q * (1 - q), rel=0.1)


# -- noise --------------------------------------------------------------------------------------

DRAWS = 400_000


def noise(kind: str, *, safe: bool) -> FloatArray:
    source = SeededRandomness(11, safe_noise=safe)
    return source.gaussian(DRAWS) if kind == "gaussian" else source.laplace(DRAWS)


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize(
    ("kind", "law"), [("gaussian", stats.norm()), ("laplace", stats.laplace(scale=math.sqrt(0.5)))]
)
def test_noise_has_its_law_and_no_other_scale(
    kind: str, law: stats.distributions.rv_frozen, safe: bool
) -> None:
    drawn = noise(kind, safe=safe)
    assert stats.kstest(drawn, law.cdf, method="asymp").pvalue > 1e-3
    for wrong in (0.97, 1.03):
        assert stats.kstest(wrong * drawn, law.cdf, method="asymp").pvalue < 1e-6
    assert np.std(drawn) == pytest.approx(1, abs=0.01)


def test_small_and_large_draws_come_from_one_stream_without_repeats() -> None:
    source = SeededRandomness(12)
    drawn = np.concatenate([source.gaussian(k) for k in (1, 100, 5000, 3, 2047, 1)])
    assert np.unique(drawn).size == drawn.size
    assert stats.kstest(drawn, "norm").pvalue > 1e-3


class Constant(Randomness):
    """Gives one and the same word, to reach the ends of the tails."""

    private, statement = False, "constant"

    def __init__(self, word: int) -> None:
        super().__init__()
        self.word = word

    def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return np.full(count, self.word, dtype=np.uint64)


def test_extreme_words_give_the_stated_tails() -> None:
    end = -stats.norm.ppf(2.0**-65)
    assert Constant(0).gaussian(1)[0] == pytest.approx(end)
    assert Constant(1).gaussian(1)[0] == pytest.approx(-end)
    assert 9.1 < end < 9.2
    assert abs(Constant(2**64 - 1).gaussian(1)[0]) < 1e-15
    assert Constant(0).laplace(1)[0] == pytest.approx(64 * math.log(2) * math.sqrt(0.5))
    assert abs(Constant(2**64 - 1).laplace(1)[0]) < 1e-15


# -- sources ------------------------------------------------------------------------------------


def test_secure_words_are_uniform_and_never_the_same() -> None:
    one, other = SecureRandomness(), SecureRandomness()
    first, second = one.words(50_000), other.words(50_000)
    assert np.unique(np.concatenate([first, second])).size == 100_000
    # A fresh key each time: the level is that of a chance of one in ten thousand million.
    octets = np.bincount(first.view(np.uint8), minlength=256)
    assert stats.chisquare(octets).pvalue > 1e-10
    assert one.words(100_000).size == 100_000


def test_copies_of_a_secure_source_share_nothing() -> None:
    source = SecureRandomness(safe_noise=True)
    source.gaussian(10)
    for twin in (copy.copy(source), copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
        assert twin.safe_noise
        assert not np.intersect1d(twin.words(1000), source.words(1000)).size


FORK = """
import ctypes, os, sys
from dplateau.engines import SecureRandomness
fork = ctypes.CDLL(None).fork if sys.argv[1] == "unseen" else os.fork
if sys.argv[1] == "same number":
    os.getpid = lambda: 1
source = SecureRandomness()
source.gaussian(1), source.words(1)
read, write = os.pipe()
child = fork()
drawn = repr((source.gaussian(2).tolist(), source.words(2).tolist())).encode()
if child == 0:
    os.write(write, drawn)
    os._exit(0)
os.waitpid(child, 0)
theirs = os.read(read, 10_000)
assert not set(eval(theirs)[0]) & set(eval(drawn)[0]), "shared noise"
assert not set(eval(theirs)[1]) & set(eval(drawn)[1]), "shared words"
"""


@pytest.mark.parametrize("how", ["fork", "same number", "unseen"])
def test_a_child_process_draws_noise_of_its_own(how: str) -> None:
    """Also where parent and child have one process number, and where C code forks unseen."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, how],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_never_share_noise() -> None:
    source, found = SecureRandomness(), []

    def draw() -> None:
        found.extend(source.gaussian(7) for _ in range(3000))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drawn = np.concatenate(found)
    assert np.unique(drawn).size == drawn.size == 4 * 3000 * 7


def test_a_seed_repeats_itself_and_says_so() -> None:
    source = SeededRandomness(5)
    assert np.array_equal(source.gaussian(9), SeededRandomness(5).gaussian(9))
    assert not source.private
    assert source.statement == "noise and batches can be repeated by whoever knows the seed"
    assert SecureRandomness().private
    assert "AES-256" in SecureRandomness().statement
    with pytest.raises(InvalidInput, match="seed must be a whole number"):
        SeededRandomness(-1)
