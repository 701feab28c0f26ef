"""Run-time forecast: a few timed steps of each network, times the number of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from cdp.config.sections import EngineSection
from cdp.nets.recipe import Recipe, TrainingSettings
from cdp.run.runner import Forecast, Listener, Ran, plan_stages
from cdp.run.stages import Ledger, Stage
from cdp.run.training import EmbedSettings, JointSettings, NetworkSettings, prepare_torch
from cdp.storage.artifacts import read_json

_TITLES = {
    "train": "training",
    "embed": "embedding",
    "joint": "training with pseudo-labels",
    "bound": "training with all labels",
    "test": "embedding test images",
}
"""What groups of stages are called in the forecast."""

Counts = Mapping[str, Mapping[str, int | None]]
"""Part -> number of images and identities."""


@dataclass(frozen=True)
class Trained:
    """A network that some stage trains."""

    network: str
    training: TrainingSettings

    @property
    def name(self) -> str:
        """Without its seed."""
        return self.network.partition(":")[0]


class TimedForecast(Forecast):
    """Forecasts the run time before the first training and updates it after every stage."""

    def __init__(self, stages: Sequence[Stage], engine: EngineSection) -> None:
        self._stages, self._engine = stages, engine
        self._expected: dict[str, float] | None = None
        self._done = self._took = 0.0

    def before(
        self, stages: Sequence[Stage], ledger: Ledger, digests: Mapping[str, str], listener: Listener
    ) -> None:
        """Time the networks when the first one is about to be trained, and say what follows."""
        if self._expected is not None or stages[0].group not in ("train", "joint", "bound"):
            return
        listener.progress("time a few steps", 0, 0)
        counts: Counts = read_json(ledger.folder / "parts" / "counts.json", dict[str, dict[str, int | None]])
        waiting = [one.stage for one in plan_stages(stages, ledger, digests) if one.state != "fresh"]
        self._expected = expect_seconds(waiting, self._stages, counts, self._engine)
        groups: dict[str, float] = {}
        for stage in waiting:
            if stage.name in self._expected:
                groups[stage.group] = groups.get(stage.group, 0.0) + self._expected[stage.name]
        parts = ", ".join(f"{_TITLES[group]} {shown_time(seconds)}" for group, seconds in groups.items())
        whole = shown_time(sum(groups.values()))
        listener.note(f"About {whole} on this machine: {parts}; labeling and measuring come on top.")

    def after(self, ran: Ran) -> float | None:
        """Return the remaining seconds by the stages finished so far; None before a forecast."""
        if self._expected is None or ran.fresh:
            return None
        expected = self._expected.pop(ran.stage.name, None)
        if expected is not None:
            self._done, self._took = self._done + expected, self._took + ran.record.seconds
        factor = self._took / self._done if self._done else 1.0
        return factor * sum(self._expected.values())


def expect_seconds(
    waiting: Sequence[Stage], stages: Sequence[Stage], counts: Counts, engine: EngineSection
) -> dict[str, float]:
    """Stage -> seconds, of those that train networks or embed images with them.

    Args:
        waiting: the stages that will run.
        stages: all of them: what embeds may have been trained before.
        counts: images and identities of the parts.
    """
    prepare_torch(engine.threads)
    from cdp.nets.step_times import StepTimes, time_steps

    trained = {
        name: Trained(stage.settings.network, stage.settings.training)
        for stage in stages
        for name in stage.makes
        if isinstance(stage.settings, NetworkSettings | JointSettings)
    }
    n_classes = counts["labeled"]["identities"] or 2
    times: dict[tuple[str, TrainingSettings], StepTimes] = {}
    seconds = {}
    for stage in waiting:
        settings = stage.settings
        made_by = settings.network if isinstance(settings, EmbedSettings) else next(iter(stage.makes))
        if made_by not in trained:
            # A model that is not trained here, or a stage that has none.
            continue
        how = trained[made_by]
        key = (how.name, how.training)
        if key not in times:
            recipe = Recipe(**asdict(how.training))
            times[key] = time_steps(how.name, recipe, n_classes, device=engine.device)
        if isinstance(settings, EmbedSettings):
            seconds[stage.name] = times[key].embed * sum(count(counts, part) for part in settings.parts)
        else:
            parts = settings.part.split(", ") if isinstance(settings, NetworkSettings) else _BOTH
            n_seen = how.training.epochs * sum(count(counts, part) for part in parts)
            seconds[stage.name] = times[key].train * n_seen
    return seconds


_BOTH = ["labeled", "unlabeled"]


def count(counts: Counts, part: str) -> int:
    """Count the images of a part; a fold, or all but one, counts as the whole labeled part."""
    return counts[part if part in counts else "labeled"]["images"] or 0


def shown_time(seconds: float) -> str:
    """`20 s`, `12 min`, `2.5 h`: rounded, because it is a forecast."""
    if seconds < 55:
        return f"{max(1, round(seconds / 10)) * 10} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"
