//! `conic platform`: the machines that the simulator knows, and where each of their values is from.

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use conic_chart::{Cell, Column, Table, TerminalStyle};
use conic_sim::bus::BusParameters;
use conic_sim::cxl::CxlParameters;
use conic_sim::eci::EciParameters;
use conic_sim::host::HostParameters;
use conic_sim::platform::{
    BUSES, CXL, ECI, Entry, HOST, ParameterSet, Platform, PlatformError, Source, Value, model_of, names_of,
};
use serde::Serialize;
use serde_json::json;

use crate::bench::failure::Failure;
use crate::value::{self, in_lines};

/// Options of `conic platform`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  conic platform list                          the machines that come with conic
  conic platform show icx                      every value, its unit and where it is from
  conic platform show spr --guesses            what nobody measured, with its range
  conic platform show mine.toml                the same of one's own file, or what is wrong in it";

#[derive(Debug, Subcommand)]
enum Command {
    /// Name the platforms that come with conic
    List(ListArguments),
    /// Print the values of a platform and where each of them is from
    Show(ShowArguments),
}

#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
struct ListArguments {
    /// Print one JSON array of objects with name and description
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = SHOW_HELP)]
struct ShowArguments {
    /// A platform's name, or the path of a file that ends in .toml
    #[arg(value_name = "NAME")]
    platform: String,
    /// Print one JSON object on stdout and nothing else there; errors too, with exit code 1
    #[arg(long)]
    json: bool,
    /// Only what nobody measured or documented, with its range
    #[arg(long)]
    guesses: bool,
    /// Replace a value, in its unit or with one of its own, as in interconnect.crossing=40ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

const LIST_HELP: &str = "Examples:
  conic platform list
  conic platform list --json";

const SHOW_HELP: &str = "Where values are from:
  measured    on this machine, or on one like it that is named
  document    a specification, a manual, or what a paper says of its machine
  derived     a relation to other keys, printed after the equals sign
  guess       nobody says; the range is given
  override    replaced by --set

Keys in inputs. are what relations begin with; the others are what the simulator reads. \
An input that --set replaces changes what follows from it; any other key changes alone.

Examples:
  conic platform show icx
  conic platform show icx --guesses
  conic platform show spr --set core.line_fill_buffers=12 --set interconnect.crossing=40ns
  conic platform show icx-e810 --json";

/// Runs the command.
pub fn main(arguments: &Arguments) -> ExitCode {
    match &arguments.command {
        Command::List(list) => finish(listing(list.json), list.json),
        Command::Show(show) => finish(shown(show), show.json),
    }
}

/// Prints the text, or why there is none.
fn finish(result: Result<String, impl ToString>, as_json: bool) -> ExitCode {
    match result {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => Failure::failed(error.to_string()).report(as_json),
    }
}

fn listing(as_json: bool) -> Result<String, PlatformError> {
    let sockets: Vec<Platform> = Platform::names().map(Platform::load).collect::<Result<_, _>>()?;
    let eci: Vec<Platform<EciParameters>> = names_of(ECI).map(Platform::load_as).collect::<Result<_, _>>()?;
    let cxl: Vec<Platform<CxlParameters>> = names_of(CXL).map(Platform::load_as).collect::<Result<_, _>>()?;
    let buses: Vec<Platform<BusParameters>> = names_of(BUSES).map(Platform::load_as).collect::<Result<_, _>>()?;
    let sockets = sockets.iter().map(Item::of);
    let others = eci.iter().map(Item::of).chain(cxl.iter().map(Item::of)).chain(buses.iter().map(Item::of));
    let hosts: Vec<Platform<HostParameters>> = names_of(HOST).map(Platform::load_as).collect::<Result<_, _>>()?;
    let items: Vec<Item> = sockets.chain(others).chain(hosts.iter().map(Item::of)).collect();
    if as_json {
        let item = |item: &Item| json!({ "name": item.name, "description": item.description });
        return Ok(format!("{}\n", json!(items.iter().map(item).collect::<Vec<_>>())));
    }
    let mut table =
        Table::new([Column::text("name"), Column::text("machine"), right("values", ""), right("guesses", "")]);
    for Item { name, description, values, guesses } in &items {
        table.row([name.as_str().into(), description.as_str().into(), (*values).into(), (*guesses).into()]);
    }
    Ok(table.draw(STYLE))
}

/// A platform in the list.
struct Item {
    name: String,
    description: String,
    values: u64,
    guesses: u64,
}

impl Item {
    fn of<P: ParameterSet>(platform: &Platform<P>) -> Item {
        Item {
            name: platform.name().to_string(),
            description: platform.description().to_string(),
            values: platform.entries().count() as u64,
            guesses: platform.guesses().count() as u64,
        }
    }
}

fn shown(arguments: &ShowArguments) -> Result<String, String> {
    let wanted = arguments.platform.as_str();
    let shown = match model_of(wanted).name {
        name if name == ECI.name => shown_as::<EciParameters>(arguments),
        name if name == CXL.name => shown_as::<CxlParameters>(arguments),
        name if name == BUSES.name => shown_as::<BusParameters>(arguments),
        name if name == HOST.name => shown_as::<HostParameters>(arguments),
        _ => shown_as::<conic_sim::Parameters>(arguments),
    };
    let others = || names_of(ECI).chain(names_of(CXL)).chain(names_of(BUSES)).chain(names_of(HOST));
    let is_known = || wanted.contains(['.', '/']) || others().chain(Platform::names()).any(|name| name == wanted);
    shown.map_err(|error| match is_known() {
        true => error.to_string(),
        false => format!("{error}; of other models there are {}", others().collect::<Vec<_>>().join(", ")),
    })
}

fn shown_as<P: ParameterSet>(arguments: &ShowArguments) -> Result<String, PlatformError> {
    let platform = Platform::<P>::load_as(&arguments.platform)?.with(&arguments.overrides)?;
    if arguments.json {
        return Ok(format!("{}\n", json!(Report::of(&platform, arguments.guesses))));
    }
    let (values, guesses) = (platform.entries().count(), platform.guesses().count());
    let mut text = format!("{}: {}\n\n", platform.name(), platform.description());
    if !arguments.guesses {
        text += &values_text(&platform, columns());
        text.push('\n');
    }
    text += &format!("{guesses} of {values} values are guesses:\n\n");
    text += &guesses_text(&platform, columns());
    Ok(text)
}

/// Plain, so that it can be sent anywhere.
const STYLE: TerminalStyle = TerminalStyle { ascii: true, colour: false };

/// A column of numbers as they stand.
fn right(name: &str, unit: &str) -> Column {
    Column::number(name, unit, 0)
}

/// How many columns a terminal has; none where the output goes elsewhere, and a value should stay on one line.
fn columns() -> Option<usize> {
    stdout().is_terminal().then(|| value::columns().unwrap_or(120))
}

/// The fewest columns into which reasons are wrapped beside what they are of.
const FEWEST: usize = 30;

/// Every value with its provenance.
fn values_text<P: ParameterSet>(platform: &Platform<P>, columns: Option<usize>) -> String {
    let headings = [Column::text("key"), right("value", ""), Column::text("provenance")];
    let row = |entry: &Entry| {
        let value = [entry.key.clone(), in_unit(entry, &entry.value.to_string()), entry.source.to_string()];
        (value.to_vec(), reason(entry))
    };
    drawn(headings.to_vec(), platform.entries().map(row).collect(), columns)
}

/// The guesses with their ranges; with reasons where they stand alone.
fn guesses_text<P: ParameterSet>(platform: &Platform<P>, columns: Option<usize>) -> String {
    let headings = [Column::text("key"), right("value", ""), right("low", ""), right("high", "")];
    let row = |entry: &Entry| {
        let bound = |pick: fn((f64, f64)) -> f64| entry.range.map_or(String::new(), |range| bound(entry, pick(range)));
        let value = in_unit(entry, &entry.value.to_string());
        (vec![entry.key.clone(), value, bound(|(low, _)| low), bound(|(_, high)| high)], reason(entry))
    };
    drawn(headings.to_vec(), platform.guesses().map(row).collect(), columns)
}

/// A value with its unit behind it.
fn in_unit(entry: &Entry, value: &str) -> String {
    if entry.unit.is_empty() { value.to_owned() } else { format!("{value} {}", entry.unit) }
}

/// An end of a range, as its entry's values are written.
fn bound(entry: &Entry, end: f64) -> String {
    match entry.value {
        Value::Flag(_) => Value::Flag(end != 0.0).to_string(),
        Value::Number(_) => Value::Number(end).to_string(),
    }
}

/// Where a value is from, in a sentence.
fn reason(entry: &Entry) -> String {
    match (&entry.relation, entry.source) {
        (_, Source::Override) => format!("the command line, instead of: {}", entry.from),
        (Some(relation), _) => format!("= {relation}: {}", entry.from),
        (None, _) => entry.from.clone(),
    }
}

/// Rows with a reason behind each: in a column of its own, wrapped where there is a limit to the columns, or below its row where that
/// leaves too little room.
fn drawn(mut headings: Vec<Column>, rows: Vec<(Vec<String>, String)>, columns: Option<usize>) -> String {
    // Two columns stand between two entries, and no heading is wider than ten.
    let width = |at: usize| rows.iter().map(|(cells, _)| cells[at].len()).max().unwrap_or(0).max(10) + 2;
    let before: usize = (0..headings.len()).map(width).sum();
    if let Some(columns) = columns.filter(|columns| before + FEWEST > *columns) {
        return reasons_below(headings, rows, columns);
    }
    let room = columns.map(|columns| columns - before);
    headings.push(Column::text("from"));
    let mut table = Table::new(headings);
    for (cells, text) in rows {
        let mut lines = wrapped(&text, room).into_iter();
        let first = lines.next().unwrap_or_default();
        let blank = vec![Cell::from(""); cells.len()];
        table.row(cells.into_iter().map(Cell::from).chain([first.into()]));
        for line in lines {
            table.row(blank.iter().cloned().chain([line.into()]));
        }
    }
    table.draw(STYLE)
}

/// The same with each reason in lines below its row.
fn reasons_below(headings: Vec<Column>, rows: Vec<(Vec<String>, String)>, columns: usize) -> String {
    const INDENT: &str = "    ";
    let mut table = Table::new(headings);
    let mut reasons = Vec::new();
    for (cells, text) in rows {
        table.row(cells.into_iter().map(Cell::from));
        reasons.push(wrapped(&text, Some(columns.saturating_sub(INDENT.len()))));
    }
    let mut text = String::new();
    // The heading, and the rule under it, have none.
    let mut reasons = [Vec::new(), Vec::new()].into_iter().chain(reasons);
    for line in table.draw(STYLE).lines() {
        text += &format!("{line}\n");
        for reason in reasons.next().unwrap_or_default() {
            text += &format!("{INDENT}{reason}\n");
        }
    }
    text
}

/// A text in lines of at most `room` characters, but for words that are longer.
fn wrapped(text: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else { return vec![text.to_string()] };
    in_lines(text.split_whitespace(), " ", room)
}

/// A platform for programs.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: &'static str,
    name: &'a str,
    description: &'a str,
    values: usize,
    guesses: usize,
    entries: Vec<EntryReport<'a>>,
}

