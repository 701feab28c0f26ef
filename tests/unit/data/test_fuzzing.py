"""Every kind of file, changed at random with a fixed seed; `python -m benchmarks fuzz` does the same for longer."""

import pytest

from fuzzing import fuzz, make_kinds

N_CASES, N_CASES_OF_ALBUM = 25, 6


@pytest.mark.slow
def test_a_changed_file_is_read_or_refused_in_a_sentence(tmp_path):
    folder = tmp_path / "fuzzed"
    folder.mkdir()
    failures = []
    for kind in make_kinds(folder):
        kind.read()
        is_slow = kind.name.startswith("album")
        n_cases = N_CASES_OF_ALBUM if is_slow else N_CASES
        outcome = fuzz(kind, n_cases)
        failures += outcome.failures
        assert outcome.read + outcome.refused + len(outcome.failures) == n_cases, kind.name
        if kind.is_derived:
            assert not outcome.refused, f"{kind.name}: not made again"
        elif not is_slow:
            assert outcome.refused, f"{kind.name}: nothing was refused, so nothing was tried"
    assert failures == []
