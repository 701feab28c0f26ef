"""Faces from photos: detectors in ONNX files, five landmarks, crops on the template that recognition models expect."""
