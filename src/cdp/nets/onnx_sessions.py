"""ONNX sessions: provider, threads, and onnxruntime's errors as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Any

import numpy as np

from cdp.errors import CdpError, InputError, MissingExtraError
from cdp.nets.torchvision_guard import require
from cdp.runtime.daemon_threads import compute_aside
from cdp.storage.array_files import brief
from cdp.types.arrays import AnyArray

_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_ERRORS_ONLY, _FATAL_ONLY = 3, 4


class ModelSession:
    """A model that onnxruntime opened; several threads may run it at once.

    Attributes:
        file: the model.
        inputs, outputs: as onnxruntime describes them: `name`, `type` and `shape`.
        metadata: the model's own.
        device: `cuda` or `cpu`, where it computes.
    """

    def __init__(self, file: Path, session: Any) -> None:
        self.file, self._session = file, session
        self.inputs, self.outputs = list(session.get_inputs()), list(session.get_outputs())
        self.metadata: Mapping[str, str] = session.get_modelmeta().custom_metadata_map
        self.device = "cuda" if _CUDA in session.get_providers() else "cpu"
        self._lock = Lock()
        self._running: set[Any] = set()

    def run(self, names: Sequence[str], images: Mapping[str, AnyArray], shown: str) -> list[AnyArray]:
        """Compute some outputs; each is an array of numbers.

        Args:
            names: of the outputs.
            images: input name -> array.
            shown: what the images are, for the message: `a gray image`.

        Raises:
            InputError: the model fails, or returns something else than arrays of numbers.
        """
        if current_thread() is main_thread():
            answers = compute_aside(self._run, names, images, shown, stop=self.stop)
        else:
            answers = self._run(names, images, shown)
        for name, answer in zip(names, answers, strict=True):
            if not isinstance(answer, np.ndarray) or answer.dtype.kind not in "fiub":
                found = (
                    f"an array of {answer.dtype}"
                    if isinstance(answer, np.ndarray)
                    else f"a {type(answer).__name__}"
                )
                raise InputError(
                    f"{self.file}: returns {found} as {name!r} for {shown}; an array of numbers is needed.",
                    code="onnx-output-not-numbers",
                    file=self.file,
                    output=name,
                )
        return answers

    def stop(self) -> bool:
        """End what is being computed between two nodes of the model; whether there is anything.

        `run` fails where it waits. A single node that takes minutes does not end.
        """
        with self._lock:
            for options in self._running:
                options.terminate = True
            return bool(self._running)

    def _run(self, names: Sequence[str], images: Mapping[str, AnyArray], shown: str) -> list[Any]:
        options = require("onnxruntime", "onnx").RunOptions()
        options.log_severity_level = _FATAL_ONLY
        with self._lock:
            self._running.add(options)
        try:
            return list(self._session.run(list(names), dict(images), options))
        except MemoryError:
            raise
        except Exception as error:  # onnxruntime has an exception for each of its status codes
            raise InputError(
                f"{self.file}: fails on {shown} ({reason_of(error)}); check the file and its kind.",
                code="onnx-model-fails",
                file=self.file,
            ) from None
        finally:
            with self._lock:
                self._running.discard(options)


def reason_of(error: Exception) -> str:
    """Shorten an onnxruntime error for the middle of a sentence."""
    return brief(str(error).strip().partition("\n")[0])


def open_session(file: str | Path, device: str = "auto") -> ModelSession:
    """Open a model file.

    On a CPU one run takes one thread, and several threads call it at once: their blocks do not depend on
    their number, so neither do the embeddings, and models that take one image at a time keep all cores busy
    too.

    Args:
        device: `auto` is CUDA where onnxruntime has it, `mps` computes on the CPU.

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    path = Path(file)
    if not path.is_file():
        raise InputError(
            f"{file}: {'not a file' if path.exists() else 'there is no such file'}; give the .onnx file of a "
            "model.",
            code="onnx-file-missing",
            file=file,
        )
    _refuse_other_formats(path)
    try:
        return ModelSession(path, _start(str(path), device))
    except (MemoryError, CdpError):
        raise
    except Exception as error:  # onnxruntime has an exception for each of its status codes
        raise InputError(
            f"{file}: onnxruntime cannot open it ({reason_of(error)}); copy it again.",
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
    """Check whether a ZIP file was written by torch.save or torch.jit.save; nothing is unpickled."""
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

    def start() -> Any:
        return runtime.InferenceSession(model, options, providers=providers)

    if current_thread() is not main_thread():
        return start()
    # What depends on no image is computed when a model is opened, and nothing can interrupt that.
    return compute_aside(start, stop=lambda: True)


def open_any_size(file: str | Path, device: str = "auto") -> ModelSession | None:
    """Open a fixed-size model for pictures of any size; None if that is impossible.

    Convolutions do not mind the size; whether the rest of a graph does, only a trial shows.
    """
    try:
        model = require("onnx").load(str(file))
        (taken,) = model.graph.input[-1:]
        for at, name in ((2, "height"), (3, "width")):
            taken.type.tensor_type.shape.dim[at].dim_param = name
        # What was worked out for the declared size no longer holds.
        del model.graph.value_info[:]
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        return ModelSession(Path(file), _start(model.SerializeToString(), device, _FATAL_ONLY))
    except MissingExtraError:
        raise
    except Exception:  # onnx and onnxruntime have an exception for each of their status codes
        return None


def _providers(device: str, available: list[str]) -> list[Any]:
    has_cuda = _CUDA in available
    if device.startswith("cuda"):
        if not has_cuda:
            raise InputError(
                f"device={device!r}: this onnxruntime has no CUDA; install onnxruntime-gpu in its place, or "
                "choose cpu.",
                code="onnx-cuda-missing",
                device=device,
            )
        number = device.partition(":")[2] or "0"
        return [(_CUDA, {"device_id": number}), _CPU]
    return [_CUDA, _CPU] if device == "auto" and has_cuda else [_CPU]
