//! One call, or one frame of a NIC, over pairs of lines whose home is the device.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use conic_sim::eci::EciParameters;
use conic_sim::platform::{CXL, Platform, SOCKETS};
use conic_sim::probe::SpanRecord;
use conic_study::coherent_pio::exchange::{CALL, observed_calls};
use conic_study::coherent_pio::frames::{Arrives, FRAME, Frames, observed_receive, observed_transmit};
use serde::Serialize;

use super::output::{MessageReport, Output, OwnersReport, messages, owners, table};
use super::{Followed, Recorded, TRIPS};
use crate::bench::common::nanoseconds;
use crate::bench::failure::{Failure, print_json};
use crate::sim::lines::{CallQuestion, FrameQuestion, LinesQuestion, Returns, frames, wait};

/// Every message that one call of a function on the device causes
///
/// The CPU writes the request into one group of lines and loads the first of the other, which is the signal; the device withholds the
/// answer, takes the request's lines back, computes, and answers. Calls run until they are steady; then one is written down.
#[derive(Clone, Debug, Args)]
#[command(after_help = CALLS)]
pub struct Call {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    call: CallQuestion,
}

/// Every message that one frame from the NIC causes
///
/// The CPU loads a control line, and the NIC withholds the answer until a frame is there, which comes in that line and in overflow
/// lines. Frames come until that is steady; then one is written down, from when the CPU begins to ask for it.
#[derive(Clone, Debug, Args)]
#[command(after_help = RECEIVED)]
pub struct Receive {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    frame: FrameQuestion,
    /// The driver asks for all overflow lines of a frame together; the published one does not
    #[arg(long)]
    prefetch: bool,
    /// The frame's last beat is at the port so long after the CPU has begun to ask for it, 1us to 10ms [default: at once]
    #[arg(long, value_name = "TIME", value_parser = wait)]
    after: Option<Time>,
}

/// Every message that one frame to the NIC causes
///
/// The CPU writes a frame into a control line and overflow lines and loads the other control line, which is the signal; the NIC takes
/// the lines back, and answers when it has the frame. Frames go until that is steady; then one is written down.
#[derive(Clone, Debug, Args)]
#[command(after_help = TRANSMITTED)]
pub struct Transmit {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    frame: FrameQuestion,
    /// How the NIC returns a line that was asked for to read
    #[arg(long, value_enum, default_value_t = Returns::Exclusive)]
    returns: Returns,
}

/// Which machine, and what becomes of what is found.
#[derive(Clone, Debug, Args)]
pub struct Common {
    #[command(flatten)]
    question: LinesQuestion,
    #[command(flatten)]
    pub output: Output,
}

/// What messages and owners mean, below the examples of each.
macro_rules! explained {
    ($examples:literal) => {
        concat!(
            $examples,
            "

Messages by ECI's names: ReadShared RLDI, ReadExclusive RLDX, Upgrade RC2D_S, GrantShared PSHA, GrantExclusive PEMD, Recall FEVX or \
             SINV, RecalledModified HAKD, RecalledClean HAKS, RecalledNothing HAKI, VictimModified VICD, VictimClean VICC or VICS. \
             Written says that what was written back is there, where a machine waits for that. In CXL's terms a request is MemRd, an \
             upgrade MemInv, a grant MemData, a recall BISnpInv, its answer BIRspI, and a victim MemWr.

A line is the device's (E@device) or the cache's (M@L2), both have it to read (S@L2+device), it is on its way (I), or locked (L@device) \
             from when it is back until the device takes it."
        )
    };
}

const CALLS: &str = explained!(
    "Examples:
  conic trace call                                 a pair of lines on Enzian, 64 bytes each way
  conic trace call --returns shared                what each exchange pays for its first store
  conic trace call --bytes 1000                    groups of eight lines
  conic trace call --function bloom --bytes 128    hashes: how long the load waits at the device
  conic trace call --platform cxl3-mem -o out/cxl"
);

const RECEIVED: &str = explained!(
    "Examples:
  conic trace receive                              64 bytes, in half of a line
  conic trace receive --bytes 1500 --prefetch
  conic trace receive --after 50us                 the load waits at the NIC for the frame"
);

const TRANSMITTED: &str = explained!(
    "Examples:
  conic trace transmit                             64 bytes, in half of a line
  conic trace transmit --bytes 1500                with overflow lines
  conic trace transmit --returns shared            what each frame pays for its first store"
);

/// Those before the one that is shown.
const WARM: u64 = 16;

/// The frames or calls of a run, and what the pauses between frames are drawn from.
const FRAMES: (u64, u64) = (WARM, TRIPS as u64);
const SEED: u64 = 1;

