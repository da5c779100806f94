//! Switches beyond the paper, as options of `conic sim`.

use clap::{Args, ValueEnum};
use conic_study::workload::{Application, Attention, Engines, Serving, Switches, Touch};
use serde::Serialize;

/// How a NIC core finds the queue pairs that have work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Finds {
    /// It looks at each in turn
    Polling,
    /// The snoops that take its copies of their lines away tell it
    Snoops,
}

/// What the host does to packets that it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Forwards {
    /// It reads and changes the first line; the payload stays with the NIC
    Header,
    /// It reads all lines and changes the first
    Whole,
    /// It reads and changes all lines
    Rewrite,
}

/// Which side has a copy engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    /// For the host's copies: needs --copy
    Host,
    /// For the copies with which CC-NIC's NIC turns packets around
    Nic,
    /// Both
    Both,
}

/// What goes beyond the paper.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Beyond the paper")]
pub struct SwitchArguments {
    /// One NIC core for so many queue pairs, instead of a core each; those beyond --threads are idle
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    queue_pairs: Option<u16>,
    /// How that core finds the queue pairs that have work: polling costs time with each, snoops do not
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Finds::Polling, requires = "queue_pairs")]
    attention: Finds,
    /// The NIC makes the packets and the host sends them on, in the same buffers; latency is then the NIC's
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["queue_pairs", "copy"])]
    forward: Option<Forwards>,
    /// The host's data are its own: it copies each packet into a buffer, and out of one when it has come back
    #[arg(long)]
    copy: bool,
    /// A bulk-copy engine moves payloads, many lines at once, for a start-up cost each: large packets gain, small ones lose
    #[arg(long, value_enum, value_name = "SIDE")]
    engine: Option<Side>,
    /// CC-NIC's host keeps no metadata in front of its buffers, as on memory; the paper's, a program of DPDK's, does
    #[arg(long)]
    bare_buffers: bool,
}

/// What was switched on, for JSON.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchReport {
    /// Queue pairs of the one NIC core; none where each has its own.
    queue_pairs: Option<u16>,
    attention: Option<&'static str>,
    forward: Option<&'static str>,
    copy: bool,
    engine: Option<&'static str>,
    bare_buffers: bool,
}

impl SwitchArguments {
    /// The switches.
    pub fn switches(&self) -> Switches {
        let serving = self.queue_pairs.map_or(Serving::OneEach, |pairs| Serving::Shared {
            queue_pairs: pairs.into(),
            attention: match self.attention {
                Finds::Polling => Attention::Polling,
                Finds::Snoops => Attention::Snoops,
            },
        });
        let application = match self.forward {
            None if self.copy => Application::Copying,
            None => Application::Loopback,
            Some(Forwards::Header) => Application::Forwarding(Touch::Header),
            Some(Forwards::Whole) => Application::Forwarding(Touch::Whole),
            Some(Forwards::Rewrite) => Application::Forwarding(Touch::Rewrite),
        };
        let has = |side: Side| self.engine.is_some_and(|given| given == side || given == Side::Both);
        let engines = Engines { host: has(Side::Host), nic: has(Side::Nic) };
        Switches { serving, application, engines, bare_buffers: self.bare_buffers, ..Switches::default() }
    }

    /// The same for a report; none where nothing is switched on.
    pub fn report(&self) -> Option<SwitchReport> {
        if self.switches() == Switches::default() {
            return None;
        }
        let attention = match self.attention {
            Finds::Polling => "polling",
            Finds::Snoops => "snoops",
        };
        Some(SwitchReport {
            queue_pairs: self.queue_pairs,
            attention: self.queue_pairs.map(|_| attention),
            forward: self.forward.map(|touch| match touch {
                Forwards::Header => "header",
                Forwards::Whole => "whole",
                Forwards::Rewrite => "rewrite",
            }),
            copy: self.copy,
            engine: self.engine.map(|side| match side {
                Side::Host => "host",
                Side::Nic => "nic",
                Side::Both => "both",
            }),
            bare_buffers: self.bare_buffers,
        })
    }
}

impl SwitchReport {
    /// A line for people.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if let (Some(pairs), Some(attention)) = (self.queue_pairs, self.attention) {
            parts.push(format!("one NIC core serves {pairs} queue pairs by {attention}"));
        }
        match self.forward {
            Some("header") => parts.push("the NIC makes packets and the host changes their headers".to_owned()),
            Some("whole") => parts.push("the NIC makes packets and the host reads all of them".to_owned()),
            Some(_) => parts.push("the NIC makes packets and the host changes all of them".to_owned()),
            None => {}
        }
        if self.copy {
            parts.push("the host copies packets from and to memory of its own".to_owned());
        }
        match self.engine {
            Some("both") => parts.push("engines copy for both sides".to_owned()),
            Some("nic") => parts.push("an engine copies for the NIC".to_owned()),
            Some(_) => parts.push("an engine copies for the host".to_owned()),
            None => {}
        }
        if self.bare_buffers {
            parts.push("no metadata in front of buffers".to_owned());
        }
        parts.join("; ")
    }
}
