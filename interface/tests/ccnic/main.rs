//! CC-NIC, checked: one binary, because each of its policies is compiled once for all of these.
//!
//! | file | what it checks |
//! |---|---|
//! | `calls` | calls at their limits: full rings, dry pools, empty slices, packets that fit nowhere |
//! | `model` | any sequence of calls against a model: order, content, who owns which buffer |
//! | `ahead` | what a host asks for before it is read, and how much it works |
//! | `bulk` | a NIC that posts copies: a death at every memory operation, copies that are made late and in any order |
//! | `crash` | a death at every memory operation of an exchange, of either side |
//! | `hostile` | a peer that writes anything anywhere at any time |
//! | `loom_queue`, `loom_pool`, `loom_pair` | every schedule and every ordering, and that each edge is needed |
//! | `guard`, `erased`, `common` | what they share: a core that refuses what a side must not do, the policies behind one type, packets that know their content |

mod ahead;
mod bulk;
mod calls;
mod common;
mod crash;
mod erased;
mod guard;
mod hostile;
mod loom_pair;
mod loom_pool;
mod loom_queue;
mod model;
mod posted;
