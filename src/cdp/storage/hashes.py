"""The one hash of settings and other plain values, by which half-done work, cached steps and stages are recognized."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def hash_values(*parts: Any) -> str:
    """SHA-256 of plain values; mappings count without their order, anything that is not plain by its text."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
