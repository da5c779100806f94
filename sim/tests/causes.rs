//! What a recording says of messages that had to wait for a credit, a tag or their turn: what had asked for them caused them, and not
//! what ended the wait.

use conic_fabric::{Core, Device, DeviceMemory, Home, Layout, MemoryType, StateHint, SynchronisingWords, Time};
use conic_sim::probe::{MessageRecord, Recording};
use conic_sim::{Options, Role, Simulation};

use crate::common;

const HINT: StateHint = StateHint::NonCacheablePush;

/// Runs a simulation's programs and gives what was written down, in which each message comes from where its cause went, about the
/// same line.
fn recorded(mut simulation: Simulation) -> Recording {
    simulation.machine().borrow_mut().record(10_000);
    simulation.run().expect("all programs end");
    let recording = simulation.machine().borrow_mut().take_recording().expect("it was asked for");
    assert_eq!(recording.dropped, 0);
    for (number, message) in recording.messages.iter().enumerate() {
        let Some(cause) = cause(&recording, number) else { continue };
        // A core's access waits for whatever line comes before, and a line that comes drives another one out.
        let other_line = message.asks || message.name.starts_with("Evicted");
        assert!(other_line || message.line == cause.line, "{message:?} is caused by {cause:?}");
        // Memory's data answer what was on its way there, and home agents agree with the root port on what takes effect.
        let elsewhere = recording.place(message.from).ends_with("memory") || message.name == "TakeEffect";
        assert!(elsewhere || message.from == cause.to, "{message:?} is caused by {cause:?}");
    }
    recording
}

fn cause(recording: &Recording, number: usize) -> Option<&MessageRecord> {
    recording.cause_of(number).map(|cause| &recording.messages[cause])
}

/// The messages of a name between two places, with their causes.
fn between<'a>(
    recording: &'a Recording,
    name: &str,
    from: &str,
    to: &str,
) -> Vec<(&'a MessageRecord, Option<&'a MessageRecord>)> {
    let all = recording.messages.iter().enumerate().filter(|(_, message)| {
        let places = (recording.place(message.from), recording.place(message.to));
        message.name == name && places == (from.to_owned(), to.to_owned())
    });
    all.map(|(number, message)| (message, cause(recording, number))).collect()
}

#[test]
fn a_request_that_waited_for_a_credit_is_caused_by_that_of_the_core_it_is_for() {
    const CORES: u64 = 5;
    let mut parameters = common::without_prefetchers("icx");
    parameters.interconnect.request_credits = 1;
    let mut layout = Layout::new();
    let memory = layout.add("memory", CORES * 64, 64, Home::Nic, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(&parameters, &layout, Options::default());
    for core in 0..CORES {
        simulation.core("core", 0, Role::Main, Time::from_nanoseconds(core), move |this| {
            this.load_acquire(memory.lines(core));
        });
    }
    let recording = recorded(simulation);
    let crossed = between(&recording, "Read", "host home", "NIC home");
    assert_eq!(crossed.len() as u64, CORES);
    for (number, (crossing, cause)) in (0..).zip(&crossed) {
        let cause = cause.expect("a core's request");
        assert_eq!((cause.name, cause.line), ("Read", crossing.line));
        assert_eq!(cause.arrives < crossing.sent, number > 0, "all but the first waited");
    }
}

#[test]
fn what_waited_for_a_tag_a_write_credit_or_writes_before_it_is_caused_by_what_sent_it() {
    for credits in [1, 4] {
        over_pcie(credits);
    }
}

/// A device reads lines with one tag, writes others with so many credits, and reads one of these, while a core loads its register.
fn over_pcie(credits: u32) {
    const LINES: u64 = 4;
    let mut parameters = common::without_prefetchers("icx-cx6");
    let pcie = parameters.pcie.as_mut().expect("the platform has a PCIe link");
    (pcie.tags, pcie.posted_credits) = (1, credits);
    let mut layout = Layout::new();
    let registers = layout.add_registers("registers", 64, Home::Nic, MemoryType::Uncached);
    let memory = layout.add("memory", 4096, 4096, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(&parameters, &layout, Options::default());
    simulation.device("device", Role::Main, Time::ZERO, move |device| {
        let reads: Vec<_> = (0..LINES).map(|line| device.start_read(memory.lines(line), 64, HINT)).collect();
        for (line, read) in (0..).zip(reads) {
            while !device.is_ready(&read) {
                device.spin();
            }
            device.finish_read(read, memory.lines(line), &mut [0; 64]);
        }
        (0..LINES).for_each(|line| device.write(memory.lines(8 + line), &[7; 64], HINT));
        device.read_word(memory.lines(8), HINT);
    });
    simulation.core("core", 0, Role::Main, Time::ZERO, move |core| {
        // Snooped for the first line that is written, which takes longer than the others do.
        core.store(memory.lines(8), 1);
        core.full_fence();
        (0..40).for_each(|_| _ = core.register_read(registers));
    });
    let recording = recorded(simulation);
    for (name, number) in [("MemoryReadTlp", LINES + 1), ("MemoryWriteTlp", LINES)] {
        let sent = between(&recording, name, "NIC", "root port");
        assert_eq!(sent.len() as u64, number, "{name}");
        assert!(sent.iter().all(|(_, cause)| cause.is_none()), "the device's program sends them: {sent:?}");
    }
    let caused = |name, from, to, by: &str| {
        let all = between(&recording, name, from, to);
        assert!(all.iter().all(|(_, cause)| cause.is_some_and(|cause| cause.name == by)), "{all:?}");
        all.len() as u64
    };
    assert_eq!(caused("ReadCurrent", "root port", "host home", "MemoryReadTlp"), LINES + 1);
    assert_eq!(caused("RegisterData", "NIC", "root port", "RegisterRead"), 40);
    assert_eq!(caused("RegisterData", "root port", "host core 0", "RegisterData"), 40);
    let written = between(&recording, "TakeEffect", "root port", "host home");
    let ready: Vec<_> = written.iter().filter_map(|(_, cause)| cause.map(|cause| cause.name)).collect();
    assert_eq!(ready, ["FoundModified", "WriteCache", "WriteCache", "WriteCache"]);
    let waited = |kind: &str| recording.queues.iter().any(|queue| queue.ends_with(kind));
    assert!(waited("reads without a tag") && waited("transactions without a credit") == (credits == 1));
}

#[test]
fn an_answer_that_a_device_has_withheld_is_caused_by_the_load() {
    let mut parameters = common::platform("enzian-pcie");
    (parameters.refresh, parameters.timer) = (None, None);
    let mut layout = Layout::new();
    let registers = layout.add_registers("registers", 4096, Home::Nic, MemoryType::Uncached);
    let mut simulation = Simulation::new(&parameters, &layout, Options::default());
    simulation.core("core", 0, Role::Main, Time::ZERO, move |core| {
        assert_eq!(core.register_read_pair(registers), [3, 4]);
    });
    simulation.device("device", Role::Main, Time::ZERO, move |device| {
        device.withhold(registers);
        while device.withheld_since(registers).is_none() {
            device.spin();
        }
        device.set_own_pair(registers, [3, 4]);
    });
    let recording = recorded(simulation);
    let answers = between(&recording, "RegisterData", "NIC", "root port");
    let causes: Vec<_> = answers.iter().map(|(_, cause)| cause.map(|cause| cause.name)).collect();
    assert_eq!(causes, [Some("RegisterRead")]);
}
