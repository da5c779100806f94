//! The sheet that a chart is drawn on: text, lines, marks, heading, legend, style.

use std::fmt::Write;

use crate::model::{Chart, Mark};
use crate::text::{ems, escape, wrap};

/// Space around everything.
pub(crate) const MARGIN: f64 = 16.0;
/// Text sizes in pixels.
pub(crate) const TITLE_SIZE: f64 = 17.0;
pub(crate) const TEXT_SIZE: f64 = 12.5;
pub(crate) const TICK_SIZE: f64 = 12.0;
/// Radius of a point.
pub(crate) const RADIUS: f64 = 4.0;
/// Colours for series; further series repeat them with other shapes.
pub(crate) const COLOURS: usize = 10;
/// Shapes for series.
const SHAPES: usize = 6;

/// Okabe and Ito's colours. On white their orange, sky blue and purple are darkened until they reach a contrast of 3:1;
/// on dark the lighter one of each pair of related hues comes first. A violet, a brown, an olive and a teal come behind them, for plots of
/// more than six series.
pub(crate) const LIGHT: [&str; COLOURS] =
    ["#0072b2", "#d55e00", "#008f68", "#c46a9d", "#bd8200", "#3793cb", "#7b4ab5", "#8c4a1f", "#6b7300", "#00808a"];
pub(crate) const DARK: [&str; COLOURS] =
    ["#56b4e9", "#e69f00", "#1bb88a", "#d98fb8", "#e3702a", "#4a90d9", "#b08cf0", "#c98f5a", "#c2c94a", "#4fd0d9"];
/// Background of the light and of the dark sheet.
pub(crate) const SHEETS: [&str; 2] = ["#ffffff", "#16191d"];

/// Names and light and dark values of the other colours.
const INKS: [(&str, &str, &str); 4] = [
    ("bg", SHEETS[0], SHEETS[1]),
    ("text", "#1c2126", "#e8eaed"),
    ("muted", "#5a626b", "#a3abb5"),
    ("grid", "#e3e6e9", "#2d333a"),
];

/// Dash patterns of lines; none is like the even dashes that lead to hollow points.
const DASHES: [&str; 4] = ["", "10 4", "1 4", "10 4 1 4"];

/// The dash pattern of a series.
pub(crate) fn dashes(index: usize) -> &'static str {
    DASHES[index % DASHES.len()]
}

/// What the legend explains.
pub(crate) enum Key {
    /// A series by its number.
    Series(usize, Mark),
    /// Hollow points.
    Hollow,
    /// Hollow bars.
    HollowBar,
}

/// SVG text in the making.
pub(crate) struct Page {
    pub width: f64,
    out: String,
}

impl Page {
    pub fn new(width: f64) -> Page {
        Page { width, out: String::new() }
    }

    /// Writes title, note and legend; returns the height they take.
    pub fn header(&mut self, chart: &Chart, legend: &[(Key, String)]) -> f64 {
        let room = self.width - 2.0 * MARGIN;
        let mut y = MARGIN;
        let bold = |s: &str| ems(s) * TITLE_SIZE * 1.06 <= room;
        for line in wrap(&chart.title, 2, "…", bold) {
            self.text(MARGIN, y + TITLE_SIZE * 0.8, "title", "start", &line);
            y += TITLE_SIZE * 1.25;
        }
        let plain = |s: &str| ems(s) * TEXT_SIZE <= room;
        let note = wrap(&chart.note, 3, "…", plain);
        if !note.is_empty() {
            y += 2.0;
        }
        for line in note {
            self.text(MARGIN, y + TEXT_SIZE * 0.85, "note", "start", &line);
            y += TEXT_SIZE * 1.35;
        }
        y + self.legend(y + 6.0, legend)
    }

    /// Writes the legend in rows from `top` down; returns the height it takes.
    fn legend(&mut self, top: f64, entries: &[(Key, String)]) -> f64 {
        const SAMPLE: f64 = 34.0;
        const ROW: f64 = 19.0;
        if entries.is_empty() {
            return 4.0;
        }
        let room = self.width - 2.0 * MARGIN - SAMPLE;
        let (mut x, mut y) = (MARGIN, top + ROW / 2.0);
        for (key, name) in entries {
            let name = crate::text::cut(name, "…", |s| ems(s) * TEXT_SIZE <= room);
            let wide = SAMPLE + ems(&name) * TEXT_SIZE + 18.0;
            if x > MARGIN && x + wide > self.width - MARGIN + 18.0 {
                (x, y) = (MARGIN, y + ROW);
            }
            self.sample(key, x, y);
            self.text(x + SAMPLE - 4.0, y + TEXT_SIZE * 0.36, "label", "start", &name);
            x += wide;
        }
        y + ROW / 2.0 + 6.0 - top + 6.0
    }

