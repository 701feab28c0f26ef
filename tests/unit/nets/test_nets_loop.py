"""Is the loop repeatable to the bit, whatever stops it, and is nothing lost when something goes wrong?"""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import sparse
from tests.refusals import refuses

from cdp.data.manifests import merge_manifests
from cdp.errors import CdpError, MissingExtraError, StoreError
from cdp.nets.checkpoints import read_log
from cdp.nets.joint import PseudoPart, train_joint
from cdp.nets.loop import LoopOptions
from cdp.nets.supervised import Member, train_supervised
from cdp.nets.weights import WEIGHTS, load_network
from cdp.types import Labels
from cdp.types.manifest import Manifest


class StopError(Exception):
    """Stands for the plug being pulled."""


def pull_the_plug_at(step: int):
    """Progress that stops the run at a step of the training."""
    calls = 0

    def progress(name: str, done: int, total: int) -> None:
        nonlocal calls
        calls += name.startswith("train")
        if calls == step:
            raise StopError

    return progress


def same_weights(one: Path, other: Path) -> bool:
    first, second = load_file(one / WEIGHTS), load_file(other / WEIGHTS)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def each_step(progress=None, **more):
    return LoopOptions(
        checkpoint_every=2, log_every=1, **({"progress": progress} if progress else {}), **more
    )


@pytest.mark.slow
def test_stopped_anywhere_and_run_again_gives_the_same_weights(people, quick, tmp_path):
    (whole,) = train_supervised(people, ["thumb"], tmp_path / "whole", recipe=quick, options=each_step())
    for step in (1, 2, 5, 12):
        out = tmp_path / f"stopped{step}"
        with pytest.raises(StopError):
            train_supervised(people, ["thumb"], out, recipe=quick, options=each_step(pull_the_plug_at(step)))
        (again,) = train_supervised(people, ["thumb"], out, recipe=quick, options=each_step())
        assert same_weights(whole, again)
        # 12 steps, each once, although some ran twice
        assert [line["step"] for line in read_log(again)] == list(range(1, 13))
        losses = [[line["loss"] for line in read_log(folder)] for folder in (whole, again)]
        assert losses[0] == losses[1]


