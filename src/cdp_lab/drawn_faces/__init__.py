"""Face-like pictures drawn from numbers: data for demos, tests and comparisons, showing no real person.

Settings -> roster (who is on which picture) -> people (what stays) and moments (what changes) -> portrait
(pixels).
"""

from cdp_lab.drawn_faces.album import DrawnFaces, draw_faces, write_faces
from cdp_lab.face_settings import FaceSettings

__all__ = ["DrawnFaces", "FaceSettings", "draw_faces", "write_faces"]
