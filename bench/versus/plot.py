"""p50 over tensor size, both logarithmic, a panel for each number of ranks: an SVG without any library."""
import math

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 420, 360, 60, 30, 40, 190
LEAST_BETWEEN_LABELS = 34
COLOURS = ("#1b6ca8", "#e07a1f", "#2e8b57", "#b3261e", "#7a4fa3", "#555555")


def size_label(size):
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K"


def time_label(power):
    for unit, scale in (("s", 6), ("ms", 3), ("us", 0)):
        if power >= scale or unit == "us":
            return f"{10 ** (power - scale):g} {unit}"


def panel(rows, count, colour_of, at):
    here = [row for row in rows if row["ranks"] == count]
    sizes = sorted({row["bytes"] for row in here})
    low = math.floor(math.log10(min(row["p50_us"] for row in here)))
    high = max(low + 1, math.ceil(math.log10(max(row["p50_us"] for row in here))))
    wide = max(1e-9, math.log2(sizes[-1] / sizes[0]))

    def x(size):
        return at + LEFT + (WIDTH - LEFT - 20) * (math.log2(size / sizes[0]) / wide)

    def y(time_us):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (math.log10(time_us) - low) / (high - low))

    parts = [f'<text x="{at + LEFT}" y="18" font-weight="bold">{count} ranks</text>']
    for power in range(low, high + 1):
        parts.append(f'<line x1="{x(sizes[0]):.1f}" x2="{x(sizes[-1]):.1f}" y1="{y(10**power):.1f}" y2="{y(10**power):.1f}" '
                     'stroke="#ddd"/>')
        parts.append(f'<text x="{at + LEFT - 6}" y="{y(10**power) + 4:.1f}" text-anchor="end">{time_label(power)}</text>')
    labelled = -math.inf
    for size in sizes:
        if x(size) - labelled < LEAST_BETWEEN_LABELS:
            continue
        labelled = x(size)
        parts.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size_label(size)}</text>')
    for way, colour in colour_of.items():
        line = sorted((row["bytes"], row["p50_us"]) for row in here if row["way"] == way)
        points = " ".join(f"{x(size):.1f},{y(time_us):.1f}" for size, time_us in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def svg(rows):
    colour_of = dict(zip(dict.fromkeys(row["way"] for row in rows), COLOURS))
    counts = sorted({row["ranks"] for row in rows})
    width = WIDTH * len(counts) + LEGEND
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" font-size="11">',
             f'<rect width="{width}" height="{HEIGHT}" fill="white"/>']
    for number, count in enumerate(counts):
        parts += panel(rows, count, colour_of, number * WIDTH)
    for number, (way, colour) in enumerate(colour_of.items()):
        y = TOP + 20 * number
        left = WIDTH * len(counts) + 10
        parts.append(f'<line x1="{left}" x2="{left + 24}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + 30}" y="{y + 4}">{way}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
