//! What each user's clients have taken up, and whether there is more.

use std::collections::BTreeMap;

use crate::config::Limits;

/// What one client takes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Clients.
    pub clients: u32,
    /// Queue pairs.
    pub queues: u32,
    /// Bytes of regions.
    pub bytes: u64,
}

/// What is taken up, by user.
#[derive(Debug)]
pub struct Quota {
    limits: Limits,
    users: BTreeMap<u32, Share>,
}

const MIB: u64 = 1 << 20;

impl Quota {
    /// Nothing is taken up.
    pub fn new(limits: Limits) -> Quota {
        Quota { limits, users: BTreeMap::new() }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What a user's clients have taken up.
    pub fn of(&self, user: u32) -> Share {
        self.users.get(&user).copied().unwrap_or_default()
    }

    /// Takes up a client's queues and bytes.
    ///
    /// # Errors
    ///
    /// Which limit stands against it, with what is taken up already; then nothing is.
    pub fn take(&mut self, user: u32, queues: u32, bytes: u64) -> Result<(), String> {
        self.check(user, queues, bytes, self.of(user).bytes)?;
        self.take_regardless(user, queues, bytes);
        Ok(())
    }

    /// Whether a client could take up so much if so many bytes of the user's were given back.
    pub fn has_room_without(&self, user: u32, queues: u32, bytes: u64, given_back: u64) -> bool {
        self.check(user, queues, bytes, self.of(user).bytes.saturating_sub(given_back)).is_ok()
    }

    /// Whether a client may take up so much of a user who has taken so many bytes.
    fn check(&self, user: u32, queues: u32, bytes: u64, taken_bytes: u64) -> Result<(), String> {
        let limits = &self.limits;
        let own = self.of(user);
        let all: u32 = self.users.values().map(|share| share.clients).sum();
        let most = |what: &str, wanted: u64, most: u64, taken: u64| {
            if taken.saturating_add(wanted) <= most {
                return Ok(());
            }
            Err(format!("{wanted} {what} asked for, {taken} taken up, at most {most}"))
        };
        most("queues of a client", queues.into(), limits.queues_per_client.into(), 0)?;
        most("bytes of a client", bytes, limits.mib_per_client.saturating_mul(MIB), 0)?;
        most("clients", 1, limits.clients.into(), all.into())?;
        most("clients of the user", 1, limits.clients_per_user.into(), own.clients.into())?;
        most("queues of the user", queues.into(), limits.queues_per_user.into(), own.queues.into())?;
        most("bytes of the user", bytes, limits.mib_per_user.saturating_mul(MIB), taken_bytes)
    }

    /// Takes up a client's queues and bytes whatever the limits are: it was let in before.
    pub fn take_regardless(&mut self, user: u32, queues: u32, bytes: u64) {
        self.take_part(user, 1, queues, bytes);
    }

    /// The same of as many clients as it was, none where something is left of one.
    pub fn take_part(&mut self, user: u32, clients: u32, queues: u32, bytes: u64) {
        let share = self.users.entry(user).or_default();
        *share = Share { clients: share.clients + clients, queues: share.queues + queues, bytes: share.bytes + bytes };
    }

    /// Gives back what clients had taken up, or a part of it.
    ///
    /// # Panics
    ///
    /// If they had not: a mistake of the program.
    pub fn give_back(&mut self, user: u32, clients: u32, queues: u32, bytes: u64) {
        let share = self.users.get_mut(&user).expect("a user whose client took up something");
        *share = Share { clients: share.clients - clients, queues: share.queues - queues, bytes: share.bytes - bytes };
        if *share == Share::default() {
            self.users.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_stands_at_its_value_and_not_before() {
        let limits = Limits {
            clients: 3,
            clients_per_user: 2,
            queues_per_client: 4,
            queues_per_user: 6,
            mib_per_client: 2,
            mib_per_user: 3,
            ..Limits::default()
        };
        let mut quota = Quota::new(limits);
        assert!(quota.take(1, 5, 0).expect_err("too many queues").contains("queues of a client"));
        assert!(quota.take(1, 1, 2 * MIB + 1).expect_err("too many bytes").contains("bytes of a client"));
        assert_eq!(quota.take(1, 4, 2 * MIB), Ok(()));
        assert!(quota.take(1, 3, 0).expect_err("too many queues").contains("queues of the user"));
        assert!(quota.take(1, 1, MIB + 1).expect_err("too many bytes").contains("bytes of the user"));
        assert_eq!(quota.take(1, 2, MIB), Ok(()));
        assert!(quota.take(1, 0, 0).expect_err("too many clients").contains("clients of the user"));
        assert_eq!(quota.take(2, 4, 2 * MIB), Ok(()));
        assert!(quota.take(3, 0, 0).expect_err("too many clients").contains("at most 3"));
        // What a client leaves behind counts as bytes alone.
        quota.give_back(1, 1, 4, 0);
        assert_eq!(quota.of(1), Share { clients: 1, queues: 2, bytes: 3 * MIB });
        assert!(!quota.has_room_without(1, 4, MIB, MIB - 1) && quota.has_room_without(1, 4, MIB, MIB));
        quota.give_back(1, 0, 0, 2 * MIB);
        quota.give_back(1, 1, 2, MIB);
        assert_eq!(quota.of(1), Share::default());
        assert_eq!(quota.take(3, 1, 1), Ok(()));
    }
}
