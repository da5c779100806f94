//! One page that holds everything, with nothing fetched from outside.

use std::fmt::Write;

use super::{Report, heading, pictures, predicted, published, summary_lines, verdict};
use crate::comparison::Row;
use crate::experiment::Found;
use crate::sensitivity::Movement;

const STYLE: &str = "
:root { color-scheme: light dark; --sheet: #ffffff; --text: #1c2126; --muted: #5a626b; --rule: #d5d9de; --bad: #b03a00; }
@media (prefers-color-scheme: dark) {
  :root { --sheet: #16191d; --text: #e8eaed; --muted: #a3abb5; --rule: #3a424b; --bad: #ff9a66; }
}
body { margin: 0 auto; padding: 1.5rem; max-width: 62rem; background: var(--sheet); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
nav a { margin-right: .75rem; } a { color: inherit; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--rule); vertical-align: top; }
th.number, td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td small { color: var(--muted); display: block; } .off { color: var(--bad); font-weight: 600; }
.warning { border-left: 4px solid var(--bad); padding-left: .75rem; }
svg { max-width: 100%; height: auto; }
";

/// Writes into a string, which cannot fail.
macro_rules! put {
    ($page:expr, $($arguments:tt)*) => {
        write!($page, $($arguments)*).expect("a string takes any text")
    };
}

/// The page, as HTML text that is also well-formed XML. The same report always gives the same bytes.
pub fn page(report: &Report<'_>) -> String {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n";
    put!(page, "<title>{}, predicted</title>\n<style>", escape(report.subject.name));
    page += STYLE;
    page += "</style>\n</head>\n<body>\n";
    put!(page, "<h1>{}'s published experiments, predicted by simulation</h1>\n", escape(report.subject.name));
    overview(&mut page, report);
    for found in report.found {
        section(&mut page, found, report.rows);
    }
    movements(&mut page, report.moves.map_or(&[], |moves| &moves.movements));
    not_modelled(&mut page, report.rows);
    method(&mut page, report);
    page += "</body>\n</html>\n";
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn overview(page: &mut String, report: &Report<'_>) {
    for warning in report.warnings() {
        put!(page, "<p class=\"warning\">{}</p>\n", escape(&warning));
    }
    for line in summary_lines(report.summary) {
        put!(page, "<p>{}.</p>\n", escape(&line));
    }
    page.push_str("<nav>");
    for found in report.found {
        let name = found.name;
        put!(page, "<a href=\"#{name}\">{}</a> ", heading(found));
    }
    page.push_str("</nav>\n");
    let blind: Vec<&Row> = report.rows.iter().filter(|row| row.kind() == "withheld").collect();
    if !blind.is_empty() {
        page.push_str("<h2>Blind tests</h2>\n<p>What was published is not known here.</p>\n");
        table(page, &blind);
    }
}

fn section(page: &mut String, found: &Found, rows: &[Row]) {
    let name = found.name;
    let title = format!("{}: {}", heading(found), found.title);
    put!(page, "<h2 id=\"{name}\">{}</h2>\n", escape(&title));
    let of = |row: &&Row| found.findings.predictions.iter().any(|prediction| prediction.id == row.id);
    let own: Vec<&Row> = rows.iter().filter(of).collect();
    table(page, &own);
    for picture in pictures(found, rows) {
        // Inside HTML a picture needs no namespace.
        let svg = picture.chart.to_svg().replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
        put!(page, "<figure>{svg}</figure>\n");
    }
}

fn table(page: &mut String, rows: &[&Row]) {
    if rows.is_empty() {
        return;
    }
    page.push_str("<div class=\"scroll\"><table>\n<tr><th>result</th><th class=\"number\">predicted</th>");
    page.push_str(
        "<th class=\"number\">published</th><th class=\"number\">error</th><th>unit</th><th>role</th></tr>\n",
    );
    for row in rows {
        let missing = || "\u{2014}".to_owned();
        let mut about = row.about.clone();
        for more in [Some(&row.source).filter(|source| !source.is_empty()), row.note.as_ref()].into_iter().flatten() {
            if !about.is_empty() {
                about += "; ";
            }
            about += more;
        }
        let off = row.agrees() == Some(false) || row.counts() && row.error > Some(crate::comparison::WORST_GOAL);
        put!(
            page,
            "<tr><td>{}<small>{}</small></td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number{}\">{}</td><td>{}</td><td>{}</td></tr>\n",
            escape(&row.id),
            escape(&about),
            escape(&row.predicted.as_ref().map_or_else(missing, predicted)),
            escape(&row.published.map_or_else(missing, published)),
            if off { " off" } else { "" },
            escape(&verdict(row)),
            escape(if row.unit == "holds" { "" } else { &row.unit }),
            row.kind(),
        );
    }
    page.push_str("</table></div>\n");
}

fn movements(page: &mut String, movements: &[Movement]) {
    if movements.is_empty() {
        return;
    }
    page.push_str("<h2 id=\"sensitivity\">What the guesses decide</h2>\n");
    page.push_str("<p>Each guess of the platforms at the ends of its range, all others as they are.</p>\n");
    for picture in crate::sensitivity::pictures(movements) {
        let svg = picture.chart.to_svg().replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
        put!(page, "<figure>{svg}</figure>\n");
    }
}

fn not_modelled(page: &mut String, rows: &[Row]) {
    let unmodelled: Vec<&Row> = rows.iter().filter(|row| row.kind() == "not-modelled").collect();
    if !unmodelled.is_empty() {
        page.push_str("<h2>Not modelled</h2>\n");
        table(page, &unmodelled);
    }
}

fn method(page: &mut String, report: &Report<'_>) {
    let (asked, open) = report.questions();
    page.push_str("<h2 id=\"method\">Method</h2>\n");
    let answered = match report.found {
        [] => String::new(),
        _ => format!(" The experiments ask {asked} questions of the simulator, {} of them answered.", asked - open),
    };
    put!(
        page,
        "<p>Platforms: {}.{answered} {} An error is the difference over the \
         published value. Values that the platforms were fitted to, statements and bounds do not count towards the median. \
         Predictions are made without access to any published value.</p>\n",
        escape(&report.platforms.join(", ")),
        escape(report.subject.method),
    );
}
