"""Where noise and batches come from.

A source gives uniform 64-bit words; everything else is derived from them here, by methods that are
exact up to what their docstrings say. The same methods serve the secure source and the seeded one.
"""

from __future__ import annotations

import math
import os
import struct
import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.engines.kernels import distinct_sets
from dplateau.errors import InvalidInput
from dplateau.ground.types import BoolArray, FloatArray, IntArray

Words = npt.NDArray[np.uint64]
# Gaussians are made up to this many at a time: a few per call would cost more in calls than in
# noise. A source that gives few makes few.
NOISE_AHEAD = 2048
# Uniform numbers of so many bits, and decimals of so many digits, make binomial ones.
BITS, DIGITS = 128, 60
# Coins of rows are made up to this many at a time.
COINS_AT_ONCE = 1 << 16


class Randomness(ABC):
    """Noise and random choices, from a stream of uniform 64-bit words.

    Parameters
    ----------
    safe_noise
        Build every noise value from several independent ones, so that the set of floating-point
        numbers it can take does not betray what it was added to (Holohan and Braghin, "Secure
        random sampling in differential privacy", arXiv 2107.10138). Four times as slow.
    """

    private: bool
    statement: str

    def __init__(self, *, safe_noise: bool = False) -> None:
        self.safe_noise = safe_noise
        self._start()

    def _start(self) -> None:
        """Begin with no noise made ahead; the lock keeps two threads from sharing any."""
        self._lock = threading.RLock()
        self._noise: FloatArray = np.empty(0)
        self._used = 0

    def _renew(self) -> None:
        """Start over if need be; only a secret stream has a reason to."""
        return

    @abstractmethod
    def words(self, count: int) -> Words:
        """Return that many fresh uniform 64-bit words."""

    def for_batches(self) -> Randomness:
        """Return the source of a run's batches: this one, where nobody could tell the order."""
        return self

    def gaussian(self, count: int) -> FloatArray:
        """Return standard normal variates, by inversion of the distribution function.

        One bit is the sign; the other 63 give the tail probability (2 j + 1) / 2^65, so the largest
        value is 9.16 and the mass beyond it, 2^-65 on each side, is what is missing.
        """
        self._renew()
        with self._lock:
            if count > self._noise.size - self._used:
                ahead = min(NOISE_AHEAD, 4 * self._noise.size)
                self._noise, self._used = self._fresh_gaussian(max(count, ahead)), 0
            self._used += count
            return self._noise[self._used - count : self._used].copy()

    def laplace(self, count: int) -> FloatArray:
        """Return Laplace variates of variance 1 (scale 1 / sqrt(2))."""
        if self.safe_noise:
            first, second, third, fourth = self._tails(4 * count).reshape(4, count)
            variates = np.log(2 * first) * np.cos(2 * np.pi * second)
            variates += np.log(2 * third) * np.cos(2 * np.pi * fourth)
        else:
            words = self.words(count)
            variates = _signed(-np.log(2 * _tail(words)), words)
        scaled: FloatArray = variates * math.sqrt(0.5)
        return scaled

    def below(self, bound: int, count: int) -> IntArray:
        """Return uniform integers in [0, bound), without bias: words out of range are redrawn."""
        shift = np.uint64(64 - _bits(bound))
        numbers = self.words(count) >> shift
        numbers = numbers[numbers < bound]
        while numbers.size < count:
            more = self.words(count - numbers.size) >> shift
            numbers = np.concatenate([numbers, more[more < bound]])
        return numbers.astype(np.int64)

    def binomials(self, trials: int, probability: float, count: int) -> list[int]:
        """Return how many of ``trials`` independent coins show ``probability``, ``count`` times."""
        return self.binomials_by(binomial_thresholds(trials, probability), count)

    def binomials_by(self, thresholds: list[int], count: int) -> list[int]:
        """Return the same, by the law's thresholds: where a 128-bit number stands among them."""
        words = self.words(2 * count).tolist()
        numbers = [high << 64 | low for high, low in zip(words[::2], words[1::2], strict=True)]
        return [bisect_right(thresholds, number) for number in numbers]

    def subsets(self, n: int, sizes: Sequence[int]) -> list[IntArray]:
        """Return a uniformly random set of 0 ... n - 1 for every size, in any order.

        Numbers are drawn one after the other, and repeated ones dropped, until there are enough.
        """
        if 2 * max(sizes) > n:
            return [self._large_subset(n, size) for size in sizes]
        shift, finished = 64 - _bits(n), 0
        chosen: list[IntArray] = []
        while finished < len(sizes):
            rest = np.array(sizes[finished:], dtype=np.int64)
            # A set that the words do not suffice for is begun again: as likely for every set.
            words = self.words(_words_for(n, rest))
            flat, done = distinct_sets(words, shift, n, rest)
            chosen += np.split(flat, np.cumsum(rest[:done]))[:done]
            finished += done
        return chosen

    def _large_subset(self, n: int, size: int) -> IntArray:
        """Return a set of any size, one of more than half by what it leaves out."""
        if 2 * size <= n:
            return self.subsets(n, [size])[0]
        kept = np.ones(n, dtype=np.bool_)
        kept[self.subsets(n, [n - size])[0]] = False
        return np.flatnonzero(kept)

    def poisson_subsets(self, n: int, probability: float, count: int) -> list[IntArray]:
        """Return the numbers 0 ... n - 1 that independent coins choose, ``count`` times.

        Given its size such a set is uniform, so a binomial size and a uniform set of that size are
        the same as n coins, at the cost of the batch alone.
        """
        return self.subsets(n, self.binomials(n, probability, count))

    def permutation(self, n: int) -> IntArray:
        """Return 0 ... n - 1 in uniformly random order: the order of n distinct words."""
        while True:
            words = self.words(n)
            order = np.argsort(words)
            placed = words[order]
            if not np.any(placed[1:] == placed[:-1]):
                return order

    def _fresh_gaussian(self, count: int) -> FloatArray:
        from scipy.special import ndtri

        words = self.words(4 * count if self.safe_noise else count)
        variates = _signed(-ndtri(_tail(words)), words)
        return variates.reshape(4, count).sum(axis=0) / 2 if self.safe_noise else variates

    def _tails(self, count: int) -> FloatArray:
        return _tail(self.words(count))


