"""`cdp eval verification` and `cdp eval identification`: read, measure, print, plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Option

from cdp.cli.app import evaluation, plain_errors, print_table
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.help_pages import Command
from cdp.errors import InputError
from cdp.runtime.settings import ON_RAY, RuntimeSettings
from cdp.settings import setting

if TYPE_CHECKING:
    from cdp.evaluate.bootstrap import Comparison, Interval
    from cdp.evaluate.identification import Identification
    from cdp.evaluate.verification import Verification

Figures = TypeVar("Figures", "Verification", "Identification")
Number = TypeVar("Number", int, float)
_FLAGS = {name: f"--{name}" for name in ("flip", "force", "json", "quiet")}


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of both commands: networks to embed with, resampling, and output files."""

    network: str = setting("", "A trained network, e.g. nets/small_resnet, that embeds the images first.")
    against_network: str = setting("", "Another trained network to compare with.")
    flip: bool = setting(False, "With --network: average with the mirrored image.")
    replicates: int = setting(
        1000,
        "Resamplings of identities for intervals; 0 = none.",
        meaning="a number of resamplings",
        low=0,
        high=10**6,
    )
    seed: int = setting(0, "Random seed.", meaning="a whole number", low=0, high=2**32 - 1)
    picture: str = setting("", "Also draw the curves into this .png, .svg or .pdf file.")
    force: bool = setting(False, "Replace the picture if it is there.")
    json: bool = setting(False, "Print the figures as JSON instead of a table.")
    quiet: bool = setting(False, "No progress bars, no table.")

    def __post_init__(self) -> None:
        refuse(
            (
                self.against_network and not self.network,
                "--against-network goes with --network.",
                "against-network-alone",
            )
        )

    def check_picture(self, *inputs: Path | None) -> None:
        """Refuse a picture that cannot be written, or that would replace what is read."""
        if self.picture:
            from cdp.evaluate.pictures import check_picture

            networks = [Path(one) for one in (self.network, self.against_network) if one]
            check_picture(Path(self.picture), force=self.force, inputs=[*networks, *inputs])

    @contextmanager
    def embedded(
        self, engine: RuntimeSettings, images: Sequence[Path], own: Sequence[Any], other: Sequence[Any]
    ) -> Iterator[dict[str, Sequence[Any]]]:
        """Return the inputs to measure by title; given networks embed the images first."""
        from cdp.cli.embed_command import embedding

        ways = (("", self.network, own), ("against ", self.against_network, other))
        found: dict[str, Sequence[Any]] = {}
        with embedding(
            flip=self.flip, threads=engine.threads, quiet=self.quiet, device=engine.device
        ) as embed:
            for before, network, given in ways:
                made = [embed(Path(network), part) for part in images] if network else []
                if made or given[0] is not None:
                    found[f"{before}{network or given[0]}"] = [*made, *given[len(made) :]]
            yield found

    def measure(
        self, figures: Callable[..., Figures], engine: RuntimeSettings, *given: Any, **more: Any
    ) -> Figures:
        """Figures of what is given, with progress bars."""
        from cdp.runtime.progress import progress_bars

        options = {"replicates": self.replicates, "seed": self.seed, "threads": engine.threads}
        with progress_bars(not (self.quiet or self.json)) as progress:
            return figures(*given, **more, **options, progress=progress)

    def show(
        self,
        measured: Mapping[str, Figures],
        draw: Callable[[Mapping[str, Figures], Path], None],
        compare: Callable[[Figures, Figures], Sequence[Comparison]],
        print_one: Callable[[Figures, str], None],
    ) -> None:
        """Draw and print the figures of one network, or of two and their comparison."""
        if self.picture:
            draw(measured, Path(self.picture))
        if self.json or not self.quiet:
            _print_figures(measured, compare, print_one, as_json=self.json)


with_evaluation = with_settings(
    EvaluationOptions, RuntimeSettings, without=["memory_budget", *ON_RAY], flags=_FLAGS
)


