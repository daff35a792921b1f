"""From a table in a file to a private model in a file: public schemas, encodings, model files."""

from __future__ import annotations

from dplateau.tables.model import TableModel, fit_table
from dplateau.tables.schema import Categories, Hashed, Ignored, Numeric, Schema, Target
from dplateau.tables.table import Table, encode_features, encode_target, read_table

__all__ = [
    "Categories",
    "Hashed",
    "Ignored",
    "Numeric",
    "Schema",
    "Table",
    "TableModel",
    "Target",
    "encode_features",
    "encode_target",
    "fit_table",
    "read_table",
]
