import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import recognition_reference as slow
from cdp.cli.main import app
from cdp.types import Views


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["eval", "verification", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def figures(*arguments):
    return json.loads(run(*arguments, "--json", "--replicates", "20"))


def expected_tpr(vectors, pairs, fpr):
    """TPR of pairs (first, second, same) of rows, by the twin."""
    rows = slow.unit(vectors)
    similarity = np.array([slow.dot(rows[one], rows[other]) for one, other, _ in pairs])
    return slow.tpr_at_fpr(similarity, np.array([bool(same) for *_, same in pairs]), fpr)


def test_lfw_tree(tmp_path):
    vectors, names, ends, same, folds = slow.write_lfw(tmp_path)
    found = figures(
        "--embeddings",
        tmp_path / "net.npy",
        "--pairs",
        tmp_path / "pairs.txt",
        "--list",
        tmp_path / "list.txt",
    )
    rows = slow.unit(vectors)
    similarity = np.array([slow.dot(rows[one], rows[other]) for one, other in ends])
    accuracies = slow.fold_accuracies(similarity, same, folds)
    assert found["accuracy"]["mean"] == pytest.approx(accuracies.mean())
    assert found["accuracy"]["sd"] == pytest.approx(accuracies.std())
    tpr, false_accepts = slow.tpr_at_fpr(similarity, same, 0.1)
    assert found["tpr"]["1e-1"]["tpr"] == pytest.approx(tpr)
    assert found["tpr"]["1e-1"]["false_accepts"] == false_accepts == 6
    assert found["tpr"]["1e-3"]["tpr"] is None
    assert found["tpr"]["1e-3"]["reason"] == "no false accept: 60 impostor pairs allow 0.06"
    assert found["pairs"] == 120
    # The same pairs by row number, from views that carry names, from feature files, in a pack.
    csv = "first_row,second_row,same\n"
    csv += "".join(f"{one},{other},{int(s)}\n" for (one, other), s in zip(ends, same, strict=True))
    (tmp_path / "pairs.csv").write_text(csv)
    np.save(tmp_path / "who.npy", np.repeat(np.arange(30), 4))
    who = ["--identities", tmp_path / "who.npy"]
    assert figures("--embeddings", tmp_path / "net.npy", "--pairs", tmp_path / "pairs.csv", *who) == found
    Views(vectors, paths=names).save(tmp_path / "views")
    assert figures("--embeddings", tmp_path / "views", "--pairs", tmp_path / "pairs.txt") == found
    for name, vector in zip(names, vectors, strict=True):
        slow.write_feature(tmp_path / "features" / "lfw" / f"{name}_net.bin", vector)
    options = ["--suffix", "_net.bin", "--list", tmp_path / "list.txt", "--pairs", tmp_path / "pairs.txt"]
    assert figures("--embeddings", tmp_path / "features", *options) == found


def test_pack_and_flipped(tmp_path):
    vectors, _, ends, same, _ = slow.write_lfw(tmp_path)
    Image.new("RGB", (2, 2)).save(tmp_path / "x.png")
    image = (tmp_path / "x.png").read_bytes()
    slow.write_pack(tmp_path / "lfw.bin", [image] * (2 * len(same)), same.tolist())
    in_order = vectors[ends.ravel()]
    flips = in_order + np.random.default_rng(0).normal(size=in_order.shape).astype(np.float32)
    np.save(tmp_path / "pack.npy", in_order)
    np.save(tmp_path / "flips.npy", flips)
    np.save(tmp_path / "sum.npy", in_order + flips)
    options = ["--pack", tmp_path / "lfw.bin"]
    flipped = figures("--embeddings", tmp_path / "pack.npy", "--flipped", tmp_path / "flips.npy", *options)
    assert flipped == figures("--embeddings", tmp_path / "sum.npy", *options)
    assert flipped != figures("--embeddings", tmp_path / "pack.npy", *options)
    message = run("--embeddings", tmp_path / "net.npy", *options, code=2)
    assert "[pack-rows-differ]" in message


def test_calfw_list(tmp_path):
    _, names, ends, same, _ = slow.write_lfw(tmp_path)
    slow.write_calfw(tmp_path / "pairs_CALFW.txt", ends, same, names, fold_labels=True)
    found = figures(
        "--embeddings",
        tmp_path / "net.npy",
        "--pairs",
        tmp_path / "pairs_CALFW.txt",
        "--list",
        tmp_path / "list.txt",
    )
    assert len(found["accuracy"]["folds"]) == 10
    assert found["pairs"] == 120


def test_ijba_tree(tmp_path):
    vectors, names, splits = slow.write_ijba(tmp_path / "ijba")
    np.save(tmp_path / "net.npy", vectors)
    (tmp_path / "list.txt").write_text("".join(f"{name}\n" for name in names))
    found = figures(
        "--embeddings", tmp_path / "net.npy", "--ijba", tmp_path / "ijba", "--list", tmp_path / "list.txt"
    )
    rates = []
    for members, subjects, pairs in splits:
        ids = sorted(members)
        pooled = [slow.template(vectors[rows], media) for rows, media in (members[number] for number in ids)]
        listed = [
            (ids.index(one), ids.index(other), subjects[one] == subjects[other]) for one, other in pairs
        ]
        rates.append(expected_tpr(pooled, listed, 0.1)[0])
    assert found["splits"] == 10
    assert found["tpr"]["1e-1"]["tpr"] == pytest.approx(np.mean(rates))
    assert found["tpr"]["1e-1"]["sd"] == pytest.approx(np.std(rates))
    assert found["tpr"]["1e-3"]["tpr"] is None
    # The same embeddings, one file per split in the order of its metadata.
    (tmp_path / "per_split").mkdir()
    for number, (members, _, _) in enumerate(splits, start=1):
        rows = np.concatenate([members[template][0] for template in members])
        np.save(tmp_path / "per_split" / f"split{number}.npy", vectors[rows])
    assert figures("--embeddings", tmp_path / "per_split", "--ijba", tmp_path / "ijba") == found
    message = run("--embeddings", tmp_path / "net.npy", "--ijba", tmp_path / "ijba", code=2)
    assert "[ijba-names-not-given]" in message
    np.save(tmp_path / "per_split" / "split2.npy", vectors[:3])
    message = run("--embeddings", tmp_path / "per_split", "--ijba", tmp_path / "ijba", code=2)
    assert "[ijba-rows-differ]" in message


@pytest.mark.parametrize("weighted", [False, True])
def test_ijbc_tree(tmp_path, weighted):
    vectors, templates, media, scores, pairs = slow.write_ijbc(tmp_path / "IJBC" / "meta")
    np.save(tmp_path / "net.npy", vectors)
    options = ["--embeddings", tmp_path / "net.npy", "--ijb", tmp_path / "IJBC"]
    found = figures(*options, *(["--detector-scores"] if weighted else []))
    ids = sorted(set(templates.tolist()))
    pooled = [
        slow.template(
            vectors[templates == number],
            media[templates == number].tolist(),
            scores[templates == number] if weighted else None,
        )
        for number in ids
    ]
    listed = [(ids.index(one), ids.index(other), same) for one, other, same in pairs]
    for fpr, name in ((0.1, "1e-1"), (0.01, "1e-2")):
        tpr, false_accepts = expected_tpr(pooled, listed, fpr)
        assert found["tpr"][name]["tpr"] == pytest.approx(tpr)
        assert found["tpr"][name]["false_accepts"] == false_accepts
    assert found["accuracy"] is None
    assert found["identities"] == 10


@pytest.mark.slow
def test_table_picture_and_comparison(tmp_path):
    vectors, *_ = slow.write_lfw(tmp_path)
    noisy = vectors + 3 * np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32)
    np.save(tmp_path / "noisy.npy", noisy)
    options = [
        "--embeddings",
        tmp_path / "net.npy",
        "--against",
        tmp_path / "noisy.npy",
        "--replicates",
        "50",
    ]
    options += ["--pairs", tmp_path / "pairs.txt", "--list", tmp_path / "list.txt"]
    shown = run(*options, "--picture", tmp_path / "roc.png")
    for part in (
        "accuracy, 10 folds",
        "equal error rate",
        "6 false accepts",
        "not given",
        "better",
        "120 pairs",
    ):
        assert part in shown
    assert (tmp_path / "roc.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in tmp_path.iterdir() if "roc" in file.name) == ["roc.png"]
    assert "[output-exists]" in run(*options, "--picture", tmp_path / "roc.png", code=2)
    assert "[picture-ending-wrong]" in run(*options, "--picture", tmp_path / "roc.gif", code=2)
    found = json.loads(run(*options, "--json"))
    assert found["comparison"][0]["verdict"] == "better"
    assert found["comparison"][0]["difference"] == pytest.approx(
        found["accuracy"]["mean"] - found["against"]["accuracy"]["mean"]
    )
    assert run(*options, "--quiet") == ""


def test_bad_options(tmp_path):
    slow.write_lfw(tmp_path)
    net = ["--embeddings", tmp_path / "net.npy"]
    pairs = ["--pairs", tmp_path / "pairs.txt"]
    assert "[protocol-not-one]" in run(*net, code=2)
    assert "[protocol-not-one]" in run(*net, *pairs, "--pack", "x.bin", code=2)
    assert "[pairs-need-names]" in run(*net, *pairs, code=2)
    assert "[detector-scores-without-ijb]" in run(*net, *pairs, "--detector-scores", code=2)
    assert "[suffix-without-list]" in run(*net, *pairs, "--suffix", "x", code=2)
    assert "[option-not-numbers]" in run(*net, *pairs, "--fprs", "a", code=2)
    (tmp_path / "short.txt").write_text("a.jpg\n")
    assert "[image-names-differ]" in run(*net, *pairs, "--list", tmp_path / "short.txt", code=2)


@pytest.mark.parametrize(("name", "known"), [("mobilefacenet", 98.87), ("sface", 99.28), ("openface", 90.63)])
def test_real_networks(shared_data, name, known):
    folder = shared_data / "lfw"
    found = figures("--embeddings", folder / f"{name}.npy", "--pairs", folder / "pairs.csv")
    assert 100 * found["accuracy"]["mean"] == pytest.approx(known, abs=0.1)


@pytest.mark.parametrize("rates", ["", ",", "much"])
def test_an_empty_list_of_rates_is_refused(tmp_path, rates):
    message = run("--embeddings", tmp_path, "--pairs", tmp_path, "--fprs", rates, code=2)
    assert message == f"Error: --fprs {rates!r}: write numbers separated by commas. [option-not-numbers]\n"
