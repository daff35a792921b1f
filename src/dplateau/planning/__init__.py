"""Choosing what to run for a target epsilon, from public sizes alone."""

from __future__ import annotations

from dplateau.planning.plan import Plan, plan

__all__ = ["Plan", "plan"]
