"""FLOP of a whole training run, from the count of one step, and the rule of thumb beside it."""

from __future__ import annotations

from dataclasses import dataclass

from measurements.records import Flop


@dataclass(frozen=True, slots=True)
class Training:
    """How often a training run steps: an epoch visits each sample once, in full batches and a last one."""

    samples: int
    epochs: int
    batch: int

    @property
    def full_batches(self) -> int:
        """Steps of an epoch with a full batch."""
        return self.samples // self.batch

    @property
    def last_batch(self) -> int:
        """Samples in the smaller batch that ends each epoch; 0 where the batch divides the samples."""
        return self.samples % self.batch

    @property
    def steps(self) -> int:
        """Steps of the whole run, each with one update."""
        return self.epochs * (self.full_batches + bool(self.last_batch))

    def flop(self, step: Flop, last: Flop) -> Flop:
        """FLOP of the whole run, from those of a step with a full batch and of one with the last batch."""
        full, rest = self.epochs * self.full_batches, self.epochs * bool(self.last_batch)
        return Flop(
            full * step.forward + rest * last.forward,
            full * step.backward + rest * last.backward,
            full * step.update + rest * last.update,
            full * step.recomputed + rest * last.recomputed,
        )

    def rule_of_thumb(self, parameters: int, tokens: int) -> int:
        """FLOP of forward and backward by 6 x params x samples x epochs x tokens.

        2 for each parameter and token in forward, 4 in backward: each token meets each weight once.
        Source: Kaplan et al., arXiv:2001.08361, section 2.1.
        """
        return 6 * parameters * self.samples * self.epochs * tokens


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """FLOP of a whole training run, contractions and all work, and the rule of thumb."""

    training: Training
    contraction: Flop
    all_work: Flop
    rule_of_thumb: int
