"""Slow twins of the recognition protocols, and generators that write every file layout byte for byte."""

import json
import pickle
import struct
from itertools import pairwise

import numpy as np


def unit(vectors):
    vectors = np.asarray(vectors, np.float64)
    return (vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True))).astype(np.float32).astype(np.float64)


def dot(one, other):
    """One way of summing, so that copies of an image tie exactly."""
    return float((one * other).sum())


def ranks(probes, identities, distractors):
    """{(probe, mate): rank} straight from the protocol: other mates are not in the gallery, ties count against."""
    probes, distractors = unit(probes), unit(distractors)
    found = {}
    for p, person in enumerate(identities):
        against = [dot(probes[p], other) for other in distractors]
        for g, other_person in enumerate(identities):
            if g != p and other_person == person:
                own = dot(probes[p], probes[g])
                found[p, g] = 1 + sum(value >= own for value in against)
    return found


def tpr_at_fpr(similarity, same, fpr):
    """(TPR, false accepts) at the lowest threshold with at most that FPR, all thresholds tried."""
    best = (0.0, 0)
    n_same, n_different = int(same.sum()), int((~same).sum())
    for threshold in [*np.unique(similarity), -2.0]:
        accepted = similarity > threshold
        false = int((accepted & ~same).sum())
        if false <= fpr * n_different + 1e-9:
            best = max(best, (float((accepted & same).sum() / n_same), false))
    return best


def equal_error_rate(similarity, same):
    """Where the line through the points of the curve (FPR, FNR) crosses the diagonal."""
    points = []
    for threshold in [2.0, *np.unique(similarity)[::-1]]:
        accepted = similarity >= threshold
        points.append(((accepted & ~same).sum() / (~same).sum(), (~accepted & same).sum() / same.sum()))
    for (fpr0, fnr0), (fpr1, fnr1) in pairwise(points):
        if fpr1 >= fnr1:
            share = (fnr0 - fpr0) / ((fnr0 - fpr0) - (fnr1 - fpr1))
            return fpr0 + share * (fpr1 - fpr0)
    raise AssertionError("the curve must cross")


def fold_accuracies(similarity, same, folds):
    """The field's own loop: squared distances, 400 thresholds, the first best one on the other folds."""
    squared = 2 - 2 * similarity.astype(np.float64)
    accuracies = []
    for fold in np.unique(folds):
        train = folds != fold
        scores = [((squared[train] < t) == same[train]).mean() for t in np.arange(0, 4, 0.01)]
        threshold = np.arange(0, 4, 0.01)[int(np.argmax(scores))]
        accuracies.append(((squared[~train] < threshold) == same[~train]).mean())
    return np.array(accuracies)


def best_accuracy(similarity, same):
    return max(((similarity > t) == same).mean() for t in [*similarity, -2.0, 2.0])


def template(vectors, media, weights=None):
    """Mean within each media, mean over media, unit length."""
    vectors = unit(vectors)
    weights = np.ones(len(vectors)) if weights is None else np.asarray(weights)
    means = []
    for medium in sorted(set(media)):
        rows = [row for row, other in enumerate(media) if other == medium]
        means.append(sum(weights[row] * vectors[row] for row in rows) / len(rows))
    mean = sum(means) / len(means)
    return mean / np.sqrt((mean**2).sum())


def repeat_pairs(similarity, same, identities, drawn):
    """The pairs of a resampling written out: a same pair drawn[i] times, a different pair drawn[i]*drawn[j] times."""
    times = np.where(same, drawn[identities[:, 0]], drawn[identities[:, 0]] * drawn[identities[:, 1]])
    rows = np.repeat(np.arange(len(same)), times.astype(int))
    return similarity[rows], same[rows]


def people(n_people, per_person, dimensions=16, noise=0.6, seed=0):
    """Vectors and identities, person by person."""
    generator = np.random.default_rng(seed)
    identities = np.repeat(np.arange(n_people), per_person)
    centers = generator.normal(size=(n_people, dimensions))
    vectors = centers[identities] + noise * generator.normal(size=(len(identities), dimensions))
    return vectors.astype(np.float32), identities


def write_feature(file, vector):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(struct.pack("<4i", len(vector), 1, 4, 5) + struct.pack(f"<{len(vector)}f", *vector))


def write_megaface(folder, n_people=6, per_person=4, sizes=(10, 40), suffix="_net.bin", noise=0.6):
    """A devkit tree: probe list, distractor lists, feature files of both; returns all arrays."""
    probes, identities = people(n_people, per_person, noise=noise)
    paths = [f"Ann_{who}/Ann_{who}_{row}.png" for row, who in enumerate(identities)]
    listed = {"path": paths, "id": [f"Ann_{who}" for who in identities]}
    (folder / "lists").mkdir(parents=True)
    (folder / "lists" / "facescrub.json").write_text(json.dumps(listed))
    distractors = np.random.default_rng(1).normal(size=(max(sizes), probes.shape[1])).astype(np.float32)
    others = [f"{row % 7}/{row}@N00/{row}.jpg" for row in range(max(sizes))]
    for size in sizes:
        file = folder / "lists" / f"megaface.json_{size}_1"
        file.write_text(json.dumps({"path": others[:size]}))
    for path, vector in zip(paths, probes, strict=True):
        write_feature(folder / "facescrub" / f"{path}{suffix}", vector)
    for path, vector in zip(others, distractors, strict=True):
        write_feature(folder / "megaface" / f"{path}{suffix}", vector)
    return probes, identities, distractors, paths, others


