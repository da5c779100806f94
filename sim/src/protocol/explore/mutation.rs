//! Mistakes to plant: each in one message, one change of state, or one rule of the channels.

use crate::protocol::home::{Action, Active, LastLevel, Right, Stable};
use crate::protocol::{Copy, Found, Snoop, ToCore, ToHome};

/// A mistake, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The protocol as it is.
    None,
    /// No mistake, but weaker channels: a snoop may overtake a reply.
    SnoopOvertakesReply,
    /// A core answers an invalidation and keeps its copy.
    KeepsInvalidated,
    /// A core that is to share a modified line stays its owner.
    StaysOwner,
    /// A core that hands a modified line over keeps a shared copy.
    KeepsMigrated,
    /// A core's answer calls a modified line exclusive.
    CallsModifiedClean,
    /// A core gives up a modified line as if it were clean.
    EvictsAsClean,
    /// A core gives up a line that it has asked to own.
    EvictsWhatItAskedFor,
    /// A grant of a shared copy says exclusive.
    GrantsExclusive,
    /// The snoop filter does not note who is granted a shared copy.
    ForgetsReader,
    /// The last-level cache keeps its copy when a core comes to own the line.
    LastLevelStays,
    /// The directory does not note that the other node shares the line.
    ForgetsOtherNode,
    /// A home gives the other node a modified line as if it were clean.
    HandsOverAsClean,
    /// A home that makes a modified line shared does not write memory.
    MemoryStaysOld,
    /// The other node says that it has the data when it has not.
    ClaimsData,
    /// A line that the other node's last level gives up modified is not written back.
    WriteBackLost,
    /// A write-back says that no copy is left when cores have some.
    WriteBackForgetsCopies,
    /// A home goes on before the other node has its reply, on channels where a snoop may overtake a reply.
    DoesNotWaitForComplete,
    /// A snoop waits at the other node for that node's own request.
    SnoopWaits,
    /// A snoop overtakes a grant on the way to a core.
    SnoopOvertakesGrant,
    /// A core's request overtakes what it has given up.
    RequestOvertakesEviction,
    /// An answer to a snoop overtakes a write-back.
    AnswerOvertakesWriteBack,
    /// A node forwards what it has given up without a word.
    ForwardsWhatItGaveUp,
    /// A modified line does not come with the answer, as if memory's data were as good.
    LeavesToMemory,
    /// A node that forwards a line stays its only owner.
    ForwardsAndStaysExclusive,
    /// A core answers a recall and keeps its copy.
    KeepsRecalled,
    /// A core that has changed a recalled line says that it is clean.
    RecallsAsClean,
    /// A recall asks one of the cores that share the line, and forgets the others.
    RecallsOneReader,
    /// What is recalled is dropped instead of kept in the last-level cache.
    DropsRecalled,
    /// A node says that it has nothing to a snoop that comes during a recall.
    DoesNotWaitForRecall,
    /// A line with something under way is recalled.
    RecallsWhatIsUnderWay,
}

impl Mutation {
    /// All mistakes.
    pub const ALL: [Mutation; 23] = [
        Mutation::KeepsInvalidated,
        Mutation::StaysOwner,
        Mutation::KeepsMigrated,
        Mutation::CallsModifiedClean,
        Mutation::EvictsAsClean,
        Mutation::EvictsWhatItAskedFor,
        Mutation::GrantsExclusive,
        Mutation::ForgetsReader,
        Mutation::LastLevelStays,
        Mutation::ForgetsOtherNode,
        Mutation::HandsOverAsClean,
        Mutation::MemoryStaysOld,
        Mutation::ClaimsData,
        Mutation::WriteBackLost,
        Mutation::WriteBackForgetsCopies,
        Mutation::DoesNotWaitForComplete,
        Mutation::SnoopWaits,
        Mutation::SnoopOvertakesGrant,
        Mutation::RequestOvertakesEviction,
        Mutation::AnswerOvertakesWriteBack,
        Mutation::ForwardsWhatItGaveUp,
        Mutation::LeavesToMemory,
        Mutation::ForwardsAndStaysExclusive,
    ];

    /// Mistakes with a line that is recalled.
    pub const OF_RECALLS: [Mutation; 6] = [
        Mutation::KeepsRecalled,
        Mutation::RecallsAsClean,
        Mutation::RecallsOneReader,
        Mutation::DropsRecalled,
        Mutation::DoesNotWaitForRecall,
        Mutation::RecallsWhatIsUnderWay,
    ];

    /// What a core that gives up its copy says.
    pub fn evicted(self, mut message: ToHome) -> ToHome {
        if let (Mutation::EvictsAsClean, ToHome::Evicted { dirty, .. }) = (self, &mut message) {
            *dirty = false;
        }
        message
    }

