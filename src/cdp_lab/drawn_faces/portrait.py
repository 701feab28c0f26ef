"""From numbers to pixels: one picture of one person, layer by layer.

A canvas is f4 (size, size, 3). A lens says where a point of the head lies on it: (x, y, cosine, sine, scale,
1/scale) with the head's middle at (x, y), turned, `scale` pixels per unit. Every shape is a signed distance,
negative inside; its edge is softened over one pixel.

All in one file, because compiled loops are kept on disk by the file of the outermost one: a change to a loop
in another file would go unnoticed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cdp.runtime.kernels import pixel_kernel
from cdp.types.arrays import AnyArray, ByteArray, FloatArray

Lens = tuple[float, float, float, float, float, float]
Color = tuple[float, float, float]
_ELLIPSE, _BOW, _BOX, _ALMOND = 0, 1, 2, 3
_DEPTH = 0.62
_UNITS_HIGH = 2.5


@pixel_kernel
def draw_portraits(traits: AnyArray, moments: AnyArray, pictures: ByteArray) -> None:
    """Fill u1 (n, size, size, 3) with the pictures of n people at n moments."""
    size = pictures.shape[1]
    canvas = np.empty((size, size, 3), np.float32)
    spare = np.empty((size, size, 3), np.float32)
    outline = np.empty((size, size), np.float32)
    for number in range(len(pictures)):
        who, now = traits[number], moments[number]
        scale = size / _UNITS_HIGH * now.scale
        lens = (
            size * (0.5 + 0.36 * now.shift_x),
            size * (0.53 + 0.36 * now.shift_y),
            math.cos(now.roll),
            math.sin(now.roll),
            scale,
            1 / scale,
        )
        upright = (size / 2, size / 2, 1.0, 0.0, size / _UNITS_HIGH, _UNITS_HIGH / size)
        _paint_ground(canvas, upright, now)
        if now.empty == 0:
            _paint_person(canvas, outline, lens, who, now)
        _light(canvas, upright, now)
        _blur(canvas, spare, now.blur * scale)
        _develop(canvas, now, pictures[number])


@pixel_kernel
def _paint_person(canvas: FloatArray, outline: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    _measure_outline(outline, lens, who)
    _paint_behind(canvas, lens, who, now)
    _paint_head(canvas, outline, lens, who, now)
    _paint_marks(canvas, lens, who, now)
    _paint_nose(canvas, lens, who, now)
    _paint_mouth(canvas, lens, who, now)
    for side in (-1.0, 1.0):
        _paint_eye(canvas, lens, who, now, side)
    if who.hairy > 0:
        _paint_hair(canvas, outline, lens, who, now)
    if now.mask > 0:
        _paint_mask(canvas, outline, lens, who, now)
    if now.sunglasses > 0 or (who.glasses > 0 and now.wears_glasses > 0):
        _paint_glasses(canvas, lens, who, now)
    if now.hat > 0:
        _paint_hat(canvas, outline, lens, who, now)
    if now.bar > 0:
        center = (now.bar_x + math.cos(now.bar_angle) * 0.9, now.bar_y + math.sin(now.bar_angle) * 0.9)
        color = _shade_of(now.bar_color, 1.0)
        _paint(canvas, lens, _BOW, center, now.bar_angle, 1.3, 0.12, 1.4 * now.bar_width, color, 1.0, 1.0)


@pixel_kernel
def _paint_ground(canvas: FloatArray, lens: Lens, now: Any) -> None:
    size = canvas.shape[0]
    cosine, sine = math.cos(now.ground_angle), math.sin(now.ground_angle)
    for row in range(size):
        for column in range(size):
            x, y = _to_head(lens, column, row)
            share = min(1.0, max(0.0, 0.5 + 0.35 * (cosine * x + sine * y)))
            near, far = now.ground, now.ground_far
            for channel in range(3):
                canvas[row, column, channel] = near[channel] * (1 - share) + far[channel] * share
    for blob in range(len(now.blobs)):
        one = now.blobs[blob]
        if one[2] > 0:
            color = (one[5], one[6], one[7])
            _paint(
                canvas, lens, _ELLIPSE, (one[0], one[1]), one[4], one[2], one[3], 0.0, color, 0.8, size / 20
            )


@pixel_kernel
def _turn(who: Any, now: Any, x: float, y: float, lift: float) -> tuple[float, float, float]:
    """Project a point of the turned face, and return how much narrower things are there.

    The face is half of an ellipsoid; `lift` is how far a point stands out of it.
    """
    round_ = max(0.0, 1 - (x / who.width) ** 2 * 0.9 - (y / 1.1) ** 2 * 0.5)
    depth = _DEPTH * math.sqrt(round_) + lift
    seen = x * math.cos(now.yaw) + depth * math.sin(now.yaw)
    seen_y = y * math.cos(now.pitch) + depth * math.sin(now.pitch)
    narrow = math.cos(now.yaw) - 0.75 * x / who.width * math.sin(now.yaw)
    return seen, seen_y, min(1.15, max(0.35, narrow))


@pixel_kernel
def _shade_of(color: AnyArray, factor: float) -> Color:
    """Return a color, darker or lighter."""
    return min(1.0, color[0] * factor), min(1.0, color[1] * factor), min(1.0, color[2] * factor)


@pixel_kernel
def _mixed(one: AnyArray, other: AnyArray, share: float) -> Color:
    """Return a color between two."""
    a, b = 1 - share, share
    return one[0] * a + other[0] * b, one[1] * a + other[1] * b, one[2] * a + other[2] * b


@pixel_kernel
def _measure_outline(outline: FloatArray, lens: Lens, who: Any) -> None:
    """Distance of every pixel to the outline of the head; hair, hat and mask follow it too."""
    size = outline.shape[0]
    for row in range(size):
        for column in range(size):
            x, y = _to_head(lens, column, row)
            if y < 0:
                reach = _gauge(x / who.width, y / who.crown, 0.0)
            else:
                t = y / who.chin
                near = (t - 0.35) / 0.3
                width = who.width * (1 + who.cheek / (1 + near * near * near * near) * min(1.0, t * 4))
                width *= 1 - who.taper * min(1.0, t * t)
                reach = _gauge(x / width, t, who.jaw)
            away = math.sqrt(x * x + y * y)
            outline[row, column] = away * (1 - 1 / reach) if reach > 0.05 else -who.width


@pixel_kernel
def _paint_behind(canvas: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    """Hair behind the head, neck, shirt, ears."""
    sway = -0.25 * math.sin(now.yaw)
    if who.back > 0:
        top = -who.crown - who.top * 0.5
        bottom = who.back + now.fall
        dark = _shade_of(who.hair, 0.78)
        center = (sway * 0.6, (top + bottom) / 2)
        wide = who.width * who.back_width * (1 + now.volume)
        _paint(canvas, lens, _BOX, center, 0.0, wide, (bottom - top) / 2, 0.45, dark, 1.0, 1.0)
    if who.bun > 0:
        center = (sway, -who.crown - who.top - who.bun * 0.45)
        color = _shade_of(who.hair, 0.88)
        _paint(canvas, lens, _ELLIPSE, center, 0.0, who.bun * 1.15, who.bun, 0.0, color, 1.0, 1.0)
    neck = _shade_of(who.skin, 0.82)
    _paint(canvas, lens, _BOX, (sway * 0.3, who.chin + 0.1), 0.0, who.width * 0.50, 0.55, 1.0, neck, 1.0, 1.0)
    center = (sway * 0.2, who.chin + 1.12)
    _paint(canvas, lens, _BOX, center, 0.0, who.width * 1.75, 0.92, 0.45, _shade_of(now.shirt, 1.0), 1.0, 1.0)
    center = (center[0], who.chin + 0.2)
    _paint(canvas, lens, _ELLIPSE, center, 0.0, who.width * 0.5, 0.16, 0.0, neck, 1.0, 1.0)
    for side in (-1.0, 1.0):
        # The ear on the far side disappears behind the cheek.
        out = who.width * (0.98 - 0.35 * max(0.0, side * math.sin(now.yaw)))
        center = (side * out + sway * 0.25, who.ear_y - 0.3 * math.sin(now.pitch))
        color = _shade_of(who.skin, 0.92)
        _paint(canvas, lens, _ELLIPSE, center, 0.15 * side, who.ear * 0.62, who.ear, 0.0, color, 1.0, 1.0)
        color, inner = _shade_of(who.skin, 0.76), who.ear * 0.3
        _paint(canvas, lens, _ELLIPSE, center, 0.15 * side, inner, 2 * inner, 0.0, color, 0.8, 1.0)


@pixel_kernel
def _paint_head(canvas: FloatArray, outline: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    """Skin, shaded like a ball under the light, and the beard."""
    size = canvas.shape[0]
    scale = lens[4]
    fuzz = _mixed(who.hair, who.skin, 0.15)
    mouth_x, mouth_y, _ = _turn(who, now, 0.0, who.mouth_y, 0.02)
    for row in range(size):
        for column in range(size):
            distance = outline[row, column]
            inside = _cover(distance, scale)
            if inside <= 0:
                continue
            x, y = _to_head(lens, column, row)
            edge = max(0.0, 1 + distance / 0.45)
            toward = now.light_x * x / who.width + now.light_y * y
            shade = 1 - 0.16 * edge * edge + 0.42 * toward * edge
            _blend(canvas, row, column, _shade_of(who.skin, shade), inside)
            if who.beard > 0:
                t = (x - 0.5 * mouth_x) / who.width
                line = mouth_y - 0.16 - 0.55 * t * t * (1.0 if abs(t) < 1 else 0.0)
                gap = _ellipse(x - mouth_x, y - mouth_y, who.mouth * 1.05, 0.13)
                hair = _cover(max(line - y, -gap), scale / 2)
                _blend(canvas, row, column, fuzz, inside * hair * who.beard * 0.85)


@pixel_kernel
def _paint_marks(canvas: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    """Moles, freckles, a scar, and a little color on the cheeks."""
    spot = _shade_of(who.skin, 0.42)
    for mole in range(3):
        one = who.moles[mole]
        if one[2] > 0:
            x, y, narrow = _turn(who, now, one[0], one[1], 0.0)
            _paint(canvas, lens, _ELLIPSE, (x, y), 0.0, 0.042 * narrow, 0.042, 0.0, spot, 0.95, 1.0)
    if who.freckles > 0:
        dot = _shade_of(who.skin, 0.72)
        for number in range(14):
            side = -1.0 if number % 2 else 1.0
            # An even scatter over both cheeks, the same on every face.
            x = side * (0.12 + 0.40 * ((number * 0.618) % 1.0))
            y = 0.18 + 0.22 * ((number * 0.382 + 0.1) % 1.0)
            x, y, _ = _turn(who, now, x, y, 0.0)
            _paint(canvas, lens, _ELLIPSE, (x, y), 0.0, 0.024, 0.022, 0.0, dot, who.freckles, 1.0)
    if who.scar > 0:
        x, y, _ = _turn(who, now, who.scar_x, who.scar_y, 0.0)
        color = _mixed(who.skin, who.lip, 0.75)
        _paint(canvas, lens, _BOW, (x, y), who.scar_angle, 0.17, 0.02, 0.024, color, 0.9, 1.0)
    cheek = _mixed(who.skin, who.lip, 0.5)
    for side in (-1.0, 1.0):
        x, y, narrow = _turn(who, now, side * 0.43, 0.33, 0.0)
        _paint(canvas, lens, _ELLIPSE, (x, y), 0.0, 0.15 * narrow, 0.11, 0.0, cheek, 0.35, 3.0)


@pixel_kernel
def _paint_nose(canvas: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    """Draw a shadow along the bridge, a bright tip, the wings."""
    dark = _shade_of(who.skin, 0.70)
    bridge_x, bridge_y, _ = _turn(who, now, 0.0, who.eye_y + 0.02, 0.06)
    tip_x, tip_y, _ = _turn(who, now, 0.0, who.eye_y + who.nose, 0.20)
    side = -1.0 if now.light_x - 0.4 * now.yaw > 0 else 1.0
    middle = ((bridge_x + tip_x) / 2 + side * who.nose_width * 0.42, (bridge_y + tip_y) / 2)
    angle = math.atan2(tip_y - bridge_y, tip_x - bridge_x)
    _paint(canvas, lens, _BOW, middle, angle, who.nose * 0.42, 0.02 * side, 0.03, dark, 0.45, 1.6)
    center, bright = (tip_x, tip_y - 0.07), _shade_of(who.skin, 1.10)
    _paint(canvas, lens, _ELLIPSE, center, 0.0, who.nose_width * 0.5, 0.10, 0.0, bright, 0.6, 1.6)
    _paint(canvas, lens, _BOW, (tip_x, tip_y), 0.0, who.nose_width, 0.05, 0.032, dark, 0.9, 1.0)


@pixel_kernel
def _paint_mouth(canvas: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    """Lips, closed or open, and the moustache above them."""
    x, y, narrow = _turn(who, now, 0.0, who.mouth_y, 0.06)
    wide = who.mouth * narrow * (1 + 0.14 * now.smile)
    bend = 0.13 * now.smile
    y += 0.5 * bend * 0.2
    if who.moustache > 0:
        fuzz = _mixed(who.hair, who.skin, 0.1)
        _paint(canvas, lens, _BOW, (x, y - 0.17), 0.0, wide * 1.15, -0.07, 0.075, fuzz, who.moustache, 1.0)
    if now.open > 0.1:
        gape = 0.17 * now.open + who.lips * 0.5
        center, color = (x, y + bend * 0.3), _shade_of(who.lip, 1.0)
        above, below = who.lips + 0.02, gape + who.lips
        _paint(canvas, lens, _ALMOND, center, 0.0, wide * 1.05, above, below, color, 1.0, 1.0)
        inside = (0.32, 0.09, 0.10)
        _paint(canvas, lens, _ALMOND, center, 0.0, wide * 0.86, 0.04, gape, inside, 1.0, 1.0)
        teeth = (0.96, 0.95, 0.92)
        _paint(canvas, lens, _BOW, (x, y + 0.015), 0.0, wide * 0.66, 0.03, 0.035, teeth, 0.9, 1.0)
        return
    center, color = (x, y + who.lips * 0.35), _shade_of(who.lip, 1.0)
    full = bend + who.lips * 0.5
    _paint(canvas, lens, _BOW, center, 0.0, wide * 0.92, full, who.lips, color, 0.95, 1.0)
    _paint(canvas, lens, _BOW, (x, y), 0.0, wide, bend, 0.026, _shade_of(who.lip, 0.5), 0.95, 1.0)


@pixel_kernel
def _paint_eye(canvas: FloatArray, lens: Lens, who: Any, now: Any, side: float) -> None:
    """One eye with its lid and brow; side -1 is on the left of the picture."""
    x, y, narrow = _turn(who, now, side * who.eye_x, who.eye_y, 0.0)
    wide = who.eye_width * narrow
    tilt = -side * who.eye_tilt
    above = who.eye_height * 1.25 * (1 - now.closed)
    below = who.eye_height * (1 - 0.75 * now.closed)
    dark = (0.10, 0.07, 0.07)
    if now.closed < 0.8:
        _paint_eyeball(canvas, lens, who, now, x, y, tilt, wide, above, below)
    lid = above * 0.98 if now.closed < 0.8 else -below * 0.6
    _paint(canvas, lens, _BOW, (x, y), tilt, wide * 1.08, -lid, who.lashes, dark, 0.9, 1.0)
    fold = _shade_of(who.skin, 0.75)
    _paint(canvas, lens, _BOW, (x, y - 0.06), tilt, wide, -above, 0.014, fold, 0.6, 1.0)
    brow_x, brow_y, _ = _turn(who, now, side * who.eye_x * 1.05, who.eye_y + who.brow_y - now.raised, 0.04)
    angle = -side * (who.brow_angle - 1.2 * now.raised * 0.5)
    center, wide, color = (brow_x, brow_y), who.brow_width * narrow, _shade_of(who.brow, 1.0)
    _paint(canvas, lens, _BOW, center, angle, wide, -who.brow_arch, who.brow_thick, color, 0.95, 1.0)


@pixel_kernel
def _paint_eyeball(
    canvas: FloatArray, lens: Lens, who: Any, now: Any, x: float, y: float, tilt: float, wide: float,
    above: float, below: float
) -> None:  # fmt: skip
    """White, iris, pupil and a glint, all of them seen between the lids only."""
    size, scale = canvas.shape[0], lens[4]
    white = (0.97, 0.96, 0.95)
    black = (0.05, 0.04, 0.04)
    iris = _shade_of(who.iris, 1.0)
    cosine, sine = math.cos(tilt), math.sin(tilt)
    look_x = (now.gaze_x * 0.3 - 0.15 * math.sin(now.yaw)) * wide
    look_y = now.gaze_y * 0.3 * who.eye_height
    middle = lens[0] + scale * (lens[2] * x - lens[3] * y)
    middle_row = lens[1] + scale * (lens[3] * x + lens[2] * y)
    reach = wide * scale * 1.1 + 2
    for row in range(max(0, int(middle_row - reach)), min(size, int(middle_row + reach) + 1)):
        for column in range(max(0, int(middle - reach)), min(size, int(middle + reach) + 1)):
            head_x, head_y = _to_head(lens, column, row)
            across, down = head_x - x, head_y - y
            eye_x, eye_y = cosine * across + sine * down, cosine * down - sine * across
            inside = _cover(_almond(eye_x, eye_y, wide, above, below), scale)
            if inside <= 0:
                continue
            _blend(canvas, row, column, white, inside)
            away = math.sqrt((eye_x - look_x) ** 2 + (eye_y - look_y) ** 2)
            _blend(canvas, row, column, iris, inside * _cover(away - who.iris_size, scale))
            _blend(canvas, row, column, black, inside * _cover(away - who.iris_size * 0.5, scale))
            glint = math.sqrt((eye_x - look_x + 0.04) ** 2 + (eye_y - look_y + 0.04) ** 2)
            _blend(canvas, row, column, white, inside * _cover(glint - 0.026, scale) * 0.9)


@pixel_kernel
def _hairline(who: Any, shift: float, x: float) -> float:
    """Down to where hair grows at x, on a head that is turned so far that its middle is seen at `shift`."""
    t = x / who.width
    s = t - shift * max(0.0, 1 - t * t)
    flat = min(1.44, s * s)
    near = s / 0.28
    peak = who.peak / (1 + near * near * near * near)
    line: float = who.hairline + who.drop * flat * flat + peak + who.slant * min(1.0, max(-1.0, s))
    return line


@pixel_kernel
def _paint_hair(canvas: FloatArray, outline: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    """Hair before the head: inside a cap around the outline, above the hairline."""
    size, scale = canvas.shape[0], lens[4]
    shift, lowered = 0.45 * math.sin(now.yaw) / who.width, now.fall + 0.3 * math.sin(now.pitch)
    for row in range(size):
        for column in range(size):
            x, y = _to_head(lens, column, row)
            up = max(0.0, -y / (math.sqrt(x * x + y * y) + 1e-6))
            thick = who.side + (who.top - who.side) * up * up + now.volume
            cap = outline[row, column] - thick
            if cap * scale > 2:
                continue
            if who.curl > 0:
                cap -= who.curl * math.sin(who.curls * math.atan2(y, x))
            line = _hairline(who, shift, x) + lowered
            inside = _cover(max(cap, (y - line) * 0.8), scale)
            if inside <= 0:
                continue
            toward = now.light_x * x / who.width + now.light_y * y
            band = (y + who.crown * 0.72 + 0.25 * x * x) / 0.2
            sheen = 1 / (1 + band * band * band * band)
            streak = math.sin(17 * x + 5 * y * x)
            shade = 1 + 0.3 * toward + 0.28 * sheen + 0.07 * streak
            _blend(canvas, row, column, _shade_of(who.hair, shade), inside)


@pixel_kernel
def _paint_glasses(canvas: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    """Glasses, or sunglasses, which hide the eyes."""
    dark = now.sunglasses > 0
    black = (0.07, 0.07, 0.09)
    frame = black if dark else _shade_of(who.frame, 1.0)
    left_x, y, _ = _turn(who, now, -who.eye_x, who.eye_y + 0.02, 0.1)
    right_x, _, _ = _turn(who, now, who.eye_x, who.eye_y + 0.02, 0.1)
    _paint(canvas, lens, _BOW, ((left_x + right_x) / 2, y - 0.02), 0.0, 0.14, -0.05, 0.03, frame, 1.0, 1.0)
    for side in (-1.0, 1.0):
        x, y, narrow = _turn(who, now, side * who.eye_x, who.eye_y + 0.02, 0.1)
        wide, high = 0.27 * narrow, 0.21
        temple = (side * who.width * 0.98 + x) / 2 + side * 0.1
        _paint(canvas, lens, _BOW, (temple, y - 0.04), 0.0, 0.2, 0.0, 0.026, frame, 0.9, 1.0)
        _paint_ring(canvas, lens, (x, y), wide, high, who.glasses_square, frame, dark)


@pixel_kernel
def _paint_ring(
    canvas: FloatArray, lens: Lens, center: tuple[float, float], a: float, b: float, square: float,
    color: Color, dark: bool
) -> None:  # fmt: skip
    """Draw a lens in its frame; clear ones shine a little."""
    size, scale = canvas.shape[0], lens[4]
    middle = lens[0] + scale * (lens[2] * center[0] - lens[3] * center[1])
    middle_row = lens[1] + scale * (lens[3] * center[0] + lens[2] * center[1])
    reach = 1.5 * a * scale + 2
    shine = (1.0, 1.0, 1.0)
    for row in range(max(0, int(middle_row - reach)), min(size, int(middle_row + reach) + 1)):
        for column in range(max(0, int(middle - reach)), min(size, int(middle + reach) + 1)):
            head_x, head_y = _to_head(lens, column, row)
            x, y = head_x - center[0], head_y - center[1]
            distance = _box(x, y, a, b, square)
            if dark:
                _blend(canvas, row, column, color, _cover(distance, scale) * 0.93)
            else:
                _blend(canvas, row, column, shine, _cover(distance, scale) * 0.12)
            _blend(canvas, row, column, color, _cover(abs(distance) - 0.03, scale))


@pixel_kernel
def _paint_mask(canvas: FloatArray, outline: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    """Draw a mask from the nose down."""
    size, scale = canvas.shape[0], lens[4]
    tip_x, tip_y, _ = _turn(who, now, 0.0, who.eye_y + who.nose * 0.6, 0.2)
    for row in range(size):
        for column in range(size):
            x, y = _to_head(lens, column, row)
            t = (x - tip_x) / who.width
            inside = _cover(max(outline[row, column] - 0.03, tip_y + 0.35 * t * t - y), scale)
            if inside > 0:
                fold = 1 - 0.10 * (math.sin(14 * (y - tip_y)) > 0.75)
                _blend(canvas, row, column, _shade_of(now.mask_color, fold * (1 - 0.12 * t * t)), inside)


@pixel_kernel
def _paint_hat(canvas: FloatArray, outline: FloatArray, lens: Lens, who: Any, now: Any) -> None:
    """Draw a cap, following the outline of the head, and its brim."""
    size, scale = canvas.shape[0], lens[4]
    brim_y = -0.50 + 0.4 * math.sin(now.pitch)
    thick = max(who.top, who.side) * 0.5 + 0.10
    for row in range(size):
        for column in range(size):
            x, y = _to_head(lens, column, row)
            inside = _cover(max(outline[row, column] - thick, y - brim_y + 0.1 * x * x), scale)
            if inside > 0:
                shade = 1.0 + 0.3 * now.light_x * x - 0.1 * (y - brim_y > -0.16)
                _blend(canvas, row, column, _shade_of(now.hat_color, shade), inside)
    center = (0.4 * math.sin(now.yaw), brim_y + 0.02)
    color = _shade_of(now.hat_color, 0.72)
    _paint(canvas, lens, _ELLIPSE, center, 0.0, who.width * 0.95, 0.13, 0.0, color, 1.0, 1.0)


@pixel_kernel
def _light(canvas: FloatArray, lens: Lens, now: Any) -> None:
    """Place a lamp: brighter on one side, strong or weak, of some color, through a hard or soft lens."""
    size = canvas.shape[0]
    for row in range(size):
        for column in range(size):
            x, y = _to_head(lens, column, row)
            factor = now.gain * max(0.15, 1 + 0.55 * (now.light_x * x + now.light_y * y))
            for channel in range(3):
                value = canvas[row, column, channel] * factor * now.cast[channel]
                canvas[row, column, channel] = 0.5 + (value - 0.5) * now.contrast


@pixel_kernel
def _blur(canvas: FloatArray, spare: FloatArray, width: float) -> None:
    """Gaussian, `width` pixels, edges repeated."""
    if width < 0.15:
        return
    size = canvas.shape[0]
    reach = min(size - 1, max(1, math.ceil(2.5 * width)))
    weights = np.empty(reach + 1, np.float32)
    total = 0.0
    for step in range(reach + 1):
        weights[step] = math.exp(-0.5 * (step / width) ** 2)
        total += weights[step] * (1 if step == 0 else 2)
    weights /= total
    for row in range(size):
        for column in range(size):
            for channel in range(3):
                value = canvas[row, column, channel] * weights[0]
                for step in range(1, reach + 1):
                    near, far = max(0, column - step), min(size - 1, column + step)
                    value += weights[step] * (canvas[row, near, channel] + canvas[row, far, channel])
                spare[row, column, channel] = value
    for row in range(size):
        for column in range(size):
            for channel in range(3):
                canvas[row, column, channel] = spare[row, column, channel] * weights[0]
        for step in range(1, reach + 1):
            near, far = max(0, row - step), min(size - 1, row + step)
            for column in range(size):
                for channel in range(3):
                    canvas[row, column, channel] += weights[step] * (
                        spare[near, column, channel] + spare[far, column, channel]
                    )


@pixel_kernel
def _develop(canvas: FloatArray, now: Any, picture: ByteArray) -> None:
    """Grain, and 256 steps of brightness."""
    size = canvas.shape[0]
    state = np.uint64(now.grain)
    for row in range(size):
        for column in range(size):
            shared = 0.0
            for channel in range(4):
                # Four 16-bit numbers of one 64-bit draw add up to nearly a normal one.
                state += np.uint64(0x9E3779B97F4A7C15)
                bits = state
                bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                bits ^= bits >> np.uint64(31)
                total = 0.0
                for shift in (0, 16, 32, 48):
                    total += np.float64((bits >> np.uint64(shift)) & np.uint64(0xFFFF))
                grain = (total / 65535.0 - 2.0) * 1.732
                if channel == 0:
                    shared = grain
                    continue
                value = canvas[row, column, channel - 1] + now.noise * (0.8 * shared + 0.6 * grain)
                picture[row, column, channel - 1] = np.uint8(min(255.0, max(0.0, value * 255.0 + 0.5)))


@pixel_kernel
def _to_head(lens: Lens, column: float, row: float) -> tuple[float, float]:
    """Return where a pixel lies on the head."""
    across, down = (column + 0.5 - lens[0]) * lens[5], (row + 0.5 - lens[1]) * lens[5]
    return lens[2] * across + lens[3] * down, lens[2] * down - lens[3] * across


@pixel_kernel
def _blend(canvas: FloatArray, row: int, column: int, color: Color, share: float) -> None:
    """Lay a color over a pixel; share 1 hides what was there."""
    pixel = canvas[row, column]
    pixel[0] += share * (color[0] - pixel[0])
    pixel[1] += share * (color[1] - pixel[1])
    pixel[2] += share * (color[2] - pixel[2])


@pixel_kernel
def _cover(distance: float, scale: float) -> float:
    """Return how much of a pixel is inside a shape whose edge is `distance` away."""
    return min(1.0, max(0.0, 0.5 - distance * scale))


@pixel_kernel
def _ellipse(x: float, y: float, a: float, b: float) -> float:
    """Distance to an ellipse, exact on its edge and to first order near it."""
    slope = 2 * math.sqrt((x / (a * a)) ** 2 + (y / (b * b)) ** 2) + 1e-9
    return ((x / a) ** 2 + (y / b) ** 2 - 1) / slope


@pixel_kernel
def _bow(x: float, y: float, a: float, bend: float, thick: float) -> float:
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
def _gauge(x: float, y: float, square: float) -> float:
    """Return 1 on the edge of a unit circle (square 0), a rounded unit box (square 1), or between."""
    x2, y2 = x * x, y * y
    return (1 - square) * math.sqrt(x2 + y2) + square * math.sqrt(math.sqrt(x2 * x2 + y2 * y2))


@pixel_kernel
def _box(x: float, y: float, a: float, b: float, square: float) -> float:
    """Distance, along the ray from the middle, to an ellipse or a box with round corners."""
    size = _gauge(x / a, y / b, square)
    return math.sqrt(x * x + y * y) * (1 - 1 / size) if size > 0.05 else -min(a, b)


@pixel_kernel
def _almond(x: float, y: float, a: float, above: float, below: float) -> float:
    """Distance to an eye: two arcs that meet in the corners."""
    t = x / a
    high = above if y < 0 else below
    edge = high * (1 - t * t)
    slope = 2 * high * t / a
    return (abs(y) - edge) / math.sqrt(1 + slope * slope)


@pixel_kernel
def _paint(
    canvas: FloatArray,
    lens: Lens,
    kind: int,
    center: tuple[float, float],
    angle: float,
    a: float,
    b: float,
    c: float,
    color: Color,
    share: float,
    softness: float,
) -> None:
    """Lay one shape over the canvas, turned by `angle` about its center; softness 1 is a crisp edge."""
    size = canvas.shape[0]
    scale = lens[4]
    middle = lens[0] + scale * (lens[2] * center[0] - lens[3] * center[1])
    middle_row = lens[1] + scale * (lens[3] * center[0] + lens[2] * center[1])
    reach = (max(abs(a), abs(b)) + (abs(c) if kind == _BOW else 0.0)) * 1.5 * scale + 2 * softness + 1
    if kind == _ALMOND:
        reach = (max(abs(a), abs(b), abs(c)) * 1.1) * scale + 2
    cosine, sine = math.cos(angle), math.sin(angle)
    for row in range(max(0, int(middle_row - reach)), min(size, int(middle_row + reach) + 1)):
        for column in range(max(0, int(middle - reach)), min(size, int(middle + reach) + 1)):
            head_x, head_y = _to_head(lens, column, row)
            across, down = head_x - center[0], head_y - center[1]
            x, y = cosine * across + sine * down, cosine * down - sine * across
            if kind == _ELLIPSE:
                distance = _ellipse(x, y, a, b)
            elif kind == _BOW:
                distance = _bow(x, y, a, b, c)
            elif kind == _BOX:
                distance = _box(x, y, a, b, c)
            else:
                distance = _almond(x, y, a, b, c)
            inside = _cover(distance, scale / softness)
            if inside > 0:
                _blend(canvas, row, column, color, inside * share)
