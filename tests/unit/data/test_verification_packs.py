import io
import pickle

import numpy as np
import pytest
from PIL import Image
from tests.refusals import refuses

import recognition_reference as slow
from cdp.data.verification_packs import read_verification_pack


def encode(shade, kind="PNG"):
    stream = io.BytesIO()
    Image.new("RGB", (4, 3), (shade, 10, 20)).save(stream, kind)
    return stream.getvalue()


IMAGES = [encode(10 * number, "PNG" if number % 2 else "JPEG") for number in range(6)]
SAME = [True, False, True]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("as_arrays", [False, True])
def test_packs_of_every_protocol(tmp_path, protocol, as_arrays):
    images = [np.frombuffer(image, np.uint8) for image in IMAGES] if as_arrays else IMAGES
    flags = [np.bool_(flag) for flag in SAME] if as_arrays else SAME
    slow.write_pack(tmp_path / "lfw.bin", images, flags, protocol)
    pack = read_verification_pack(tmp_path / "lfw.bin")
    assert pack.images == tuple(IMAGES)
    assert pack.same.tolist() == SAME
    assert pack.ends.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert pack.folds(3).tolist() == [0, 1, 2]
    assert pack.decode(1).shape == (3, 4, 3)
    assert pack.decode(1)[0, 0].tolist() == [10, 10, 20]


def test_a_pack_written_by_python_2(tmp_path):
    # (['ab', 'cd'], [True]) as Python 2 pickled it: byte strings by the old opcodes.
    content = b"(]q\x00(U\x02abU\x02cde]q\x01I01\natq\x02."
    (tmp_path / "old.bin").write_bytes(b"\x80\x02" + content)
    pack = read_verification_pack(tmp_path / "old.bin")
    assert pack.images == (b"ab", b"cd")
    assert pack.same.tolist() == [True]


class Hostile:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return open, (str(self.file), "w")


class HostileEval:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return eval, (f"open({str(self.file)!r}, 'w')",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", [Hostile, HostileEval])
def test_a_hostile_pickle_does_not_run(tmp_path, protocol, kind):
    trace = tmp_path / "was here"
    file = tmp_path / "hostile.bin"
    file.write_bytes(pickle.dumps(([b"a", kind(trace)], [True]), protocol=protocol))
    with refuses("pack-refused", file=tmp_path / "hostile.bin"):
        read_verification_pack(file)
    assert not trace.exists()
    pickle.loads(file.read_bytes())[0][1].close()
    assert trace.exists(), "an ordinary unpickler would have run it"


@pytest.mark.parametrize(
    "opcodes",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy.core.multiarray\nfromfile\n(S'x'\ntR.",
        b"c_codecs\nencode\n(S'x'\nS'rot13'\ntR.",
        b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",
        b"cbuiltins\ngetattr\n(S'x'\nS'upper'\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.",
        b"Pexternal\n.",
        # Changing what was asked for: attributes of a class, the byte order of NumPy's own int32.
        b"cnumpy\nndarray\n(N}S'__setstate__'\nI1\nstb.",
        b"cnumpy\ndtype\n(S'i4'\nI0\nI1\ntR(I3\nS'>'\nNNNI-1\nI-1\nI0\ntb.",
    ],
)
def test_everything_else_is_refused(tmp_path, opcodes):
    (tmp_path / "x.bin").write_bytes(opcodes)
    with refuses("pack-refused", file=tmp_path / "x.bin"):
        read_verification_pack(tmp_path / "x.bin")
    assert np.dtype("i4").byteorder == "="


def test_flags_as_one_array(tmp_path):
    slow.write_pack(tmp_path / "x.bin", IMAGES, np.array(SAME))
    assert read_verification_pack(tmp_path / "x.bin").same.tolist() == SAME


def test_arrays_of_objects_are_refused(tmp_path):
    hidden = np.empty(1, object)
    hidden[0] = b"x"
    slow.write_pack(tmp_path / "x.bin", [hidden, b"y"], [True])
    with refuses("pack-refused", file=tmp_path / "x.bin"):
        read_verification_pack(tmp_path / "x.bin")


@pytest.mark.parametrize(
    ("content", "code", "fields"),
    [
        (([b"a", b"b", b"c"], [True]), "pack-images-differ", {"images": 3, "pairs": 1}),
        (([b"a", "text"], [True]), "pack-image-not-bytes", {"row": 1}),
        (([b"a", b"b"], [3]), "pack-flag-wrong", {"row": 0}),
        (([b"a", b"b"], [None]), "pack-flag-wrong", {"row": 0}),
        ([1, 2, 3], "pack-not-images-and-flags", {}),
        ({"a": 1}, "pack-not-images-and-flags", {}),
        ((b"a", [True]), "pack-not-lists", {}),
        (([], []), "pack-images-differ", {"images": 0, "pairs": 0}),
    ],
)
def test_wrong_contents(tmp_path, content, code, fields):
    (tmp_path / "x.bin").write_bytes(pickle.dumps(content, protocol=2))
    with refuses(code, **fields):
        read_verification_pack(tmp_path / "x.bin")


def test_damaged_files(tmp_path):
    slow.write_pack(tmp_path / "x.bin", IMAGES, SAME)
    whole = (tmp_path / "x.bin").read_bytes()
    for content in (b"", b"\x00", b"not a pickle", *(whole[:cut] for cut in range(1, 60))):
        (tmp_path / "cut.bin").write_bytes(content)
        with refuses("pack-damaged", file=tmp_path / "cut.bin"):
            read_verification_pack(tmp_path / "cut.bin")
    with refuses("file-unreadable", file=tmp_path / "nowhere.bin"):
        read_verification_pack(tmp_path / "nowhere.bin")
    slow.write_pack(tmp_path / "y.bin", [b"no image", b"b"], [True])
    with refuses("image-undecodable", file=tmp_path / "y.bin", row=0):
        read_verification_pack(tmp_path / "y.bin").decode(0)
