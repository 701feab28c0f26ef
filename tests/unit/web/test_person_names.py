"""People are called by name, else by the number of labels.csv; names that two people have come with it."""

import pytest

from cdp.web.collection_faces import short_photo_names
from cdp.web.person_names import PersonNames


@pytest.mark.parametrize(
    ("number", "called"),
    [(3, "Ann"), (4, "Bob (person 4)"), (7, "Bob (person 7)"), (12, "person 12"), (-1, "no group")],
)
def test_name_else_number(number, called):
    assert PersonNames({3: "Ann", 4: "Bob", 7: "Bob", -1: "Ann"}).called(number) == called


@pytest.mark.parametrize(
    ("photos", "short"),
    [
        (["/p/a/1.jpg", "", "/p/b/1.jpg"], ["a/1.jpg", "", "b/1.jpg"]),
        (["../p/1.jpg", "../p/2.jpg"], ["1.jpg", "2.jpg"]),
        (["../p/1.jpg", "../q/2.jpg"], ["p/1.jpg", "q/2.jpg"]),
        (["1.jpg", "p/2.jpg"], ["1.jpg", "p/2.jpg"]),
        (["/1.jpg", "/q/2.jpg"], ["1.jpg", "q/2.jpg"]),
        (["", ""], ["", ""]),
    ],
)
def test_photos_without_the_folder_of_all(photos, short):
    assert short_photo_names(photos) == short
