"""ONNX files opened with onnxruntime: which provider computes, on how many threads, and what is wrong as a sentence."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cdp.errors import CdpError, InputError
from cdp.nets.torchvision_guard import require

_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_ERRORS_ONLY, _FATAL_ONLY = 3, 4


def open_session(file: str | Path, device: str = "auto") -> Any:
    """An onnxruntime session of a model file.

    On a CPU one run takes one thread, and several threads call it at once: their blocks do not depend on their number, so
    neither do the embeddings, and models that take one image at a time keep all cores busy too.

    Args:
        device: `auto` is CUDA where onnxruntime has it, `mps` computes on the CPU.

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    path = Path(file)
    if not path.is_file():
        raise InputError(
            f"{file}: there is no such file; give the .onnx file of a model.",
            code="onnx-file-missing",
            file=file,
        )
    _refuse_other_formats(path)
    try:
        return _start(str(path), device)
    except (MemoryError, CdpError):
        raise
    except Exception as error:  # onnxruntime has an exception for each of its status codes
        reason = str(error).strip().partition("\n")[0][:200]
        raise InputError(
            f"{file}: onnxruntime cannot open it ({reason}); is it a whole .onnx file?",
            code="onnx-file-unopenable",
            file=file,
        ) from None


_LFS = b"version https://git-lfs"
_ZIP, _PICKLE, _GZIP, _HDF5 = b"PK\x03\x04", b"\x80", b"\x1f\x8b", b"\x89HDF"


def _refuse_other_formats(file: Path) -> None:
    """Name what a file truly is, where its first bytes say that it is no ONNX model."""
    with file.open("rb") as stream:
        head = stream.read(512)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        kind, found, way_out = "empty", "is empty", "download it again"
    elif head.startswith(_LFS):
        kind, found, way_out = "git-lfs", "is a Git LFS pointer and not the model", (
            "run git lfs pull in its repository, or download the file itself"
        )  # fmt: skip
    elif start.startswith((b"<!doctype", b"<html", b"<?xml")):
        kind, found, way_out = "html", "is a web page and not the model", (
            "download the file itself (on GitHub: Download raw file)"
        )  # fmt: skip
    elif head.startswith(_ZIP) and _is_torch_archive(file):
        kind, found, way_out = "pytorch", "is a PyTorch checkpoint", "export it with torch.onnx.export"
    elif head.startswith(_PICKLE) and len(head) > 1 and head[1] in range(2, 6):
        kind, found, way_out = "pytorch", "is a pickle file, such as a PyTorch checkpoint", (
            "export it with torch.onnx.export"
        )  # fmt: skip
    elif head.startswith((_ZIP, _GZIP)):
        kind, found, way_out = "archive", "is an archive", "unpack it"
    elif head.startswith(_HDF5):
        kind, found, way_out = "hdf5", "is an HDF5 file, such as a Keras model", "convert it to ONNX"
    else:
        return
    raise InputError(f"{file}: {found}; {way_out}.", code="onnx-file-other-format", file=file, found=kind)


def _is_torch_archive(file: Path) -> bool:
    """Whether a ZIP file is what torch.save or torch.jit.save writes; nothing in it is unpickled."""
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(file) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (BadZipFile, OSError, NotImplementedError):
        return False


def _start(model: str | bytes, device: str, severity: int = _ERRORS_ONLY) -> Any:
    runtime = require("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = severity
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    providers = _providers(device, runtime.get_available_providers())
    return runtime.InferenceSession(model, options, providers=providers)


def open_any_size(file: str | Path, device: str = "auto") -> Any:
    """Open a model whose file declares one height and width for pictures of any size; None where that cannot be.

    Convolutions do not mind the size; whether the rest of a graph does, only a trial shows.
    """
    model = require("onnx").load(str(file))
    (taken,) = model.graph.input[-1:]
    for at, name in ((2, "height"), (3, "width")):
        taken.type.tensor_type.shape.dim[at].dim_param = name
    # What was worked out for the declared size no longer holds.
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    try:
        return _start(model.SerializeToString(), device, _FATAL_ONLY)
    except Exception:  # onnxruntime has an exception for each of its status codes
        return None


def device_of(session: Any) -> str:
    """`cuda` or `cpu`: where a session computes."""
    return "cuda" if _CUDA in session.get_providers() else "cpu"


def _providers(device: str, available: list[str]) -> list[Any]:
    has_cuda = _CUDA in available
    if device.startswith("cuda"):
        if not has_cuda:
            raise InputError(
                f"device={device!r}: this onnxruntime has no CUDA; install onnxruntime-gpu in its place, or choose cpu.",
                code="onnx-cuda-missing",
                device=device,
            )
        number = device.partition(":")[2] or "0"
        return [(_CUDA, {"device_id": number}), _CPU]
    return [_CUDA, _CPU] if device == "auto" and has_cuda else [_CPU]


def hash_file(file: str | Path) -> str:
    """SHA-256 of a file, to tell whether a model is the same."""
    with Path(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
