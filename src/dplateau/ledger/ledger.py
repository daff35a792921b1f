"""A budget that several releases share, whoever makes them and in whatever order."""

from __future__ import annotations

import math
import os
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from dplateau.algorithms import Run
from dplateau.certificates import Calibration, Certificate, ForeignPart, calibrate, certify, compose
from dplateau.certificates.compose import relations_of
from dplateau.certificates.composition import Composition, Part, law_to_dict, unit_of
from dplateau.errors import InvalidInput, NotApplicable, PrivacyLeakWarning, SpendRefused
from dplateau.ground import checks
from dplateau.ground.shown import rounded_down, rounded_up
from dplateau.ledger import heirs
from dplateau.ledger.accounts import (
    Account,
    Entry,
    Settings,
    budget_of,
    chosen_filter,
    identity_of,
    words_of,
)
from dplateau.ledger.book import Book
from dplateau.ledger.filters import Spending, Terms, release_of
from dplateau.numerics.solve import smallest_where

# Ledgers that are in force in this process, the innermost last. Every thread sees them: a fit that
# escaped its ledger because it ran in another thread would not be paid for.
_IN_FORCE: list[Ledger] = []
# What a thread releases beside its models; other threads pay for theirs alone.
_RELEASED_WITH: ContextVar[Callable[[Part], Part] | None] = ContextVar("released", default=None)
_NOISE_STEPS = 40
_NOISE_RTOL = 1e-3


