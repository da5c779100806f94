//! Text tables with aligned columns.

use std::fmt::Write;

use crate::format::{NOT_A_NUMBER, grouped, significant, thousands};
use crate::terminal::TerminalStyle;
use crate::text::{columns, printable};

/// On which side the entries of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Names.
    Left,
    /// Numbers.
    Right,
}

/// A column's heading and form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// First line of the heading.
    pub name: String,
    /// Second line of the heading, such as "Mpps"; may be empty.
    pub unit: String,
    /// Alignment of heading and entries.
    pub align: Align,
    /// Decimals of numbers; `None`: three significant digits each.
    pub decimals: Option<usize>,
}

impl Column {
    /// A column of names.
    pub fn text(name: impl Into<String>) -> Column {
        Column { name: name.into(), unit: String::new(), align: Align::Left, decimals: None }
    }

    /// A column of numbers.
    pub fn number(name: impl Into<String>, unit: impl Into<String>, decimals: usize) -> Column {
        Column { name: name.into(), unit: unit.into(), align: Align::Right, decimals: Some(decimals) }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// As it stands.
    Text(String),
    /// Written with the column's decimals and thousands separators; one that is not finite is written "n/a".
    Number(f64),
    /// Nothing was measured: a dash.
    Missing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_string())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::Number(value)
    }
}

impl From<u64> for Cell {
    /// Exact, whatever the column's decimals.
    fn from(value: u64) -> Cell {
        Cell::Text(grouped(value))
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Missing, Into::into)
    }
}

/// A table: columns and rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row. A short row leaves its last columns empty; entries beyond the last column get columns without a
    /// heading, so nothing is lost.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) -> &mut Table {
        let cells: Vec<Cell> = cells.into_iter().collect();
        while self.columns.len() < cells.len() {
            self.columns.push(Column::text(""));
        }
        self.rows.push(cells);
        self
    }

    /// The table as lines, each ended by a newline: names, units (if a column has one), a rule, the rows.
    /// Only `style.ascii` matters; tables have no colours.
    pub fn draw(&self, style: TerminalStyle) -> String {
        let ascii = style.ascii;
        let of = |text: &dyn Fn(&Column) -> &str| -> Vec<String> {
            let texts = self.columns.iter().map(|c| printable(text(c), ascii));
            texts.collect()
        };
        let mut heading = vec![of(&|c| &c.name)];
        if self.columns.iter().any(|c| !c.unit.is_empty()) {
            heading.push(of(&|c| &c.unit));
        }
        let entry = |row: &Vec<Cell>, i: usize| match row.get(i) {
            Some(cell) => printable(&cell_text(cell, &self.columns[i], ascii), ascii),
            None => String::new(),
        };
        let body: Vec<Vec<String>> =
            self.rows.iter().map(|row| (0..self.columns.len()).map(|i| entry(row, i)).collect()).collect();
        let lines = || heading.iter().chain(&body);
        let widths: Vec<usize> =
            (0..self.columns.len()).map(|i| lines().map(|line| columns(&line[i])).max().unwrap_or(0)).collect();
        let mut out = String::new();
        for line in &heading {
            self.write_line(&mut out, line, &widths);
        }
        let rule = if ascii { "-" } else { "─" };
        let rules: Vec<String> = widths.iter().map(|w| rule.repeat(*w)).collect();
        self.write_line(&mut out, &rules, &widths);
        for line in &body {
            self.write_line(&mut out, line, &widths);
        }
        out
    }

    fn write_line(&self, out: &mut String, line: &[String], widths: &[usize]) {
        let mut text = String::new();
        for ((entry, width), column) in line.iter().zip(widths).zip(&self.columns) {
            let space = " ".repeat(width - columns(entry));
            let _ = match column.align {
                Align::Left => write!(text, "{entry}{space}  "),
                Align::Right => write!(text, "{space}{entry}  "),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
}

fn cell_text(cell: &Cell, column: &Column, ascii: bool) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(value) if !value.is_finite() => NOT_A_NUMBER.to_string(),
        Cell::Number(value) => match column.decimals {
            Some(decimals) => thousands(*value, decimals),
            None => significant(*value, 3),
        },
        Cell::Missing => if ascii { "-" } else { "–" }.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let mut table = Table::new([
            Column::text("interface"),
            Column::number("rate", "Mpps", 1),
            Column::number("latency, p99", "ns", 0),
        ]);
        table.row(["ccnic".into(), 41.25.into(), 1204.0.into()]);
        table.row(["ring".into(), 9.0.into(), f64::NAN.into()]);
        table.row(["µ-ring".into(), Cell::Missing]);
        table
    }

    #[test]
    fn columns_are_aligned_under_names_and_units() {
        let expected = "\
interface  rate  latency, p99
           Mpps            ns
─────────  ────  ────────────
ccnic      41.2         1,204
ring        9.0           n/a
µ-ring        –
";
        assert_eq!(example().draw(TerminalStyle::default()), expected);
    }

    #[test]
    fn ascii_table_is_ascii() {
        let style = TerminalStyle { ascii: true, colour: false };
        let text = example().draw(style);
        assert!(text.is_ascii());
        assert!(text.contains("u-ring"));
    }

    #[test]
    fn entries_beyond_the_columns_are_kept_and_integers_are_exact() {
        let mut table = Table::new([Column::text("a")]);
        table.row(["x".into(), u64::MAX.into(), None::<f64>.into()]);
        let text = table.draw(TerminalStyle::default());
        assert!(text.contains("x  18,446,744,073,709,551,615  –"), "{text}");
        assert_eq!(Table::default().draw(TerminalStyle::default()), "\n\n");
    }
}