    /// The copy that a core keeps after a snoop, of what it had and what it should have.
    pub fn kept(self, snoop: Snoop, had: Copy, keeps: Copy) -> Copy {
        match (self, snoop) {
            (Mutation::KeepsInvalidated, Snoop::Invalidate) | (Mutation::KeepsRecalled, Snoop::Recall) => had,
            (Mutation::StaysOwner, Snoop::Share) => had,
            (Mutation::KeepsMigrated, Snoop::Migrate) if had == Copy::Modified => Copy::Shared,
            _ => keeps,
        }
    }

    /// What a core answers.
    pub fn found(self, snoop: Snoop, mut found: Found) -> Found {
        let says_clean = match self {
            Mutation::CallsModifiedClean => true,
            Mutation::RecallsAsClean => snoop == Snoop::Recall,
            _ => false,
        };
        if says_clean && found.was == Copy::Modified {
            found.was = Copy::Exclusive;
        }
        found
    }

    /// What home agents answer to a message without looking at it.
    pub fn answers_at_once(self, active: &Active, message: ToHome) -> Option<ToHome> {
        let wrong = self == Mutation::DoesNotWaitForRecall && active.is_recalling();
        (wrong && matches!(message, ToHome::Snoop(_))).then_some(ToHome::NodeFound(Found::default()))
    }

    /// What home agents know of a line before they handle a message.
    pub fn known(self, message: ToHome, stable: &mut Stable) {
        if self == Mutation::RecallsOneReader && message == ToHome::Recall {
            stable.copies &= stable.copies.wrapping_neg();
        }
    }

    /// What they know of a line whose recall may have ended.
    pub fn recalled(self, before: &Stable, was_recalling: bool, active: &Active, stable: &mut Stable) {
        if self == Mutation::DropsRecalled && was_recalling && !active.is_recalling() {
            stable.last_level = before.last_level;
        }
    }

    /// What home agents decide and remember.
    pub fn decided(self, before: &Stable, stable: &mut Stable, actions: &mut Vec<Action>) {
        if self == Mutation::MemoryStaysOld && actions.contains(&Action::WriteMemory) {
            stable.memory_version = before.memory_version;
        }
        for action in actions.iter_mut() {
            match action {
                Action::ToCore(core, ToCore::Grant { copy, .. }) => match (self, *copy) {
                    (Mutation::GrantsExclusive, Copy::Shared) => *copy = Copy::Exclusive,
                    (Mutation::ForgetsReader, Copy::Shared) => stable.copies &= !(1 << *core),
                    (Mutation::LastLevelStays, Copy::Exclusive | Copy::Modified)
                        if before.last_level != LastLevel::None =>
                    {
                        stable.last_level = LastLevel::Clean;
                    }
                    _ => {}
                },
                Action::ToNode(ToHome::Reply { grant, .. }, _) => match (self, *grant) {
                    (Mutation::ForgetsOtherNode, Copy::Shared) => stable.right = Right::Exclusive,
                    (Mutation::HandsOverAsClean, Copy::Modified) => *grant = Copy::Exclusive,
                    _ => {}
                },
                Action::ToNode(ToHome::NodeFound(found), _) => match (self, found.was) {
                    (Mutation::ForwardsWhatItGaveUp, Copy::Invalid) => found.data = true,
                    (Mutation::LeavesToMemory, Copy::Modified) => found.data = false,
                    (Mutation::ForwardsAndStaysExclusive, Copy::Exclusive) if found.keeps => {
                        stable.right = Right::Exclusive;
                    }
                    _ => {}
                },
                Action::ToNode(ToHome::Request { has_data, .. }, _) => *has_data |= self == Mutation::ClaimsData,
                Action::ToNode(ToHome::WriteBack { keeps, .. }, _) => {
                    *keeps &= self != Mutation::WriteBackForgetsCopies;
                }
                _ => {}
            }
        }
        if self == Mutation::WriteBackLost {
            actions.retain(|action| !matches!(action, Action::ToNode(ToHome::WriteBack { .. }, _)));
        }
    }

    /// Whether a message may overtake one before it against the rules of the channels between agents.
    pub fn overtakes(self, before: &ToHome, message: &ToHome) -> bool {
        match self {
            Mutation::RequestOvertakesEviction => {
                matches!((before, message), (ToHome::Evicted { .. }, ToHome::Request { .. }))
            }
            Mutation::SnoopOvertakesReply | Mutation::DoesNotWaitForComplete => {
                matches!((before, message), (ToHome::Reply { .. }, ToHome::Snoop(_)))
            }
            Mutation::AnswerOvertakesWriteBack => {
                matches!((before, message), (ToHome::WriteBack { .. }, ToHome::NodeFound(_)))
            }
            _ => false,
        }
    }

    /// The place of the message that a core receives next.
    pub fn next_to_core(self, channel: &[ToCore]) -> usize {
        let overtakes = matches!(channel, [ToCore::Grant { .. }, ToCore::Snoop(_), ..]);
        usize::from(self == Mutation::SnoopOvertakesGrant && overtakes)
    }
}
