"""`cdp eval verification` and `cdp eval identification`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdp.cli.app import JsonOption, QuietOption, evaluation, plain_errors
from cdp.errors import InputError

PictureOption = Annotated[
    Path | None, typer.Option(help="Also draw the curves into this .png, .svg or .pdf file.")
]
ReplicatesOption = Annotated[int, typer.Option(help="Resamplings of identities for intervals; 0 = none.")]
SeedOption = Annotated[int, typer.Option(help="Seed.")]
ThreadsOption = Annotated[int, typer.Option(help="Threads; 0 = all cores.")]
NetworkOption = Annotated[
    Path | None, typer.Option(help="A trained network, e.g. nets/small_resnet, that embeds the images first.")
]
AgainstNetworkOption = Annotated[Path | None, typer.Option(help="Another trained network to compare with.")]
FlipOption = Annotated[bool, typer.Option("--flip", help="With --network: average with the mirrored image.")]


@evaluation.command("verification")
def eval_verification(
    embeddings: Annotated[
        Path | None, typer.Option(help="Views, .npy, or with --suffix a folder of MegaFace feature files.")
    ] = None,
    network: NetworkOption = None,
    images: Annotated[
        Path | None,
        typer.Option(
            help="With --network: the images, a manifest or folder [default with --pack: the pack's]."
        ),
    ] = None,
    flip: FlipOption = False,
    pairs: Annotated[
        Path | None,
        typer.Option(help="pairs.csv (first_row,second_row,same), LFW's pairs.txt, or CALFW's or CPLFW's."),
    ] = None,
    pack: Annotated[Path | None, typer.Option(help="InsightFace pack, such as lfw.bin.")] = None,
    ijba: Annotated[Path | None, typer.Option(help="IJB-A folder with split1 ... split10.")] = None,
    ijb: Annotated[Path | None, typer.Option(help="IJB-B or IJB-C folder as InsightFace packs it.")] = None,
    list_: Annotated[
        Path | None, typer.Option("--list", help="Names of the embedded images, one per row.")
    ] = None,
    suffix: Annotated[
        str | None, typer.Option(help="What follows an image's path in a feature file's name.")
    ] = None,
    identities: Annotated[
        Path | None,
        typer.Option(help="Who every row shows, to resample people [default: told by same pairs]."),
    ] = None,
    flipped: Annotated[
        Path | None, typer.Option(help="Embeddings of the mirrored images, to be added.")
    ] = None,
    detector_scores: Annotated[
        bool, typer.Option("--detector-scores", help="With --ijb: weigh images by the detector's score.")
    ] = False,
    against: Annotated[
        Path | None, typer.Option(help="Another network's embeddings to compare with.")
    ] = None,
    against_flipped: Annotated[Path | None, typer.Option(help="Its mirrored images.")] = None,
    against_network: AgainstNetworkOption = None,
    folds: Annotated[int, typer.Option(help="Folds, where the file does not say.")] = 10,
    fprs: Annotated[
        str, typer.Option(help="False positive rates, by commas.")
    ] = "1e-1,1e-2,1e-3,1e-4,1e-5,1e-6",
    replicates: ReplicatesOption = 1000,
    seed: SeedOption = 0,
    threads: ThreadsOption = 0,
    picture: PictureOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the picture if it is there.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Are two images one person? Accuracy, TPR at FPR and equal error rate of embeddings."""
    with plain_errors():
        from cdp.cli.recognition import VerificationSettings, evaluate_verification, parse_numbers
        from cdp.cli.recognition_output import Output

        if (embeddings is None) == (network is None):
            raise InputError("Choose one of --embeddings FILE and --network FOLDER.")
        pictures = images or pack
        if network is not None and pictures is None:
            raise InputError("--network needs --images MANIFEST, or --pack with the images in it.")
        if against_network is not None and network is None:
            raise InputError("--against-network goes with --network.")
        from cdp.cli.network_commands import embedding

        with embedding(flip=flip, threads=threads, quiet=quiet) as embed:
            titles: tuple[str, ...] = ()
            if network is not None and pictures is not None:
                embeddings = embed(network, pictures)
                titles = (str(network),)
                if against_network is not None:
                    against = embed(against_network, pictures)
                    titles = (str(network), f"against {against_network}")
            assert embeddings is not None
            evaluate_verification(
                VerificationSettings(
                    embeddings=embeddings,
                    pairs=pairs,
                    pack=pack,
                    ijba=ijba,
                    ijb=ijb,
                    names=list_,
                    suffix=suffix,
                    identities=identities,
                    flipped=flipped,
                    detector_scores=detector_scores,
                    against=against,
                    against_flipped=against_flipped,
                    folds=folds,
                    fprs=parse_numbers(fprs, "--fprs", float),
                    replicates=replicates,
                    seed=seed,
                    threads=threads,
                    titles=titles,
                ),
                Output(json, picture, force, quiet),
            )


