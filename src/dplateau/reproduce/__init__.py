"""Every figure and table of the papers that this library grew from, by its own code."""

from dplateau.reproduce.exhibit import Exhibit, Quoted, page_of
from dplateau.reproduce.registry import EXHIBITS, exhibit_named

__all__ = ["EXHIBITS", "Exhibit", "Quoted", "exhibit_named", "page_of"]