@evaluation.command("verification", cls=Command)
@with_evaluation
@plain_errors()
def eval_verification(
    *,
    embeddings: Annotated[Path | None, Option(help="Views, .npy, or, with --suffix, feature files.")] = None,
    images: Annotated[Path | None, Option(help="With --network: what to embed [default: --pack].")] = None,
    pairs: Annotated[
        Path | None, Option(help="pairs.csv (first_row,second_row,same), or LFW's, CALFW's or CPLFW's pairs.")
    ] = None,
    pack: Annotated[Path | None, Option(help="InsightFace pack, such as lfw.bin.")] = None,
    ijba: Annotated[Path | None, Option(help="IJB-A folder with split1 ... split10.")] = None,
    ijb: Annotated[Path | None, Option(help="IJB-B or IJB-C folder as InsightFace packs it.")] = None,
    list_: Annotated[Path | None, Option("--list", help="Names of the embedded images, one per row.")] = None,
    suffix: Annotated[str | None, Option(help="Feature files are called IMAGE_PATH + this.")] = None,
    identities: Annotated[
        Path | None, Option(help=("Identities of the rows [default: from the pairs]."))
    ] = None,
    flipped: Annotated[Path | None, Option(help="Embeddings of the mirrored images, to be added.")] = None,
    detector_scores: Annotated[
        bool, Option("--detector-scores", help="With --ijb: weigh images by the detector's score.")
    ] = False,
    against: Annotated[Path | None, Option(help="Another network's embeddings to compare with.")] = None,
    against_flipped: Annotated[Path | None, Option(help="Its mirrored images.")] = None,
    folds: Annotated[int, Option(help="Folds, where the file does not say.", min=2, max=10**6)] = 10,
    fprs: Annotated[str, Option(help="False positive rates, by commas.")] = "1e-1,1e-2,1e-3,1e-4,1e-5,1e-6",
    given: Given,
) -> None:
    """Are two images one person? Accuracy, TPR at FPR and equal error rate of embeddings."""
    from cdp.cli.recognition_inputs import PairProtocol
    from cdp.evaluate.pictures import draw_roc
    from cdp.evaluate.verification import compare_verification, measure_verification

    options, engine = settings_from(EvaluationOptions, given), settings_from(RuntimeSettings, given)
    pictures = [path for path in (images or pack,) if path is not None]
    refuse(
        (
            (embeddings is None) != bool(options.network),
            "Choose one of --embeddings FILE and --network FOLDER.",
            "embeddings-or-network",
        ),
        (
            options.network and not pictures,
            "--network needs --images MANIFEST, or --pack with the images in it.",
            "network-without-images",
        ),
        (against_flipped and not against, "--against-flipped goes with --against.", "against-flipped-alone"),
    )
    options.check_picture(
        embeddings, flipped, against, against_flipped, *pictures, pairs, pack, ijba, ijb, list_, identities
    )
    protocol = PairProtocol(pairs, pack, ijba, ijb, identities, list_, suffix, folds, detector_scores)
    rates = _parse_numbers(fprs, "--fprs", float)
    ways = (embeddings, flipped), (against, against_flipped)
    with options.embedded(engine, pictures, *ways) as found:
        measured = {
            title: options.measure(
                measure_verification, engine, protocol.score(*paths, threads=engine.threads), fprs=rates
            )
            for title, paths in found.items()
        }
    options.show(measured, draw_roc, compare_verification, _print_verification)


@evaluation.command("identification", cls=Command)
@with_evaluation
@plain_errors()
def eval_identification(
    *,
    probes: Annotated[
        Path, Option(help="Views; with --probe-list a folder of feature files, with --network a manifest.")
    ],
    distractors: Annotated[Path, Option(help="The same of other people.")],
    identities: Annotated[
        Path | None, Option(help=("Identities of the probes, if their views have none."))
    ] = None,
    probe_list: Annotated[Path | None, Option(help="The MegaFace devkit's probe list.")] = None,
    distractor_list: Annotated[
        list[Path] | None, Option(help="Its distractor list; may be repeated.")
    ] = None,
    suffix: Annotated[str, Option(help="Feature files are called IMAGE_PATH + this.")] = ".bin",
    probe_noise: Annotated[Path | None, Option(help="Probes to leave out, one name per line.")] = None,
    distractor_noise: Annotated[Path | None, Option(help="Distractors to leave out.")] = None,
    against: Annotated[Path | None, Option(help="Another network's probes to compare with.")] = None,
    against_distractors: Annotated[Path | None, Option(help="Its distractors.")] = None,
    against_suffix: Annotated[str | None, Option(help="Its feature files' suffix [default: same].")] = None,
    sizes: Annotated[str | None, Option(help="Distractors, by commas [default: 10,100,... and all].")] = None,
    ranks: Annotated[str, Option(help="Ranks to report, by commas.")] = "1,5,10,20,50,100,1000",
    given: Given,
) -> None:
    """Is a person found among distractors? Rank-1, the CMC curve and growing numbers of distractors."""
    from cdp.cli.recognition_inputs import ProbeProtocol
    from cdp.evaluate.identification import compare_identification, measure_identification
    from cdp.evaluate.pictures import draw_cmc

    options, engine = settings_from(EvaluationOptions, given), settings_from(RuntimeSettings, given)
    _check_probes(options.network, probe_list, bool(identities or sizes), (against, against_distractors))
    options.check_picture(
        *(probes, distractors, against, against_distractors, identities, probe_list), *(distractor_list or [])
    )
    protocol = ProbeProtocol(identities, probe_list, distractor_list or [], probe_noise, distractor_noise)
    numbers = None if sizes is None else _parse_numbers(sizes, "--sizes", int)
    reported = _parse_numbers(ranks, "--ranks", int)
    other = against, against_distractors, suffix if against_suffix is None else against_suffix
    with options.embedded(engine, (probes, distractors), (probes, distractors, suffix), other) as found:
        measured = {}
        for title, paths in found.items():
            embedded, people, gallery, left_out = protocol.read(*paths)
            more = {"sizes": numbers, "ranks": reported, "left_out": left_out}
            measured[title] = options.measure(
                measure_identification, engine, embedded, people, gallery, **more
            )
    draw = partial(draw_cmc, replicates=options.replicates, seed=options.seed)
    options.show(measured, draw, compare_identification, _print_identification)


