"""Hash of settings and plain values, the key of checkpoints, cached steps and stages."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def hash_values(*parts: Any) -> str:
    """SHA-256 of plain values; mappings count without their order, anything that is not plain by its text."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
