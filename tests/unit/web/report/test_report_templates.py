"""Figures by templates, as in IJB-A, beside rank-1 or without it."""

import re

from cdp.types.run_record import (
    Committee,
    Ensemble,
    Figure,
    Headline,
    LabelFigures,
    Member,
    ModelFigures,
    RateFigure,
    RecognitionFigures,
    Results,
    RunRecord,
)
from cdp.web.rendering import render_part
from cdp.web.report.committee import committee_section
from cdp.web.report.headline import headline_section, measures, verdict

NAME = "TPR of templates at FPR 0.1 %"


def rate(value):
    return [RateFigure(fpr=0.001, value=value, low=value - 0.02, high=value + 0.02)]


def headline(ranks, rates):
    named = {"labeled": "labeled only", "cdp": "with pseudo-labels", "all": "all labels"}
    models = [
        ModelFigures(key=key, title=title, images=10, rank1=Figure(value=rank), templates=rate(one))
        for (key, title), rank, one in zip(named.items(), ranks, rates, strict=True)
    ]
    gap = RecognitionFigures(rank1=Figure(value=0.98 if ranks[0] else None), templates=rate(1.09))
    return Headline(models=models, network="nasnet_a_tiny", template_images=25_813, gap_closed=gap)


def section_of(given):
    labels = LabelFigures(threshold_kind="probability", threshold=0.96, coverage=0.9, identities_found=3)
    section = headline_section(RunRecord(results=Results(labels=labels, headline=given)))
    page = render_part("section", section)
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_a_chart_a_tile_and_a_column_for_templates():
    text = section_of(headline((0.6178, 0.7818, 0.7852), (0.7587, 0.9064, 0.8940)))
    assert "raised rank-1 from 61.8 % to 78.2 %" in text
    assert f"of the gap closed, {NAME}" in text
    assert "90.6 % (88.6–92.6 %)" in text
    assert "templates made of 25,813 images" in text


def test_templates_speak_where_there_are_no_probes():
    given = headline((None, None, None), (0.7587, 0.9064, 0.8940))
    assert list(measures(given.models)) == [NAME]
    words = verdict({model.key: model for model in given.models}, given.gap_closed)
    assert (
        words
        == f"Pseudo-labels raised {NAME} from 75.9 % to 90.6 %, more than all true labels gave (89.4 %)."
    )
    text = section_of(given)
    assert "rank-1" not in text.lower()
    assert "tested on the same templates made of 25,813 images." in text


def test_members_and_their_ensemble_have_the_column_too():
    members = [Member(name=name, templates=rate(0.7)) for name in ("vgg16", "resnet18")]
    ensemble = Ensemble(names=["vgg16", "resnet18"], templates=rate(0.77))
    page = render_part("section", committee_section(Committee(members=members, ensemble=ensemble)))
    assert NAME in page
    assert "77.0 %" in page
