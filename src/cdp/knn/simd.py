"""LLVM intrinsics for Numba kernels: prefetching, locks, memmove, bit scans and half-precision conversion.

LLVM is portable: every processor that Numba supports runs this code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

INT, LONG = ir.IntType(32), ir.IntType(64)
_BYTE = ir.IntType(8)
_BYTES_PER_LINE = 64


def llvm_intrinsic(function: Callable[..., Any]) -> Any:
    """Make an intrinsic that kernels may call, of a function from types to a signature and a generator.

    The code assumes C-contiguous arrays; a kernel that is given others does not compile.
    """

    @wraps(function)
    def check_layout(context: Any, *given: Any) -> Any:
        if any(isinstance(kind, types.Array) and kind.layout != "C" for kind in given):
            return None
        return function(context, *given)

    return intrinsic(check_layout)


def call_llvm(build: Any, name: str, result: Any, given: Sequence[Any]) -> Any:
    """Emit a call of an LLVM intrinsic (`llvm.…`)."""
    declare = cast(Any, cgutils.get_or_insert_function)
    kind = ir.FunctionType(result, [value.type for value in given])
    return build.call(declare(build.module, kind, name), given)


def int64(number: int) -> Any:
    """Return a constant of 64 bits."""
    return ir.Constant(LONG, number)


@llvm_intrinsic
def prefetch(_: Any, table: Any, row: Any) -> Any:
    """Prefetch a row of a contiguous table: loops over scattered rows mostly wait for memory."""

    def generate(context: Any, build: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, build, given[0])
        n_columns = build.extract_value(array.shape, 1)
        start = build.gep(array.data, [build.mul(given[1], n_columns)])
        per_line = int64(_BYTES_PER_LINE // (signature.args[0].dtype.bitwidth // 8))
        # Read access (0), high temporal locality (3), data cache (1).
        hints = [ir.Constant(INT, number) for number in (0, 3, 1)]
        each_line = cast(Any, cgutils.for_range_slice)
        with each_line(build, int64(0), n_columns, per_line, inc=True) as (column, _):
            place = build.bitcast(build.gep(start, [column]), _BYTE.as_pointer())
            call_llvm(build, "llvm.prefetch.p0", ir.VoidType(), [place, *hints])
        return context.get_dummy_value()

    return types.void(table, row), generate


@llvm_intrinsic
def shift_right(_: Any, table: Any, row: Any, slot: Any) -> Any:
    """Shift the entries of a row from `slot` on to the right by one memmove; the last one drops out.

    A loop instead makes the approximate search 4 to 5 % slower (200,000 x 256, structured).
    """

    def generate(context: Any, build: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, build, given[0])
        n_columns = build.extract_value(array.shape, 1)
        start = build.gep(array.data, [build.add(build.mul(given[1], n_columns), given[2])])
        source, target = (
            build.bitcast(place, _BYTE.as_pointer()) for place in (start, build.gep(start, [int64(1)]))
        )
        n_moved = build.sub(build.sub(n_columns, given[2]), int64(1))
        n_bytes = build.mul(n_moved, int64(signature.args[0].dtype.bitwidth // 8))
        is_volatile = ir.Constant(ir.IntType(1), 0)
        moved = [target, source, n_bytes, is_volatile]
        call_llvm(build, "llvm.memmove.p0.p0.i64", ir.VoidType(), moved)
        return context.get_dummy_value()

    return types.void(table, row, slot), generate


@llvm_intrinsic
def lock(_: Any, locks: Any, row: Any) -> Any:
    """Acquire the spin lock of a row; to be held for a few instructions only."""

    def generate(context: Any, build: Any, signature: Any, given: Any) -> Any:
        place = _lock_pointer(context, build, signature, given)
        attempt, held = build.append_basic_block("attempt"), build.append_basic_block("held")
        build.branch(attempt)
        build.position_at_end(attempt)
        free, taken = (ir.Constant(_BYTE, number) for number in (0, 1))
        tried = build.cmpxchg(place, free, taken, ordering="acquire", failordering="monotonic")
        build.cbranch(build.extract_value(tried, 1), held, attempt)
        build.position_at_end(held)
        return context.get_dummy_value()

    return types.void(locks, row), generate


@llvm_intrinsic
def unlock(_: Any, locks: Any, row: Any) -> Any:
    """Release the lock of a row; writes before are visible to the next holder."""

    def generate(context: Any, build: Any, signature: Any, given: Any) -> Any:
        place = _lock_pointer(context, build, signature, given)
        build.store_atomic(ir.Constant(_BYTE, 0), place, ordering="release", align=1)
        return context.get_dummy_value()

    return types.void(locks, row), generate


def _lock_pointer(context: Any, build: Any, signature: Any, given: Any) -> Any:
    locks = context.make_array(signature.args[0])(context, build, given[0])
    return build.gep(locks.data, [given[1]])


@llvm_intrinsic
def to_float32(_: Any, entry: Any) -> Any:
    """Convert a float32, or the bits of a finite float16, which Numba does not support, to float32.

    Converting rows with NumPy instead makes the approximate search of float16 embeddings 33 % slower (200,000
    x 256).
    """

    def generate(_: Any, build: Any, signature: Any, given: Any) -> Any:
        if signature.args[0] == types.float32:
            return given[0]
        bits = build.zext(given[0], INT)
        size = build.shl(build.and_(bits, ir.Constant(INT, 0x7FFF)), ir.Constant(INT, 13))
        sign = build.shl(build.and_(bits, ir.Constant(INT, 0x8000)), ir.Constant(INT, 16))
        # Exponents have another bias.
        scaled = build.fmul(build.bitcast(size, ir.FloatType()), ir.Constant(ir.FloatType(), 2.0**112))
        return build.bitcast(build.or_(build.bitcast(scaled, INT), sign), ir.FloatType())

    return types.float32(entry), generate


def load_vector(build: Any, array: Any, offset: Any, count: int) -> Any:
    """Load consecutive floats of an array as one vector."""
    place = build.gep(array, [offset])
    return build.load(build.bitcast(place, ir.VectorType(ir.FloatType(), count).as_pointer()), align=4)


def splat(build: Any, number: Any, count: int) -> Any:
    """Broadcast a number to all lanes of a vector."""
    nothing = ir.Constant(ir.VectorType(ir.FloatType(), count), ir.Undefined)
    first = build.insert_element(nothing, number, ir.Constant(INT, 0))
    return build.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(INT, count), [0] * count))


@llvm_intrinsic
def count_trailing_zeros(_: Any, bits: Any) -> Any:
    """Position of the lowest bit that is set; there must be one."""

    def generate(_: Any, build: Any, __: Any, given: Any) -> Any:
        place = build.cttz(given[0], ir.Constant(ir.IntType(1), 1))
        return place if place.type == LONG else build.zext(place, LONG)

    return types.int64(bits), generate