/// What is followed, in words and for programs.
#[derive(Clone, Debug, Serialize)]
struct Subject {
    /// The command, and the name of its files.
    what: &'static str,
    #[serde(skip)]
    title: String,
    /// From when until when its time is.
    timed: &'static str,
    bytes: usize,
    response_bytes: Option<usize>,
    function: Option<&'static str>,
    returns: &'static str,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    platform: String,
    #[serde(flatten)]
    subject: Subject,
    took_ns: f64,
    messages: Vec<MessageReport>,
    owners: Vec<OwnersReport>,
    files: Vec<PathBuf>,
}

impl Call {
    /// Follows one call.
    ///
    /// # Errors
    ///
    /// What cannot be asked for, or written.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let platform = self.common.platform()?;
        let question = self.call.calls(platform.parameters(), FRAMES);
        let (bytes, function, returns) = (self.call.bytes(), self.call.function(), self.call.returns());
        let subject = Subject {
            what: "call",
            title: format!("a call with {bytes} bytes ({function}) over lines that come back {returns}"),
            timed: "from before the request is written until the response was read",
            bytes,
            response_bytes: Some(self.call.response_bytes()),
            function: Some(function),
            returns,
        };
        self.common.follow(&platform, subject, CALL, "--bytes", |recorded| {
            observed_calls(&question, recorded).map(|outcome| outcome.latencies)
        })
    }
}

impl Receive {
    /// Follows one frame to the CPU.
    ///
    /// # Errors
    ///
    /// What cannot be asked for, or written.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let platform = self.common.platform()?;
        let question = Frames { prefetch: self.prefetch, ..frames(&platform, self.frame.bytes, FRAMES, SEED) };
        let subject = Subject {
            what: "receive",
            title: format!("a received frame of {} bytes", self.frame.bytes),
            timed: "from its last beat at the port until the CPU has it",
            bytes: question.bytes,
            response_bytes: None,
            function: None,
            returns: Returns::Exclusive.name(),
        };
        let arrives = self.after.map_or(Arrives::WithTheLoad, Arrives::After);
        self.common
            .follow(&platform, subject, FRAME, "--bytes", |recorded| observed_receive(&question, arrives, recorded))
    }
}

impl Transmit {
    /// Follows one frame to the NIC.
    ///
    /// # Errors
    ///
    /// What cannot be asked for, or written.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let platform = self.common.platform()?;
        let exclusive = self.returns == Returns::Exclusive;
        let question = Frames { exclusive, ..frames(&platform, self.frame.bytes, FRAMES, SEED) };
        let returns = self.returns.name();
        let subject = Subject {
            what: "transmit",
            title: format!("a transmitted frame of {} bytes over lines that come back {returns}", self.frame.bytes),
            timed: "from the CPU's registers to its last beat at the port",
            bytes: question.bytes,
            response_bytes: None,
            function: None,
            returns,
        };
        self.common.follow(&platform, subject, FRAME, "--bytes", |recorded| observed_transmit(&question, recorded))
    }
}

impl Common {
    fn platform(&self) -> Result<Platform<EciParameters>, Failure> {
        let hint = |model: &str| match [SOCKETS.name, CXL.name].contains(&model) {
            true => "; conic trace without a subcommand follows packets on it".to_owned(),
            false => String::new(),
        };
        self.question.platform(hint)
    }

    /// Runs a question, which gives how long each took that counts, and shows one of them: `name` is what the recording calls it,
    /// `smaller` the option that makes it smaller.
    fn follow(
        &self,
        platform: &Platform<EciParameters>,
        subject: Subject,
        name: &str,
        smaller: &str,
        run: impl FnOnce(&mut Recorded) -> Result<Vec<u64>, conic_sim::Failure>,
    ) -> Result<ExitCode, Failure> {
        self.output.is_writable()?;
        let mut recorded = Recorded(None);
        let stopped = |failure| Failure::failed(format!("the modelled machine stopped: {failure}"));
        let took = run(&mut recorded).map_err(stopped)?;
        let all = recorded.all(smaller)?;
        let counted: Vec<&SpanRecord> = all.spans.iter().filter(|span| span.name == name).skip(WARM as usize).collect();
        let number = self.output.chosen(&took)?;
        let (span, took) = (counted[number], took[number]);
        let followed = Followed::of(&all, span.begins, span.ends);
        let title = format!("{} on {}", subject.title, platform.name());
        let files = self.output.write(&followed, subject.what, &title)?;
        let took_ns = took as f64 / 1e3;
        if self.output.json {
            let (messages, owners) = (messages(&followed), owners(&followed));
            let (schema, platform) = ("conic.trace.lines/1", platform.name().to_owned());
            print_json(&Report { schema, platform, subject, took_ns, messages, owners, files })?;
        } else {
            println!("{title}: {} {}", nanoseconds(took_ns), subject.timed);
            println!("  {}", platform.description());
            print!("{}", table(&followed));
            files.iter().for_each(|file| println!("  {}", file.display()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
