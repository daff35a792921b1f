"""Loaded by the process that workers are forked from, and by nothing else.

It makes one claim and one preview, so that every worker starts with all code loaded.
"""

from dplateau.explore.answers import claim, curves
from dplateau.explore.settings import Setting

for _answer in (claim, curves):
    next(_answer(Setting(epochs=0.05).query()))