def test_a_half_written_last_line_of_the_log_is_skipped_with_a_warning(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "lo')
    with pytest.warns(UserWarning, match=r"log\.jsonl: the last line was cut off"):
        assert [line["step"] for line in read_log(tmp_path)] == [1]


def test_seeds_make_a_committee_of_one_architecture(people, quick, out):
    folders = train_supervised(people, ["thumb", "thumb:1", "thumb:2"], out, recipe=quick)
    assert [folder.name for folder in folders] == ["thumb", "thumb-1", "thumb-2"]
    assert not same_weights(folders[1], folders[2])
    assert load_network(folders[2]).recipe.seed == 2 + 1000 * quick.seed


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_members_differ_whatever_the_seed_of_the_recipe(people, quick, out, seed):
    recipe = replace(quick, epochs=1, seed=seed)
    folders = train_supervised(people, ["thumb", "thumb:1", "thumb:2"], out, recipe=recipe)
    assert len({load_network(folder).checksum for folder in folders}) == 3


def test_it_learns(people, quick, out):
    recipe = replace(quick, epochs=15, loss="softmax", rate=0.02, rotate=0, zoom=0)
    (folder,) = train_supervised(people, ["thumb"], out, recipe=recipe)
    log = read_log(folder)
    assert log[-1]["loss"] < 0.3 < 1.5 < log[0]["loss"]
    assert {"step", "epoch", "loss", "losses", "rate", "images_per_second"} == set(log[0])
    assert not list(folder.glob("checkpoint*"))


def test_a_finished_network_is_left_alone_and_other_settings_are_refused(people, quick, out):
    (folder,) = train_supervised(people, ["thumb"], out, recipe=quick)
    written = (folder / WEIGHTS).stat().st_mtime_ns
    (folder / "checkpoint.safetensors").touch()  # as when it is killed right after its last step
    train_supervised(people, ["thumb"], out, recipe=quick)
    assert (folder / WEIGHTS).stat().st_mtime_ns == written
    assert not list(folder.glob("checkpoint*"))
    with refuses("network-trained-differently"):
        train_supervised(people, ["thumb"], out, recipe=replace(quick, rate=0.01))
    with refuses("network-trained-differently"):
        train_supervised(people.take(people.identities < 5), ["thumb"], out, recipe=quick)
    train_supervised(
        people, ["thumb"], out, recipe=replace(quick, rate=0.01), options=LoopOptions(force=True)
    )
    assert load_network(folder).recipe.rate == 0.01


def test_a_checkpoint_of_another_run_is_refused(people, quick, out):
    with pytest.raises(StopError):
        train_supervised(people, ["thumb"], out, recipe=quick, options=each_step(pull_the_plug_at(5)))
    with refuses("checkpoint-trained-differently"):
        train_supervised(people.take(people.identities < 4), ["thumb"], out, recipe=quick)
    with refuses("checkpoint-trained-differently"):
        train_supervised(people, ["thumb"], out, recipe=replace(quick, shift=0.0))


@pytest.mark.parametrize(
    ("damage", "code"), [("cut", "weights-damaged"), ("bit", "weights-changed"), ("text", "weights-damaged")]
)
def test_a_damaged_checkpoint_names_the_one_before(people, quick, out, damage, code):
    with pytest.raises(StopError):
        train_supervised(people, ["thumb"], out, recipe=quick, options=each_step(pull_the_plug_at(7)))
    file = out / "thumb" / "checkpoint.safetensors"
    data = bytearray(file.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "bit":
        data[-5] ^= 1
    else:
        data = bytearray(b"hello")
    file.unlink()
    file.write_bytes(data)
    with refuses(code, StoreError, file=file) as caught:
        train_supervised(people, ["thumb"], out, recipe=quick)
    assert "checkpoint.previous.safetensors" in str(caught.value)
    (out / "thumb" / "checkpoint.previous.safetensors").rename(file)
    (again,) = train_supervised(people, ["thumb"], out, recipe=quick)
    (whole,) = train_supervised(people, ["thumb"], out.parent / "whole", recipe=quick)
    assert same_weights(whole, again)


def test_a_full_disk_loses_nothing(people, quick, out, monkeypatch):
    calls = 0
    flush = os.fsync

    def full(handle):
        nonlocal calls
        calls += 1
        if calls > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(handle)

    monkeypatch.setattr(os, "fsync", full)
    with refuses("disk-full", StoreError):
        train_supervised(people, ["thumb"], out, recipe=quick, options=each_step())
    monkeypatch.undo()
    assert (out / "thumb" / "checkpoint.safetensors").exists()
    assert not list((out / "thumb").glob(".*.partial*"))
    (again,) = train_supervised(people, ["thumb"], out, recipe=quick, options=each_step())
    (whole,) = train_supervised(people, ["thumb"], out.parent / "whole", recipe=quick)
    assert same_weights(whole, again)


def test_weights_are_loaded_strictly_and_the_tensor_is_named(people, quick, out):
    (folder,) = train_supervised(people, ["thumb"], out, recipe=quick)
    tensors = load_file(folder / WEIGHTS)
    first = "network.trunk.0.weight"
    cut = {name: tensor for name, tensor in tensors.items() if name != first}
    for wrong, code, fields in (
        (cut, "tensor-missing", {"tensor": "trunk.0.weight"}),
        (
            cut | {first: torch.zeros(3)},
            "tensor-shape-differs",
            {"tensor": "trunk.0.weight", "expected": (8, 3, 3, 3), "found": (3,)},
        ),
        (tensors | {"network.odd": torch.zeros(1)}, "tensor-unknown", {"tensor": "odd"}),
    ):
        save_file(wrong, folder / WEIGHTS)
        with refuses(code, **fields):
            load_network(folder)
    (folder / WEIGHTS).unlink()
    with refuses("weights-missing"):
        load_network(folder)


def test_a_loss_that_explodes_is_said_so(people, quick, out):
    recipe = replace(quick, loss="softmax", rate=1e3, schedule="paper", epochs=30)
    with refuses("loss-not-finite", CdpError, step=6):
        train_supervised(people, ["thumb"], out, recipe=recipe)


def test_lambda_one_is_supervised_training_bit_for_bit(people, strangers, quick, out):
    part = PseudoPart(strangers, Labels.from_array(strangers.classes))
    (alone,) = train_supervised(people, ["thumb"], out / "alone", recipe=quick)
    joined = train_joint(people, [part], "thumb", out / "joined", recipe=quick, labeled_share=1)
    assert same_weights(alone, joined)
    mixed = train_joint(people, [part], "thumb", out / "mixed", recipe=quick)
    assert not same_weights(alone, mixed)


def test_lambda_is_the_share_of_the_images_that_are_used(people, strangers, quick, out):
    labels = strangers.classes.copy()
    labels[::4] = -1
    parts = [
        PseudoPart(strangers, Labels.from_array(labels)),
        PseudoPart(people, Labels.from_array(people.classes)),
    ]
    folder = train_joint(people, parts, "thumb", out, recipe=quick)
    spaces = json.loads((folder / "card.json").read_text())["settings"]["spaces"]
    assert [space["images"] for space in spaces.values()] == [48, 30, 48]
    assert list(spaces) == ["labeled", "pseudo", "pseudo2"]
    assert [space["weight"] for space in spaces.values()] == pytest.approx([48 / 126, 30 / 126, 48 / 126])
    given = train_joint(people, parts, "thumb", out / "given", recipe=quick, labeled_share=0.4)
    spaces = json.loads((given / "card.json").read_text())["settings"]["spaces"]
    assert [space["weight"] for space in spaces.values()] == pytest.approx(
        [0.4, 0.6 * 30 / 78, 0.6 * 48 / 78]
    )


def test_soft_labels_that_are_one_hot_train_as_plain_ones(people, strangers, quick, out):
    recipe = replace(quick, loss="softmax")
    labels = Labels.from_array(np.where(np.arange(40) % 5 == 0, -1, strangers.classes))
    kept = np.flatnonzero(labels.labels >= 0)
    shape = (40, labels.n_identities)
    soft = sparse.csr_array((np.ones(len(kept)), (kept, labels.labels[kept])), shape=shape)
    hard = train_joint(people, [PseudoPart(strangers, labels)], "thumb", out / "hard", recipe=recipe)
    other = train_joint(people, [PseudoPart(strangers, labels, soft)], "thumb", out / "soft", recipe=recipe)
    first, second = load_file(hard / WEIGHTS), load_file(other / WEIGHTS)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-3, atol=1e-4)
    with refuses("soft-labels-need-softmax", part="pseudo"):
        train_joint(people, [PseudoPart(strangers, labels, soft)], "thumb", out / "arc", recipe=quick)


def test_joint_training_is_resumed_too(people, strangers, quick, out):
    part = PseudoPart(strangers, Labels.from_array(strangers.classes))
    whole = train_joint(people, [part], "thumb", out / "whole", recipe=quick)
    with pytest.raises(StopError):
        train_joint(people, [part], "thumb", out, recipe=quick, options=each_step(pull_the_plug_at(9)))
    assert same_weights(whole, train_joint(people, [part], "thumb", out, recipe=quick))


def test_labels_must_match_the_rows(strangers):
    with refuses("pseudo-rows-differ", what="labels", expected=40, found=39):
        PseudoPart(strangers, Labels.from_array(np.zeros(39, int)))
    labels = Labels.from_array(strangers.classes)
    with refuses("soft-identities-differ", expected=5, found=2):
        PseudoPart(strangers, labels, sparse.csr_array((40, 2)))


def test_nothing_to_learn_from_is_said_so(people, strangers, quick, out):
    with refuses("classes-too-few", found=1):
        train_supervised(people.take(people.identities == 0), ["thumb"], out, recipe=quick)
    unknown = Manifest(people.locations, np.full(48, -1), None, people.root)
    with refuses("manifest-identities-missing"):
        train_supervised(unknown, ["thumb"], out, recipe=quick)
    no_progress = PseudoPart(strangers, Labels.from_array(np.full(40, -1)))
    with refuses("pseudo-part-empty", part="pseudo"):
        train_joint(people, [no_progress], "thumb", out, recipe=quick)
    with refuses("lambda-out-of-range", key="lambda", value=1.5):
        train_joint(people, [], "thumb", out, recipe=quick, labeled_share=1.5)


def test_identities_with_one_image_are_used_and_told(people, quick, out):
    few = people.take([0, 1, 2, 8, 9, 10, 16])
    with pytest.warns(UserWarning, match=r"1 of 3 identities have one image only \(row 6\)"):
        train_supervised(few, ["thumb"], out, recipe=replace(quick, batch=4))


def test_a_batch_of_one_image_is_refused(people, quick, out):
    with refuses("batch-too-small", value=2, found=1, processes=1):
        train_supervised(people.take(np.r_[0:5, 8:12]), ["thumb"], out, recipe=replace(quick, batch=2))


def test_images_without_identity_are_not_used(people, quick, out):
    some = Manifest(
        people.locations, np.where(np.arange(48) % 3 == 0, -1, people.identities), None, people.root
    )
    (folder,) = train_supervised(some, ["thumb"], out, recipe=quick)
    assert json.loads((folder / "card.json").read_text())["settings"]["spaces"]["labeled"]["images"] == 32


def test_members_are_parsed():
    assert Member.parse("resnet18:3").name == "resnet18-3"
    with refuses("network-text-wrong", option="--network", value="resnet18:x"):
        Member.parse("resnet18:x")


def test_the_same_member_twice_is_refused(people, quick, out):
    with refuses("network-given-twice", option="--network", network="thumb"):
        train_supervised(people, ["thumb", "thumb"], out, recipe=quick)


def test_merging_matches_identities_by_name(people, strangers):
    whole = merge_manifests([people, strangers, people])
    assert len(whole) == 136
    assert whole.n_identities == 11
    assert np.array_equal(whole.identities[:48], whole.identities[88:])
    assert Path(whole.locations[50]).exists()
    numbered = [Manifest(each.locations, each.identities, None, each.root) for each in (people, strangers)]
    assert merge_manifests(numbered).n_identities == 11


def test_tensorboard_is_an_extra(people, quick, out):
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with refuses("module-missing", MissingExtraError, module="tensorboard", extra="tensorboard"):
            train_supervised(people, ["thumb"], out, recipe=quick, options=LoopOptions(tensorboard=True))
    else:
        (folder,) = train_supervised(
            people, ["thumb"], out, recipe=quick, options=LoopOptions(tensorboard=True)
        )
        assert list((folder / "tensorboard").iterdir())


def test_half_precision_stays_close(people, quick, out):
    recipe = replace(quick, loss="softmax", precision="bfloat16", epochs=1)
    (half,) = train_supervised(people, ["thumb"], out / "half", recipe=recipe)
    (full,) = train_supervised(people, ["thumb"], out / "full", recipe=replace(recipe, precision="float32"))
    losses = [read_log(folder)[-1]["loss"] for folder in (half, full)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
