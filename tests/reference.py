"""The slow twins: each step of the method written straight from its equation, with no regard for speed."""

from collections import defaultdict, deque
from itertools import combinations

import numpy as np


def cosines(vectors):
    """cos(x_i, x_j) in float64; every pair is summed alike, so copies of an image tie exactly."""
    vectors = np.asarray(vectors, dtype=np.float64)
    unit = vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return np.array([(unit * row).sum(axis=1) for row in unit])


def knn(vectors, k):
    """Neighbors and similarities by a full sort: most similar first, ties by id, never the image itself."""
    similarity = cosines(vectors)
    neighbors = []
    for image, row in enumerate(similarity):
        others = [other for other in range(len(row)) if other != image]
        neighbors.append(sorted(others, key=lambda other: (-row[other], other))[:k])
    return np.array(neighbors), np.take_along_axis(similarity, np.array(neighbors), axis=1)


def edges(neighbors):
    """The undirected edges of a k-NN graph, as a set of (smaller id, larger id)."""
    return {
        (min(image, int(other)), max(image, int(other)))
        for image, row in enumerate(neighbors)
        for other in row
        if other >= 0
    }


def candidate_pairs(neighbors):
    """All edges of the base graph, sorted."""
    return sorted(edges(neighbors))


def relationship(pairs, committee_neighbors):
    """Eq. 1: R_Ci(n0, n1) = 1 if (n0, n1) is an edge of G_Ci."""
    graphs = [edges(neighbors) for neighbors in committee_neighbors]
    return np.array([[tuple(map(int, pair)) in graph for graph in graphs] for pair in pairs]).reshape(
        len(pairs), len(graphs)
    )


def affinity(pairs, models):
    """Eq. 2: A_Ci(n0, n1) = cos(F_Ci(n0), F_Ci(n1)), base first."""
    tables = [cosines(vectors) for vectors in models]
    return np.array([[table[first, second] for table in tables] for first, second in pairs])


def neighbor_distribution(neighbors, similarity):
    """Eq. 3 and 4: mean and standard deviation of the similarities to the K neighbors."""
    known = [
        [float(s) for s, other in zip(values, row, strict=True) if other >= 0] or [0.0]
        for values, row in zip(similarity, neighbors, strict=True)
    ]
    return np.array([np.mean(row) for row in known]), np.array([np.std(row) for row in known])


def common_neighbors(pairs, neighbors):
    """Number of images that are neighbors of both."""
    circle = [{int(other) for other in row if other >= 0} for row in neighbors]
    return np.array([len(circle[first] & circle[second]) for first, second in pairs])


def connected_components(edge_rows, ends):
    """Components of a graph given by its edges, each as a list of edge rows."""
    touching = defaultdict(list)
    for row in edge_rows:
        for image in ends[row]:
            touching[image].append(row)
    components, seen = [], set()
    for start in touching:
        if start in seen:
            continue
        seen.add(start)
        waiting, component = [start], set()
        while waiting:
            image = waiting.pop()
            for row in touching[image]:
                component.add(row)
                for other in ends[row]:
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
        components.append(sorted(component))
    return components


def _propagate(ends, n_images, max_cluster_size, surviving):
    """Algorithm 1; `surviving(edges)` is its way of eliminating low-score edges."""
    ends = [tuple(map(int, pair)) for pair in ends]
    labels, status = [-1] * n_images, [1] * n_images
    kept_edges = []
    queue = deque(connected_components(range(len(ends)), ends))
    label = 0
    while queue:
        component = queue.popleft()
        nodes = {image for row in component for image in ends[row]}
        if len(nodes) > max_cluster_size:
            remaining = surviving(component)
            still_tied = {image for row in remaining for image in ends[row]}
            for image in nodes:
                status[image] = 2 if remaining and image not in still_tied else 3
            queue.extend(connected_components(remaining, ends))
        else:
            for image in nodes:
                labels[image], status[image] = label, 0
            kept_edges += component
            label += 1
    return number_by_first_appearance(labels), np.array(status), kept_edges


