"""All studies by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cdp.errors import InputError
from cdp.settings import did_you_mean
from cdp.study import cost, labels, networks
from cdp.study.catalog import SENTENCES
from cdp.study.design import Study

STUDIES: Mapping[str, Study] = MappingProxyType(
    {study.name: study for study in (*networks.STUDIES, *labels.STUDIES, *cost.STUDIES)}
)


def find_study(name: str) -> Study:
    """The study of a name."""
    if name not in STUDIES:
        raise InputError(
            f"No study is called {name}.{did_you_mean(name, list(SENTENCES))} `cdp study list` names all."
        )
    return STUDIES[name]
