//! Rows drawn.

use std::path::Path;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::view::{ClientRow, DropRow, NetworkRow, PortRow, Rate, View};
use super::wait::{Wait, text};

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

/// A column: its title, its width, negative for what stands at the right, and when it is left out where there is too little
/// room: the highest first, 0 never.
type Column = (&'static str, i16, u8);

/// The least width of a table's first column where that is the widest.
const LEAST: i16 = 16;

/// The columns that fit, with their widths.
fn fit(columns: &[Column], room: u16) -> Vec<(usize, u16)> {
    let mut kept: Vec<(usize, u16)> = columns.iter().map(|column| column.1.unsigned_abs()).enumerate().collect();
    let over = |kept: &[(usize, u16)]| {
        let needed: u16 = kept.iter().map(|(_, width)| width + 2).sum();
        needed.saturating_sub(2).saturating_sub(room)
    };
    if columns[0].1 > LEAST {
        let least = LEAST.unsigned_abs();
        kept[0].1 = kept[0].1.saturating_sub(over(&kept)).max(least);
    }
    while over(&kept) > 0
        && let Some(last) = (0..kept.len()).max_by_key(|&at| columns[kept[at].0].2)
        && columns[kept[last].0].2 > 0
    {
        kept.remove(last);
    }
    kept
}

/// A table of rows that have a cell for each column.
fn table<'a>(columns: &[Column], rows: Vec<Vec<Cell<'a>>>, room: u16) -> Table<'a> {
    let kept = fit(columns, room);
    let head = kept.iter().map(|&(at, _)| {
        let (title, width, _) = columns[at];
        let line = Line::raw(title);
        Cell::new(if width < 0 { line.right_aligned() } else { line.left_aligned() })
    });
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let head = Row::new(head.collect::<Vec<_>>()).style(style);
    let rows = rows.into_iter().map(|row| {
        let cells = row.into_iter().enumerate().filter(|(at, _)| kept.iter().any(|(one, _)| one == at));
        Row::new(cells.map(|(_, cell)| cell).collect::<Vec<_>>())
    });
    let rows: Vec<Row> = rows.collect();
    Table::new(rows, kept.iter().map(|&(_, width)| Constraint::Length(width))).header(head).column_spacing(2)
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::raw(text).right_aligned())
}

/// A count that should be zero.
fn alarm(count: u64) -> Cell<'static> {
    let cell = right(count.to_string());
    if count > 0 { cell.style(Style::new().fg(Color::Yellow)) } else { cell }
}

fn none(what: &'static str) -> Vec<Vec<Cell<'static>>> {
    vec![vec![Cell::new(what).style(Style::new().add_modifier(Modifier::DIM))]]
}

fn draw_networks(frame: &mut Frame, at: Rect, networks: &[NetworkRow]) {
    let columns = [
        ("NETWORK", 32, 0),
        ("MODE", 8, 2),
        ("CLIENTS", -7, 0),
        ("QUEUES", -6, 3),
        ("PORTS", -5, 1),
        ("FRAMES/S", -9, 0),
        ("BITS/S", -9, 0),
        ("CORE", -5, 0),
        ("WAIT", -5, 0),
        ("99%", -5, 0),
        ("MOST", -5, 0),
    ];
    let rows = networks.iter().map(|network| {
        let [frames, bits] = numbers(network.rate);
        let wait = |of: fn(&Wait) -> f64| right(network.wait.as_ref().map_or("-".to_owned(), |wait| text(of(wait))));
        vec![
            Cell::new(network.name.clone()),
            Cell::new(network.mode.clone()),
            right(network.clients.to_string()),
            right(network.queues.to_string()),
            right(network.ports.to_string()),
            right(frames),
            right(bits),
            right(network.core.map_or("-".to_owned(), |part| format!("{:.0}%", 100.0 * part))),
            wait(|wait| wait.half_ns),
            wait(|wait| wait.most_ns),
            wait(|wait| wait.longest_ns),
        ]
    });
    frame.render_widget(table(&columns, rows.collect(), at.width), at);
}

fn client_row(client: &ClientRow) -> Vec<Cell<'static>> {
    let identity = &client.identity;
    let ([sent, sent_bits], [received, received_bits]) = (numbers(client.sent), numbers(client.received));
    vec![
        right(identity.session.to_string()),
        Cell::new(identity.name.clone()),
        right(identity.user.to_string()),
        Cell::new(identity.network.clone()),
        right(identity.queues.to_string()),
        right(format!("{}M", identity.bytes >> 20)),
        // A star: it gets frames for stations that nobody is known to have.
        Cell::new(format!("{}{}", identity.mac, if identity.promiscuous { "*" } else { "" })),
        right(sent),
        right(sent_bits),
        right(received),
        right(received_bits),
        alarm(client.drops),
        alarm(client.faults),
    ]
}