def propagate_scores(ends, scores, n_images, max_cluster_size, step):
    """Algorithm 1 as printed: th = s_min + (1 - s_min) * step, an edge survives if its score is greater."""

    def surviving(component):
        s_min = min(scores[row] for row in component)
        th = s_min + (1 - s_min) * step
        return [row for row in component if scores[row] > th]

    return _propagate(ends, n_images, max_cluster_size, surviving)


def propagate_doubts(ends, doubts, n_images, max_cluster_size, step):
    """Algorithm 1 in terms of q = 1 - score: an edge survives if q < (1 - step) * max q."""
    doubts = [float(doubt) for doubt in doubts]

    def surviving(component):
        bound = (1 - step) * max(doubts[row] for row in component)
        return [row for row in component if doubts[row] < bound]

    return _propagate(ends, n_images, max_cluster_size, surviving)


def confidence(ends, doubts, kept_edges, labels):
    """Summed probability of an image's surviving pairs / the most such pairs that a member of its group has."""
    probabilities = [[] for _ in labels]
    for row in kept_edges:
        for image in ends[row]:
            probabilities[image].append(max(0.0, 1 - float(doubts[row])))
    most = defaultdict(int)
    for label, values in zip(labels, probabilities, strict=True):
        most[label] = max(most[label], len(values))
    return np.array(
        [
            sum(values) / most[label] if label >= 0 else 0.0
            for label, values in zip(labels, probabilities, strict=True)
        ]
    )


def number_by_first_appearance(labels):
    """The same groups numbered 0, 1, 2, … in the order they first occur; negatives become -1."""
    number = {}
    return np.array([number.setdefault(label, len(number)) if label >= 0 else -1 for label in labels])


def diffuse(ends, labels, depth, decay):
    """Soft labels: value(x, c) = sum of decay ** steps over images labeled c within depth, rows sum to 1."""
    labels = [int(label) for label in labels]
    near = defaultdict(set)
    for first, second in ends:
        near[int(first)].add(int(second))
        near[int(second)].add(int(first))
    soft = np.zeros((len(labels), max(labels, default=-1) + 1))
    for source, label in enumerate(labels):
        if label < 0:
            continue
        steps, queue = {source: 0}, deque([source])
        while queue:
            image = queue.popleft()
            if labels[image] >= 0:
                soft[image, label] += decay ** steps[image]
            if steps[image] < depth:
                for other in near[image] - steps.keys():
                    steps[other] = steps[image] + 1
                    queue.append(other)
    total = soft.sum(axis=1, keepdims=True)
    return soft / np.where(total > 0, total, 1)


def partition(labels):
    """The groups as a set of sets, so that numbering does not matter; discarded images are left out."""
    groups = defaultdict(set)
    for image, label in enumerate(labels):
        if label >= 0:
            groups[int(label)].add(image)
    return {frozenset(group) for group in groups.values()}


def join_together(n_images, must):
    """Images that must be together, as sets."""
    groups = [{image} for image in range(n_images)]
    for one, other in must:
        first, second = (next(group for group in groups if image in group) for image in (one, other))
        if first is not second:
            groups = [group for group in groups if group not in (first, second)] + [first | second]
    return groups


def may_join(one, other, cannot, names):
    """Whether no pair between two sets of images cannot be together, and they have no two names."""
    called = {names[image] for image in one | other if image in names}
    return len(called) < 2 and not any({a, b} & one and {a, b} & other for a, b in cannot)


def join_surest(ends, doubts, n_images, must, cannot, names):
    """Edges join from the surest on, but for those that would put images together that cannot be; returns the sets."""
    groups = join_together(n_images, must)
    for row in sorted(range(len(ends)), key=lambda row: doubts[row]):
        one, other = (next(group for group in groups if image in group) for image in ends[row])
        if one is not other and may_join(one, other, cannot, names):
            groups = [group for group in groups if group not in (one, other)] + [one | other]
    return {frozenset(group) for group in groups if len(group) > 1}


