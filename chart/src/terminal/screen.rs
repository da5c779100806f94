//! A grid of characters with colours, and finer dots inside them.

use super::TerminalStyle;

/// Colours that are readable on light and on dark backgrounds, as ANSI codes: cyan, magenta, green, red, blue, yellow.
const COLOURS: [u8; 6] = [36, 35, 32, 31, 34, 33];
/// Dots of a braille character by row (from above) and column, as bits of its code.
const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

#[derive(Clone, Copy)]
struct Square {
    glyph: char,
    dots: u8,
    colour: Option<usize>,
}

/// The text that a chart is drawn on.
pub(super) struct Screen {
    pub width: usize,
    pub height: usize,
    pub style: TerminalStyle,
    squares: Vec<Square>,
}

/// The part of a screen that shows data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plot {
    pub left: usize,
    pub top: usize,
    pub width: usize,
    pub height: usize,
}

impl Plot {
    /// Column of a share of the horizontal axis.
    pub fn column(&self, share: f64) -> usize {
        self.left + (share * (self.width - 1) as f64).round() as usize
    }

    /// Line of a share of the vertical axis.
    pub fn row(&self, share: f64) -> usize {
        self.top + ((1.0 - share) * (self.height - 1) as f64).round() as usize
    }
}

impl Screen {
    pub fn new(width: usize, height: usize, style: TerminalStyle) -> Screen {
        let empty = Square { glyph: ' ', dots: 0, colour: None };
        Screen { width, height, style, squares: vec![empty; width * height] }
    }

    /// Writes a character; outside the screen nothing happens.
    pub fn put(&mut self, x: usize, y: usize, glyph: char, colour: Option<usize>) {
        if x < self.width && y < self.height {
            self.squares[y * self.width + x] = Square { glyph, dots: 0, colour };
        }
    }

    /// Writes text, cut off at the right edge.
    pub fn text(&mut self, x: usize, y: usize, text: &str, colour: Option<usize>) {
        for (i, glyph) in text.chars().enumerate() {
            self.put(x + i, y, glyph, colour);
        }
    }

    /// True if the squares are still empty.
    pub fn is_free(&self, x: usize, y: usize, length: usize) -> bool {
        (x..x + length).all(|x| {
            x < self.width && y < self.height && {
                let square = self.squares[y * self.width + x];
                square.glyph == ' ' && square.dots == 0
            }
        })
    }

    /// Draws a thin line between two places given as shares of the plot; of `on + off` dots the first `on` are set.
    pub fn line(
        &mut self,
        plot: &Plot,
        from: (f64, f64),
        to: (f64, f64),
        colour: Option<usize>,
        (on, off): (usize, usize),
    ) {
        // Dots lie so that a place and the glyph put there share a square.
        let fine = |place: (f64, f64)| {
            let x = (plot.left as f64 + place.0 * (plot.width - 1) as f64 + 0.5) * 2.0 - 0.5;
            let y = (plot.top as f64 + (1.0 - place.1) * (plot.height - 1) as f64 + 0.5) * 4.0 - 0.5;
            (x, y)
        };
        let ((x0, y0), (x1, y1)) = (fine(from), fine(to));
        let steps = (x1 - x0).abs().max((y1 - y0).abs()).ceil().max(1.0) as usize;
        for i in (0..=steps).filter(|i| i % (on + off) < on) {
            let t = i as f64 / steps as f64;
            let x = (x0 + t * (x1 - x0)).round().max(0.0) as usize;
            let y = (y0 + t * (y1 - y0)).round().max(0.0) as usize;
            self.dot(x, y, colour);
        }
    }

    fn dot(&mut self, x: usize, y: usize, colour: Option<usize>) {
        let (column, row) = (x / 2, y / 4);
        if column >= self.width || row >= self.height {
            return;
        }
        let square = &mut self.squares[row * self.width + column];
        if square.glyph != ' ' {
            return;
        }
        if self.style.ascii {
            square.glyph = '.';
        } else {
            square.dots |= DOTS[y % 4][x % 2];
        }
        square.colour = colour;
    }

    /// The screen as lines, without spaces at their ends and without empty lines at its end.
    pub fn finish(&self) -> String {
        let mut out = String::new();
        for row in self.squares.chunks(self.width) {
            let blank = |s: &Square| s.glyph == ' ' && s.dots == 0;
            let used = row.iter().rposition(|s| !blank(s)).map_or(0, |last| last + 1);
            let mut current = None;
            for square in &row[..used] {
                let colour = square.colour.filter(|_| self.style.colour && !blank(square));
                if colour != current && !(blank(square) && current.is_some()) {
                    out.push_str(&match colour {
                        Some(index) => format!("\u{1b}[{}m", COLOURS[index % COLOURS.len()]),
                        None => "\u{1b}[0m".to_string(),
                    });
                    current = colour;
                }
                out.push(match square.dots {
                    0 => square.glyph,
                    dots => char::from_u32(0x2800 + u32::from(dots)).unwrap_or('.'),
                });
            }
            if current.is_some() {
                out.push_str("\u{1b}[0m");
            }
            out.push('\n');
        }
        let used = out.trim_end_matches('\n').len();
        out.truncate(used);
        out.push('\n');
        out
    }
}
