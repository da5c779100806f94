//! `conic top`: what the software NIC does at this moment, in the terminal.
//!
//! | file | what is there |
//! |---|---|
//! | `sample` | what the daemon says of itself, and how busy its threads are |
//! | `view` | two samples made rows: rates, drops by reason |
//! | `wait` | how long what comes waits for a thread's look |
//! | `screen` | rows drawn |

mod sample;
mod screen;
#[cfg(test)]
mod tests;
mod view;
mod wait;

use std::error::Error;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use conic_client::Operator;
use conic_fabric::Time;
use conic_native::clock;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use sample::{Sample, has_ended};
use view::{Order, View};

/// Show what a running NIC does: networks, clients, ports, rates, drops by reason.
///
/// Asks the NIC's daemon (`conic nic`), which answers root and the user that it runs as. Core use is that of each network's
/// thread, as the kernel counts it.
///
/// A star behind a MAC address: the client gets frames for stations that nobody is known to have (promiscuous).
///
/// WAIT is how long what comes waits until its network's thread looks at it: at a moment of the interval at which the thread was awake,
/// the next look was less than this from the one before; in half of all such moments, in 99% of them, and in all. They are powers of two,
/// of picoseconds: what they bound is up to half of them. What was asleep, and is rung, is not in it, nor the time that a frame then takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The NIC's socket
    #[arg(long, value_name = "PATH", default_value = "/run/conic/nic.sock")]
    socket: PathBuf,
    /// Seconds between two looks, over which rates are taken
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Look twice, an interval apart, print one screen as text, and end
    #[arg(long)]
    once: bool,
    /// Print one JSON object a look instead of a screen; with --once, one
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Keys:
  q, Esc    end
  s         sort clients by the next of: session, sent, received, drops
  space     stop, and go on
  up, down  scroll clients

Examples:
  conic top --socket /tmp/nic.sock
  conic top --once | less
  conic top --json --interval 10 >> nic.jsonl";

/// How long the daemon may take for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The width of a screen that is printed as text.
const WIDTH: u16 = 140;

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 0.5".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("0.05 to 3600 seconds".to_owned())
    }
}

/// Shows it until it is ended.
///
/// # Errors
///
/// Nobody listens at the socket, or the daemon does not answer this user.
pub fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let mut source = Source { socket: &options.socket, operator: None };
    if options.once || options.json {
        return print(options, &mut source);
    }
    if !std::io::stdout().is_terminal() {
        return Err("the standard output is no terminal: use --once or --json".into());
    }
    // What is wrong at the beginning is told as text, and not on a screen that goes away.
    let first = source.look()?;
    let mut terminal = ratatui::try_init()?;
    let ended = watch(options, &mut source, first, &mut terminal);
    ratatui::restore();
    ended.map(|()| ExitCode::SUCCESS)
}

/// Where samples come from: a daemon, which may go and come back.
struct Source<'a> {
    socket: &'a Path,
    operator: Option<Operator>,
}

impl Source<'_> {
    fn look(&mut self) -> Result<Sample, Box<dyn Error>> {
        // A daemon that takes over goes on with the connection, which names the one before for as long as it lasts.
        self.operator.take_if(|operator| operator.process().is_ok_and(has_ended));
        let looked = match &self.operator {
            Some(operator) => Sample::take(operator),
            None => {
                let operator = Operator::connect(self.socket, PATIENCE)?;
                let sample = Sample::take(&operator);
                self.operator = Some(operator);
                sample
            }
        };
        if looked.is_err() {
            self.operator = None;
        }
        looked
    }
}

/// Prints screens or objects.
fn print(options: &Options, source: &mut Source<'_>) -> Result<ExitCode, Box<dyn Error>> {
    use std::io::Write;
    let mut before = source.look()?;
    loop {
        std::thread::sleep(options.interval);
        let now = source.look()?;
        let view = View::of(&before, &now, Order::Session);
        let text = if options.json { format!("{}\n", serde_json::to_string(&view)?) } else { text_of(&view, options)? };
        let mut output = std::io::stdout().lock();
        match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
            Ok(()) if !options.once => before = now,
            Ok(()) => return Ok(ExitCode::SUCCESS),
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A screen as text, as high as it needs to be.
fn text_of(view: &View, options: &Options) -> Result<String, Box<dyn Error>> {
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, screen::height_of(view)))?;
    let state = screen::State { socket: &options.socket, paused: false, scroll: 0, trouble: None, keys: false };
    terminal.draw(|frame| screen::draw(frame, view, &state))?;
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(WIDTH));
    let lines = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    Ok(lines.map(|line| format!("{}\n", line.trim_end())).collect())
}

/// Draws, looks, and does what keys say, until it is to end.
fn watch(
    options: &Options,
    source: &mut Source<'_>,
    first: Sample,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), Box<dyn Error>> {
    let (mut order, mut paused, mut scroll, mut trouble) = (Order::Session, false, 0, None);
    let mut latest = Latest { looked: first.at, sample: first };
    let mut view = View::of(&latest.sample, &latest.sample, order);
    loop {
        view.sort(order);
        scroll = scroll.min(view.clients.len().saturating_sub(1));
        let state = screen::State { socket: &options.socket, paused, scroll, trouble: trouble.as_deref(), keys: true };
        terminal.draw(|frame| screen::draw(frame, &view, &state))?;
        let left = latest.until_next(clock::now(), options.interval);
        // While it is stopped only keys change anything.
        if event::poll(if paused { options.interval } else { left })? {
            match key(&event::read()?) {
                Some(Key::End) => return Ok(()),
                Some(Key::Sort) => order = order.next(),
                Some(Key::Pause) => paused = !paused,
                Some(Key::Up) => scroll = scroll.saturating_sub(1),
                Some(Key::Down) => scroll += 1,
                None => {}
            }
        } else if !paused {
            let looked = source.look();
            trouble = looked.as_ref().err().map(ToString::to_string);
            view = latest.follow(clock::now(), looked.ok(), order).unwrap_or(view);
        }
    }
}

/// The last answer, and when it was looked last, which may have been in vain.
struct Latest {
    sample: Sample,
    looked: Time,
}

impl Latest {
    /// How long it is until the next look.
    fn until_next(&self, now: Time, interval: Duration) -> Duration {
        interval.saturating_sub(Duration::from_nanos(now.since(self.looked).nanoseconds()))
    }

    /// Takes the answer of a look at this moment, if there is one: what was gained since the last one, over the whole time since then.
    fn follow(&mut self, now: Time, answer: Option<Sample>, order: Order) -> Option<View> {
        self.looked = now;
        let answer = answer?;
        let view = View::of(&self.sample, &answer, order);
        self.sample = answer;
        Some(view)
    }
}

enum Key {
    End,
    Sort,
    Pause,
    Up,
    Down,
}

fn key(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    if key.is_release() {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::End),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::End),
        KeyCode::Char('s') => Some(Key::Sort),
        KeyCode::Char(' ') => Some(Key::Pause),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        _ => None,
    }
}
