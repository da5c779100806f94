//! Writes a few charts, with invented numbers, into the directory given as argument: SVG files and the same charts as
//! text.

use std::path::Path;
use std::{env, fs, io};

use conic_chart::{Axis, Bar, Cell, Chart, Column, GuideKind, Point, Series, Table, TerminalStyle};

fn main() -> io::Result<()> {
    let Some(directory) = env::args().nth(1) else {
        return Err(io::Error::other("usage: gallery DIRECTORY"));
    };
    let directory = Path::new(&directory);
    fs::create_dir_all(directory)?;
    let charts = [
        ("curve", curve()),
        ("ablations", ablations()),
        ("percentiles", percentiles()),
        ("limits", limits()),
        ("changes", changes()),
        ("agreement", agreement()),
        ("crowded", crowded()),
        ("empty", Chart::xy("Nothing was measured", Axis::linear("Rate", "Mpps"), Axis::log("Latency", "ns"))),
    ];
    for (name, chart) in charts {
        fs::write(directory.join(format!("{name}.svg")), chart.to_svg())?;
        let fine = TerminalStyle { colour: true, ascii: false };
        let plain = TerminalStyle { colour: false, ascii: true };
        fs::write(directory.join(format!("{name}.txt")), chart.draw_terminal(80, 24, fine))?;
        fs::write(directory.join(format!("{name}.ascii.txt")), chart.draw_terminal(80, 24, plain))?;
    }
    fs::write(directory.join("table.txt"), table().draw(TerminalStyle::default()))
}

/// Points of a queue with one server: latency grows without bound as the rate nears its limit.
fn queue(base: f64, limit: f64, loads: &[f64]) -> Vec<Point> {
    let point = |load: &f64| {
        let latency = base * (0.6 + 0.4 / (1.0 - 0.97 * load.min(1.0)));
        Point::new(limit * load.min(1.0 - (load - 1.0).max(0.0)), latency * load.max(1.0))
            .y_spread(latency * 0.93, latency * load.max(1.0) * 1.09)
            .hollow(*load > 0.99)
            .note(format!("offered {:.0}% of the limit", load * 100.0))
    };
    loads.iter().map(point).collect()
}

fn curve() -> Chart {
    let loads = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.96, 1.0, 1.03];
    Chart::xy(
        "CC-NIC carries 41 million packets a second, four times the ring, at half its latency",
        Axis::linear("Achieved rate", "Mpps"),
        Axis::log("Latency, median", "ns"),
    )
    .note("Invented numbers. 64 B loopback, one core and one NIC core; whiskers are the lowest and highest of 5 runs.")
    .hollow_means("achieved less than 99% of the offered rate")
    .guide(GuideKind::Y(212.0), "one line there and back")
    .series(Series::line("ccnic", queue(430.0, 41.0, &loads)))
    .series(Series::line("ring", queue(1010.0, 11.0, &loads)))
    .series(Series::line("memif", queue(1150.0, 15.5, &loads)))
    .series(Series::published("paper, UPI", [(6.0, 390.0), (22.0, 520.0), (38.0, 1900.0)]))
}

fn ablations() -> Chart {
    let full = 41.2;
    let rows = [
        ("all features", 41.2, 0.6),
        ("signal in a register", 26.0, 0.9),
        ("one descriptor per line", 30.9, 0.5),
        ("descriptors packed, no grouping", 28.4, 0.7),
        ("no recycling", 33.3, 1.2),
        ("sequential buffer addresses", 38.7, 0.4),
        ("large buffers only", 36.0, 0.6),
        ("host-only pool", 22.4, 1.6),
        ("all features off (ring)", 10.1, 0.2),
    ];
    let bar = |(label, value, half): &(&str, f64, f64)| {
        let bar = Bar::new(*label, *value).spread(value - half, value + half);
        match value - full {
            0.0 => bar.highlight(),
            change => bar.annotation(format!("{:+.0}%", 100.0 * change / full)),
        }
    };
    Chart::bars(
        "The shared pool matters most: without it CC-NIC loses 46% of its rate",
        Axis::linear("64 B loopback rate", "Mpps"),
        rows.iter().map(bar),
    )
    .note("Invented numbers. Each feature off alone; whiskers are the lowest and highest of 5 runs.")
    .guide(GuideKind::X(full), "all features")
}