@dataclass(frozen=True)
class Statement:
    """What a ledger holds: its terms, its entries, what is left, and the head of its chain.

    ``left`` is the share of the whole budget that remains for releases that were not planned, and
    ``left_epsilon`` what one more release could claim at the ledger's delta if it took all of it
    and was a Gaussian one (with the currency "pure": one without a delta).
    """

    path: str
    settings: Settings
    terms: Terms | None
    entries: tuple[Entry, ...]
    planned_left: int
    amount_left: float
    slack_left: float
    left: float
    left_epsilon: float
    head: str

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON-ready data."""
        return {
            "ledger": self.path,
            "settings": self.settings.to_dict(),
            "terms": None if self.terms is None else self.terms.to_dict(),
            "entries": [entry.to_dict() for entry in self.entries],
            "planned_left": self.planned_left,
            "amount_left": self.amount_left,
            "delta_left": self.slack_left,
            "left": self.left,
            "left_epsilon": self.left_epsilon,
            "head": self.head,
        }


class Ledger:
    """A file that keeps what was spent on one data set, and refuses what would exceed its budget.

    The whole of what it accepts is (epsilon, delta)-private for the neighbors and the unit fixed
    when it was made, also if every release is chosen after seeing all earlier ones. Inside
    ``with Ledger(path):`` every fit of this process, and of processes that it starts there,
    reserves its cost before it trains, and settles it afterwards; a fit that crashes stays
    reserved, which counts as spent. Inside the blocks of several ledgers all of them pay. ``name``
    says in the ledger what the fits of a block are for.

    >>> import tempfile
    >>> from dplateau import foreign
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger.create(f"{folder}/survey.ledger", epsilon=3.0, delta=1e-5)
    ...     entry = ledger.spend(foreign(mu=0.2, neighbors="add_remove"), name="a histogram")
    ...     left = ledger.statement().left
    >>> entry.status, round(left, 2)
    ('spent', 0.92)
    """

    def __init__(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        self._book = Book(Path(path))
        self._name = name

    @property
    def path(self) -> Path:
        """Where the ledger is, as it was named."""
        return self._book.path

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        neighbors: str = "add_remove",
        max_records_per_person: int = 1,
        planned: Sequence[Part] = (),
        filter: str = "auto",
        order: float | None = None,
        delta_share: float = 0.1,
    ) -> Ledger:
        """Make a new ledger; nothing of what is fixed here can be changed later.

        Parameters
        ----------
        path
            The new file, on a local disk.
        epsilon, delta
            What all releases together may cost.
        neighbors, max_records_per_person
            Which data sets count as neighbors, and how many records of one person they differ in.
        planned
            Parts fixed in advance: they are composed numerically and may be spent in any order.
            Whatever they leave is for releases chosen later.
        filter, order
            The currency of releases chosen later: "gdp" (squares of mu), "renyi" (divergences of
            one ``order``), "pure" (epsilons), or "auto": the cheaper of the first two for what is
            known before the first output, which is the plan or else the first spend.
        delta_share
            Share of ``delta`` for releases whose tail no amount covers.

        Returns
        -------
        Ledger
            The ledger, empty.

        Raises
        ------
        InvalidInput
            If the file exists, or a number is out of range.
        SpendRefused
            If the planned parts are not verified or do not fit.
        """
        for part in planned:
            _require_part(part)
        budget = budget_of(epsilon, delta, delta_share)
        settings = Settings(
            budget=budget,
            neighbors=checks.choice("neighbors", neighbors, ("add_remove", "replace")),
            group_size=checks.whole("max_records_per_person", max_records_per_person),
            filter=chosen_filter(filter, order, budget),
            planned=Counter(identity_of(part) for part in planned),
        )
        for part in planned:
            reason = _unfit(part, settings)
            if reason is not None:
                raise SpendRefused(f"the plan was refused: {reason}")
        terms = _terms(compose(list(planned), budget.delta), settings) if planned else None
        if planned and terms is None:
            together = compose(list(planned), budget.delta).claimed_epsilon
            raise SpendRefused(
                f"the plan was refused: its parts cost epsilon {rounded_up(together, 4)} together "
                f"at delta {rounded_up(budget.delta)}, and the budget is "
                f"{rounded_down(budget.epsilon)}"
            )
        content = {
            **settings.to_dict(),
            "identifier": secrets.token_hex(16),
            "terms": None if terms is None else terms.to_dict(),
        }
        return cls(Book.create(Path(path), "init", content).path)

    def spend(self, part: Part, *, name: str | None = None) -> Entry:
        """Pay for a release: a certificate, a composition, or what :func:`foreign` declares.

        Certificates and compositions are verified first.

        Returns
        -------
        Entry
            The line written: what it cost and what is left.

        Raises
        ------
        SpendRefused
            If the release is not verified, speaks of other neighbors or another unit, or costs
            more than is left. Nothing is spent then, and the refusal is on record.
        """
        return self._enter("spent", part, name)

    def reserve(self, part: Part, *, name: str | None = None) -> int:
        """Pay for a release that is about to be made, and return the number of the entry.

        It counts as spent from now on, whatever happens. Refusals are those of :meth:`spend`.
        """
        return self._enter("reserved", part, name).number

    def settle(self, number: int) -> None:
        """Note that a reserved release was made; what it cost does not change."""
        with self._book.adding() as (rows, append):
            if not Account.of(rows).is_reserved(number):
                raise InvalidInput(f"entry {number!r} of {self.path} is not reserved")
            append("settled", {"entry": number})

    def statement(self) -> Statement:
        """Return what the ledger holds, once its chain is found whole."""
        account = Account.of(self._book.rows())
        return Statement(
            path=str(self.path),
            settings=account.settings,
            terms=account.terms,
            entries=tuple(account.entries),
            planned_left=account.planned.total(),
            amount_left=account.amount_left,
            slack_left=account.slack_left,
            left=account.left,
            left_epsilon=_left_epsilon(account),
            head=account.head,
        )

    def contains_head(self, head: str) -> bool:
        """Return whether a head that was written down is still in the chain, all before it too."""
        return any(row.digest == head for row in self._book.rows())

    def plan_next(self, run: Run) -> Calibration:
        """Return ``run`` with the smallest noise found that what is left pays for.

        The run gets the ledger's unit of privacy; its own noise is only a starting point.

        Raises
        ------
        SpendRefused
            If nothing is left, or the run speaks of other neighbors.
        NotApplicable
            If no noise is enough.
        """
        account = Account.of(self._book.rows())
        settings, budget = account.settings, account.settings.budget
        if run.neighbors != settings.neighbors:
            other = _other_neighbors(run.neighbors, settings)
            raise SpendRefused(f"{self.path} cannot pay for this run: {other}")
        if run.group_size < settings.group_size:
            run = run.replace(group_size=settings.group_size)
        if account.terms is None:
            return calibrate(run, budget.epsilon, budget.delta)
        if account.left == 0:
            raise SpendRefused(f"nothing of the budget of {self.path} is left for another release")
        start = calibrate(run, _left_epsilon(account), budget.delta)
        return _cheapest(start, account)

    def __enter__(self) -> Ledger:
        """Put the ledger in force for every fit of this process, and of those it starts inside."""
        self.statement()
        _IN_FORCE.append(self)
        _tell_new_processes()
        if older := heirs.too_old_to_be_told():
            said = (
                f"processes that were started before this block do not know of {self.path}, and "
                f"what they fit is not paid for ({', '.join(older)}): start them inside, or let "
                "them open the ledger themselves"
            )
            try:
                warnings.warn(said, PrivacyLeakWarning, stacklevel=2)
            except PrivacyLeakWarning:  # where warnings are errors the block does not begin
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take it out of force."""
        _IN_FORCE.remove(self)
        _tell_new_processes()

    def __repr__(self) -> str:
        """Show where the ledger is."""
        return f"Ledger({str(self.path)!r})"

    def _enter(self, kind: str, part: Part, name: str | None) -> Entry:
        _require_part(part)
        before = Account.of(self._book.rows())
        content: dict[str, Any] = {
            "name": name if name is not None else _name_of(part),
            "what": words_of(part),
            "identity": identity_of(part),
        }
        # Whatever takes long is done before other writers are kept out.
        reason = _unfit(part, before.settings)
        release = terms = None
        if reason is None and before.planned[content["identity"]] < 1:
            release = _readable(part, before.settings)
            if release is None:
                reason = "its curve has a tail that no share of delta covers"
            elif before.terms is None:
                terms = _terms(part, before.settings)
        with self._book.adding() as (rows, append):
            account = Account.of(rows)
            if reason is None:
                payment = _payment(account, content["identity"], release, terms)
                if isinstance(payment, str):
                    reason = payment
                else:
                    content |= payment | {"part": part.to_dict()}
            if reason is not None:
                kind, content = "refused", {**content, "reason": reason}
            account.add(append(kind, content))
        if reason is not None:
            raise SpendRefused(f"{self.path} refused {content['name']!r}: {reason}")
        return account.entries[-1]


