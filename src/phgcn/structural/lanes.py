r"""Several heads at once: a value of Numba that is one vector register, with a head in each of its lanes.

Numba turns loops into vector instructions only where they are long; the heads of a node are few.  So kernels compute with
*lanes*: ``load`` and ``store`` move the innermost row of an array, and ``+``, ``-``, ``*``, ``/`` and the functions below act
on all lanes alike.  How many there are is the length of a tuple, which the compiler knows.
"""

from __future__ import annotations

import math
import operator

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

from ..compile import inline

_LINE = 64
"""Bytes of a cache line."""

_FAST = ("contract", "nsz", "arcp", "reassoc")


class Lanes(types.Type):
    """A vector of ``count`` numbers."""

    def __init__(self, dtype: types.Float, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _vector(kind))


def _vector(kind: Lanes) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType(), kind.count)


def _row(context, builder, array_type, index_type, array, indices, kind: Lanes):
    """Where a row of an array begins, and the alignment that may be relied on."""
    found = context.make_array(array_type)(context, builder, array)
    place = zip(cgutils.unpack_tuple(builder, indices), index_type, strict=True)
    whole = [context.cast(builder, index, kind, types.intp) for index, kind in place]
    whole.append(context.get_constant(types.intp, 0))
    pointer = cgutils.get_item_pointer(context, builder, array_type, found, whole, wraparound=False)
    return builder.bitcast(pointer, _vector(kind).as_pointer()), array_type.dtype.bitwidth // 8


@intrinsic
def load(typing, array, indices, lanes):
    """The row of an array at the given indices, (i,) or (i, j)."""
    kind = Lanes(array.dtype, lanes.count)

    def build(context, builder, signature, arguments):
        pointer, alignment = _row(context, builder, array, indices, *arguments[:2], kind)
        found = builder.load(pointer)
        found.align = alignment
        return found

    return kind(array, indices, lanes), build


@intrinsic
def store(typing, array, indices, value):
    """Writes lanes into the row of an array at the given indices."""

    def build(context, builder, signature, arguments):
        pointer, alignment = _row(context, builder, array, indices, *arguments[:2], value)
        builder.store(arguments[2], pointer, align=alignment)
        return context.get_dummy_value()

    return types.void(array, indices, value), build


