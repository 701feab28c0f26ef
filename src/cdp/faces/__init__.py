"""Faces from photos: ONNX detectors, five landmarks, crops on the ArcFace template."""