    fn sample(&mut self, key: &Key, x: f64, y: f64) {
        match key {
            Key::Series(index, mark) => {
                self.open_series(*index);
                if *mark == Mark::Line {
                    self.path(&[(x, y), (x + 26.0, y)], "line", dashes(*index));
                }
                self.mark(*index, *mark, (x + 13.0, y), false);
                self.close();
            }
            Key::Hollow => {
                self.raw("<g class=\"plain\">");
                self.mark(0, Mark::Scatter, (x + 13.0, y), true);
                self.close();
            }
            Key::HollowBar => {
                self.raw("<g class=\"plain\">");
                self.rectangle(x + 2.0, y - 5.0, 22.0, 10.0, "hollow");
                self.close();
            }
        }
    }

    pub fn raw(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Opens the group of a series: its colour.
    pub fn open_series(&mut self, index: usize) {
        let colour = index % COLOURS;
        self.raw(&format!("<g class=\"c{colour}\">"));
    }

    /// Opens a group that shows `text` when the pointer rests on it.
    pub fn open_titled(&mut self, text: &str) {
        self.raw(&format!("<g><title>{}</title>", escape(text)));
    }

    pub fn close(&mut self) {
        self.raw("</g>");
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let (x, y, text) = (number(x), number(y), escape(text));
        let anchor = match anchor {
            "start" => String::new(),
            other => format!(" text-anchor=\"{other}\""),
        };
        self.raw(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{text}</text>"));
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let (x1, y1, x2, y2) = (number(from.0), number(from.1), number(to.0), number(to.1));
        self.raw(&format!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"));
    }

    pub fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        let (x, y, width, height) = (number(x), number(y), number(width), number(height));
        self.raw(&format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"));
    }

    /// An open polyline; `dashes` may be empty.
    pub fn path(&mut self, places: &[(f64, f64)], class: &str, dashes: &str) {
        let mut points = String::new();
        for (i, (x, y)) in places.iter().enumerate() {
            let gap = if i == 0 { "" } else { " " };
            let _ = write!(points, "{gap}{},{}", number(*x), number(*y));
        }
        let dashes = match dashes {
            "" => String::new(),
            some => format!(" stroke-dasharray=\"{some}\""),
        };
        self.raw(&format!("<polyline class=\"{class}\" points=\"{points}\"{dashes}/>"));
    }

    /// The mark of a series at a place.
    pub fn mark(&mut self, index: usize, mark: Mark, at: (f64, f64), hollow: bool) {
        let class = if hollow { "hollow" } else { "mark" };
        let (x, y) = at;
        if mark == Mark::Published {
            let r = RADIUS + 0.5;
            let turned = [[(-r, -r), (r, r)], [(-r, r), (r, -r)]];
            let upright = [[(-r, 0.0), (r, 0.0)], [(0.0, -r), (0.0, r)]];
            let arms = if (index / COLOURS).is_multiple_of(2) { turned } else { upright };
            for [a, b] in arms {
                self.line((x + a.0, y + a.1), (x + b.0, y + b.1), "cross");
            }
            return;
        }
        // Shapes end before colours do, so that a colour that comes again has another shape: thirty pairs.
        let shape = index % SHAPES;
        let r = RADIUS;
        let outline: &[(f64, f64)] = match shape {
            0 => {
                let (x, y) = (number(x), number(y));
                return self.raw(&format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{r}\"/>"));
            }
            1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            2 => &[(0.0, -1.3), (1.2, 0.85), (-1.2, 0.85)],
            3 => &[(0.0, -1.35), (1.35, 0.0), (0.0, 1.35), (-1.35, 0.0)],
            4 => &[(0.0, 1.3), (1.2, -0.85), (-1.2, -0.85)],
            _ => &[(1.2, 0.0), (0.6, 1.04), (-0.6, 1.04), (-1.2, 0.0), (-0.6, -1.04), (0.6, -1.04)],
        };
        let points: Vec<String> =
            outline.iter().map(|(dx, dy)| format!("{},{}", number(x + dx * r), number(y + dy * r))).collect();
        self.raw(&format!("<polygon class=\"{class}\" points=\"{}\"/>", points.join(" ")));
    }

    /// The whole document: what was drawn so far on a sheet of the given height.
    pub fn finish(self, chart: &Chart, height: f64, description: &str) -> String {
        let (w, h) = (number(self.width), number(height));
        let title = escape(if chart.title.is_empty() { "Chart" } else { &chart.title });
        let note = if chart.note.is_empty() { String::new() } else { format!("{} ", chart.note) };
        let description = escape(&format!("{note}{description}"));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"conic-chart\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" \
             height=\"{h}\" role=\"img\">\n<title>{title}</title>\n<desc>{description}</desc>\n<style>\n{}</style>\n\
             <rect class=\"sheet\" width=\"{w}\" height=\"{h}\"/>\n{}</svg>\n",
            style(),
            self.out
        )
    }
}

/// A coordinate: two decimals at most, never "-0", never anything but a number.
pub(crate) fn number(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

/// Style rules. Each colour stands twice, plainly and as a variable: renderers that know no variables drop the second.
fn style() -> String {
    let variables = |dark: bool| {
        let series = if dark { DARK } else { LIGHT };
        let mut out = String::new();
        for (name, light, black) in INKS {
            let _ = write!(out, "--conic-{name}:{};", if dark { black } else { light });
        }
        for (i, colour) in series.iter().enumerate() {
            let _ = write!(out, "--conic-{i}:{colour};");
        }
        out
    };
    let ink = |property: &str, name: &str| {
        let value = INKS.iter().find(|i| i.0 == name).map_or("#000", |i| i.1);
        format!("{property}:{value};{property}:var(--conic-{name},{value})")
    };
    let mut out = format!(
        ".conic-chart{{color-scheme:light dark;{}}}\n@media (prefers-color-scheme:dark){{.conic-chart{{{}}}}}\n\
         @media print{{.conic-chart{{{}}}}}\n",
        variables(false),
        variables(true),
        variables(false)
    );
    for (i, colour) in LIGHT.iter().enumerate() {
        let _ = writeln!(out, ".conic-chart .c{i}{{color:{colour};color:var(--conic-{i},{colour})}}");
    }
    let rules = [
        (
            "text",
            format!(
                "font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",\"Liberation Sans\",sans-serif;font-size:{TEXT_SIZE}px;{}",
                ink("fill", "text")
            ),
        ),
        (".title", format!("font-size:{TITLE_SIZE}px;font-weight:600")),
        (".note", ink("fill", "muted")),
        (".tick", format!("font-size:{TICK_SIZE}px;font-variant-numeric:tabular-nums;{}", ink("fill", "muted"))),
        (".halo", format!("paint-order:stroke;stroke-width:4px;stroke-linejoin:round;{}", ink("stroke", "bg"))),
        (".name", "fill:currentColor;font-weight:600".to_string()),
        (".strong", "font-weight:600".to_string()),
        (".sheet", ink("fill", "bg")),
        (".plain", ink("color", "muted")),
        (".grid", format!("stroke-width:1;{}", ink("stroke", "grid"))),
        (".frame", format!("stroke-width:1;{}", ink("stroke", "muted"))),
        (".guide", format!("fill:none;stroke-width:1.25;stroke-dasharray:2 3;{}", ink("stroke", "muted"))),
        (
            ".line",
            "fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round".to_string(),
        ),
        (".spread", "stroke:currentColor;stroke-width:1.25".to_string()),
        (".whisker", format!("stroke-width:1.5;{}", ink("stroke", "text"))),
        (".cross", "stroke:currentColor;stroke-width:2".to_string()),
        (".mark", format!("fill:currentColor;stroke-width:1;{}", ink("stroke", "bg"))),
        (".hollow", format!("stroke:currentColor;stroke-width:1.75;{}", ink("fill", "bg"))),
        (".hit", "fill:transparent;stroke:none".to_string()),
    ];
    for (selector, rule) in rules {
        let _ = writeln!(out, ".conic-chart {selector}{{{rule}}}");
    }
    out.push_str("@media (forced-colors:active){.conic-chart text{fill:CanvasText}}\n");
    out
}
