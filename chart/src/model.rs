//! What a chart is made of. Plain data; drawing is elsewhere.

/// How an axis places values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps for equal differences. Values from -1e18 to 1e18.
    Linear,
    /// Equal steps for equal ratios. Values from 1e-18 to 1e18.
    Log,
    /// Percentiles in percent, from 0 to just below 100, spaced by the share that lies beyond them: 90, 99 and 99.9
    /// are equally far apart. The usual axis of a latency distribution.
    Tail,
}

/// One axis: what it shows, in which unit, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is shown, such as "Latency, median".
    pub label: String,
    /// Unit of every value on this axis, such as "ns"; empty for a plain number.
    pub unit: String,
    /// How values are placed.
    pub scale: Scale,
    /// Lowest and highest value shown. `None`, or a pair the scale cannot show, means: chosen from the data.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis. It starts at zero unless all values lie far from zero.
    pub fn linear(label: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis { label: label.into(), unit: unit.into(), scale: Scale::Linear, range: None }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis { scale: Scale::Log, ..Axis::linear(label, unit) }
    }

    /// A percentile axis ([`Scale::Tail`]); values in percent.
    pub fn tail(label: impl Into<String>) -> Axis {
        Axis { scale: Scale::Tail, ..Axis::linear(label, "%") }
    }

    /// Fixes the range, in the axis' unit. Points outside are left out and counted.
    pub fn range(mut self, low: f64, high: f64) -> Axis {
        self.range = Some((low, high));
        self
    }

    /// Label with unit, as written beside the axis.
    pub(crate) fn heading(&self) -> String {
        match (self.label.is_empty(), self.unit.is_empty()) {
            (_, true) => self.label.clone(),
            (true, false) => self.unit.clone(),
            (false, false) => format!("{} ({})", self.label, self.unit),
        }
    }
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Points joined in the given order, so a curve may bend back.
    Line,
    /// Points alone.
    Scatter,
    /// Crosses: values published by others, not measured here.
    Published,
}

/// One point of a series, in the units of the two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Value on the horizontal axis.
    pub x: f64,
    /// Value on the vertical axis.
    pub y: f64,
    /// Lowest and highest `x` seen, drawn as a whisker.
    pub x_spread: Option<(f64, f64)>,
    /// Lowest and highest `y` seen, drawn as a whisker.
    pub y_spread: Option<(f64, f64)>,
    /// Drawn hollow and joined by dashes; [`Chart::hollow_means`] says what that stands for.
    pub hollow: bool,
    /// Added to the text shown when the pointer rests on the point; may be empty.
    pub note: String,
}

impl Point {
    /// A filled point without spread.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, x_spread: None, y_spread: None, hollow: false, note: String::new() }
    }

    /// Sets the lowest and highest `x` seen.
    pub fn x_spread(mut self, low: f64, high: f64) -> Point {
        self.x_spread = Some((low, high));
        self
    }

    /// Sets the lowest and highest `y` seen.
    pub fn y_spread(mut self, low: f64, high: f64) -> Point {
        self.y_spread = Some((low, high));
        self
    }

    /// Draws the point hollow if `hollow`.
    pub fn hollow(mut self, hollow: bool) -> Point {
        self.hollow = hollow;
        self
    }

    /// Adds to the text shown on the point.
    pub fn note(mut self, note: impl Into<String>) -> Point {
        self.note = note.into();
        self
    }
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Point {
        Point::new(x, y)
    }
}

/// Points that belong together: one name, one colour, one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend or beside the line.
    pub name: String,
    /// How the points are drawn.
    pub mark: Mark,
    /// The points, in drawing order.
    pub points: Vec<Point>,
}

impl Series {
    /// A series of the given mark.
    pub fn new<P: Into<Point>>(name: impl Into<String>, mark: Mark, points: impl IntoIterator<Item = P>) -> Series {
        Series { name: name.into(), mark, points: points.into_iter().map(Into::into).collect() }
    }

    /// Joined points.
    pub fn line<P: Into<Point>>(name: impl Into<String>, points: impl IntoIterator<Item = P>) -> Series {
        Series::new(name, Mark::Line, points)
    }

    /// Points alone.
    pub fn scatter<P: Into<Point>>(name: impl Into<String>, points: impl IntoIterator<Item = P>) -> Series {
        Series::new(name, Mark::Scatter, points)
    }

    /// Crosses for values published by others.
    pub fn published<P: Into<Point>>(name: impl Into<String>, points: impl IntoIterator<Item = P>) -> Series {
        Series::new(name, Mark::Published, points)
    }
}