fn draw_clients(frame: &mut Frame, at: Rect, view: &View, scroll: usize) {
    let columns = [
        ("SESSION", -7, 0),
        ("CLIENT", 16, 0),
        ("USER", -5, 5),
        ("NETWORK", 12, 1),
        ("QUEUES", -6, 4),
        ("MEMORY", -6, 6),
        ("MAC", 18, 7),
        ("SENT/S", -7, 0),
        ("BITS/S", -8, 3),
        ("RECV/S", -7, 0),
        ("BITS/S", -8, 2),
        ("DROPS", -8, 0),
        ("FAULTS", -6, 0),
    ];
    // The head and an empty line behind the table.
    let room = usize::from(at.height.saturating_sub(2));
    let left = &view.clients[scroll.min(view.clients.len())..];
    let shown = if left.len() > room { room.saturating_sub(1) } else { left.len() };
    let mut rows: Vec<Vec<Cell>> = left[..shown].iter().map(client_row).collect();
    if shown < left.len() {
        rows.push(vec![Cell::new(""), Cell::new(format!("and {} more", left.len() - shown))]);
    }
    if view.clients.is_empty() {
        rows = vec![vec![Cell::new(""), Cell::new("none").style(Style::new().add_modifier(Modifier::DIM))]];
    }
    frame.render_widget(table(&columns, rows, at.width), at);
}

fn draw_ports(frame: &mut Frame, at: Rect, ports: &[PortRow]) {
    let columns = [
        ("PORT", 44, 0),
        ("NETWORK", 12, 1),
        ("LINK", 4, 0),
        ("SENT/S", -7, 0),
        ("BITS/S", -8, 3),
        ("RECV/S", -7, 0),
        ("BITS/S", -8, 2),
        ("DROPS", -8, 0),
    ];
    let rows: Vec<Vec<Cell>> = ports
        .iter()
        .map(|port| {
            let ([sent, sent_bits], [received, received_bits]) = (numbers(port.sent), numbers(port.received));
            let link = if port.up { Cell::new("up") } else { Cell::new("down").style(Style::new().fg(Color::Red)) };
            vec![
                Cell::new(port.spec.clone()),
                Cell::new(port.network.clone()),
                link,
                right(sent),
                right(sent_bits),
                right(received),
                right(received_bits),
                alarm(port.drops),
            ]
        })
        .collect();
    frame.render_widget(table(&columns, if rows.is_empty() { none("none") } else { rows }, at.width), at);
}

fn draw_drops(frame: &mut Frame, at: Rect, drops: &[DropRow], all: usize) {
    let columns = [("DROPPED OR REFUSED OF", 44, 0), ("REASON", 28, 0), ("COUNT", -12, 0), ("A SECOND", -9, 1)];
    let mut rows: Vec<Vec<Cell>> = drops
        .iter()
        .map(|drop| {
            vec![
                Cell::new(drop.of.clone()),
                Cell::new(drop.reason.clone()),
                right(drop.count.to_string()),
                right(short(drop.rate)),
            ]
        })
        .collect();
    if drops.len() < all
        && let Some(last) = rows.last_mut()
    {
        *last = vec![Cell::new(format!("and {} more reasons", all - drops.len() + 1))];
    }
    frame.render_widget(table(&columns, if rows.is_empty() { none("nothing") } else { rows }, at.width), at);
}