def agglomerate(
    ends, probabilities, n_images, k, join_above, max_cluster_size, must=(), cannot=(), names=None
):
    """Join the two groups with the largest mean probability between them, over the pairs a k-NN graph can hold.

    Groups that are linked by images that must be together count as one when it is asked who may join, and at the end.
    """
    groups = [{image} for image in range(n_images)]
    united = join_together(n_images, must)
    chance = {frozenset(map(int, pair)): p for pair, p in zip(ends, probabilities, strict=True)}

    def mean(one, other):
        found = [chance[pair] for a in one for b in other if (pair := frozenset((a, b))) in chance]
        possible = len(one) * len(other) * min(1, k / (len(one) + len(other) - 1))
        return sum(found) / max(possible, len(found))

    while True:
        whole = {image: group for group in united for image in group}
        ways = [
            (mean(a, b), a, b)
            for a, b in combinations(groups, 2)
            for first, second in [(whole[min(a)], whole[min(b)])]
            if first is second
            or (len(first | second) <= max_cluster_size and may_join(first, second, cannot, names or {}))
        ]
        best, one, other = max(ways, key=lambda way: way[0], default=(0, None, None))
        if best <= join_above:
            return {frozenset(group) for group in united if len(group) > 1}
        groups = [group for group in groups if group not in (one, other)] + [one | other]
        first, second = whole[min(one)], whole[min(other)]
        if first is not second:
            united = [group for group in united if group not in (first, second)] + [first | second]


def agglomerate_vectors(vectors, linkage, threshold):
    """Hierarchical clustering from its definition: merge the two most similar groups until none are similar enough."""
    similarity = cosines(vectors)
    combine = {"average": np.mean, "single": np.max}[linkage]
    groups = [[image] for image in range(len(similarity))]
    while len(groups) > 1:
        value, one, two = max(
            (combine(similarity[np.ix_(groups[i], groups[j])]), i, j)
            for i in range(len(groups))
            for j in range(i + 1, len(groups))
        )
        if value < threshold:
            break
        groups[one] += groups.pop(two)
    return {frozenset(group) for group in groups if len(group) > 1}


def rank_order(neighbors):
    """Otto et al. 2018: D_m(a, b) = (d_m(a, b) + d_m(b, a)) / min(O_a(b), O_b(a)), by pair (a, b), b in a's list."""
    lists = [[int(other) for other in row if other >= 0] for row in neighbors]
    k = neighbors.shape[1]

    def place(a, b):
        return lists[a].index(b) + 1 if b in lists[a] else np.inf

    def d_m(a, b):
        last = int(min(place(a, b), k))
        return sum(friend != b and friend not in lists[b] for friend in lists[a][:last])

    return {
        (a, b): (d_m(a, b) + d_m(b, a)) / min(place(a, b), place(b, a))
        for a, row in enumerate(lists)
        for b in row
    }


def edge_probabilities(neighbors, similarity, temperature):
    """FC-ES: P_ij = sum over l in N_i and N_j of (p_il + p_jl) / 2, where p is a softmax of -(2 - 2 a) / tau."""
    share = []
    for image, (others, cosines) in enumerate(zip(neighbors, similarity, strict=True)):
        near = {image: 1.0} | {int(j): float(a) for j, a in zip(others, cosines, strict=True) if j >= 0}
        weights = {j: np.exp(-(2 - 2 * a) / temperature) for j, a in near.items()}
        share.append({j: weight / sum(weights.values()) for j, weight in weights.items()})
    found = np.zeros(neighbors.shape)
    for i, rank in np.argwhere(neighbors >= 0):
        j = int(neighbors[i, rank])
        found[i, rank] = sum((share[i][one] + share[j][one]) / 2 for one in share[i].keys() & share[j].keys())
    return found


