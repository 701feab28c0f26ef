"""What drawn faces are like; by itself, so that help needs no NumPy."""

from __future__ import annotations

from dataclasses import dataclass

from cdp.errors import InputError
from cdp.settings import check_settings, setting, share


@dataclass(frozen=True)
class FaceSettings:
    """Everything that decides what is drawn."""

    identities: int = setting(770, "Number of people.", meaning="a number of people", low=2, high=999_999)
    images: int = setting(
        20, "Pictures per person on average, two at least.", meaning="a number of pictures", low=2, high=9_999
    )
    size: int = setting(40, "Width and height in pixels.", meaning="pixels a side", low=16, high=512)
    seed: int = setting(0, "Other seeds draw other people.", low=0, below=2**63)
    junk: float = share(0.01, "Share of pictures that show no recognizable face.")
    mislabeled: float = share(0.01, "Share of pictures that show another person than the label says.")
    lookalikes: float = share(0.2, "Share of people who are small variations of another one.")
    difficulty: float = setting(
        1.0, "Scales all that differs between two pictures of a person; 0 = nothing differs.", low=0, high=5
    )

    def __post_init__(self) -> None:
        check_settings(self, "FaceSettings")
        if self.junk + self.mislabeled > 1:
            raise InputError(
                f"FaceSettings(junk={self.junk}, mislabeled={self.mislabeled}): together at most 1.",
                code="face-shares-too-large",
                junk=self.junk,
                mislabeled=self.mislabeled,
            )
