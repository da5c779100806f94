//! Rows drawn.

use std::path::Path;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::view::{ClientRow, DropRow, NetworkRow, PortRow, Rate, View};

/// What is drawn beside the rows.
pub struct State<'a> {
    /// The daemon's socket.
    pub socket: &'a Path,
    /// Whether looking has been stopped.
    pub paused: bool,
    /// Clients that are left out above.
    pub scroll: usize,
    /// Why the last look failed.
    pub trouble: Option<&'a str>,
    /// Whether keys do something.
    pub keys: bool,
}

/// Drops that are shown at most, and clients at least, where there is too little room.
const MOST_DROPS: usize = 8;

/// Lines of a table of so many rows: its head, its rows, and an empty line.
fn lines(rows: usize) -> u16 {
    u16::try_from(rows.max(1) + 2).unwrap_or(u16::MAX)
}

/// Lines that everything needs.
pub fn height_of(view: &View) -> u16 {
    let tables = [view.networks.len(), view.clients.len(), view.ports.len(), view.drops.len()];
    tables.iter().map(|&rows| lines(rows)).fold(2, u16::saturating_add)
}

/// Draws a screen.
pub fn draw(frame: &mut Frame, view: &View, state: &State) {
    let room = frame.area();
    let drops = if height_of(view) > room.height { view.drops.len().min(MOST_DROPS) } else { view.drops.len() };
    let parts = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(lines(view.networks.len())),
        Constraint::Min(3),
        Constraint::Length(lines(view.ports.len())),
        Constraint::Length(lines(drops)),
    ]);
    let [head, networks, clients, ports, of_drops] = parts.areas(room);
    frame.render_widget(header(view, state), head);
    draw_networks(frame, networks, &view.networks);
    draw_clients(frame, clients, view, state.scroll);
    draw_ports(frame, ports, &view.ports);
    draw_drops(frame, of_drops, &view.drops[..drops], view.drops.len());
}

fn header(view: &View, state: &State) -> Paragraph<'static> {
    let keys = if state.keys { "   q end  s sort  space stop" } else { "" };
    let paused = if state.paused { "   stopped" } else { "" };
    let text = format!(
        "conic top   {}   process {}   over {:.1} s{keys}{paused}",
        state.socket.display(),
        view.process,
        view.seconds
    );
    match state.trouble {
        Some(trouble) => Paragraph::new(vec![
            Line::raw(text),
            Line::styled(format!("as it was last: {trouble}"), Style::new().fg(Color::Red)),
        ]),
        None => Paragraph::new(Line::styled(text, Style::new().add_modifier(Modifier::BOLD))),
    }
}

/// A number with its unit's prefix, in seven places or less.
pub fn short(number: f64) -> String {
    let (scaled, prefix) = match number {
        _ if number >= 1e12 => (number / 1e12, "T"),
        _ if number >= 1e9 => (number / 1e9, "G"),
        _ if number >= 1e6 => (number / 1e6, "M"),
        _ if number >= 1e4 => (number / 1e3, "k"),
        _ => return format!("{number:.0}"),
    };
    format!("{scaled:.2}{prefix}")
}

fn numbers(rate: Rate) -> [String; 2] {
    [short(rate.frames), short(rate.bits)]
}

/// A table: titles with the width of their columns, negative for what stands at the right.
fn table<'a>(titles: &[(&'static str, i16)], rows: Vec<Row<'a>>) -> Table<'a> {
    let head = titles.iter().map(|&(title, width)| {
        let line = Line::raw(title);
        Cell::new(if width < 0 { line.right_aligned() } else { line.left_aligned() })
    });
    let widths = titles.iter().map(|&(_, width)| Constraint::Length(width.unsigned_abs()));
    Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::REVERSED)))
        .column_spacing(2)
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::raw(text).right_aligned())
}

/// A count that should be zero.
fn alarm(count: u64) -> Cell<'static> {
    let cell = right(count.to_string());
    if count > 0 { cell.style(Style::new().fg(Color::Yellow)) } else { cell }
}

