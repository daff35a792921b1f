"""A page on this machine on which to see what hidden iterates buy: ``dplateau explore``."""

from dplateau.explore.server import Explorer
from dplateau.explore.settings import Setting

__all__ = ["Explorer", "Setting"]