@evaluation.command("identification")
def eval_identification(
    probes: Annotated[
        Path,
        typer.Option(
            help="Views of the probes; with --probe-list their feature files' folder, with --network a manifest."
        ),
    ],
    distractors: Annotated[Path, typer.Option(help="The same of other people.")],
    network: NetworkOption = None,
    flip: FlipOption = False,
    identities: Annotated[
        Path | None, typer.Option(help="Who the probes show, if their views do not say.")
    ] = None,
    probe_list: Annotated[Path | None, typer.Option(help="The MegaFace devkit's probe list.")] = None,
    distractor_list: Annotated[
        list[Path] | None, typer.Option(help="A distractor list of the devkit; may be repeated.")
    ] = None,
    suffix: Annotated[
        str, typer.Option(help="What follows an image's path in a feature file's name.")
    ] = ".bin",
    probe_noise: Annotated[Path | None, typer.Option(help="Probes to leave out, one name per line.")] = None,
    distractor_noise: Annotated[Path | None, typer.Option(help="Distractors to leave out.")] = None,
    against: Annotated[Path | None, typer.Option(help="Another network's probes to compare with.")] = None,
    against_distractors: Annotated[Path | None, typer.Option(help="Its distractors.")] = None,
    against_suffix: Annotated[
        str | None, typer.Option(help="Its feature files' suffix [default: same].")
    ] = None,
    against_network: AgainstNetworkOption = None,
    sizes: Annotated[
        str | None, typer.Option(help="Numbers of distractors, by commas [default: 10,100,... and all].")
    ] = None,
    ranks: Annotated[str, typer.Option(help="Ranks to report, by commas.")] = "1,5,10,20,50,100,1000",
    replicates: ReplicatesOption = 1000,
    seed: SeedOption = 0,
    threads: ThreadsOption = 0,
    picture: PictureOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the picture if it is there.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Is a person found among distractors? Rank-1, the CMC curve and growing numbers of distractors."""
    with plain_errors():
        from cdp.cli.recognition import IdentificationSettings, evaluate_identification, parse_numbers
        from cdp.cli.recognition_output import Output

        if network is not None and probe_list is not None:
            raise InputError(
                "--network goes with manifests; --probe-list and --distractor-list name feature files."
            )
        if against_network is not None and network is None:
            raise InputError("--against-network goes with --network.")
        from cdp.cli.network_commands import embedding

        with embedding(flip=flip, threads=threads, quiet=quiet) as embed:
            titles: tuple[str, ...] = ()
            if network is not None:
                pictures = (probes, distractors)
                probes, distractors = (embed(network, part) for part in pictures)
                titles = (str(network),)
                if against_network is not None:
                    against, against_distractors = (embed(against_network, part) for part in pictures)
                    titles = (str(network), f"against {against_network}")
            evaluate_identification(
                IdentificationSettings(
                    probes=probes,
                    distractors=distractors,
                    identities=identities,
                    probe_list=probe_list,
                    distractor_lists=tuple(distractor_list or ()),
                    suffix=suffix,
                    probe_noise=probe_noise,
                    distractor_noise=distractor_noise,
                    against=against,
                    against_distractors=against_distractors,
                    against_suffix=against_suffix,
                    sizes=None if sizes is None else parse_numbers(sizes, "--sizes", int),
                    ranks=parse_numbers(ranks, "--ranks", int),
                    replicates=replicates,
                    seed=seed,
                    threads=threads,
                    titles=titles,
                ),
                Output(json, picture, force, quiet),
            )
