"""What an input is, found by looking at it: whatever stands under the names of images."""

import os
import struct
import zlib

from PIL import Image

from cdp.cli.input_kinds import find_kind


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_pipes_bombs_and_broken_images_under_names_of_images(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")  # opening it would wait forever
    (tmp_path / "link.jpg").symlink_to("link.jpg")
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    header = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    text = b"a\0\0" + zlib.compress(bytes(2**21))  # more text than Pillow unpacks
    chunks = chunk(b"IHDR", header) + chunk(b"zTXt", text) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    assert find_kind(str(tmp_path), "auto", quiet=True) == "photos"
    Image.new("RGB", (112, 112)).save(tmp_path / "face.png")
    assert find_kind(str(tmp_path), "auto", quiet=True) == "faces"