def first_neighbor_groups(first):
    """FINCH, Eq. 1: A(i, j) = 1 if j = first(i) or i = first(j) or first(i) = first(j); its connected components."""
    n_images = len(first)
    ends = [
        (i, j)
        for i in range(n_images)
        for j in range(i + 1, n_images)
        if j == first[i] or i == first[j] or first[i] == first[j]
    ]
    linked = defaultdict(set)
    for i, j in ends:
        linked[i].add(j)
        linked[j].add(i)
    groups, seen = [], set()
    for image in range(n_images):
        if image in seen:
            continue
        group, queue = {image}, deque([image])
        while queue:
            for other in linked[queue.popleft()] - group:
                group.add(other)
                queue.append(other)
        seen |= group
        groups.append(sorted(group))
    return groups


def finch(vectors):
    """All partitions of FINCH, finest first, as lists of groups; one that joins everything is left out but the first."""
    vectors = np.asarray(vectors, dtype=np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    groups = [[image] for image in range(len(unit))]
    levels = []
    while len(groups) > 1:
        means = [np.mean(unit[group], axis=0) for group in groups]
        joined = first_neighbor_groups(knn(means, 1)[0][:, 0])
        groups = [sorted(image for part in group for image in groups[part]) for group in joined]
        if levels and len(groups) == 1:
            break
        levels.append(groups)
    return levels


def whisper(neighbors, similarity, threshold, rounds, seed):
    """Chinese whispers: in a random order, every image takes the group with the most similarity among its neighbors."""
    weight = {}
    for image, (row, values) in enumerate(zip(neighbors, similarity, strict=True)):
        for other, value in zip(row, values, strict=True):
            if other >= 0 and value >= np.float32(threshold):
                for pair in ((image, int(other)), (int(other), image)):
                    weight[pair] = max(float(value), weight.get(pair, -np.inf))
    generator = np.random.default_rng(seed)
    groups = list(range(len(neighbors)))
    for _ in range(rounds):
        for image in generator.permutation(len(neighbors)):
            favor = defaultdict(float)
            for (one, other), value in sorted(weight.items()):
                if one == image:
                    favor[groups[other]] += value
            if favor:
                groups[image] = min(favor, key=lambda group: (-favor[group], group))
    return groups


def mutual_information(one, other):
    """NMI = 2 I(A; B) / (H(A) + H(B)), from the definition."""

    def entropy(labels):
        shares = np.unique(labels, return_counts=True)[1] / len(labels)
        return -sum(share * np.log(share) for share in shares)

    both = np.unique(np.column_stack([one, other]), axis=0, return_inverse=True)[1]
    return 2 * (entropy(one) + entropy(other) - entropy(both)) / (entropy(one) + entropy(other))


def standard_similarity(models, random_pairs, pairs):
    """How many spreads of random pairs (median, and median minus the 15.87 % quantile) pairs lie above them, in all models.

    The mean over the models, standardized once more in the same way.
    """

    def scaled(at_random, values):
        low, center = np.quantile(at_random, [0.1587, 0.5])
        return (at_random - center) / (center - low), (values - center) / (center - low)

    tables = [cosines(vectors) for vectors in models]
    both = [
        scaled(np.array([table[i, j] for i, j in random_pairs]), np.array([table[i, j] for i, j in pairs]))
        for table in tables
    ]
    return scaled(np.mean([one for one, _ in both], axis=0), np.mean([one for _, one in both], axis=0))[1]


def components(ends, n_images):
    """The smallest image that each image is connected with, by going along pairs until nothing changes."""
    smallest = list(range(n_images))
    changed = True
    while changed:
        changed = False
        for one, other in ends:
            least = min(smallest[one], smallest[other])
            changed |= smallest[one] != least or smallest[other] != least
            smallest[one] = smallest[other] = least
    return smallest
