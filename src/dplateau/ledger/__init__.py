"""A budget on file that several releases share: filters, the chained file, and the ledger."""

from dplateau.ledger.accounts import Entry, Settings
from dplateau.ledger.filters import Terms
from dplateau.ledger.ledger import (
    Ledger,
    Statement,
    ledger_in_force,
    ledgers_in_force,
    paid_for,
    released_with,
)

__all__ = [
    "Entry",
    "Ledger",
    "Settings",
    "Statement",
    "Terms",
    "ledger_in_force",
    "ledgers_in_force",
    "paid_for",
    "released_with",
]
