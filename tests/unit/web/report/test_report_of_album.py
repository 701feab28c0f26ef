"""The report of an album: everybody by name or number, most faces first, and no empty sections."""

import re

import numpy as np
import pytest
from tests.review_album import SIZES, make_album

from cdp.collection.collection import open_collection
from cdp.collection.corrections import append_corrections, different, named
from cdp.collection.regrouping import regroup
from cdp.types import Labels
from cdp.types.run_record import Committee, LabelFigures, Member, Results, RunRecord
from cdp.web.report import people_section
from cdp.web.report.page import report_page
from cdp.web.report.report_inputs import Artifacts

RECORD = RunRecord(results=Results(labels=LabelFigures(coverage=1.0, identities_found=3)))


@pytest.fixture
def album(tmp_path):
    return make_album(tmp_path)


def artifacts(sizes, **more):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    photos = [f"../photos/{row} a.jpg" for row in range(len(labels))]
    return Artifacts(labels=Labels.from_array(labels), photos=photos, **more)


def people(page):
    return next(one for one in page.sections if one.name == "people")


def names(page):
    return [row.name for row in people(page).galleries[0].rows]


def test_everybody_is_shown_the_largest_first_under_the_numbers_of_the_table():
    given = artifacts([2, 4, 3], numbers=np.array([30, 7, 12]), people={12: "Ann"})
    page = report_page(RECORD, given, "3 people")
    assert names(page) == ["person 7", "Ann", "person 30"]
    assert people(page).galleries[0].rows[0].about.startswith("4 faces, confidence ")


def test_two_people_of_one_name_are_shown_with_their_numbers():
    given = artifacts([3, 2], numbers=np.array([5, 9]), people={5: "Ann", 9: "Ann"})
    assert names(report_page(RECORD, given, "x")) == ["Ann (person 5)", "Ann (person 9)"]


def test_faces_on_one_photo_are_counted_as_one_photo():
    given = artifacts([3, 2])
    given = Artifacts(labels=given.labels, photos=["../p/1.jpg", "../p/1.jpg", *given.photos[2:]])
    about = people(report_page(RECORD, given, "x")).galleries[0].rows[0].about
    assert about.startswith("3 faces on 2 photos, ")


def test_nothing_empty_is_shown(album):
    page = (album.folder / "report.html").read_text()
    sections = re.findall(r'<section id="(\w+)"', page)
    assert sections[0] == "people"
    assert not {"mediator", "graph", "runtime", "recipe", "headline"} & set(sections)


@pytest.mark.parametrize(("n_models", "shown"), [(1, False), (2, True)])
def test_a_committee_of_one_is_none(n_models, shown):
    members = [Member(name=f"model {at}", role="base" if at == 0 else "committee") for at in range(n_models)]
    results = Results(labels=RECORD.results.labels, committee=Committee(members=members))
    page = report_page(RunRecord(results=results), artifacts([2, 2]), "x")
    assert ("committee" in {one.name for one in page.sections}) == shown


def test_faces_name_their_photo_and_lead_to_it(album):
    page = (album.folder / "report.html").read_text()
    listed = page[page.index('id="people"') :].partition("</section>")[0]
    assert len(re.findall(r"<img ", listed)) == sum(SIZES)
    assert "shot 00 &amp; &lt;b&gt;.png, person 0, confidence " in listed
    link = '<a href="../photos/shot%2000%20%26%20%3Cb%3E.png" data-row="0"'
    assert link in listed
    assert str(album.folder.parent) not in page


def test_above_some_hundred_people_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(people_section, "MOST_PEOPLE", 4)
    page = report_page(RECORD, artifacts([2] * 7), "7 people")
    assert names(page) == ["person 0", "person 1", "person 2", "person 3"]
    assert "3 people more" in people(page).after


def test_without_groups_it_says_so():
    nobody = Artifacts(labels=Labels.from_array(np.full(3, -1)), photos=["a.jpg", "b.jpg", "c.jpg"])
    page = report_page(RECORD, nobody, "x")
    assert people(page).text
    assert page.counts.startswith("3 faces are in no group")


def test_names_of_the_album_are_those_of_the_table(album):
    append_corrections(album.folder, [named("Ann", *range(7)), named("Ann", *range(7, 12)), different(0, 7)])
    regroup(open_collection(album.folder))
    one = open_collection(album.folder)
    assert one.names == {0: "Ann", 1: "Ann"}
    page = (album.folder / "report.html").read_text()
    assert "<b>Ann (person 0)</b>" in page
    assert "<b>Ann (person 1)</b>" in page
    assert "<b>person 2</b>" in page