@intrinsic
def prefetch(typing, array, index, lanes):
    """Asks for all that an array holds at an index, for soon."""

    def build(context, builder, signature, arguments):
        found = context.make_array(array)(context, builder, arguments[0])
        at = context.cast(builder, arguments[1], index, types.intp)
        zero = context.get_constant(types.intp, 0)
        first = cgutils.get_item_pointer(context, builder, array, found, [at, zero, zero], wraparound=False)
        byte = builder.bitcast(first, ir.IntType(8).as_pointer())
        shape = cgutils.unpack_tuple(builder, found.shape)
        size = builder.mul(shape[1], context.get_constant(types.intp, lanes.count * array.dtype.bitwidth // 8))
        kind = ir.FunctionType(ir.VoidType(), [byte.type, *[ir.IntType(32)] * 3])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        how = [ir.Constant(ir.IntType(32), number) for number in (0, 3, 1)]  # to read, to keep, data
        with cgutils.for_range_slice(builder, zero, size, context.get_constant(types.intp, _LINE)) as (offset, _):
            builder.call(ask, [builder.gep(byte, [offset]), *how])
        return context.get_dummy_value()

    return types.void(array, index, lanes), build


@intrinsic
def splat(typing, number, array, lanes):
    """One number, of the type of an array's entries, in all lanes."""
    kind = Lanes(array.dtype, lanes.count)

    def build(context, builder, signature, arguments):
        value = context.cast(builder, arguments[0], number, array.dtype)
        return _splat(builder, value, kind)

    return kind(number, array, lanes), build


def _splat(builder, value, kind: Lanes):
    found = ir.Constant(_vector(kind), ir.Undefined)
    for lane in range(kind.count):
        found = builder.insert_element(found, value, ir.Constant(ir.IntType(32), lane))
    return found


def _constant(kind: Lanes, number: float):
    vector = _vector(kind)
    return ir.Constant(vector, [ir.Constant(vector.element, number)] * kind.count)


# Arithmetic


def _binary(operation, method: str) -> None:
    @intrinsic
    def combine(typing, left, right):
        def build(context, builder, signature, arguments):
            return getattr(builder, method)(*arguments, flags=_FAST)

        return left(left, right), build

    @overload(operation)
    def _(left, right):
        if isinstance(left, Lanes) and left == right:
            return lambda left, right: combine(left, right)
        return None


for _operation, _method in (
    (operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")
):  # fmt: skip
    _binary(_operation, _method)


def _call(builder, name: str, kind: Lanes, *arguments):
    """Calls an intrinsic of LLVM that takes and gives vectors."""
    vector = _vector(kind)
    full_name = f"llvm.{name}.v{kind.count}f{kind.dtype.bitwidth}"
    function = ir.FunctionType(vector, [vector] * len(arguments))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, full_name), arguments)


@intrinsic
def root(typing, value):
    """The square root."""
    return value(value), lambda context, builder, signature, arguments: _call(builder, "sqrt", value, *arguments)


@intrinsic
def lesser(typing, left, right):
    """The lesser of two numbers."""

    def build(context, builder, signature, arguments):
        return builder.select(builder.fcmp_ordered("<", *arguments), *arguments)

    return left(left, right), build


@intrinsic
def inverse(typing, value):
    """One over a number that is not negative, or 0 where that is 0."""

    def build(context, builder, signature, arguments):
        zero, one = _constant(value, 0.0), _constant(value, 1.0)
        positive = builder.fcmp_ordered(">", arguments[0], zero)
        return builder.select(positive, builder.fdiv(one, arguments[0], flags=_FAST), zero)

    return value(value), build


# exp(x) = 2^n · exp(f), with n the whole number next to x / ln 2, and Taylor's polynomial for exp(f), |f| <= ln 2 / 2


_EXPONENT = {
    32: (23, 127, 0.693359375, -2.12194440054690583e-4, 7),
    64: (52, 1023, 0.693145751953125, 1.42860682030941723e-6, 13),
}
"""By the number of bits: those of the fraction, the bias, ln 2 in few bits and the rest of it, the polynomial's degree."""


@intrinsic
def exponential(typing, value):
    """exp(x) for x <= 0, or above by a rounding error; never less than the least normal number."""

    def build(context, builder, signature, arguments):
        fraction, bias, ln2, rest, degree = _EXPONENT[value.dtype.bitwidth]
        least = _constant(value, (1 - bias) * math.log(2))
        x = builder.select(builder.fcmp_ordered(">", arguments[0], least), arguments[0], least)
        n = _call(builder, "rint", value, builder.fmul(x, _constant(value, 1 / math.log(2))))
        # ln 2 in two parts, so that f is exact
        f = _call(builder, "fma", value, n, _constant(value, -ln2), x)
        f = _call(builder, "fma", value, n, _constant(value, -rest), f)
        found = _constant(value, 1 / math.factorial(degree))
        for k in reversed(range(degree)):
            found = _call(builder, "fma", value, found, f, _constant(value, 1 / math.factorial(k)))
        integers = ir.VectorType(ir.IntType(value.dtype.bitwidth), value.count)
        power = builder.add(builder.fptosi(n, integers), ir.Constant(integers, [bias] * value.count))
        power = builder.shl(power, ir.Constant(integers, [fraction] * value.count))
        return builder.fmul(found, builder.bitcast(power, _vector(value)))

    return value(value), build


@inline
def distance(first, i, second, j, dim, lanes):
    """The distance between two points, which are the first entries of their rows."""
    total = splat(0, first, lanes)
    for k in range(dim):
        d = load(first, (i, k), lanes) - load(second, (j, k), lanes)
        total = total + d * d
    return root(total)
