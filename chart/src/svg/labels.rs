//! Names beside the lines instead of a legend, where all of them find room.

use super::page::{RADIUS, TEXT_SIZE};
use crate::text::ems;

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rect {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Rect {
    pub fn around(at: (f64, f64), radius: f64) -> Rect {
        Rect { left: at.0 - radius, top: at.1 - radius, right: at.0 + radius, bottom: at.1 + radius }
    }

    pub fn overlaps(&self, other: &Rect) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    pub fn contains(&self, other: &Rect) -> bool {
        self.left <= other.left && self.top <= other.top && self.right >= other.right && self.bottom >= other.bottom
    }

    pub fn width(&self) -> f64 {
        self.right - self.left
    }

    pub fn height(&self) -> f64 {
        self.bottom - self.top
    }

    fn grown(&self, by: f64) -> Rect {
        Rect { left: self.left - by, top: self.top - by, right: self.right + by, bottom: self.bottom + by }
    }
}

/// A text and where it begins (left end of the base line).
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub x: f64,
    pub y: f64,
    pub area: Rect,
}

/// Finds a place for `text` beside one of `anchors` (best first), inside `plot` and clear of `obstacles`.
pub(crate) fn find_place(text: &str, anchors: &[(f64, f64)], plot: &Rect, obstacles: &[Rect]) -> Option<Label> {
    // Bold text is a little wider.
    let width = ems(text) * TEXT_SIZE * 1.06;
    let half = TEXT_SIZE * 0.55;
    let gap = RADIUS + 5.0;
    for at in anchors {
        let rise = half + gap;
        let offsets = [
            (gap, 0.0),
            (-width / 2.0, -rise),
            (-width / 2.0, rise),
            (-gap - width, 0.0),
            (gap * 0.7, -rise * 0.8),
            (gap * 0.7, rise * 0.8),
            (-gap * 0.7 - width, -rise * 0.8),
            (-gap * 0.7 - width, rise * 0.8),
        ];
        for (dx, dy) in offsets {
            let (x, middle) = (at.0 + dx, at.1 + dy);
            let area = Rect { left: x, top: middle - half, right: x + width, bottom: middle + half };
            let clear = obstacles.iter().all(|o| !o.overlaps(&area.grown(2.0)));
            if clear && plot.contains(&area) {
                let y = middle + TEXT_SIZE * 0.36;
                return Some(Label { x, y, area });
            }
        }
    }
    None
}

/// Small squares along a polyline, as obstacles.
pub(crate) fn along(places: &[(f64, f64)]) -> Vec<Rect> {
    const STEP: f64 = 4.0;
    let mut squares = Vec::new();
    for pair in places.windows(2) {
        let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        let count = (dx.hypot(dy) / STEP).ceil().max(1.0) as usize;
        for i in 0..=count {
            let t = i as f64 / count as f64;
            squares.push(Rect::around((pair[0].0 + t * dx, pair[0].1 + t * dy), 2.0));
        }
    }
    squares
}
