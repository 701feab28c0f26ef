import numpy as np
import pytest
from tests.refusals import refuses

from cdp.types import ALL_INPUTS, PAPER_INPUTS, Opinions, column_names
from cdp.types.opinions import check_inputs


def _opinions(n_members, n_pairs=3, common=False):
    """Every column holds its own number: 0, 1, 2, … in the paper's order, then the common neighbors."""
    n = n_members
    column = iter(range(6 * n + 5 + n + 1))

    def block(width, dtype=np.float32):
        return np.array([[next(column) for _ in range(width)]] * n_pairs, dtype).reshape(n_pairs, width)

    return Opinions(
        relationship=block(n),
        affinity=block(n + 1),
        mean=block(2 * n + 2),
        spread=block(2 * n + 2),
        common_neighbors=block(n + 1) if common else None,
        committee=tuple(f"c{member}" for member in range(1, n + 1)),
    )


@pytest.mark.parametrize("n_members", range(5))
def test_the_paper_has_6n_plus_5_columns_in_its_order(n_members):
    matrix = _opinions(n_members).matrix()
    assert matrix.shape == (3, 6 * n_members + 5)
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix[0], np.arange(6 * n_members + 5))


@pytest.mark.parametrize("n_members", range(5))
def test_every_column_has_a_name_of_its_own(n_members):
    committee = [f"c{member}" for member in range(1, n_members + 1)]
    for inputs, width in ((PAPER_INPUTS, 6 * n_members + 5), (ALL_INPUTS, 7 * n_members + 6)):
        names = column_names(committee, inputs)
        assert len(names) == len(set(names)) == width
        assert _opinions(n_members, common=True).matrix(inputs).shape[1] == width


def test_names_stand_in_the_papers_order():
    assert column_names(["a"], ALL_INPUTS) == [
        "relationship(a)",
        "affinity(base)",
        "affinity(a)",
        "mean(first, base)",
        "mean(first, a)",
        "mean(second, base)",
        "mean(second, a)",
        "spread(first, base)",
        "spread(first, a)",
        "spread(second, base)",
        "spread(second, a)",
        "common_neighbors(base)",
        "common_neighbors(a)",
    ]


def test_blocks_come_in_the_papers_order_however_they_are_asked_for():
    opinions = _opinions(2, common=True)
    asked = ("common_neighbors", "affinity", "relationship")
    assert check_inputs(asked) == ("relationship", "affinity", "common_neighbors")
    np.testing.assert_array_equal(opinions.matrix(asked)[0], [0, 1, 2, 3, 4, 17, 18, 19])
    np.testing.assert_array_equal(opinions.matrix("affinity")[0], [2, 3, 4])


def test_blocks_are_read_only_and_counted():
    opinions = _opinions(1)
    assert len(opinions) == 3
    for block in (opinions.relationship, opinions.affinity, opinions.mean, opinions.spread):
        with pytest.raises(ValueError, match="read-only"):
            block[0, 0] = 1


@pytest.mark.parametrize(
    ("inputs", "code", "fields"),
    [
        (
            ["affinity", "structure"],
            "inputs-unknown",
            {"key": "inputs", "value": "structure"},
        ),
        ([], "inputs-empty", {"key": "inputs"}),
        (["common_neighbors"], "opinions-common-missing", {}),
    ],
)
def test_matrix_refusals(inputs, code, fields):
    with refuses(code, **fields):
        _opinions(1).matrix(inputs)


@pytest.mark.parametrize(
    ("changed", "code", "fields"),
    [
        (
            {"mean": np.zeros((3, 3))},
            "opinions-shape-wrong",
            {"block": "mean", "expected": (3, 4), "found": (3, 3)},
        ),
        (
            {"spread": np.zeros((2, 4))},
            "opinions-shape-wrong",
            {"block": "spread", "expected": (3, 4), "found": (2, 4)},
        ),
        (
            {"relationship": np.zeros((3, 2))},
            "opinions-shape-wrong",
            {"block": "relationship", "expected": (3, 1), "found": (3, 2)},
        ),
        (
            {"common_neighbors": np.zeros((3, 1))},
            "opinions-shape-wrong",
            {"block": "common_neighbors", "expected": (3, 2), "found": (3, 1)},
        ),
        ({"committee": ("a", "b")}, "opinions-names-differ", {"expected": 1, "found": 2}),
    ],
)
def test_refusals(changed, code, fields):
    good = _opinions(1)
    blocks = {name: getattr(good, name) for name in good.__dataclass_fields__}
    with refuses(code, **fields):
        Opinions(**(blocks | changed))
