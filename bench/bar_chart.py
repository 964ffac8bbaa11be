"""Panels of horizontal bars side by side as an SVG file, with nothing but the standard library."""
import html

ROW, BAR, LABELS, PANEL, GAP, TOP = 26, 16, 168, 235, 22, 74
COLOURS = ("#2b6cb0", "#63a4d8", "#c05621", "#a0aec0")


def write_bars(path, title, labels, panels):
    """One row for each label. A panel is (title, names of the parts, rows of parts, texts at the ends of bars)."""
    width = LABELS + len(panels) * (PANEL + GAP)
    height = TOP + ROW * len(labels) + 14
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           f'<text x="12" y="24" font-size="16">{html.escape(title)}</text>']
    for i, label in enumerate(labels):
        out.append(f'<text x="{LABELS - 10}" y="{TOP + ROW * i + BAR - 3}" text-anchor="end">{html.escape(label)}</text>')
    for number, panel in enumerate(panels):
        out += panel_lines(LABELS + number * (PANEL + GAP), height, *panel)
    out.append("</svg>")
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n")


def panel_lines(left, height, title, parts, rows, texts):
    yield f'<text x="{left}" y="46" font-size="13">{html.escape(title)}</text>'
    x = left
    for part, colour in zip(parts, COLOURS):
        if len(parts) > 1:
            yield f'<rect x="{x}" y="55" width="9" height="9" fill="{colour}"/>'
            yield f'<text x="{x + 12}" y="63" font-size="10" fill="#555555">{html.escape(part)}</text>'
            x += 20 + 6.2 * len(part)
    yield f'<line x1="{left}" x2="{left}" y1="{TOP - 6}" y2="{height - 10}" stroke="#cccccc"/>'
    room = PANEL - 62  # the longest bar leaves space for its text
    largest = max((sum(row) for row in rows), default=0) or 1
    for i, (row, text) in enumerate(zip(rows, texts)):
        x, y = float(left), TOP + ROW * i
        for value, colour in zip(row, COLOURS):
            length = room * value / largest
            if length > 0:
                yield f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>'
            x += length
        yield f'<text x="{x + 5:.1f}" y="{y + BAR - 3}" fill="#333333">{html.escape(text)}</text>'
