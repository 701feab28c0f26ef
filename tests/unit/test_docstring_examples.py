"""The examples in docstrings of public names run as printed, and every public name has one."""

import doctest
import inspect
import warnings

import numpy as np
import pytest

import cdp

NAMES = [name for name in cdp.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_runs(name):
    shown = getattr(cdp, name)
    found = doctest.DocTestFinder(recurse=False).find(shown, name, globs={"np": np})
    examples = [one for one in found if one.examples]
    assert examples, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one in examples:
            runner.run(one)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_public_names_say_what_they_are_in_one_line(name):
    first = (inspect.getdoc(getattr(cdp, name)) or "").splitlines()[0]
    assert first.endswith("."), f"{name}: {first}"
    assert len(first) <= 110