def ledgers_in_force() -> tuple[Ledger, ...]:
    """Return the ledgers whose blocks this process is in, or was started in, the innermost first.

    All of them pay: each promises to hold what is released inside its block.
    """
    found: dict[Path, Ledger] = {}
    for ledger in [*map(Ledger, heirs.told()), *_IN_FORCE][::-1]:
        found.setdefault(ledger._book.place.resolve(), ledger)
    return tuple(found.values())


def ledger_in_force() -> Ledger | None:
    """Return the innermost ledger in force."""
    return next(iter(ledgers_in_force()), None)


def _tell_new_processes() -> None:
    """Let processes that are started from now on find the ledgers in force, if there are any."""
    heirs.tell([str(one._book.place.resolve()) for one in ledgers_in_force()[::-1]])


@contextmanager
def paid_for(part: Part, *, name: str) -> Iterator[None]:
    """Make a release within the block: every ledger in force pays before it begins.

    The cost is reserved, and settled once the block has ended; if it fails, it stays reserved.
    """
    ledgers = ledgers_in_force()
    together = _RELEASED_WITH.get()
    whole = together(part) if ledgers and together is not None else part
    names = [name if ledger._name is None else f"{ledger._name} ({name})" for ledger in ledgers]
    numbers = [book.reserve(whole, name=of) for book, of in zip(ledgers, names, strict=True)]
    yield
    for ledger, number in zip(ledgers, numbers, strict=True):
        ledger.settle(number)


@contextmanager
def released_with(whole: Callable[[Part], Part]) -> Iterator[None]:
    """Pay at once for all that leaves together: ``whole`` of what is paid for inside the block."""
    before = _RELEASED_WITH.set(whole)
    try:
        yield
    finally:
        _RELEASED_WITH.reset(before)


def _payment(
    account: Account, identity: str, release: Spending | None, terms: Terms | None
) -> dict[str, Any] | str:
    """Return how a release is paid for, or why it is not."""
    if account.planned[identity] > 0:
        return {"cost": None, "terms": None, "law": None}
    if release is None:  # it was planned, and another process has just spent it
        return "it was planned, and has been spent as often as that"
    law = law_to_dict(release.law)
    if account.terms is None:
        if terms is None:
            budget = account.settings.budget
            epsilon = release.curve.epsilon(budget.delta)
            if math.isinf(epsilon):
                return f"no epsilon covers it at delta {rounded_up(budget.delta)}"
            return (
                f"it costs epsilon {rounded_up(epsilon, 4)} or more at delta "
                f"{rounded_up(budget.delta)}, and the whole budget is "
                f"{rounded_down(budget.epsilon)}"
            )
        return {"cost": None, "terms": terms.to_dict(), "law": law}
    chosen = account.terms.filter
    amount, delta = chosen.cost(release, account.amount_left, account.slack_left)
    if account.left == 0:
        return "nothing of the budget is left"
    if math.isinf(amount):
        return (
            "its tail is lost outright with a larger chance than the share of delta that is left "
            f"({rounded_down(account.slack_left, 3)})"
        )
    if not account.fits(amount, delta):
        # What fits is not named: all that is left of delta, rounded up, would read as more than it.
        slack, needed, left = account.slack_left, [], []
        if amount > account.amount_left:
            needed, left = [chosen.cost_words(amount)], [chosen.left_words(account.amount_left)]
        if delta > slack:
            needed.append(f"delta {rounded_up(delta, 3)}")
            left.append(f"delta {rounded_down(slack, 3)}")
        are = "is" if len(left) == 1 else "are"
        return (
            f"it needs {' and '.join(needed)}, and {' and '.join(left)} {are} left "
            "('dplateau ledger plan-next' finds noise)"
        )
    return {"cost": {"amount": amount, "delta": delta}, "terms": None, "law": law}


