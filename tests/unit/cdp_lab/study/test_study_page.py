"""Tables and plots are made from results.json alone, and say no more than was measured."""

import json
import re
from xml.etree import ElementTree

import pytest
from tests.refusals import refuses

from cdp.config.sections import RunRecipe
from cdp.config.writing import markdown_table
from cdp_lab.study.design import Column, Measure, Paper, Plot, Study
from cdp_lab.study.result_tables import results_of, table_of, written
from cdp_lab.study.study_page import (
    Chapter,
    comparison_page,
    html_page,
    plots_of,
    read_chapters,
    read_results,
    standalone_svg,
    study_markdown,
    write_pages,
)

STUDY = Study(
    "ratio",
    "More & more",
    ("ratio", "labels"),
    lambda recipe: [Column("rank1", "rank-1"), Column("images", "images", "count", ""), Column("odd", "odd")],
    "rank1",
    lambda recipe, options: [],
    n_shared_cells=1,
    paper=Paper("Fig. 1", ("ratio", "rank-1"), (("10", "78.18"),), "On faces."),
    plots=(Plot("rank1", "lines", "ratio"), Plot("images"), Plot("odd")),
    reading="How <to> read it.",
)


def run(seed, shift):
    rows = [
        Measure(("10", "vote"), {"rank1": 0.70 + shift, "images": 900}),
        Measure(("10", "mediator"), {"rank1": 0.80 + shift, "images": 1000 + seed}),
        Measure(("2", "vote"), {"rank1": 0.60 + shift, "images": 300}),
        Measure(("2", "mediator"), {"rank1": 0.61 + shift, "images": 310}),
    ]
    return ("slug", seed, rows)


@pytest.fixture
def results():
    made = results_of(STUDY, RunRecipe(), [run(0, 0.0), run(1, 0.02)], {})
    about = {"kind": "Study", "study": "ratio", "command": "cdp study ratio x.toml --out y", "seeds": [0, 1]}
    about |= {
        "cores": 2,
        "seconds": 75.0,
        "runs": 3,
        "runs_done": 2,
        "cdp": "0.1.0",
        "versions": {"numpy": "2"},
    }
    # Through JSON, as the pages get it.
    return json.loads(json.dumps({**about, **made}))


def test_rows_are_ordered_averaged_and_compared_within_their_ratio(results):
    assert [row["cells"] for row in results["rows"]] == [
        ["2", "vote"], ["2", "mediator"], ["10", "vote"], ["10", "mediator"],
    ]  # fmt: skip
    assert [row["verdict"] for row in results["rows"]] == [
        "no significant difference",
        "best",
        "behind",
        "best",
    ]
    figure = results["rows"][0]["figures"]["rank1"]
    assert figure["values"] == [0.60, 0.62]
    assert figure["mean"] == pytest.approx(0.61)
    assert figure["sd"] == pytest.approx(0.02 / 2**0.5)


def test_a_table_leaves_out_what_nobody_knows(results):
    header, rows = table_of(results)
    assert header == ["ratio", "labels", "rank-1", "images", "by rank-1"]
    assert rows[3] == ["10", "mediator", "0.810 ± 0.014", "1,000 ± 1", "best"]


def test_numbers_as_words():
    assert written({"mean": None, "sd": None}, "share") == "–"
    assert written({"mean": 0.5, "sd": None}, "share") == "0.500"
    assert written({"mean": 2.345, "sd": 0.1}, "seconds") == "2.35 ± 0.10 s"
    assert written({"mean": 3e6, "sd": 1e6}, "bytes") == "3 ± 1 MB"
    assert written({"mean": 1234.0, "sd": 0.0}, "count") == "1,234"
    # A bar in a header or cell would else begin a new cell.
    assert markdown_table(["|a|", "b"], [["x|y", "1"]]) == "| \\|a\\| | b |\n|---|---:|\n| x\\|y | 1 |"


def test_markdown_sets_our_table_below_the_papers(results):
    page = study_markdown([Chapter(results, folder=".")], "Read *this* first.")
    before, _, theirs = page.partition("The paper's (Fig. 1):")
    assert before == "# More & more\n\nRead *this* first.\n\nHow <to> read it.\n\n"
    paper, _, ours = theirs.partition("## What was measured")
    assert "| 10 | 78.18 |" in paper
    assert "| 10 | mediator | 0.810 ± 0.014 | 1,000 ± 1 | best |" in ours
    assert "![rank-1](plot-rank1.svg)" in ours
    assert "2 of 3 runs are done" in ours
    assert "cdp-lab study ratio x.toml --out y" in ours
    assert "commit" not in page


def test_a_study_with_several_recipes_has_one_table_of_the_paper(results):
    other = {**results, "study": "k", "title": "Of k"}
    both = comparison_page(
        [
            Chapter(results, folder="a/ratio"),
            Chapter(other),
            Chapter({**results, "commit": "abc123"}, "# On letters\n\nFewer than hoped."),
        ],
        "In short: no.",
    )
    headings = [line for line in both.splitlines() if line.startswith("#")]
    assert headings == [
        "# Results and the paper's", "## More & more", "### ratio", "### On letters", "## Of k", "### What was measured",
    ]  # fmt: skip
    assert both.count("The paper's (Fig. 1):") == 2
    assert (
        both.index("In short: no.") < both.index("no significant difference") < both.index("## More & more")
    )
    assert "differs from it by no more than √(sd₁² + sd₂²)" in both
    assert "counted once. 2 of 3 runs" in both


