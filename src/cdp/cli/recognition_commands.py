"""`cdp eval verification` and `cdp eval identification`: read embeddings and a protocol, measure, print, draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from typer import Option

from cdp.cli.app import (
    JsonOption,
    QuietOption,
    SeedOption,
    ThreadsOption,
    evaluation,
    plain_errors,
    print_table,
)
from cdp.errors import InputError

if TYPE_CHECKING:
    from cdp.evaluate.bootstrap import Comparison, Interval
    from cdp.evaluate.identification import Identification
    from cdp.evaluate.verification import Verification

Figures = TypeVar("Figures", "Verification", "Identification")
Number = TypeVar("Number", int, float)

DeviceOption = Annotated[str, Option(help="With --network: where it computes: auto, cpu, cuda, cuda:1, mps.")]
NetworkOption = Annotated[
    Path | None, Option(help="A trained network, e.g. nets/small_resnet, that embeds the images first.")
]
AgainstNetworkOption = Annotated[Path | None, Option(help="Another trained network to compare with.")]
FlipOption = Annotated[bool, Option("--flip", help="With --network: average with the mirrored image.")]
ReplicatesOption = Annotated[
    int, Option(help="Resamplings of identities for intervals; 0 = none.", min=0, max=10**6)
]
PictureOption = Annotated[Path | None, Option(help="Also draw the curves into this .png, .svg or .pdf file.")]
ForceOption = Annotated[bool, Option("--force", help="Replace the picture if it is there.")]


@evaluation.command("verification")
@plain_errors()
def eval_verification(
    embeddings: Annotated[Path | None, Option(help="Views, .npy, or, with --suffix, feature files.")] = None,
    network: NetworkOption = None,
    images: Annotated[
        Path | None, Option(help="With --network: the images to embed [default: --pack].")
    ] = None,
    flip: FlipOption = False,
    pairs: Annotated[
        Path | None, Option(help="pairs.csv (first_row,second_row,same), or LFW's, CALFW's or CPLFW's pairs.")
    ] = None,
    pack: Annotated[Path | None, Option(help="InsightFace pack, such as lfw.bin.")] = None,
    ijba: Annotated[Path | None, Option(help="IJB-A folder with split1 ... split10.")] = None,
    ijb: Annotated[Path | None, Option(help="IJB-B or IJB-C folder as InsightFace packs it.")] = None,
    list_: Annotated[Path | None, Option("--list", help="Names of the embedded images, one per row.")] = None,
    suffix: Annotated[str | None, Option(help="Feature files are called IMAGE_PATH + this.")] = None,
    identities: Annotated[Path | None, Option(help="Who every row shows [default: from the pairs].")] = None,
    flipped: Annotated[Path | None, Option(help="Embeddings of the mirrored images, to be added.")] = None,
    detector_scores: Annotated[
        bool, Option("--detector-scores", help="With --ijb: weigh images by the detector's score.")
    ] = False,
    against: Annotated[Path | None, Option(help="Another network's embeddings to compare with.")] = None,
    against_flipped: Annotated[Path | None, Option(help="Its mirrored images.")] = None,
    against_network: AgainstNetworkOption = None,
    folds: Annotated[int, Option(help="Folds, where the file does not say.", min=2, max=10**6)] = 10,
    fprs: Annotated[str, Option(help="False positive rates, by commas.")] = "1e-1,1e-2,1e-3,1e-4,1e-5,1e-6",
    replicates: ReplicatesOption = 1000,
    seed: SeedOption = 0,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    picture: PictureOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Are two images one person? Accuracy, TPR at FPR and equal error rate of embeddings."""
    from cdp.cli.network_commands import embedding
    from cdp.cli.recognition_inputs import score_protocol
    from cdp.evaluate.pictures import check_picture, draw_roc
    from cdp.evaluate.verification import compare_verification, measure_verification
    from cdp.progress import progress_bars

    pictures = images or pack
    protocols = [path for path in (pairs, pack, ijba, ijb) if path is not None]
    rates = _parse_numbers(fprs, "--fprs", float)
    _refuse(
        ((embeddings is None) == (network is None), "Choose one of --embeddings FILE and --network FOLDER."),
        (len(protocols) != 1, "Choose one of --pairs FILE, --pack FILE, --ijba FOLDER and --ijb FOLDER."),
        (network and not pictures, "--network needs --images MANIFEST, or --pack with the images in it."),
        (against_network and not network, "--against-network goes with --network."),
        (against_flipped and not against, "--against-flipped goes with --against."),
        (detector_scores and not ijb, "--detector-scores goes with --ijb."),
        (
            identities and (ijb or ijba),
            "--identities goes with --pairs and --pack; IJB's files say who is who.",
        ),
    )
    if picture is not None:
        given = [embeddings, flipped, against, against_flipped, network, against_network, pictures]
        check_picture(picture, force=force, inputs=[*given, *protocols, list_, identities])

    def measure(path: Path, mirrored: Path | None) -> Verification:
        scored = score_protocol(
            *(
                path,
                mirrored,
                list_,
                suffix,
                pairs,
                pack,
                ijba,
                ijb,
                identities,
                detector_scores,
                folds,
                threads,
            )
        )
        with progress_bars(not (quiet or json)) as progress:
            return measure_verification(
                scored, fprs=rates, replicates=replicates, seed=seed, threads=threads, progress=progress
            )

    with embedding(flip=flip, threads=threads, quiet=quiet, device=device) as embed:
        titles = str(network or embeddings), f"against {against_network or against}"
        if network and pictures:
            embeddings = embed(network, pictures)
            against = embed(against_network, pictures) if against_network else against
        assert embeddings is not None, "one of the two was given"
        measured = {titles[0]: measure(embeddings, flipped)}
        if against is not None:
            measured[titles[1]] = measure(against, against_flipped)
    if picture is not None:
        draw_roc(measured, picture)
    if json or not quiet:
        _print_figures(measured, compare_verification, _print_verification, as_json=json)


