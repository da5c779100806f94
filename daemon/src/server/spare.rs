//! A region that is made before anybody asks for it, for whoever asks for the layout that was asked for last. To make one touches each
//! of its pages, which is most of the time that attaching takes. It is as new as any: nobody has had it.
//!
//! Where the next one asks for another layout it was made for nothing. From then on a layout must be asked for twice in a row before
//! one is made: clients that all ask for something else cost one region each, not two.

use std::sync::Arc;

use conic_interface::ccnic::Map;
use conic_native::Memory;

use super::region::Wish;

/// The region that is made before it is asked for, of which there is one at most.
#[derive(Default)]
pub(super) enum Spare {
    #[default]
    None,
    /// The last one was made for nothing, and this was asked for since.
    Awaited(Arc<Map>),
    /// It is being made, and somebody may wait for it already.
    Making(Arc<Map>, Option<Wish>),
    Ready(Arc<Map>, Memory),
}

/// What the daemon does for the spare region.
pub(super) enum Next {
    Nothing,
    /// Has one of the layout made that was asked for last.
    Make,
    /// Lets go of one that was made for nothing.
    LetGo(Memory),
}

impl Spare {
    /// The memory for a wish, if it is there; none of both where the wish waits for what is being made.
    pub fn provide(&mut self, wish: Wish) -> Option<(Wish, Option<Memory>)> {
        match self {
            Spare::Making(map, waiting @ None) if **map == *wish.map => {
                *waiting = Some(wish);
                None
            }
            Spare::Ready(map, _) if **map == *wish.map => {
                let Spare::Ready(_, memory) = std::mem::take(self) else { return Some((wish, None)) };
                Some((wish, Some(memory)))
            }
            _ => Some((wish, None)),
        }
    }

    /// What is to be done now that a client has got a region of this layout. What is being made is made first.
    pub fn was_asked_for(&mut self, map: &Arc<Map>) -> Next {
        match std::mem::take(self) {
            Spare::Ready(ready, memory) if *ready != **map => {
                *self = Spare::Awaited(Arc::clone(map));
                return Next::LetGo(memory);
            }
            Spare::Awaited(last) if *last != **map => *self = Spare::Awaited(Arc::clone(map)),
            Spare::None | Spare::Awaited(_) => {
                *self = Spare::Making(Arc::clone(map), None);
                return Next::Make;
            }
            kept => *self = kept,
        }
        Next::Nothing
    }

    /// It is made, or cannot be; gives who waited for it. Without memory that one's is made as if there were no spare.
    pub fn is_made(&mut self, memory: Option<Memory>) -> Option<(Wish, Option<Memory>)> {
        let Spare::Making(map, waiting) = std::mem::take(self) else { return None };
        match (waiting, memory) {
            (Some(wish), memory) => return Some((wish, memory)),
            (None, Some(memory)) => *self = Spare::Ready(map, memory),
            (None, None) => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use conic_interface::ccnic::notify::Notices;
    use conic_interface::ccnic::{Features, Geometry};
    use conic_native::Pages;

    use super::super::region::Taken;
    use super::*;

    fn wish(connection: u64, descriptors: u64) -> Wish {
        let geometry = Geometry { queues: 1, descriptors, buffers: [64, 0, 0], object_bytes: 0 };
        let (map, notices) = Notices::in_map(Map::new(geometry, Features::best()).expect("a possible geometry"));
        Wish { connection, taken: Taken { user: 0, clients: 1, queues: 1, bytes: 4096 }, map: Arc::new(map), notices }
    }

    fn memory(wish: &Wish) -> Memory {
        Memory::create(&wish.map.layout, Pages::Plain).expect("a small region")
    }

    /// Who a region is to be made for now, and whether of memory that is there.
    fn told(provided: Option<(Wish, Option<Memory>)>) -> Option<(u64, bool)> {
        provided.map(|(wish, memory)| (wish.connection, memory.is_some()))
    }

    #[test]
    fn a_region_that_is_ready_goes_to_one_who_asks_for_its_layout_and_to_no_other() {
        let mut spare = Spare::Making(wish(0, 64).map, None);
        assert_eq!(told(spare.is_made(Some(memory(&wish(0, 64))))), None);
        assert_eq!(told(spare.provide(wish(1, 128))), Some((1, false)), "another layout");
        assert_eq!(told(spare.provide(wish(2, 64))), Some((2, true)));
        assert_eq!(told(spare.provide(wish(3, 64))), Some((3, false)), "it is given once");
    }

    #[test]
    fn one_waits_for_what_is_being_made_and_the_next_does_not() {
        let mut spare = Spare::Making(wish(0, 64).map, None);
        assert_eq!(told(spare.provide(wish(1, 128))), Some((1, false)), "another layout");
        assert_eq!(told(spare.provide(wish(2, 64))), None);
        assert_eq!(told(spare.provide(wish(3, 64))), Some((3, false)));
        assert_eq!(told(spare.is_made(Some(memory(&wish(0, 64))))), Some((2, true)));
        assert!(matches!(spare, Spare::None), "it was given");
    }

    #[test]
    fn who_waits_for_what_cannot_be_made_gets_a_region_of_its_own() {
        let mut spare = Spare::Making(wish(0, 64).map, None);
        assert_eq!(told(spare.provide(wish(1, 64))), None);
        assert_eq!(told(spare.is_made(None)), Some((1, false)));
        assert!(matches!(spare.was_asked_for(&wish(0, 64).map), Next::Make), "the next one begins anew");
    }

    /// What follows when somebody has asked for this; a region that is made is there at once.
    fn asked(spare: &mut Spare, wish: &Wish) -> &'static str {
        match spare.was_asked_for(&wish.map) {
            Next::Nothing => "nothing",
            Next::LetGo(_) => "let go",
            Next::Make => {
                spare.is_made(Some(memory(wish)));
                "made"
            }
        }
    }

    #[test]
    fn another_is_made_where_none_of_the_layout_is_there_or_on_its_way() {
        let (small, large) = (wish(0, 64), wish(0, 128));
        let mut spare = Spare::default();
        assert!(matches!(spare.was_asked_for(&small.map), Next::Make));
        for wish in [&small, &large] {
            assert!(matches!(spare.was_asked_for(&wish.map), Next::Nothing), "one at a time");
        }
        spare.is_made(Some(memory(&small)));
        assert_eq!(asked(&mut spare, &small), "nothing", "it is there");
        spare.provide(wish(0, 64)).expect("it waits for nothing");
        assert_eq!(asked(&mut spare, &small), "made", "it was given");
    }

    #[test]
    fn after_one_that_was_made_for_nothing_a_layout_must_be_asked_for_twice() {
        let [one, two, three] = [64, 128, 256].map(|descriptors| wish(0, descriptors));
        let mut spare = Spare::default();
        let follows = [&one, &two, &three, &two, &two, &two, &one, &one].map(|wish| asked(&mut spare, wish));
        assert_eq!(follows, ["made", "let go", "nothing", "nothing", "made", "nothing", "let go", "made"]);
    }
}
