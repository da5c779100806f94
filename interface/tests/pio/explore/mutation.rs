//! Mistakes to plant: in the CPU's software, in the cache, in the directory, and in what the device does with its actions.

/// A mistake, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The protocol as it is.
    None,
    /// No fence between the stores of the request and the load that signals it.
    NoFence,
    /// Overflow lines are loaded before the control line says what they are.
    DataBeforeControl,
    /// The CPU turns to the other line after a response only, not after "try again".
    TurnsOnlyOnResponse,
    /// The CPU goes on before it has loaded every line that it prefetched.
    ForgetsPrefetched,
    /// The line with "try again" is recalled when it is answered.
    RecallsTryAgainAtOnce,
    /// At the time-out, a packet that is there is taken from its queue, and "try again" said.
    LosesResponseAtTimeOut,
    /// A packet that was delivered stays in its queue.
    RespondsTwice,
    /// What the cache gives up is not kept.
    ForgetsVictims,
    /// The other line is answered before the recall is.
    AnswersBeforeRecalled,
    /// The line that is asked for is recalled first.
    RecallsWhatIsAsked,
    /// A recalled line is not unlocked.
    ForgetsUnlock,
    /// One line too few is recalled.
    RecallsOneTooFew,
    /// The directory takes "I have nothing" for the end of a recall, though a victim is on its way.
    IgnoresCrossingVictim,
    /// The device starts only when it has seen a request for every line of the group.
    CountsRequests,
    /// The device drops requests for lines that are not the first of their group.
    OnlyFirstLineSignals,
    /// The load that follows "try again" is taken for a new request.
    TakesContinueForRequest,
    /// A line that is asked for again is not answered again.
    AnswersOnce,
    /// A line is answered before the end of the response, and what the response has in it is not written.
    AnswersUnfilled,
    /// A line is answered as soon as it is filled, though the request's line of its place is not back.
    FillsBeforeRecalled,
}

impl Mutation {
    /// All mistakes.
    pub const ALL: [Mutation; 19] = [
        Mutation::NoFence,
        Mutation::DataBeforeControl,
        Mutation::TurnsOnlyOnResponse,
        Mutation::ForgetsPrefetched,
        Mutation::RecallsTryAgainAtOnce,
        Mutation::LosesResponseAtTimeOut,
        Mutation::RespondsTwice,
        Mutation::ForgetsVictims,
        Mutation::AnswersBeforeRecalled,
        Mutation::RecallsWhatIsAsked,
        Mutation::ForgetsUnlock,
        Mutation::RecallsOneTooFew,
        Mutation::IgnoresCrossingVictim,
        Mutation::CountsRequests,
        Mutation::OnlyFirstLineSignals,
        Mutation::TakesContinueForRequest,
        Mutation::AnswersOnce,
        Mutation::AnswersUnfilled,
        Mutation::FillsBeforeRecalled,
    ];
}
