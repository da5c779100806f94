//! What a recording calls things: the specification's names for what crosses the CXL link, plain ones for the rest.

use conic_fabric::{Line, StateHint};

use super::super::home::{From, Job};
use super::super::machine::Message;
use crate::protocol::cxl::{Ask, Bias, Copy, Opcode, Operation, Snoop, ToDevice, ToHost, WHOLE};

/// An access of the device's logic, by its hint. Of the device's own lines it is said where the host is not asked.
pub(in crate::cxl) fn of_operation(operation: &Operation<Line>, bias: Option<Bias>) -> &'static str {
    use StateHint as H;
    let free = bias == Some(Bias::Device);
    match (operation, free) {
        (Operation::Read(H::NonCacheable | H::NonCacheablePush), false) => "NC-read",
        (Operation::Read(H::NonCacheable | H::NonCacheablePush), true) => "NC-read, device-bias",
        (Operation::Read(H::CacheableShared), false) => "CS-read",
        (Operation::Read(H::CacheableShared), true) => "CS-read, device-bias",
        (Operation::Read(H::CacheableOwned), false) => "CO-read",
        (Operation::Read(H::CacheableOwned), true) => "CO-read, device-bias",
        (Operation::Write { hint: H::NonCacheable, .. }, false) => "NC-write",
        (Operation::Write { hint: H::NonCacheable, .. }, true) => "NC-write, device-bias",
        (Operation::Write { hint: H::NonCacheablePush, .. }, _) => "NC-P",
        (Operation::Write { hint: H::CacheableShared | H::CacheableOwned, .. }, false) => "CO-write",
        (Operation::Write { hint: H::CacheableShared | H::CacheableOwned, .. }, true) => "CO-write, device-bias",
        (Operation::Evict, _) => "eviction",
        (Operation::FlushHost, _) => "flush of the host",
    }
}

/// A message on the CXL link; `asked` is what the device asks of its line.
pub(super) fn on_the_link(message: &Message, asked: Option<Opcode>) -> &'static str {
    match message {
        Message::ToHost(_, message) => to_host(message),
        Message::ToDevice(_, message) => to_device(message, asked),
    }
}

fn to_host(message: &ToHost<Line>) -> &'static str {
    match message {
        ToHost::Request(opcode) => match opcode {
            Opcode::ReadCurrent => "RdCurr",
            Opcode::ReadShared => "RdShared",
            Opcode::ReadOwn => "RdOwn",
            Opcode::ReadOwnNoData => "RdOwnNoData",
            Opcode::WriteInvalidate { whole: true } => "WOWrInvF",
            Opcode::WriteInvalidate { whole: false } => "WOWrInv",
            Opcode::WritePush => "ItoMWr",
            Opcode::DirtyEvict => "DirtyEvict",
            Opcode::CleanEvict => "CleanEvictNoData",
            Opcode::FlushHost => "CLFlush",
        },
        ToHost::Snooped { left, data: Some(_) } => match left {
            Copy::Invalid => "RspIFwdM, Data",
            Copy::Shared => "RspSFwdM, Data",
            Copy::Exclusive | Copy::Modified => "RspVFwdV, Data",
        },
        ToHost::Snooped { left, data: None } => match left {
            Copy::Invalid => "RspI",
            Copy::Shared => "RspSHitSE",
            Copy::Exclusive | Copy::Modified => "RspVHitV",
        },
        ToHost::Pulled { bogus: false, .. } => "Data",
        ToHost::Pulled { bogus: true, .. } => "Data, bogus",
        ToHost::MemoryData { exclusive: true, .. } => "MemData, Cmp-E",
        ToHost::MemoryData { exclusive: false, .. } => "MemData, Cmp-S",
        ToHost::MemoryDone => "Cmp",
    }
}

fn to_device(message: &ToDevice<Line>, asked: Option<Opcode>) -> &'static str {
    let is_write = matches!(asked, Some(Opcode::WriteInvalidate { .. }));
    match message {
        ToDevice::Snoop(Snoop::Current) => "SnpCur",
        ToDevice::Snoop(Snoop::Data) => "SnpData",
        ToDevice::Snoop(Snoop::Invalidate) => "SnpInv",
        ToDevice::Grant { copy, data: Some(_) } => match copy {
            Copy::Invalid => "GO-I, Data",
            Copy::Shared => "GO-S, Data",
            Copy::Exclusive => "GO-E, Data",
            Copy::Modified => "GO-M, Data",
        },
        ToDevice::Grant { copy, data: None } => match copy {
            Copy::Invalid => "GO-I",
            Copy::Shared => "GO-S",
            Copy::Exclusive => "GO-E",
            Copy::Modified => "GO-M",
        },
        ToDevice::Current(_) => "Data",
        ToDevice::Pull if is_write => "ExtFastGO_WritePull",
        ToDevice::Pull => "GO_WritePull",
        ToDevice::Finished if is_write => "ExtCmp",
        ToDevice::Finished => "GO-I",
        ToDevice::MemoryRead(Snoop::Invalidate) => "MemRd, SnpInv",
        ToDevice::MemoryRead(Snoop::Data) => "MemRd, SnpData",
        ToDevice::MemoryRead(Snoop::Current) => "MemRd, SnpCur",
        ToDevice::MemoryWrite { bytes, .. } if *bytes == WHOLE => "MemWr",
        ToDevice::MemoryWrite { .. } => "MemWrPtl",
        ToDevice::MemoryForward if is_write => "MemWrFwd",
        ToDevice::MemoryForward => "MemRdFwd",
    }
}

/// What a home agent is asked by a core, or by the root port.
pub(in crate::cxl) fn of_job(job: &Job) -> &'static str {
    match (job.from, &job.ask) {
        (From::Load(..), _) => "Read",
        (From::Own(_), _) => "ReadForOwnership",
        (From::Nontemporal(_), _) => "NontemporalStore",
        (From::Flush(_), _) => "Flush",
        (From::Dma(_), Ask::DmaWrite { allocate: true, .. }) => "WriteCache",
        (From::Dma(_), Ask::DmaWrite { .. }) => "WriteMemory",
        (From::Dma(_), _) => "ReadCurrent",
        (From::Eviction | From::Device, _) => "Request",
    }
}

/// What a core is granted.
pub(in crate::cxl) fn of_grant(copy: Copy) -> &'static str {
    match copy {
        Copy::Invalid => "Done",
        Copy::Shared => "GrantShared",
        Copy::Exclusive => "GrantExclusive",
        Copy::Modified => "GrantModified",
    }
}

/// A snoop of a core by its home agents.
pub(super) fn of_snoop(snoop: Snoop) -> &'static str {
    match snoop {
        Snoop::Current => "SnoopCurrent",
        Snoop::Data => "SnoopShare",
        Snoop::Invalidate => "SnoopInvalidate",
    }
}

/// What a snooped core finds, which had the line in a state.
pub(super) fn of_found(state: char) -> &'static str {
    match state {
        'M' => "FoundModified",
        'I' => "FoundNothing",
        _ => "FoundClean",
    }
}