@lru_cache(maxsize=16)
def binomial_thresholds(trials: int, probability: float) -> list[int]:
    """Return t_0 <= t_1 <= ...: a uniform 128-bit number below t_k (and no earlier) means k.

    t_k is 2^128 P(X <= k), rounded, for k < trials. Sums run in 60-digit decimals with unbounded
    exponents, so each is right to far more than 120 bits; the list ends where the rest would be
    less than one.
    """
    with localcontext(Context(prec=DIGITS, Emin=-(10**15), Emax=10**15)):
        p = Decimal(probability)
        if p == 1:
            return [0] * trials
        odds = p / (1 - p)
        mass = (1 - p) ** trials
        total, scale = mass, Decimal(2**BITS)
        thresholds = [int(total * scale)]
        for k in range(trials):
            if thresholds[-1] >= 2**BITS - 1:
                break
            mass = mass * odds * (trials - k) / (k + 1)
            total += mass
            thresholds.append(min(int(total * scale), 2**BITS))
    return thresholds[:trials]


def _bits(bound: int) -> int:
    """Return how many bits a number below ``bound`` takes, at least one."""
    return max(1, (bound - 1).bit_length())


def _words_for(n: int, sizes: IntArray) -> int:
    """Return enough words for nearly all draws of sets: the mean, and six deviations more."""
    draws = float(np.sum(-n * np.log1p(-sizes / n)))
    return math.ceil((draws + 6 * math.sqrt(draws) + 9) * (1 << _bits(n)) / n)


def _tail(words: Words) -> FloatArray:
    """Return (2 j + 1) / 2^65 for the upper 63 bits j of each word: uniform on (0, 1/2)."""
    odd = (words | np.uint64(1)).astype(np.float64)
    return np.ldexp(odd, -65)


def _signed(sizes: FloatArray, words: Words) -> FloatArray:
    """Give each size the sign that the word's last bit says."""
    return np.where(words & np.uint64(1), -sizes, sizes)


