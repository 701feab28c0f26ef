"""Brushes: smooth shapes laid over a canvas pixel by pixel, their edges softened over one pixel.

A canvas is f4 (size, size, 3). A lens says where a point of the head lies on it: (x, y, cosine, sine, scale, 1/scale)
with the head's middle at (x, y), turned, `scale` pixels per unit. Every shape is a signed distance, negative inside.
"""

from __future__ import annotations

import math

from cdp.kernels import pixel_kernel
from cdp.types.arrays import AnyArray, FloatArray

Lens = tuple[float, float, float, float, float, float]
ELLIPSE, BOW, BOX, ALMOND = 0, 1, 2, 3


@pixel_kernel
def to_head(lens: Lens, column: float, row: float) -> tuple[float, float]:
    """Where a pixel lies on the head."""
    across, down = (column + 0.5 - lens[0]) * lens[5], (row + 0.5 - lens[1]) * lens[5]
    return lens[2] * across + lens[3] * down, lens[2] * down - lens[3] * across


@pixel_kernel
def blend(canvas: FloatArray, row: int, column: int, color: AnyArray, share: float) -> None:
    """Lay a color over a pixel; share 1 hides what was there."""
    for channel in range(3):
        before = canvas[row, column, channel]
        canvas[row, column, channel] = before + share * (color[channel] - before)


@pixel_kernel
def cover(distance: float, scale: float) -> float:
    """How much of a pixel is inside a shape whose edge is `distance` away."""
    return min(1.0, max(0.0, 0.5 - distance * scale))


@pixel_kernel
def ellipse(x: float, y: float, a: float, b: float) -> float:
    """Distance to an ellipse, exact on its edge and to first order near it."""
    slope = 2 * math.sqrt((x / (a * a)) ** 2 + (y / (b * b)) ** 2) + 1e-9
    return ((x / a) ** 2 + (y / b) ** 2 - 1) / slope


@pixel_kernel
def bow(x: float, y: float, a: float, bend: float, thick: float) -> float:
    """Distance to a stroke along y = bend * (1 - (x/a)^2), thinner toward its ends."""
    t = x / a
    away = abs(t) - 1
    t = min(1.0, max(-1.0, t))
    slope = -2 * bend * t / a
    distance = abs(y - bend * (1 - t * t)) / math.sqrt(1 + slope * slope)
    if away > 0:
        distance = math.sqrt(distance * distance + (away * a) ** 2)
    return distance - thick * (1 - 0.5 * t * t)


@pixel_kernel
def gauge(x: float, y: float, square: float) -> float:
    """1 on the edge of a unit circle (square 0), of a unit box with round corners (square 1), or between them."""
    x2, y2 = x * x, y * y
    return (1 - square) * math.sqrt(x2 + y2) + square * math.sqrt(math.sqrt(x2 * x2 + y2 * y2))


@pixel_kernel
def box(x: float, y: float, a: float, b: float, square: float) -> float:
    """Distance, along the ray from the middle, to an ellipse or a box with round corners."""
    size = gauge(x / a, y / b, square)
    return math.sqrt(x * x + y * y) * (1 - 1 / size) if size > 0.05 else -min(a, b)


@pixel_kernel
def almond(x: float, y: float, a: float, above: float, below: float) -> float:
    """Distance to an eye: two arcs that meet in the corners."""
    t = x / a
    high = above if y < 0 else below
    edge = high * (1 - t * t)
    slope = 2 * high * t / a
    return (abs(y) - edge) / math.sqrt(1 + slope * slope)


@pixel_kernel
def paint(
    canvas: FloatArray,
    lens: Lens,
    kind: int,
    place: tuple[float, float],
    angle: float,
    a: float,
    b: float,
    c: float,
    color: AnyArray,
    share: float,
    softness: float,
) -> None:
    """Lay one shape over the canvas, turned by `angle` about its place; softness 1 is a crisp edge."""
    size = canvas.shape[0]
    scale = lens[4]
    middle = lens[0] + scale * (lens[2] * place[0] - lens[3] * place[1])
    middle_row = lens[1] + scale * (lens[3] * place[0] + lens[2] * place[1])
    reach = (max(abs(a), abs(b)) + (abs(c) if kind == BOW else 0.0)) * 1.5 * scale + 2 * softness + 1
    if kind == ALMOND:
        reach = (max(abs(a), abs(b), abs(c)) * 1.1) * scale + 2
    cosine, sine = math.cos(angle), math.sin(angle)
    for row in range(max(0, int(middle_row - reach)), min(size, int(middle_row + reach) + 1)):
        for column in range(max(0, int(middle - reach)), min(size, int(middle + reach) + 1)):
            head_x, head_y = to_head(lens, column, row)
            across, down = head_x - place[0], head_y - place[1]
            x, y = cosine * across + sine * down, cosine * down - sine * across
            if kind == ELLIPSE:
                distance = ellipse(x, y, a, b)
            elif kind == BOW:
                distance = bow(x, y, a, b, c)
            elif kind == BOX:
                distance = box(x, y, a, b, c)
            else:
                distance = almond(x, y, a, b, c)
            inside = cover(distance, scale / softness)
            if inside > 0:
                blend(canvas, row, column, color, inside * share)
