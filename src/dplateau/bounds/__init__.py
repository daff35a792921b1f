"""Theorems: one small file each, all listed in :mod:`dplateau.bounds.registry`."""
