import pytest

from cdp_lab.synthetic import synthetic_views


@pytest.fixture(scope="package")
def split():
    """A small labeled and unlabeled part, two members; too few labeled identities to tune on."""
    return synthetic_views(120, 8, members=2, dimensions=32, noise=0.4)


@pytest.fixture(scope="package")
def large_split():
    """With enough labeled identities to hold some out."""
    return synthetic_views(200, 6, labeled=0.5, members=2, dimensions=24, noise=0.4)