#[derive(Debug, Serialize)]
struct EntryReport<'a> {
    key: &'a str,
    value: serde_json::Value,
    unit: &'a str,
    provenance: &'static str,
    from: &'a str,
    relation: Option<&'a str>,
    low: Option<f64>,
    high: Option<f64>,
    file: &'a str,
    line: Option<usize>,
}

impl<'a> Report<'a> {
    fn of<P: ParameterSet>(platform: &'a Platform<P>, only_guesses: bool) -> Report<'a> {
        let wanted = |entry: &&Entry| !only_guesses || entry.source == Source::Guess;
        Report {
            schema: "conic.platform/1",
            name: platform.name(),
            description: platform.description(),
            values: platform.entries().count(),
            guesses: platform.guesses().count(),
            entries: platform.entries().filter(wanted).map(EntryReport::of).collect(),
        }
    }
}

impl<'a> EntryReport<'a> {
    fn of(entry: &'a Entry) -> EntryReport<'a> {
        EntryReport {
            key: &entry.key,
            value: match entry.value {
                Value::Number(number) => json!(number),
                Value::Flag(flag) => json!(flag),
            },
            unit: &entry.unit,
            provenance: entry.source.name(),
            from: &entry.from,
            relation: entry.relation.as_deref(),
            low: entry.range.map(|(low, _)| low),
            high: entry.range.map(|(_, high)| high),
            file: &entry.file,
            line: entry.line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn icx() -> Platform {
        Platform::load("icx").expect("it comes with the program")
    }

    #[test]
    fn reasons_are_wrapped_into_the_columns_that_are_left() {
        let text = values_text(&icx(), Some(130));
        assert!(text.lines().all(|line| line.len() <= 130), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.starts_with("memory.latency")).expect("it is there");
        assert!(
            lines[at].contains(" 61 ns ") && lines[at].contains("derived") && lines[at].contains("= inputs.local_dram")
        );
        assert!(lines[at + 1].starts_with("          "));
    }

    #[test]
    fn without_a_terminal_a_value_is_a_line() {
        let platform = icx();
        let text = values_text(&platform, None);
        assert_eq!(text.lines().count(), platform.entries().count() + 2);
        let text = guesses_text(&platform, None);
        assert_eq!(text.lines().count(), platform.guesses().count() + 2);
        let line = text.lines().find(|line| line.starts_with("node.home_lookup ")).expect("it is a guess");
        assert_eq!(line.split_whitespace().take(5).collect::<Vec<_>>(), ["node.home_lookup", "8", "ns", "6", "12"]);
    }

    #[test]
    fn a_terminal_of_eighty_columns_holds_the_values() {
        for name in Platform::<conic_sim::Parameters>::names() {
            let platform: Platform = Platform::load(name).expect("it comes with the program");
            let text = values_text(&platform, Some(80)) + &guesses_text(&platform, Some(80));
            let wide: Vec<&str> = text.lines().filter(|line| line.len() > 80).collect();
            assert_eq!(wide, [""; 0], "{name}");
        }
    }

    #[test]
    fn long_words_are_not_lost() {
        assert_eq!(wrapped("a bc defghij k", Some(4)), ["a bc", "defghij", "k"]);
        assert_eq!(wrapped("", Some(4)), [""]);
    }
}