def _check_probes(
    network: str, probe_list: Path | None, of_views: bool, other: tuple[Path | None, Path | None]
) -> None:
    """Refuse options that exclude each other.

    `of_views` = an option for views only, `other` = the other network's.
    """
    refuse(
        (
            network and probe_list,
            "--network goes with manifests, --probe-list with feature files.",
            "network-with-probe-list",
        ),
        (
            probe_list and of_views,
            "--identities and --sizes do not go with the devkit's lists.",
            "probe-list-clash",
        ),
        (
            (other[0] is None) != (other[1] is None),
            "--against and --against-distractors go together.",
            "against-incomplete",
        ),
    )


def refuse(*rules: tuple[object, str, str]) -> None:
    """Raise the sentence and the code of the first rule that is broken."""
    for broken, sentence, code in rules:
        if broken:
            raise InputError(sentence, code=code)


def _parse_numbers(text: str, option: str, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    """`1,5,10` or `1e-3,1e-4` as numbers."""
    try:
        numbers = tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    if not numbers:
        raise InputError(
            f"{option} {text!r}: write numbers separated by commas.",
            code="option-not-numbers",
            option=option,
            value=text,
        )
    return numbers


def _print_figures(
    measured: Mapping[str, Figures],
    compare: Callable[[Figures, Figures], Sequence[Comparison]],
    print_one: Callable[[Figures, str], None],
    as_json: bool,
) -> None:
    """Print the figures of one network, or of two and their comparison: as JSON or as tables."""
    results = list(measured.values())
    comparison = compare(*results) if len(results) == 2 else []
    if as_json:
        figures = results[0].as_dict()
        if comparison:
            figures |= {"against": results[1].as_dict(), "comparison": [asdict(line) for line in comparison]}
        print(dumps(figures, indent=2, allow_nan=False))
        return
    for title, result in measured.items():
        print_one(result, title)
    if comparison:
        columns = ("", ">this", ">other", ">difference", ">95 % interval", "")
        rows = [
            (
                line.name,
                _percent(line.figure),
                _percent(line.against),
                f"{100 * line.difference:+.2f}",
                _band(line.interval, "+"),
                line.verdict or "",
            )
            for line in comparison
        ]
        print_table("Against the other network, in points", columns, rows)


def _print_verification(result: Verification, title: str) -> None:
    from cdp.evaluate.verification import name_fpr

    rows = []
    if result.accuracy is not None:
        name = f"accuracy, {len(result.accuracy.folds)} folds"
        accuracy = f"{_percent(result.accuracy.mean)} ± {100 * result.accuracy.sd:.2f}"
        rows.append((name, accuracy, _band(result.accuracy.interval), f"{result.pairs:,} pairs"))
    best = _percent(result.best_accuracy)
    rows.append(("best accuracy, all pairs", best, "", "a threshold chosen on the same pairs"))
    rows.append(("equal error rate", _percent(result.eer), _band(result.eer_interval), ""))
    each = " per split at least" if result.splits > 1 else ""
    for figure in result.tpr:
        rate, rests_on = "not given", figure.reason or ""
        if figure.tpr is not None:
            rate = _percent(figure.tpr) + ("" if figure.sd is None else f" ± {100 * figure.sd:.2f}")
            rests_on = f"{figure.false_accepts:,} false accepts{each}"
        rows.append((f"TPR at FPR {name_fpr(figure.fpr)}", rate, _band(figure.interval), rests_on))
    print_table(title, ("", ">", ">95 % interval", "rests on"), rows)
    splits = f" in {result.splits} splits" if result.splits > 1 else ""
    print(
        f"{result.pairs:,} pairs{splits}, {result.impostors:,} of them different people; intervals from "
        f"resampling {result.identities:,} identities."
    )


def _print_identification(result: Identification, title: str) -> None:
    rows = [
        (f"{figure.distractors:,}", f"{figure.rank:,}", _percent(figure.rate), _band(figure.interval))
        for figure in result.figures
    ]
    print_table(title, (">distractors", ">rank", ">rate", ">95 % interval"), rows)
    left_out = ", ".join(f"{count:,} {what}" for what, count in result.left_out.items())
    print(
        f"{result.pairs.n_probes:,} probes of {result.pairs.n_identities:,} identities, "
        f"{len(result.pairs):,} ordered pairs; left out: {left_out or 'nothing'}."
    )


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _band(interval: Interval | None, sign: str = "") -> str:
    """`97.10–98.42`; ends with a sign are easier to read as `-0.20 to +1.31`."""
    between = " to " if sign else "–"
    return (
        "" if interval is None else f"{100 * interval.low:{sign}.2f}{between}{100 * interval.high:{sign}.2f}"
    )
