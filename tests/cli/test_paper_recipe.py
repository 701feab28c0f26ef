"""recipes/paper.toml: it can be run as it stands, and runs from end to end on small patterns with small networks."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.drawn_images import draw_patterns
from tests.recognition_reference import write_ijba
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.config.reading import read_recipe
from cdp.data.manifests import read_manifest
from cdp.nets.trunks import network_names

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "paper.toml"
SMALL = [
    *("--base.network", "small_resnet"),
    *(
        "--committee.networks",
        "small_vgg,small_inception,small_densenet,small_nasnet,small_vgg:1,small_inception:1,small_nasnet:1,small_resnet:1",
    ),
    *("--train.size", "16", "--train.dimensions", "16", "--train.epochs", "6", "--train.batch", "16"),
    *("--joint.size", "16", "--joint.dimensions", "16", "--joint.epochs", "2", "--joint.batch", "16"),
    # A few patterns are not seven million faces.
    *("--consensus.k", "8", "--consensus.threshold", "0.5", "--consensus.max-cluster-size", "12"),
    *("--evaluation.fpr", "0.1", "--evaluation.replicates", "20", "--evaluation.pairs", "2000"),
    *("--engine.threads", "1"),
]


def cdp(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Patterns where the recipe looks for MS-Celeb-1M, FaceScrub, MegaFace and IJB-A."""
    folder = tmp_path_factory.mktemp("data")
    draw_patterns(folder / "ms1m", n_identities=55, n_images=6)
    probes = draw_patterns(folder / "megaface" / "probes", n_identities=6, n_images=4, first=100)
    probes.save(folder / "megaface" / "facescrub.csv")
    others = draw_patterns(folder / "megaface" / "others", n_identities=12, n_images=2, first=200)
    rows = "".join(f"others/{location}\n" for location in others.locations)
    (folder / "megaface" / "distractors.csv").write_text(f"path\n{rows}")
    _, names, _ = write_ijba(folder / "ijba" / "IJB-A_11_sets")
    people = draw_patterns(folder / "ijba" / "drawn", n_identities=8, n_images=6, first=300)
    for name, location in zip(names, people.locations, strict=True):
        # Crops are often kept in another format than the protocol says.
        image = folder / "ijba" / "faces" / Path(name).with_suffix(".png")
        image.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "ijba" / "drawn" / location, image)
    return folder


def test_the_recipe_is_the_papers(data, monkeypatch):
    monkeypatch.setenv("CDP_DATA", str(data))
    assert "valid; cdp run can run it" in cdp("data", "recipe", RECIPE, "--check")
    recipe = read_recipe(RECIPE)
    assert [recipe.base.network, *recipe.committee.networks] == network_names()[:9]
    split = recipe.split
    rest = 1 - split.validation
    each = [split.validation, split.labeled * rest, (1 - split.labeled) * rest / split.unlabeled_parts]
    np.testing.assert_allclose(each, 1 / 11)
    assert split.unlabeled_parts + 1 == 10
    consensus = recipe.consensus
    assert (consensus.k, consensus.threshold, consensus.grouping) == (20, 0.96, "components")
    assert recipe.evaluation.fpr == (0.001,)


def test_the_docs_make_tables_of_megaface(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    probes = {
        "Ann/1.png": "Ann",
        "Ann/2.png": "Ann",
        "Ann/3.png": "Ann",
        "Bob/1.png": "Bob",
        "Bob/2.png": "Bob",
    }
    lists = {
        "facescrub_features_list.json": {"path": list(probes), "id": list(probes.values())},
        "megaface_features_list.json_1000000_1": {"path": ["1/17@N00/1.jpg", "1/17@N00/2.jpg"]},
    }
    for name, content in lists.items():
        Path(name).write_text(json.dumps(content))
    Path("facescrub_noises.txt").write_text("# noise\nAnn/2.png\nBob/1.png\n")
    Path("megaface_noises.txt").write_text("17@N00/2.jpg\n")
    for image in ("facescrub/Ann/1.png", "distractors/1/17@N00/1.jpg"):
        Path(image).parent.mkdir(parents=True)
        Path(image).write_bytes(b"")
    page = (RECIPE.parents[1] / "docs" / "data.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "docs/data.md", "exec"), {})
    kept = read_manifest("facescrub.csv")
    assert kept.locations == ("facescrub/Ann/1.png", "facescrub/Ann/3.png"), "Bob has lost his mate"
    assert kept.names == ("Ann",)
    assert read_manifest("distractors.csv").locations == ("distractors/1/17@N00/1.jpg",)


@pytest.mark.slow
def test_it_runs_from_images_to_both_protocols(data, tmp_path, monkeypatch):
    monkeypatch.setenv("CDP_DATA", str(data))
    run = tmp_path / "run"
    shown = cdp("run", RECIPE, "--out", run, *SMALL)
    assert "templates" in shown
    record = json.loads((run / "run" / "run.json").read_text())
    assert record["notes"] == []
    assert record["parts"]["probes"] == {"images": 24, "identities": 6}
    assert record["parts"]["distractors"] == {"images": 24, "identities": None}
    assert record["parts"]["templates"] == {"images": 48, "identities": None}
    headline = record["results"]["headline"]
    assert [model["key"] for model in headline["models"]] == ["labeled", "cdp", "all"]
    members = record["results"]["committee"]["members"]
    assert len(members) == 9
    for figures in (*headline["models"], *members, record["results"]["committee"]["ensemble"]):
        assert 0 < figures["rank1"]["value"] <= 1
        (rate,) = figures["templates"]
        assert rate["fpr"] == 0.1
        assert 0 < rate["low"] <= rate["value"] <= rate["high"] <= 1
    assert headline["gap_closed"]["templates"][0]["fpr"] == 0.1
    page = (run / "report.html").read_text()
    assert "TPR of templates at FPR 10 %" in page
    assert "24 probe images among 24 distractors and templates made of 48 images" in page

    by_hand = json.loads(
        cdp(
            *("eval", "verification", "--ijba", data / "ijba" / "IJB-A_11_sets"),
            *("--embeddings", run / "run" / "embeddings" / "joint" / "small_resnet" / "templates"),
            *("--replicates", 0, "--json"),
        )
    )
    assert by_hand["splits"] == 10
    assert by_hand["tpr"]["1e-1"]["tpr"] == headline["models"][1]["templates"][0]["value"]
