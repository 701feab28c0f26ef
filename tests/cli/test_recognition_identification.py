import builtins
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import recognition_reference as slow
from cdp.cli.main import app
from cdp.types import Views


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["eval", "identification", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def figures(*arguments):
    return json.loads(run(*arguments, "--json", "--replicates", "20"))


def rate(ranks, rank=1):
    return pytest.approx(np.mean([found <= rank for found in ranks.values()]))


def devkit(folder, *sizes):
    options = ["--probes", folder / "facescrub", "--distractors", folder / "megaface", "--suffix", "_net.bin"]
    options += ["--probe-list", folder / "lists" / "facescrub.json"]
    for size in sizes:
        options += ["--distractor-list", folder / "lists" / f"megaface.json_{size}_1"]
    return options


def test_devkit_tree(tmp_path):
    probes, identities, distractors, _, _ = slow.write_megaface(tmp_path, noise=1.5)
    found = figures(*devkit(tmp_path, 40, 10))
    small, large = (slow.ranks(probes, identities, distractors[:size]) for size in (10, 40))
    assert [(point["distractors"], point["rate"]) for point in found["growth"]] == [
        (10, rate(small)),
        (40, rate(large)),
    ]
    assert found["rank1"] == rate(large)
    assert found["pairs"] == 72
    for point in found["ranks"]:
        assert point["rate"] == rate(large, point["rank"])
        assert point["interval"][0] <= point["rate"] <= point["interval"][1]
    for rank, value in zip(found["cmc"]["rank"], found["cmc"]["rate"], strict=True):
        assert value == rate(large, rank)


def test_noise_lists_leave_images_out(tmp_path):
    probes, identities, distractors, paths, others = slow.write_megaface(tmp_path, noise=1.5)
    # One probe of person 0, three of person 1 (so the fourth loses its mates), and 5 distractors.
    noisy = [1, 4, 5, 6]
    (tmp_path / "probes.txt").write_text(
        "# noise\n" + "".join(paths[row].split("/")[1] + "\n" for row in noisy)
    )
    (tmp_path / "distractors.txt").write_text("".join(f"{row}\t{others[row]}\n" for row in range(5)))
    found = figures(
        *devkit(tmp_path, 40),
        *("--probe-noise", tmp_path / "probes.txt", "--distractor-noise", tmp_path / "distractors.txt"),
    )
    kept = [row for row in range(24) if row not in (*noisy, 7)]
    assert found["rank1"] == rate(slow.ranks(probes[kept], identities[kept], distractors[5:]))
    assert found["probes"] == 19
    assert found["distractors"] == 35
    assert found["left_out"] == {
        "noisy probes": 4,
        "probes whose mates are all noisy": 1,
        "noisy distractors": 5,
    }


def write_split(folder, noise=1.5):
    probes, identities = slow.people(8, 3, noise=noise)
    distractors = np.random.default_rng(1).normal(size=(120, 16)).astype(np.float32)
    paths = [f"p/{row}.jpg" for row in range(24)]
    Views(probes, identities=identities, paths=paths).save(folder / "probes")
    Views(
        distractors, identities=100 + np.arange(120) // 4, paths=[f"d/{row}.jpg" for row in range(120)]
    ).save(folder / "distractors")
    return probes, identities, distractors


def test_own_split(tmp_path):
    probes, identities, distractors = write_split(tmp_path)
    options = ["--probes", tmp_path / "probes", "--distractors", tmp_path / "distractors"]
    found = figures(*options)
    assert found["rank1"] == rate(slow.ranks(probes, identities, distractors))
    assert [point["distractors"] for point in found["growth"]] == [10, 100, 120]
    np.save(tmp_path / "p.npy", probes)
    np.save(tmp_path / "d.npy", distractors)
    np.save(tmp_path / "who.npy", identities)
    arrays = ["--probes", tmp_path / "p.npy", "--distractors", tmp_path / "d.npy"]
    assert figures(*arrays, "--identities", tmp_path / "who.npy") == found
    (tmp_path / "noise.txt").write_text("d/3.jpg\n7.jpg\n")
    cleaned = figures(*options, "--distractor-noise", tmp_path / "noise.txt", "--sizes", "50")
    kept = [row for row in range(120) if row not in (3, 7)]
    assert cleaned["rank1"] == rate(slow.ranks(probes, identities, distractors[kept]))
    assert [point["distractors"] for point in cleaned["growth"]] == [50, 118]
    assert "[probe-identities-not-given]" in run(*arrays, code=2)
    message = run(
        *arrays, "--identities", tmp_path / "who.npy", "--probe-noise", tmp_path / "noise.txt", code=2
    )
    assert "[noise-needs-names]" in message


def test_distractors_that_share_an_identity_are_named(tmp_path):
    write_split(tmp_path)
    np.save(tmp_path / "distractors" / "identities.npy", np.where(np.arange(120) == 17, 5, 100))
    message = run("--probes", tmp_path / "probes", "--distractors", tmp_path / "distractors", code=2)
    assert "distractors row 17 have identities of the probes (5)" in message
    assert "[distractors-show-probes]" in message


def test_names_are_compared_as_names(tmp_path):
    write_split(tmp_path)
    for part, names in (("probes", "abcdefgh"), ("distractors", "xyzw")):
        (tmp_path / part / "identities.npy").unlink()
        n_images = 24 if part == "probes" else 120
        text = "".join(f"{name}\n" for name in np.repeat(list(names), n_images // len(names)))
        (tmp_path / part / "identities.txt").write_text(text)
    options = ["--probes", tmp_path / "probes", "--distractors", tmp_path / "distractors"]
    figures(*options)
    file = tmp_path / "distractors" / "identities.txt"
    file.write_text(file.read_text().replace("w", "c"))
    assert "have identities of the probes (c)" in run(*options, code=2)


@pytest.mark.slow
def test_table_picture_and_comparison(tmp_path):
    write_split(tmp_path, noise=0.4)
    other = tmp_path / "other"
    other.mkdir()
    write_split(other, noise=3)
    options = [
        "--probes",
        tmp_path / "probes",
        "--distractors",
        tmp_path / "distractors",
        "--replicates",
        "50",
    ]
    against = ["--against", other / "probes", "--against-distractors", other / "distractors"]
    shown = run(*options, *against, "--picture", tmp_path / "cmc.svg")
    for part in ("24 probes of 8 identities", "48 ordered pairs", "120", "better", "left out: nothing"):
        assert part in shown
    assert "<svg" in (tmp_path / "cmc.svg").read_text()
    found = json.loads(run(*options, *against, "--json"))
    assert found["comparison"][0]["name"] == "rank-1 rate, 10 distractors"
    assert found["comparison"][2]["verdict"] == "better"
    assert "[against-incomplete]" in run(*options, *against[:2], code=2)


def test_bad_devkit_trees(tmp_path):
    _, _, _, paths, _ = slow.write_megaface(tmp_path)
    assert "[devkit-lists-incomplete]" in run(*devkit(tmp_path), code=2)
    (tmp_path / "facescrub" / f"{paths[3]}_net.bin").unlink()
    message = run(*devkit(tmp_path, 10), code=2)
    assert f"{paths[3]}_net.bin" in message
    assert "[feature-missing]" in message
    listed = {"path": paths[:5], "id": ["a", "a", "b", "c", "c"]}
    (tmp_path / "lists" / "facescrub.json").write_text(json.dumps(listed))
    assert "[probes-without-mate]" in run(*devkit(tmp_path, 10), code=2)


def test_without_matplotlib_the_command_that_installs_it_is_named(tmp_path, monkeypatch):
    write_split(tmp_path)
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    options = ["--probes", tmp_path / "probes", "--distractors", tmp_path / "distractors"]
    message = run(*options, "--picture", tmp_path / "x.png", code=2)
    assert "'.[pictures]'" in message
