"""From a table in a file to a private model in a file: public schemas, encodings, model files."""

from __future__ import annotations

from dplateau.tables.files import TableFiles, read_tables
from dplateau.tables.model import TableModel, load_model
from dplateau.tables.release import TableRelease, fit_table
from dplateau.tables.schema import (
    Boolean,
    Categories,
    Day,
    Hashed,
    Ignored,
    Nonnegative,
    Numeric,
    Schema,
    Target,
)
from dplateau.tables.table import Table, as_table, encode_features, encode_target, read_table

__all__ = [
    "Boolean",
    "Categories",
    "Day",
    "Hashed",
    "Ignored",
    "Nonnegative",
    "Numeric",
    "Schema",
    "Table",
    "TableFiles",
    "TableModel",
    "TableRelease",
    "Target",
    "as_table",
    "encode_features",
    "encode_target",
    "fit_table",
    "load_model",
    "read_table",
    "read_tables",
]