fn percentiles() -> Chart {
    let line = |base: f64, tail: f64| {
        (0..60).map(move |i| {
            let nines = 5.0 * f64::from(i) / 59.0;
            let percent = 100.0 * (1.0 - 10f64.powf(-nines));
            (percent, base * (1.0 + 0.08 * nines + tail * (nines / 5.0).powi(6)))
        })
    };
    Chart::xy(
        "One packet in a thousand waits three times the median",
        Axis::tail("Share of packets that are faster"),
        Axis::log("Latency, one way", "ns"),
    )
    .note("Invented numbers. 4.1 million packets, open loop at half of the highest rate, none lost.")
    .series(Series::line("ccnic", line(430.0, 6.0)))
    .series(Series::line("ring", line(1010.0, 3.0)))
    .series(Series::line("vhost-user", line(720.0, 22.0)))
}

fn limits() -> Chart {
    Chart::bars(
        "Every way over shared lines beats the device by a factor of six",
        Axis::log("Round trip, unloaded", "ns"),
        [
            Bar::new("one line", 212.0).spread(205.0, 236.0),
            Bar::new("two lines", 301.0).spread(295.0, 330.0),
            Bar::new("ccnic, 64 B", 432.0).spread(425.0, 470.0).highlight(),
            Bar::new("ring, 64 B", 1012.0).spread(990.0, 1100.0),
            Bar::new("PCIe device (published)", 2700.0).hollow(true),
        ],
    )
    .hollow_means("published by others")
}

fn changes() -> Chart {
    Chart::bars(
        "A phase bit helps small packets and harms none",
        Axis::linear("Change of rate", "%"),
        [
            Bar::new("64 B", 19.6).spread(17.0, 21.0),
            Bar::new("256 B", 8.1).spread(7.0, 9.0),
            Bar::new("1500 B", -0.4).spread(-1.8, 0.9),
            Bar::new("9600 B", -4.2).spread(-5.0, -3.5),
            Bar::new("not measured", f64::NAN),
        ],
    )
}

fn agreement() -> Chart {
    let points = |shift: f64, hollow: bool| {
        (0..9).map(move |i| {
            let paper = if hollow { 110.0 } else { 80.0 } * 1.9f64.powi(i);
            let wobble = [0.04, -0.09, 0.02, 0.16, -0.03, -0.12, 0.07, 0.01, -0.05][i as usize];
            Point::new(paper, paper * (1.0 + shift + wobble)).hollow(hollow)
        })
    };
    Chart::xy(
        "14 of 18 predictions lie within 10% of the papers",
        Axis::log("Published", "ns"),
        Axis::log("Predicted", "ns"),
    )
    .note("Invented numbers.")
    .hollow_means("fitted, not predicted blind")
    .guide(GuideKind::Ratio(1.0), "equal")
    .guide(GuideKind::Ratio(1.2), "+20%")
    .guide(GuideKind::Ratio(0.8), "-20%")
    .series(Series::scatter("CC-NIC, blind", points(0.0, false)))
    .series(Series::scatter("CC-NIC, fitted", points(0.03, true)))
}

fn crowded() -> Chart {
    let names = [
        "ccnic",
        "ring",
        "memif",
        "vhost-user",
        "cachable queue",
        "fastforward",
        "rings, padded",
        "all \"off\" & <plain>",
    ];
    let chart = Chart::xy(
        "Many lines are named in a legend that covers nothing",
        Axis::log("Packet size", "B"),
        Axis::linear("Rate", "packets/s"),
    )
    .note("Invented numbers.");
    names.iter().enumerate().fold(chart, |chart, (i, name)| {
        let peak = 4.2e7 / (1.0 + 0.45 * i as f64);
        let points = [64.0, 128.0, 256.0, 512.0, 1024.0, 1500.0, 4096.0, 9600.0]
            .map(|size: f64| (size, peak / (1.0 + size / 900.0)));
        chart.series(Series::line(*name, points))
    })
}

fn table() -> Table {
    let mut table = Table::new([
        Column::text("interface"),
        Column::number("rate", "Mpps", 1),
        Column::number("median", "ns", 0),
        Column::number("p99.9", "ns", 0),
        Column::number("lost", "packets", 0),
    ]);
    table.row(["ccnic".into(), 41.2.into(), 432.0.into(), 1204.0.into(), 0u64.into()]);
    table.row(["ring".into(), 10.1.into(), 1012.0.into(), 4810.0.into(), 0u64.into()]);
    table.row(["memif".into(), 15.5.into(), 1150.0.into(), Cell::Missing, 0u64.into()]);
    table
}