def test_remarks_are_set_below_the_table_and_links_hold_from_the_page(results, tmp_path):
    folder = tmp_path / "ratio"
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "remarks.md").write_text("# On letters\n\nFewer than hoped.\n")
    write_pages(folder, results)
    own = (folder / "README.md").read_text()
    assert own.startswith("# More & more\n")
    assert own.index("## On letters") < own.index("0.810 ± 0.014") < own.index("Fewer than hoped.")
    assert own.index("Fewer than hoped.") < own.index("![rank-1](plot-rank1.svg)")
    page = comparison_page(read_chapters([folder], tmp_path / "docs" / "page.md"))
    assert page.index("### On letters") < page.index("Fewer than hoped.")
    assert "![rank-1](../ratio/plot-rank1.svg)" in page
    assert "[results.json](../ratio/results.json)" in page


def test_the_share_of_the_gap_is_of_every_seed_by_itself_and_bounds_are_not_compared():
    def bounds(cells):
        return None if cells[0] in ("few", "all") else (("few",), ("all",))

    columns = [Column("rank1", "rank-1"), Column("gap", "gap closed")]
    study = Study(
        "base", "t", ("labels",), lambda recipe: columns, "rank1", lambda recipe, options: [], bounds=bounds
    )
    held = {
        "few": (0.2, 0.4, 0.5),
        "vote": (0.3, 0.5, 0.5),
        "mediator": (0.5, 0.7, 0.5),
        "all": (0.6, 0.8, 0.5),
    }
    measured = [
        ("x", seed, [Measure((name,), {"rank1": values[seed]}) for name, values in held.items()])
        for seed in range(3)
    ]
    rows = {row["cells"][0]: row for row in results_of(study, RunRecipe(), measured, {})["rows"]}
    assert rows["mediator"]["figures"]["gap"]["values"] == [pytest.approx(0.75), pytest.approx(0.75), None]
    assert rows["vote"]["figures"]["gap"]["mean"] == pytest.approx(0.25)
    assert rows["all"]["figures"]["gap"]["mean"] is None
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "few": "", "vote": "no significant difference", "mediator": "best", "all": "",
    }  # fmt: skip
    # A row whose bounds were not run has no share.
    alone = results_of(study, RunRecipe(), [("x", 0, [Measure(("vote",), {"rank1": 0.3})])], {})
    assert alone["rows"][0]["figures"]["gap"]["mean"] is None


def test_the_html_page_is_whole_and_escaped(results):
    page = html_page(results)
    assert "How &lt;to&gt; read it." in page
    assert "More &amp; more" in page
    assert page.count("<svg") == 2
    assert not re.search(r"(src|href)=\"http", page)


def test_plots_are_svg_by_themselves(results, tmp_path):
    write_pages(tmp_path, results)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "README.md", "plot-images.svg", "plot-rank1.svg", "study.html",
    ]  # fmt: skip
    for name, (_, picture) in plots_of(results).items():
        text = (tmp_path / f"{name}.svg").read_text()
        assert text == standalone_svg(picture)
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
    drawn = ElementTree.fromstring((tmp_path / "plot-rank1.svg").read_text())
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    words = [one.text for one in drawn.findall("{http://www.w3.org/2000/svg}text")]
    assert {"vote", "mediator", "ratio", "2", "10"} <= set(words)


def test_long_names_leave_room_for_the_figure():
    names = ["a" * 60, "relationship + affinity + distribution + common_neighbors", "short"]
    study = Study(
        "x",
        "t",
        ("inputs",),
        lambda recipe: [Column("f", "F")],
        "f",
        lambda recipe, options: [],
        plots=(Plot("f"),),
    )
    measured = [("x", 0, [Measure((name,), {"f": 0.5}) for name in names])]
    drawn = plots_of(results_of(study, RunRecipe(), measured, {}))["plot-f"][1]
    words = [
        one.text
        for one in ElementTree.fromstring(standalone_svg(drawn)).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {"a" * 39 + "…", "… + common_neighbors", "short"} <= set(words)


def test_exponents_are_fitted_seed_by_seed():
    study = Study(
        "runtime", "t", ("search", "images"), lambda recipe: [Column("seconds", "time", "seconds", "low")],
        "", lambda recipe, options: [], fits=("seconds",),
    )  # fmt: skip
    measured = [
        (
            "x",
            seed,
            [
                Measure(("exact", f"{size:,}"), {"seconds": (seed + 1) * size**2.0})
                for size in (500, 1000, 2000)
            ],
        )
        for seed in (0, 1)
    ]
    fits = results_of(study, RunRecipe(), measured, {})["fits"]
    assert [(fit["cells"], fit["column"]) for fit in fits] == [(["exact"], "seconds")]
    assert fits[0]["mean"] == pytest.approx(2)
    assert fits[0]["sd"] == pytest.approx(0, abs=1e-9)


def test_a_folder_without_a_study_is_named(tmp_path):
    with refuses("study-results-missing", folder=tmp_path):
        read_results(tmp_path)