@evaluation.command("identification")
@plain_errors()
def eval_identification(
    probes: Annotated[
        Path, Option(help="Views; with --probe-list a folder of feature files, with --network a manifest.")
    ],
    distractors: Annotated[Path, Option(help="The same of other people.")],
    network: NetworkOption = None,
    flip: FlipOption = False,
    identities: Annotated[Path | None, Option(help="Who the probes show, if their views do not say.")] = None,
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
    against_network: AgainstNetworkOption = None,
    sizes: Annotated[str | None, Option(help="Distractors, by commas [default: 10,100,... and all].")] = None,
    ranks: Annotated[str, Option(help="Ranks to report, by commas.")] = "1,5,10,20,50,100,1000",
    replicates: ReplicatesOption = 1000,
    seed: SeedOption = 0,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    picture: PictureOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Is a person found among distractors? Rank-1, the CMC curve and growing numbers of distractors."""
    from cdp.cli.network_commands import embedding
    from cdp.cli.recognition_inputs import read_devkit, read_probes
    from cdp.evaluate.identification import compare_identification, measure_identification
    from cdp.evaluate.pictures import check_picture, draw_cmc
    from cdp.progress import progress_bars

    lists = distractor_list or []
    numbers = None if sizes is None else _parse_numbers(sizes, "--sizes", int)
    reported = _parse_numbers(ranks, "--ranks", int)
    options = {"replicates": replicates, "seed": seed, "threads": threads}
    _refuse(
        (network and probe_list, "--network goes with manifests, --probe-list with feature files."),
        (against_network and not network, "--against-network goes with --network."),
        (bool(probe_list) != bool(lists), "--probe-list and --distractor-list go together."),
        (probe_list and (identities or sizes), "--identities and --sizes do not go with the devkit's lists."),
        (bool(against) != bool(against_distractors), "--against and --against-distractors go together."),
    )
    if picture is not None:
        given = [probes, distractors, against, against_distractors, network, against_network]
        check_picture(picture, force=force, inputs=[*given, identities, probe_list, *lists])

    def measure(probes: Path, distractors: Path, suffix: str) -> Identification:
        if probe_list is not None:
            read = read_devkit(probes, distractors, suffix, probe_list, lists, probe_noise, distractor_noise)
        else:
            read = read_probes(probes, distractors, identities, probe_noise, distractor_noise)
        embedded, people, gallery, left_out = read
        with progress_bars(not (quiet or json)) as progress:
            return measure_identification(
                embedded,
                people,
                gallery,
                sizes=numbers,
                ranks=reported,
                left_out=left_out,
                progress=progress,
                **options,
            )

    with embedding(flip=flip, threads=threads, quiet=quiet, device=device) as embed:
        titles = str(network or probes), f"against {against_network or against}"
        if network is not None:
            images = probes, distractors
            probes, distractors = (embed(network, part) for part in images)
            if against_network is not None:
                against, against_distractors = (embed(against_network, part) for part in images)
        measured = {titles[0]: measure(probes, distractors, suffix)}
        if against is not None and against_distractors is not None:
            measured[titles[1]] = measure(
                against, against_distractors, suffix if against_suffix is None else against_suffix
            )
    if picture is not None:
        draw_cmc(measured, picture, replicates=replicates, seed=seed)
    if json or not quiet:
        _print_figures(measured, compare_identification, _print_identification, as_json=json)


def _refuse(*rules: tuple[object, str]) -> None:
    """Raise the sentence of the first rule that is broken."""
    for broken, sentence in rules:
        if broken:
            raise InputError(sentence)


def _parse_numbers(text: str, option: str, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    """`1,5,10` or `1e-3,1e-4` as numbers."""
    try:
        numbers = tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    if not numbers:
        raise InputError(f"{option} {text!r}: write numbers separated by commas.")
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
        f"{result.pairs:,} pairs{splits}, {result.impostors:,} of them different people; intervals from resampling "
        f"{result.identities:,} identities."
    )


def _print_identification(result: Identification, title: str) -> None:
    rows = [
        (f"{figure.distractors:,}", f"{figure.rank:,}", _percent(figure.rate), _band(figure.interval))
        for figure in result.figures
    ]
    print_table(title, (">distractors", ">rank", ">rate", ">95 % interval"), rows)
    left_out = ", ".join(f"{count:,} {what}" for what, count in result.left_out.items())
    print(
        f"{result.pairs.n_probes:,} probes of {result.pairs.n_identities:,} identities, {len(result.pairs):,} "
        f"ordered pairs; left out: {left_out or 'nothing'}."
    )


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _band(interval: Interval | None, sign: str = "") -> str:
    return "" if interval is None else f"{100 * interval.low:{sign}.2f} to {100 * interval.high:{sign}.2f}"
