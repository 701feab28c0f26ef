"""All studies by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cdp.errors import InputError
from cdp.lab.study import cost_studies, label_studies, network_studies
from cdp.lab.study.catalog import SENTENCES
from cdp.lab.study.design import Study
from cdp.settings import did_you_mean

STUDIES: Mapping[str, Study] = MappingProxyType(
    {study.name: study for study in (*network_studies.STUDIES, *label_studies.STUDIES, *cost_studies.STUDIES)}
)


def find_study(name: str) -> Study:
    """The study of a name."""
    if name not in STUDIES:
        raise InputError(
            f"No study is called {name}.{did_you_mean(name, list(SENTENCES))} `cdp study list` names all."
        )
    return STUDIES[name]
