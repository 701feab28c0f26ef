"""Instructions for the processor that no loop in Python can ask for; the compiler's own language, which every processor understands."""

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


def machine_code(function: Callable[..., Any]) -> Any:
    """A function of types that returns a signature and what writes the code, as something that kernels may call.

    The code takes arrays to lie in memory row after row; a kernel that is given others does not compile.
    """

    @wraps(function)
    def check_layout(context: Any, *given: Any) -> Any:
        if any(isinstance(kind, types.Array) and kind.layout != "C" for kind in given):
            return None
        return function(context, *given)

    return intrinsic(check_layout)


def call_instruction(build: Any, name: str, result: Any, given: Sequence[Any]) -> Any:
    """What an instruction of the compiler's own (`llvm.…`) gives."""
    declare = cast(Any, cgutils.get_or_insert_function)
    kind = ir.FunctionType(result, [value.type for value in given])
    return build.call(declare(build.module, kind, name), given)


def long(number: int) -> Any:
    """A number as the code has it, 64 bits."""
    return ir.Constant(LONG, number)


@machine_code
def prefetch(_: Any, table: Any, row: Any) -> Any:
    """Ask for a row of a contiguous table that is needed soon; the loop goes on at once.

    Where rows are far apart, a loop mostly waits for memory.
    """

    def write_code(context: Any, build: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, build, given[0])
        n_columns = build.extract_value(array.shape, 1)
        start = build.gep(array.data, [build.mul(given[1], n_columns)])
        per_line = long(_BYTES_PER_LINE // (signature.args[0].dtype.bitwidth // 8))
        # To read (0), kept as long as possible (3), data (1).
        hints = [ir.Constant(INT, number) for number in (0, 3, 1)]
        each_line = cast(Any, cgutils.for_range_slice)
        with each_line(build, long(0), n_columns, per_line, inc=True) as (column, _):
            place = build.bitcast(build.gep(start, [column]), _BYTE.as_pointer())
            call_instruction(build, "llvm.prefetch.p0", ir.VoidType(), [place, *hints])
        return context.get_dummy_value()

    return types.void(table, row), write_code


@machine_code
def make_room(_: Any, table: Any, row: Any, slot: Any) -> Any:
    """Move what is in a row from `slot` on by one place, at once; the last one drops out."""

    def write_code(context: Any, build: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, build, given[0])
        n_columns = build.extract_value(array.shape, 1)
        start = build.gep(array.data, [build.add(build.mul(given[1], n_columns), given[2])])
        source, target = (
            build.bitcast(place, _BYTE.as_pointer()) for place in (start, build.gep(start, [long(1)]))
        )
        n_moved = build.sub(build.sub(n_columns, given[2]), long(1))
        n_bytes = build.mul(n_moved, long(signature.args[0].dtype.bitwidth // 8))
        is_volatile = ir.Constant(ir.IntType(1), 0)
        moved = [target, source, n_bytes, is_volatile]
        call_instruction(build, "llvm.memmove.p0.p0.i64", ir.VoidType(), moved)
        return context.get_dummy_value()

    return types.void(table, row, slot), write_code


@machine_code
def lock(_: Any, locks: Any, row: Any) -> Any:
    """Wait until no other thread holds the lock of a row, and hold it; for as few instructions as possible, as others do nothing else."""

    def write_code(context: Any, build: Any, signature: Any, given: Any) -> Any:
        place = _place_of_lock(context, build, signature, given)
        attempt, held = build.append_basic_block("attempt"), build.append_basic_block("held")
        build.branch(attempt)
        build.position_at_end(attempt)
        free, taken = (ir.Constant(_BYTE, number) for number in (0, 1))
        tried = build.cmpxchg(place, free, taken, ordering="acquire", failordering="monotonic")
        build.cbranch(build.extract_value(tried, 1), held, attempt)
        build.position_at_end(held)
        return context.get_dummy_value()

    return types.void(locks, row), write_code


@machine_code
def unlock(_: Any, locks: Any, row: Any) -> Any:
    """Let go of the lock of a row; what was written before is seen by whoever holds it next."""

    def write_code(context: Any, build: Any, signature: Any, given: Any) -> Any:
        place = _place_of_lock(context, build, signature, given)
        build.store_atomic(ir.Constant(_BYTE, 0), place, ordering="release", align=1)
        return context.get_dummy_value()

    return types.void(locks, row), write_code


def _place_of_lock(context: Any, build: Any, signature: Any, given: Any) -> Any:
    locks = context.make_array(signature.args[0])(context, build, given[0])
    return build.gep(locks.data, [given[1]])


@machine_code
def as_float(_: Any, entry: Any) -> Any:
    """An entry of embeddings as a float of 32 bits: it is one, or it is the bits of a finite float of 16, which loops do not know."""

    def write_code(_: Any, build: Any, signature: Any, given: Any) -> Any:
        if signature.args[0] == types.float32:
            return given[0]
        bits = build.zext(given[0], INT)
        size = build.shl(build.and_(bits, ir.Constant(INT, 0x7FFF)), ir.Constant(INT, 13))
        sign = build.shl(build.and_(bits, ir.Constant(INT, 0x8000)), ir.Constant(INT, 16))
        # Exponents are counted from another number.
        scaled = build.fmul(build.bitcast(size, ir.FloatType()), ir.Constant(ir.FloatType(), 2.0**112))
        return build.bitcast(build.or_(build.bitcast(scaled, INT), sign), ir.FloatType())

    return types.float32(entry), write_code


def load_lanes(build: Any, array: Any, offset: Any, count: int) -> Any:
    """So many numbers of an array, as one vector."""
    place = build.gep(array, [offset])
    return build.load(build.bitcast(place, ir.VectorType(ir.FloatType(), count).as_pointer()), align=4)


def in_all_lanes(build: Any, number: Any, count: int) -> Any:
    """A vector that has the same number everywhere."""
    nothing = ir.Constant(ir.VectorType(ir.FloatType(), count), ir.Undefined)
    first = build.insert_element(nothing, number, ir.Constant(INT, 0))
    return build.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(INT, count), [0] * count))


@machine_code
def lowest_bit(_: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; there must be one."""

    def write_code(_: Any, build: Any, __: Any, given: Any) -> Any:
        place = build.cttz(given[0], ir.Constant(ir.IntType(1), 1))
        return place if place.type == LONG else build.zext(place, LONG)

    return types.int64(bits), write_code