def _terms(part: Part, settings: Settings) -> Terms | None:
    """Return the terms if ``part`` is all that is fixed in advance; None if it does not fit.

    The choice of the filter, too, is made before the first output is seen.
    """
    budget, release = settings.budget, _readable(part, settings)
    chosen = settings.filter
    if release is not None:
        chosen = chosen or budget.best_filter(release)
        terms = budget.terms(release, chosen)
        if terms is not None:
            return terms
    if _claimed(part, release, budget.delta) <= budget.epsilon:
        return budget.nothing_left(chosen or budget.default_filter)
    return None


def _claimed(part: Part, release: Spending | None, delta: float) -> float:
    """Return the epsilon of a part alone: what was verified where that is known, else its curve."""
    if not isinstance(part, ForeignPart) and part.claimed_delta == delta:
        return part.claimed_epsilon
    return math.inf if release is None else release.curve.epsilon(delta)


def _readable(part: Part, settings: Settings) -> Spending | None:
    try:
        return release_of(part, settings.budget)
    except NotApplicable:
        return None


def _require_part(part: object) -> None:
    if not isinstance(part, Certificate | ForeignPart | Composition):
        raise InvalidInput(
            "a ledger pays for certificates, compositions and what foreign(...) returns; "
            f"got {type(part).__name__}"
        )


def _unfit(part: Part, settings: Settings) -> str | None:
    """Return why a part can be spent on no budget of these settings: claim, unit, neighbors."""
    if not isinstance(part, ForeignPart) and part.claim is None:
        return f"it claims nothing: {part.no_claim}"
    for neighbors, unit in relations_of(part):
        if neighbors != settings.neighbors:
            return _other_neighbors(neighbors, settings)
        if not _covers(unit, settings.group_size):
            return (
                f"it protects a {unit}, and the ledger a {settings.unit}; certify the run with "
                f"max_records_per_person={settings.group_size} (a claim about larger groups covers "
                "smaller ones, never the reverse)"
            )
    if isinstance(part, ForeignPart):
        return None
    from dplateau.verify import PATIENT_SECONDS

    verdict = part.verify(seconds=PATIENT_SECONDS)
    return None if verdict.ok else f"it is not verified ({verdict.checks[-1].detail})"


def _covers(unit: str, group_size: int) -> bool:
    """Return whether a claim about ``unit`` is one about groups of ``group_size`` records too."""
    if unit == unit_of(1):
        return group_size == 1
    size = unit.removeprefix("group of ").removesuffix(" records")
    return size.isdecimal() and unit == unit_of(int(size)) and int(size) >= group_size


def _other_neighbors(neighbors: str, settings: Settings) -> str:
    return (
        f"it speaks of neighbors by {neighbors}, and the ledger of {settings.neighbors}; certify "
        f"the run with neighbors={settings.neighbors!r}"
    )


def _name_of(part: Part) -> str:
    match part:
        case Certificate():
            return part.run.kind
        case ForeignPart():
            return part.name
        case Composition():
            return f"{part.count} parts"


def _left_epsilon(account: Account) -> float:
    """Return the epsilon that one more release could claim, were it to take all that is left."""
    budget = account.settings.budget
    if account.terms is None:
        return budget.epsilon
    return account.terms.filter.epsilon_at(account.amount_left, budget.delta)


def _cheapest(start: Calibration, account: Account) -> Calibration:
    """Move the noise from a Gaussian guess to the least found that fits."""
    theorem, level = start.certificate.theorem, account.settings.budget.delta
    seen: dict[float, Certificate] = {}

    def fits(scale: float) -> bool:
        run = _scaled(start.run, start.varied, scale)
        certificate = certify(run, level, bounds=[theorem])
        release = _readable(certificate, account.settings)
        terms = account.terms
        if release is None or terms is None:
            return False
        cost = terms.filter.cost(release, account.amount_left, account.slack_left)
        if account.fits(*cost):
            seen[scale] = certificate
        return scale in seen

    high = low = 1.0
    for _ in range(_NOISE_STEPS):
        if fits(high):
            break
        low, high = high, high * 1.1
    else:
        raise NotApplicable(
            f"no noise up to {rounded_up(start.value * high, 4)} fits into what is left"
        )
    if high == 1.0:  # what is guessed from the middle of a law may be more than the law needs
        while low > 1e-3 and fits(low / 1.1):
            low = low / 1.1
        high, low = low, low / 1.1
    best = smallest_where(fits, low, high, rtol=_NOISE_RTOL)
    certificate = seen[best]
    return Calibration(certificate.run, certificate, start.varied, start.value * best)


def _scaled(run: Run, name: str, scale: float) -> Run:
    stated = run.noise.value
    value = stated * scale if isinstance(stated, int | float) else stated.scaled(scale)
    return run.replace(**{name: value})
