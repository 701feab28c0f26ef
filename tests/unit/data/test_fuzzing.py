"""Every kind of file, changed at random with a fixed seed; `python -m benchmarks fuzz` does the same for longer."""

import pytest

from fuzzing import fuzz, make_kinds

N_CASES = 25


@pytest.mark.slow
def test_a_changed_file_is_read_or_refused_in_a_sentence(tmp_path):
    folder = tmp_path / "fuzzed"
    folder.mkdir()
    outcomes = {}
    for kind in make_kinds(folder):
        kind.read()
        outcomes[kind.name] = fuzz(kind, N_CASES)
    assert [failure for outcome in outcomes.values() for failure in outcome.failures] == []
    for name, outcome in outcomes.items():
        assert outcome.read + outcome.refused == N_CASES, name
        assert outcome.refused, f"{name}: nothing was refused, so nothing was tried"