fn none(what: &'static str) -> Vec<Row<'static>> {
    vec![Row::new([what]).style(Style::new().add_modifier(Modifier::DIM))]
}

fn draw_networks(frame: &mut Frame, at: Rect, networks: &[NetworkRow]) {
    let titles = [
        ("NETWORK", 32),
        ("MODE", 8),
        ("CLIENTS", -7),
        ("QUEUES", -6),
        ("PORTS", -5),
        ("FRAMES/S", -9),
        ("BITS/S", -9),
        ("CORE", -6),
    ];
    let rows = networks.iter().map(|network| {
        let [frames, bits] = numbers(network.rate);
        Row::new([
            Cell::new(network.name.clone()),
            Cell::new(network.mode.clone()),
            right(network.clients.to_string()),
            right(network.queues.to_string()),
            right(network.ports.to_string()),
            right(frames),
            right(bits),
            right(network.core.map_or("-".to_owned(), |part| format!("{:.0}%", 100.0 * part))),
        ])
    });
    frame.render_widget(table(&titles, rows.collect()), at);
}

fn client_row(client: &ClientRow) -> Row<'static> {
    let ([sent, sent_bits], [received, received_bits]) = (numbers(client.sent), numbers(client.received));
    Row::new([
        right(client.session.to_string()),
        Cell::new(client.name.clone()),
        right(client.user.to_string()),
        Cell::new(client.network.clone()),
        right(client.queues.to_string()),
        right(format!("{}M", client.bytes >> 20)),
        Cell::new(client.mac.clone()),
        right(sent),
        right(sent_bits),
        right(received),
        right(received_bits),
        alarm(client.drops),
        alarm(client.faults),
    ])
}

fn draw_clients(frame: &mut Frame, at: Rect, view: &View, scroll: usize) {
    let titles = [
        ("SESSION", -7),
        ("CLIENT", 16),
        ("USER", -5),
        ("NETWORK", 12),
        ("QUEUES", -6),
        ("MEMORY", -6),
        ("MAC", 17),
        ("SENT/S", -7),
        ("BITS/S", -8),
        ("RECV/S", -7),
        ("BITS/S", -8),
        ("DROPS", -8),
        ("FAULTS", -6),
    ];
    // The head and an empty line behind the table.
    let room = usize::from(at.height.saturating_sub(2));
    let left = &view.clients[scroll.min(view.clients.len())..];
    let shown = if left.len() > room { room.saturating_sub(1) } else { left.len() };
    let mut rows: Vec<Row> = left[..shown].iter().map(client_row).collect();
    if shown < left.len() {
        rows.push(Row::new(["".to_owned(), format!("and {} more", left.len() - shown)]));
    }
    if view.clients.is_empty() {
        rows = vec![Row::new(["", "none"]).style(Style::new().add_modifier(Modifier::DIM))];
    }
    frame.render_widget(table(&titles, rows), at);
}

fn draw_ports(frame: &mut Frame, at: Rect, ports: &[PortRow]) {
    let titles = [
        ("PORT", 44),
        ("NETWORK", 12),
        ("LINK", 4),
        ("SENT/S", -7),
        ("BITS/S", -8),
        ("RECV/S", -7),
        ("BITS/S", -8),
        ("DROPS", -8),
    ];
    let rows: Vec<Row> = ports
        .iter()
        .map(|port| {
            let ([sent, sent_bits], [received, received_bits]) = (numbers(port.sent), numbers(port.received));
            let link = if port.up { Cell::new("up") } else { Cell::new("down").style(Style::new().fg(Color::Red)) };
            Row::new([
                Cell::new(port.spec.clone()),
                Cell::new(port.network.clone()),
                link,
                right(sent),
                right(sent_bits),
                right(received),
                right(received_bits),
                alarm(port.drops),
            ])
        })
        .collect();
    frame.render_widget(table(&titles, if rows.is_empty() { none("none") } else { rows }), at);
}

fn draw_drops(frame: &mut Frame, at: Rect, drops: &[DropRow], all: usize) {
    let titles = [("DROPPED OR REFUSED OF", 44), ("REASON", 28), ("COUNT", -12), ("A SECOND", -9)];
    let mut rows: Vec<Row> = drops
        .iter()
        .map(|drop| {
            Row::new([
                Cell::new(drop.of.clone()),
                Cell::new(drop.reason.clone()),
                right(drop.count.to_string()),
                right(short(drop.rate)),
            ])
        })
        .collect();
    if drops.len() < all
        && let Some(last) = rows.last_mut()
    {
        *last = Row::new([format!("and {} more reasons", all - drops.len() + 1)]);
    }
    frame.render_widget(table(&titles, if rows.is_empty() { none("nothing") } else { rows }), at);
}
