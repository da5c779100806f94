//! The results on a terminal.

use conic_chart::{Align, Cell, Column, Table};

use super::{predicted, published, verdict, written};
use crate::comparison::{Calibration, MEDIAN_GOAL, REPRODUCED, Row, Summary, WORST_GOAL};

/// The rows as a table: id, prediction, published value, error, unit, role.
pub fn results(rows: &[Row]) -> Table {
    let right = |name: &str| Column { align: Align::Right, ..Column::text(name) };
    let mut table = Table::new([
        Column::text("result"),
        right("predicted"),
        right("published"),
        right("error"),
        Column::text("unit"),
        Column::text("role"),
    ]);
    for row in rows {
        table.row([
            Cell::from(row.id.as_str()),
            row.predicted.as_ref().map(predicted).into(),
            row.published.map(published).into(),
            Cell::from(verdict(row)),
            Cell::from(if row.unit == "holds" { "" } else { row.unit.as_str() }),
            Cell::from(row.kind()),
        ]);
    }
    table
}

/// The summary as lines of text.
pub fn summary_lines(summary: &Summary) -> Vec<String> {
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let mut lines = Vec::new();
    let met = |is: bool| if is { "met" } else { "missed" };
    if let (Some(median), Some((id, worst))) = (summary.median, &summary.worst) {
        lines.push(format!(
            "{} published values that nothing was fitted to: median error {} (goal: at most {}, {}), largest {} of {id} (goal: at \
             most {} each, {})",
            summary.counted,
            percent(median),
            percent(MEDIAN_GOAL),
            met(median <= MEDIAN_GOAL),
            percent(*worst),
            percent(WORST_GOAL),
            met(*worst <= WORST_GOAL),
        ));
    }
    if summary.beyond_goal.len() > 1 {
        lines.push(format!("beyond {}: {}", percent(WORST_GOAL), summary.beyond_goal.join(", ")));
    }
    if summary.agreeing.1 > 0 {
        let (agreeing, all) = summary.agreeing;
        let others = if summary.disagreeing.is_empty() {
            String::new()
        } else {
            format!("; not {}", summary.disagreeing.join(", "))
        };
        lines.push(format!("{agreeing} of {all} published statements and bounds agree{others}"));
    }
    lines.extend(calibration_line(&summary.calibration));
    if summary.withheld > 0 {
        lines.push(format!(
            "{} results predicted whose published values are withheld",
            written(summary.withheld as f64)
        ));
    }
    if summary.unanswered > 0 {
        lines.push(format!("{} published values have no prediction yet", summary.unanswered));
    }
    lines
}

/// What became of a model's inputs; none where there are none.
fn calibration_line(calibration: &Calibration) -> Option<String> {
    let Calibration { inputs, reproduced, worst, disagreeing } = calibration;
    if *inputs == 0 {
        return None;
    }
    let mut line = format!("{inputs} calibration inputs: {reproduced} within {:.0}% or hold", 100.0 * REPRODUCED);
    if let Some((id, error)) = worst {
        line += &format!(", largest error {:.1}% of {id}", 100.0 * error);
    }
    if !disagreeing.is_empty() {
        line += &format!("; not {}", disagreeing.join(", "));
    }
    Some(line)
}
