//! Numbers of the fields and values of Perfetto's messages that a trace uses, from its `.proto` files.

/// `Trace` and `TracePacket`.
pub(super) mod packet {
    pub const PACKET: u64 = 1;
    pub const TIMESTAMP: u64 = 8;
    pub const SEQUENCE_ID: u64 = 10;
    pub const TRACK_EVENT: u64 = 11;
    pub const INTERNED_DATA: u64 = 12;
    pub const SEQUENCE_FLAGS: u64 = 13;
    pub const TRACK_DESCRIPTOR: u64 = 60;
    /// The sequence begins here, and what it names by number is said here.
    pub const STATE_CLEARED: u64 = 1;
    /// The packet names things by number.
    pub const NEEDS_STATE: u64 = 2;
}

/// `TrackDescriptor`.
pub(super) mod descriptor {
    pub const UUID: u64 = 1;
    pub const NAME: u64 = 2;
    pub const PARENT: u64 = 5;
    pub const COUNTER: u64 = 8;
    pub const CHILD_ORDERING: u64 = 11;
    pub const RANK: u64 = 12;
    /// Children stand in the order of their ranks.
    pub const EXPLICIT: u64 = 3;
}

/// `TrackEvent`.
pub(super) mod event {
    pub const ANNOTATION: u64 = 4;
    pub const TYPE: u64 = 9;
    pub const NAME_IID: u64 = 10;
    pub const TRACK: u64 = 11;
    pub const COUNTER_VALUE: u64 = 30;
    pub const FLOW: u64 = 47;
    pub const TERMINATING_FLOW: u64 = 48;
    pub const SLICE_BEGIN: u64 = 1;
    pub const SLICE_END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const COUNTER: u64 = 4;
}

/// `DebugAnnotation` and `InternedData`.
pub(super) mod interned {
    pub const EVENT_NAMES: u64 = 2;
    pub const ANNOTATION_NAMES: u64 = 3;
    pub const ANNOTATION_STRINGS: u64 = 29;
    pub const IID: u64 = 1;
    pub const VALUE: u64 = 2;
    pub const ANNOTATION_NAME: u64 = 1;
    pub const ANNOTATION_UNSIGNED: u64 = 3;
    pub const ANNOTATION_STRING: u64 = 17;
}
