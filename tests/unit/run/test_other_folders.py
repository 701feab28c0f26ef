"""Folders that `cdp run` may fill."""

import pytest
from tests.refusals import refuses

from cdp.run.run_recipe import RUN, refuse_other_folder


@pytest.mark.parametrize("names", [[], ["run"], ["run/.lock"], ["run/recipe.toml"], [".hidden"]])
def test_what_a_run_has_begun_is_gone_on_with(tmp_path, names):
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    refuse_other_folder(tmp_path, RUN, "cdp run")


@pytest.mark.parametrize("names", [["photos"], ["run/mine"], ["run", "photos"], ["labels.csv"]])
def test_what_others_have_put_there_is_refused(tmp_path, names):
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    with refuses("output-holds-other-things"):
        refuse_other_folder(tmp_path, RUN, "cdp run")