/// One horizontal bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What the bar stands for.
    pub label: String,
    /// Its length, in the unit of the value axis.
    pub value: f64,
    /// Lowest and highest value seen, drawn as a whisker.
    pub spread: Option<(f64, f64)>,
    /// Written after the value, such as "-23%"; may be empty.
    pub annotation: String,
    /// Sets the bar apart (second colour, bold label), for the configuration the others are compared with.
    pub highlight: bool,
    /// Outlined instead of filled; [`Chart::hollow_means`] says what that stands for.
    pub hollow: bool,
}

impl Bar {
    /// A filled bar without spread.
    pub fn new(label: impl Into<String>, value: f64) -> Bar {
        Bar { label: label.into(), value, spread: None, annotation: String::new(), highlight: false, hollow: false }
    }

    /// Sets the lowest and highest value seen.
    pub fn spread(mut self, low: f64, high: f64) -> Bar {
        self.spread = Some((low, high));
        self
    }

    /// Sets the text after the value.
    pub fn annotation(mut self, text: impl Into<String>) -> Bar {
        self.annotation = text.into();
        self
    }

    /// Sets the bar apart.
    pub fn highlight(mut self) -> Bar {
        self.highlight = true;
        self
    }

    /// Outlines the bar if `hollow`.
    pub fn hollow(mut self, hollow: bool) -> Bar {
        self.hollow = hollow;
        self
    }
}

/// Where a reference line runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GuideKind {
    /// Vertical, at this value of the horizontal axis (of the value axis in a bar chart).
    X(f64),
    /// Horizontal, at this value of the vertical axis. Not used in a bar chart.
    Y(f64),
    /// Where `y` is this multiple of `x`. Not used in a bar chart.
    Ratio(f64),
}

/// A thin labelled reference line: a limit, a target, equality.
#[derive(Clone, Debug, PartialEq)]
pub struct Guide {
    /// Where it runs.
    pub kind: GuideKind,
    /// Text beside it; may be empty.
    pub label: String,
}

impl Guide {
    /// A reference line.
    pub fn new(kind: GuideKind, label: impl Into<String>) -> Guide {
        Guide { kind, label: label.into() }
    }
}

/// The part of a chart that depends on its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Points on two axes.
    Xy {
        /// Horizontal axis.
        x: Axis,
        /// Vertical axis.
        y: Axis,
        /// Drawn in this order, later ones on top.
        series: Vec<Series>,
    },
    /// Horizontal bars from top to bottom. On a logarithmic axis, where a length has no meaning, they become dots.
    Bars {
        /// Axis of the values.
        value: Axis,
        /// The bars.
        bars: Vec<Bar>,
    },
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// A sentence that says what the chart shows: "CC-NIC reaches 41 Mpps at 1.1 us".
    pub title: String,
    /// How the numbers were made: machine, sizes, runs, what a whisker means. May be empty.
    pub note: String,
    /// What a hollow point or bar stands for, for the legend. May be empty.
    pub hollow_means: String,
    /// Reference lines.
    pub guides: Vec<Guide>,
    /// Axes and data.
    pub body: Body,
}

impl Chart {
    /// A chart of points on two axes.
    pub fn xy(title: impl Into<String>, x: Axis, y: Axis) -> Chart {
        let series = Vec::new();
        Chart {
            title: title.into(),
            note: String::new(),
            hollow_means: String::new(),
            guides: Vec::new(),
            body: Body::Xy { x, y, series },
        }
    }

    /// A chart of horizontal bars.
    pub fn bars(title: impl Into<String>, value: Axis, bars: impl IntoIterator<Item = Bar>) -> Chart {
        let bars = bars.into_iter().collect();
        Chart {
            title: title.into(),
            note: String::new(),
            hollow_means: String::new(),
            guides: Vec::new(),
            body: Body::Bars { value, bars },
        }
    }

    /// Sets the method note.
    pub fn note(mut self, note: impl Into<String>) -> Chart {
        self.note = note.into();
        self
    }

    /// Says what a hollow point or bar stands for.
    pub fn hollow_means(mut self, meaning: impl Into<String>) -> Chart {
        self.hollow_means = meaning.into();
        self
    }

    /// Adds a reference line.
    pub fn guide(mut self, kind: GuideKind, label: impl Into<String>) -> Chart {
        self.guides.push(Guide::new(kind, label));
        self
    }

    /// Adds a series.
    ///
    /// # Panics
    /// On a bar chart, which has no series: a mistake in the program, not in the data.
    pub fn series(mut self, added: Series) -> Chart {
        match &mut self.body {
            Body::Xy { series, .. } => series.push(added),
            Body::Bars { .. } => panic!("a bar chart has bars, not series"),
        }
        self
    }
}
