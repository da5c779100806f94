//! A region that is made before anybody asks for it, for whoever asks for the layout that was asked for last. To make one touches each
//! of its pages, which is most of the time that attaching takes. It is as new as any: nobody has had it.

use std::sync::Arc;

use conic_interface::ccnic::Map;
use conic_native::Memory;

use super::region::Wish;

/// The region that is made before it is asked for, of which there is one at most.
#[derive(Default)]
pub(super) enum Spare {
    #[default]
    None,
    /// It is being made, and somebody may wait for it already.
    Making(Arc<Map>, Option<Wish>),
    Ready(Arc<Map>, Memory),
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

    /// Whether one of this layout is to be made now. What is being made is made first.
    pub fn lacks(&self, map: &Map) -> bool {
        match self {
            Spare::None => true,
            Spare::Making(..) => false,
            Spare::Ready(ready, _) => **ready != *map,
        }
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
        Wish { connection, taken: Taken { user: 0, queues: 1, bytes: 4096 }, map: Arc::new(map), notices }
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
        assert!(spare.lacks(&wish(0, 64).map), "the next one begins anew");
    }

    #[test]
    fn another_is_made_where_none_of_the_layout_is_there_or_on_its_way() {
        let (small, large) = (wish(0, 64), wish(0, 128));
        let mut spare = Spare::default();
        assert!(spare.lacks(&small.map));
        spare = Spare::Making(Arc::clone(&small.map), None);
        assert!(!spare.lacks(&small.map) && !spare.lacks(&large.map), "one at a time");
        spare.is_made(Some(memory(&small)));
        assert!(!spare.lacks(&small.map) && spare.lacks(&large.map));
    }
}