IJBA_HEADER = "TEMPLATE_ID,SUBJECT_ID,FILE,MEDIA_ID,SIGHTING_ID,FRAME,FACE_X,FACE_Y,FACE_WIDTH,FACE_HEIGHT"


def write_ijba(folder, n_splits=10, n_people=8):
    """Ten splits; per person two templates, each of one photograph and one video of two frames."""
    vectors, identities = people(n_people, 6, noise=0.9, seed=3)
    names = [f"img/{row}.jpg" if row % 3 == 0 else f"frame/{row}.png" for row in range(len(vectors))]
    splits = []
    for number in range(1, n_splits + 1):
        split = folder / f"split{number}"
        split.mkdir(parents=True)
        kept = sorted(np.random.default_rng(number).permutation(n_people)[: n_people - 2])
        lines, members, subjects = [IJBA_HEADER], {}, {}
        for person in kept:
            for half in (0, 1):
                template_id = 100 * person + half
                rows = np.flatnonzero(identities == person)[3 * half : 3 * half + 3]
                media = [int(rows[0]), 1000 + int(rows[1]), 1000 + int(rows[1])]
                members[template_id], subjects[template_id] = (rows, media), person
                for row, medium in zip(rows, media, strict=True):
                    lines.append(f"{template_id},{person},{names[row]},{medium},{row},0,1.5,2,30,40")
        (split / f"verify_metadata_{number}.csv").write_text("\n".join(lines) + "\n")
        ids = sorted(members)
        pairs = [(one, other) for at, one in enumerate(ids) for other in ids[at + 1 :]]
        text = "".join(f"{one},{other}\n" for one, other in pairs)
        (split / f"verify_comparisons_{number}.csv").write_text(text)
        splits.append((members, subjects, pairs))
    return vectors, names, splits


def write_ijbc(folder, n_people=10, prefix="ijbc"):
    """InsightFace's three text files; per person two templates of three faces in two media."""
    vectors, identities = people(n_people, 6, noise=0.9, seed=4)
    folder.mkdir(parents=True, exist_ok=True)
    templates, media, scores, lines, landmarks = [], [], [], [], []
    for row, person in enumerate(identities):
        place = row % 6
        templates.append(10 * person + place // 3)
        media.append(500 + row if place % 3 == 0 else 900 + 10 * person + place // 3)
        scores.append(round(0.5 + 0.4 * (row % 5) / 5, 4))
        lines.append(f"{row + 1}.jpg {templates[-1]} {media[-1]}\n")
        landmarks.append(f"{row + 1}.jpg " + " ".join(f"{x}.5" for x in range(10)) + f" {scores[-1]}\n")
    ids = sorted(set(templates))
    pairs = [(a, b, int(a // 10 == b // 10)) for at, a in enumerate(ids) for b in ids[at + 1 :]]
    (folder / f"{prefix}_face_tid_mid.txt").write_text("".join(lines))
    (folder / f"{prefix}_name_5pts_score.txt").write_text("".join(landmarks))
    (folder / f"{prefix}_template_pair_label.txt").write_text("".join(f"{a} {b} {s}\n" for a, b, s in pairs))
    return vectors, np.array(templates), np.array(media), np.array(scores), pairs


def lfw_name(person, number):
    return f"Ann_Lee{person}/Ann_Lee{person}_{number:04d}.jpg"


def write_lfw(folder, n_folds=10, per_fold=6, n_people=30, per_person=4):
    """pairs.txt with tabs; returns vectors, image names, and the pairs as rows."""
    vectors, identities = people(n_people, per_person, noise=0.9, seed=5)
    names = [lfw_name(who, row % per_person + 1) for row, who in enumerate(identities)]
    generator = np.random.default_rng(6)
    used, ends, same, lines = set(), [], [], [f"{n_folds}\t{per_fold}"]

    def draw(is_same):
        while True:
            one, other = sorted(generator.choice(len(vectors), 2, replace=False).tolist())
            if (one, other) not in used and (identities[one] == identities[other]) == is_same:
                used.add((one, other))
                return one, other

    for _ in range(n_folds):
        for is_same in [True] * per_fold + [False] * per_fold:
            one, other = draw(is_same)
            ends.append((one, other))
            same.append(is_same)
            first, second = one % per_person + 1, other % per_person + 1
            if is_same:
                lines.append(f"Ann_Lee{identities[one]}\t{first}\t{second}")
            else:
                lines.append(f"Ann_Lee{identities[one]}\t{first}\tAnn_Lee{identities[other]}\t{second}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pairs.txt").write_text("\n".join(lines) + "\n")
    (folder / "list.txt").write_text("".join(f"lfw/{name}\n" for name in names))
    np.save(folder / "net.npy", vectors)
    return vectors, names, np.array(ends), np.array(same), np.repeat(np.arange(n_folds), 2 * per_fold)


def write_calfw(file, ends, same, names, fold_labels):
    """Two lines per pair, all same pairs first; CALFW labels same pairs 1..10, CPLFW 1."""
    lines = []
    number = 0
    for is_same in (True, False):
        for one, other in ends[same == is_same]:
            label = (number % 10 + 1 if fold_labels else 1) if is_same else 0
            number += 1
            lines += [f"{names[row].split('/')[-1]} {label}\n" for row in (one, other)]
    file.write_text("".join(lines))


def write_pack(file, images, same, protocol=2):
    file.write_bytes(pickle.dumps((images, same), protocol=protocol))
