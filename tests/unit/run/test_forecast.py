"""How long a run will take, before it is trained."""

from dataclasses import dataclass

import pytest

from cdp.config.reading import recipe_from
from cdp.config.sections import EngineSection
from cdp.nets.recipe import Recipe, TrainingSettings
from cdp.run.forecast import TimedForecast, expect_seconds, shown_time
from cdp.run.plan import make_stages
from cdp.run.runner import Listener, Ran
from cdp.run.sources import Facts, resolve
from cdp.run.stages import Ledger, Record
from cdp.storage.files import write_json

COUNTS = {
    "labeled": {"images": 300, "identities": 30},
    "unlabeled": {"images": 700, "identities": 70},
    "validation": {"images": 200, "identities": 20},
    "probes": {"images": 100, "identities": 10},
    "distractors": {"images": 100, "identities": 10},
}


@dataclass(frozen=True)
class Times:
    train: float = 0.01
    embed: float = 0.001


@pytest.fixture
def timed(monkeypatch):
    """Networks that take a hundredth of a second per image; which were timed."""
    pytest.importorskip("torch")
    asked = []

    def time_steps(network, recipe, n_classes, *, device):
        asked.append((network, recipe.size, n_classes, device))
        return Times()

    monkeypatch.setattr("cdp.nets.step_times.time_steps", time_steps)
    return asked


def stages(**values):
    basic = {
        "data.images": "x",
        "base.network": "small_resnet",
        "committee.networks": ["small_vgg", "small_vgg:1"],
        "train.epochs": 10,
        "joint.epochs": 4,
        "joint.dimensions": 128,
    }
    return make_stages(resolve(recipe_from({}, {**basic, **values}), Facts("images")))


def test_seconds_are_images_times_epochs_times_what_a_step_takes(timed):
    made = stages()
    found = expect_seconds(made, made, COUNTS, EngineSection(device="cpu", threads=1))
    assert found["train small_resnet"] == pytest.approx(300 * 10 * 0.01)
    assert found["train small_vgg-1"] == found["train small_vgg"] == found["train small_resnet"]
    assert found["train with pseudo-labels"] == pytest.approx(1000 * 4 * 0.01)
    assert found["embed small_vgg"] == pytest.approx(1000 * 0.001)
    assert found["test joint/small_resnet"] == pytest.approx(200 * 0.001)
    assert not {"split", "label", "measure members"} & found.keys()
    # Each kind once; the network of the joint training has another head.
    assert sorted(timed) == [("small_resnet", 32, 30, "cpu")] * 2 + [("small_vgg", 32, 30, "cpu")]


def test_it_is_said_once_and_refined_by_what_stages_took(timed, tmp_path):
    ledger = Ledger(tmp_path)
    ledger.open()
    (tmp_path / "parts").mkdir()
    write_json(tmp_path / "parts" / "counts.json", COUNTS)
    heard = []

    class Hears(Listener):
        def note(self, sentence):
            heard.append(sentence)

    made = stages()
    forecast = TimedForecast(made, EngineSection(threads=1))
    forecast.before(made, ledger, {}, Hears())
    assert heard == [], "nothing is trained yet"
    digests = dict.fromkeys(["images", *made[0].makes], "same")
    forecast.before(made[1:], ledger, digests, Hears())
    forecast.before(made[2:], ledger, digests, Hears())
    assert len(heard) == 1
    assert "3 min" in heard[0]
    first = forecast.after(Ran(made[1], Record("", True, {}, {}, {}, seconds=60.0), False))
    foreseen = expect_seconds(made[2:], made, COUNTS, EngineSection(threads=1))
    assert first == pytest.approx(2 * sum(foreseen.values())), "it took twice as long as foreseen"


def test_a_network_is_timed_by_a_few_steps():
    torch = pytest.importorskip("torch")
    from cdp.nets.step_times import time_steps

    torch.set_num_threads(1)
    how = TrainingSettings(size=16, batch=16, dimensions=8)
    times = time_steps("small_vgg", Recipe(**how.as_dict()), 5, device="cpu", budget=0.1)
    assert 0 < times.embed < times.train < 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "10 s"), (31, "30 s"), (59, "1 min"), (720, "12 min"), (9000, "2.5 h")],
)
def test_times_are_rounded(seconds, words):
    assert shown_time(seconds) == words
