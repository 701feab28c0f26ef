"""Numbers and markup: what people read, and what is escaped."""

import pytest
from jinja2 import UndefinedError

from cdp.web.page_views import Html, Table
from cdp.web.rendering import render, render_part
from cdp.web.svg import element, join, shortest
from cdp.web.words import chance, counted, decimals, percent, seconds, size_in_memory, with_interval


def test_markup_escapes_what_is_not_markup():
    assert (
        element("p", "a < b", Html("<b>c</b>"), None, class_='x"y')
        == '<p class="x&quot;y">a &lt; b<b>c</b></p>'
    )
    assert element("line", x1=1.0, y1=0.123, stroke_width=2, hidden=True, id=None) == (
        '<line x1="1" y1="0.12" stroke-width="2" hidden></line>'
    )
    assert join(["<", Html("<br>"), None]) == "&lt;<br>"
    assert [shortest(value) for value in (-0.001, 10, 2.5, 100.0)] == ["0", "10", "2.5", "100"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (34.1, "34 s"),
        (59.7, "1 min 00 s"),
        (512.3, "8 min 32 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_times_in_words(value, words):
    assert seconds(value) == words


def test_numbers_in_words():
    assert (percent(None), percent(0.9375)) == ("—", "93.8 %")
    assert (size_in_memory(812_345_678), size_in_memory(1_310_000_000)) == ("812 MB", "1.3 GB")
    assert (percent(-0.31), decimals(-0.125, 3), decimals(None)) == ("−31.0 %", "−0.125", "—")
    assert (chance(0.999), chance(0.001), chance(0.97)) == ("over 99 %", "under 1 %", "97 %")
    assert (counted(1, "group"), counted(1200, "identity", "identities")) == ("1 group", "1,200 identities")


def test_one_notation_for_intervals():
    assert with_interval(0.93, 0.88, 0.98) == "93.0 % (88.0–98.0 %)"
    assert with_interval(0.93, None, 0.98) == "93.0 %"
    assert with_interval(None, 0.88, 0.98) == "—"


def test_templates_escape_and_refuse_names_that_are_not_given():
    nasty = '<b onclick="x">&'
    page = render_part("table", Table([nasty], [[nasty], [Html("<i>1</i>")]], nasty))
    assert "<b" not in page
    assert page.count("&lt;b onclick=&#34;x&#34;&gt;&amp;") == 4
    assert "<i>1</i>" in page
    with pytest.raises(UndefinedError):
        render("report.html")
