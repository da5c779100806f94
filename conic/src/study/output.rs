//! A study's files: results first, so that programs have them even if the pictures fail.

use std::fs;
use std::path::{Path, PathBuf};

use conic_chart::{Align, Cell, Column, Table};
use conic_study::report::{Picture, Report, json, page, pictures};
use conic_study::sensitivity::{self, Movement};
use serde_json::json;

/// Writes everything into a folder, which is made; returns where the page is.
///
/// # Errors
///
/// A message with the path that could not be written.
pub fn write(folder: &Path, report: &Report<'_>) -> Result<PathBuf, String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let put = |name: String, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display())).map(|()| path)
    };
    if !report.found.is_empty() {
        put("results.json".to_owned(), json(report.rows))?;
    }
    let movements = report.moves.map_or(&[][..], |moves| &moves.movements);
    if report.moves.is_some() {
        // Also where nothing moves: an older one says something else.
        put("sensitivity.json".to_owned(), movements_json(movements))?;
    }
    let drawn = report.found.iter().flat_map(|found| pictures(found, report.rows));
    for Picture { name, chart } in drawn.chain(sensitivity::pictures(movements)) {
        put(format!("{name}.svg"), chart.to_svg())?;
    }
    let name = if report.found.is_empty() { "sensitivity.html" } else { "report.html" };
    put(name.to_owned(), page(report))
}

/// What the guesses move, as a table.
pub fn movements(movements: &[Movement]) -> Table {
    let right = |name: &str| Column { align: Align::Right, ..Column::text(name) };
    let mut table = Table::new([
        Column::text("result"),
        Column::text("guess"),
        right("low"),
        right("high"),
        Column { decimals: None, ..Column::number("at low", "", 0) },
        Column { decimals: None, ..Column::number("as it is", "", 0) },
        Column { decimals: None, ..Column::number("at high", "", 0) },
        right("change"),
    ]);
    for movement in movements {
        table.row([
            Cell::from(format!("{} ({})", movement.headline, movement.unit)),
            Cell::from(movement.guess.as_str()),
            Cell::from(movement.range[0].as_str()),
            Cell::from(movement.range[1].as_str()),
            Cell::from(movement.ends[0]),
            Cell::from(movement.nominal),
            Cell::from(movement.ends[1]),
            Cell::from(format!("{:.1}%", 100.0 * movement.change())),
        ]);
    }
    table
}

/// What the guesses move, for programs.
pub fn movements_json(movements: &[Movement]) -> String {
    let objects = movements.iter().map(|movement| {
        let Movement { guess, range, headline, unit, nominal, ends } = movement;
        let [low, high] = range;
        json!({
            "id": headline, "unit": unit, "guess": guess, "low": low, "high": high,
            "predicted": nominal, "at_low": ends[0], "at_high": ends[1],
        })
    });
    let lines: Vec<String> = objects.map(|object| format!("  {object}")).collect();
    if lines.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", lines.join(",\n")) }
}