class SecureRandomness(Randomness):
    """Unpredictable words: the keystream of AES-256 in counter mode, keyed by the system.

    A copy, an unpickled object and a child process each draw a key of their own: no two of them
    ever share noise. The fork itself tells a child to start anew, since process numbers repeat
    from one container to the next; the number is looked at too, for forks that Python does not see.
    """

    private = True
    statement = (
        "noise and batches from an AES-256-CTR keystream keyed by the operating system's generator"
    )
    _BYTES = 1 << 16
    _words: Words
    _taken: int

    def words(self, count: int) -> Words:
        """Return fresh words of the keystream."""
        self._renew()
        with self._lock:
            if count > self._words.size - self._taken:
                size = max(8 * count, self._BYTES)
                self._words = np.frombuffer(self._stream.update(bytes(size)), dtype=np.uint64)
                self._taken = 0
            self._taken += count
            return self._words[self._taken - count : self._taken].copy()

    def _start(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        super()._start()
        _SECURE_SOURCES.add(self)
        self._process = os.getpid()
        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))
        self._stream = cipher.encryptor()
        self._words, self._taken = np.empty(0, dtype=np.uint64), 0

    def _renew(self) -> None:
        if os.getpid() != self._process:
            self._start()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the settings, never the key."""
        return _secure, (self.safe_noise,)


# Every source of this process, so that a fork can give each of them a new key in the child.
_SECURE_SOURCES: weakref.WeakSet[SecureRandomness] = weakref.WeakSet()


def _start_anew() -> None:
    """Give every source a key, a lock and an empty store of its own: first thing in a child."""
    for source in list(_SECURE_SOURCES):
        source._start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


def _secure(safe_noise: bool) -> SecureRandomness:
    return SecureRandomness(safe_noise=safe_noise)


class Keystream(Randomness):
    """Words that are a function of a secret key and of two numbers: of a shard and of a step.

    AES-256 in counter mode, the numbers in the upper 96 bits of the counter: streams do not meet
    before 2^32 blocks.
    """

    private = True
    statement = SecureRandomness.statement

    def __init__(self, key: bytes, shard: int, step: int) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        super().__init__()
        counter = struct.pack(">IQI", shard, step, 0)
        self._stream = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()

    def words(self, count: int) -> Words:
        """Return the next words of the stream."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype=np.uint64)


@dataclass(frozen=True)
class Coins:
    """A coin for every row, by its place: heads with probability ``share``.

    The coins are a function of a key that knows nothing of the rows, so that every pass over the
    rows, and every worker, sees the same ones. To whom the key is unknown they are independent.
    """

    key: bytes
    share: float

    def heads(self, start: int, stop: int) -> BoolArray:
        """Return how the coins of rows ``start`` ... ``stop`` - 1 fell."""
        first, size = start // COINS_AT_ONCE, COINS_AT_ONCE
        drawn = [
            Keystream(self.key, 0, block).words(min(size, stop - block * size))
            for block in range(first, -(-stop // size))
        ]
        words = np.concatenate([np.empty(0, dtype=np.uint64), *drawn])
        below: BoolArray = words[start - first * size :] < np.uint64(int(self.share * 2.0**64))
        return below

    def count(self, start: int, stop: int) -> int:
        """Return how many of them are heads, without holding them all."""
        edges = range(start, stop, 16 * COINS_AT_ONCE)
        parts = (self.heads(a, min(stop, a + 16 * COINS_AT_ONCE)) for a in edges)
        return sum(int(np.count_nonzero(part)) for part in parts)


def coins_for(n: int | None, share: float, randomness: Randomness) -> Coins:
    """Return coins of which, among the first n (if that is known), some are heads and some not.

    They know nothing of the rows, so their outcome may be public, and they may be thrown again
    until both parts have rows.
    """
    if n is not None and n * min(share, 1 - share) < 1:
        raise InvalidInput(f"{n} rows are too few to hold out a share of {share:g}")
    while True:
        coins = Coins(randomness.words(4).tobytes(), share)
        if n is None or 0 < coins.count(0, n) < n:
            return coins


class SeededRandomness(Randomness):
    """Words that anyone with the seed can repeat: for tests and teaching, not for private data."""

    private = False
    statement = "noise and batches can be repeated by whoever knows the seed"

    def __init__(self, seed: int, *, safe_noise: bool = False) -> None:
        super().__init__(safe_noise=safe_noise)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InvalidInput(f"seed must be a whole number of at least 0; got {seed!r}")
        self.seed = int(seed)
        self._bits = np.random.PCG64(self.seed)

    def for_batches(self) -> SeededRandomness:
        """Return a stream apart: batches are the same whether drawn ahead of the noise or not."""
        apart = SeededRandomness(self.seed)
        apart._bits = self._bits.jumped()
        return apart

    def words(self, count: int) -> Words:
        """Return the next words of the seeded generator."""
        with self._lock:
            return np.asarray(self._bits.random_raw(count), dtype=np.uint64)
