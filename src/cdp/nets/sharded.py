"""A softmax classifier for very many classes: sharded over processes, sampled per step (PartialFC's idea)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, distributed, nn

from cdp.errors import InputError
from cdp.nets.losses import Reduction, SoftTargets, Targets, check_classes
from cdp.nets.processes import World, summed
from cdp.nets.recipe import seed_for

_ROWS_PER_SEED = 4096


class PartialSoftmax(nn.Module):
    """This process's share of a classifier, which updates itself.

    Each process holds the classes first..last-1. A step gathers the embeddings of all processes, compares
    them with the true classes on this process and a random share of the others, and adds up the softmax's
    denominator over the processes. Only the compared rows learn, with momentum of their own, so neither a
    gradient nor logits of the whole classifier ever exist.

    Use: `loss = head(embeddings, targets)`, `loss.backward()`, `head.update(rate, momentum, weight_decay)`.
    """

    def __init__(
        self,
        dimensions: int,
        n_classes: int,
        *,
        sample: float = 1.0,
        seed: int = 0,
        world: World | None = None,
    ) -> None:
        super().__init__()
        check_classes(n_classes)
        if not 0 < sample <= 1:
            raise InputError(
                f"PartialSoftmax(sample={sample}): sample is a share of the classes in (0, 1].",
                code="sample-out-of-range",
                value=sample,
            )
        self.world = world or World()
        self.n_classes, self.sample, self.seed = n_classes, sample, seed
        edges = np.linspace(0, n_classes, self.world.n_processes + 1).astype(int)
        self.first, self.last = int(edges[self.world.rank]), int(edges[self.world.rank + 1])
        self.register_buffer("weight", torch.empty(self.last - self.first, dimensions))
        self.register_buffer("velocity", torch.zeros(self.last - self.first, dimensions))
        self.step = 0
        self._sampled: Tensor | None = None
        self._rows: Tensor | None = None
        self.reset(seed)

    weight: Tensor
    velocity: Tensor

    def reset(self, seed: int) -> None:
        """Xavier, the same numbers however many processes share them."""
        dimensions = self.weight.shape[1]
        bound = (6 / (self.n_classes + dimensions)) ** 0.5
        for start in range(self.first - self.first % _ROWS_PER_SEED, self.last, _ROWS_PER_SEED):
            generator = torch.Generator().manual_seed(seed_for(seed, "classes from", start))
            rows = torch.empty(_ROWS_PER_SEED, dimensions).uniform_(-bound, bound, generator=generator)
            begin, end = max(start, self.first), min(start + _ROWS_PER_SEED, self.last)
            self.weight[begin - self.first : end - self.first] = rows[begin - start : end - start]

    def forward(self, embeddings: Tensor, targets: Targets, reduction: Reduction = "mean") -> Tensor:
        """Return the loss of the images of all processes together, the same on every process."""
        if isinstance(targets, SoftTargets):
            raise InputError(
                "PartialSoftmax: soft labels need all classes; leave out sampling and sharding.",
                code="sampling-with-soft-labels",
            )
        embeddings, targets = self._gather(embeddings, targets)
        here = (targets >= self.first) & (targets < self.last)
        own = targets[here] - self.first
        self._sample(own)
        assert self._rows is not None
        logits = embeddings @ self._rows.T
        column = own if self._sampled is None else torch.searchsorted(self._sampled, own)
        true = torch.zeros(len(targets), dtype=logits.dtype, device=logits.device)
        true = true.masked_scatter(here, logits[here, column])
        peak = logits.detach().max(dim=1).values if logits.shape[1] else true.new_full(true.shape, -1e30)
        if self.world.is_shared:
            distributed.all_reduce(peak, distributed.ReduceOp.MAX)
        spread = (logits - peak[:, None]).exp().sum(dim=1)
        if self.world.is_shared:
            spread, true = summed(spread), summed(true)
        loss = (spread.log() + peak - true).sum()
        return loss / max(1, len(targets)) if reduction == "mean" else loss

    def update(self, rate: float, momentum: float, weight_decay: float) -> None:
        """Do one SGD step for the rows that were compared, after `backward`."""
        rows = self._rows
        if rows is None or rows.grad is None:
            return
        with torch.no_grad():
            # Every process differentiated the same loss, and the sums over processes added their shares up.
            slope = rows.grad / self.world.n_processes + weight_decay * rows
            if self._sampled is None:
                self.velocity.mul_(momentum).add_(slope)
                self.weight.sub_(rate * self.velocity)
            else:
                velocity = momentum * self.velocity[self._sampled] + slope
                self.velocity[self._sampled] = velocity
                self.weight[self._sampled] -= rate * velocity
        self._rows = None
        self.step += 1

    def _gather(self, embeddings: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the batch of all processes; each puts its rows between zeros, and the sum is the whole."""
        if not self.world.is_shared:
            return embeddings, targets
        counts = torch.zeros(self.world.n_processes, dtype=torch.int64, device=targets.device)
        counts[self.world.rank] = len(targets)
        distributed.all_reduce(counts)
        before = int(counts[: self.world.rank].sum())
        after = int(counts.sum()) - before - len(targets)
        whole = nn.functional.pad(embeddings, (0, 0, before, after))
        numbers = nn.functional.pad(targets, (before, after))
        distributed.all_reduce(numbers)
        return summed(whole), numbers

    def _sample(self, own: Tensor) -> None:
        """Classes to compare with: the true ones on this process, and others up to the share."""
        n_here = self.last - self.first
        n_wanted = max(1, round(self.sample * n_here)) if n_here else 0
        if n_wanted >= n_here:
            self._sampled = None
            self._rows = self.weight.detach().requires_grad_()
            return
        present = torch.unique(own).cpu().numpy()
        generator = np.random.default_rng(seed_for(self.seed, "classes", self.step, self.first))
        drawn = generator.choice(n_here, n_wanted, replace=False)
        others = drawn[~np.isin(drawn, present)][: max(0, n_wanted - len(present))]
        sampled = torch.from_numpy(np.sort(np.concatenate([present, others])))
        self._sampled = sampled.to(self.weight.device)
        self._rows = self.weight[self._sampled].requires_grad_()


def whole_tensor(part: Tensor, n_rows: int, first: int, world: World) -> Tensor:
    """Return a sharded tensor put together from all processes' parts."""
    if not world.is_shared:
        return part
    whole = torch.zeros(n_rows, *part.shape[1:], dtype=part.dtype, device=part.device)
    whole[first : first + len(part)] = part
    distributed.all_reduce(whole)
    return whole
