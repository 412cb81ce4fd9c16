//! A client of the placement driver (PD): timestamps, regions, stores, keyspaces and GC barriers.
//!
//! [`PdClient`] is a cheap handle; all clones share one set of connections, one timestamp stream and one
//! store cache. Keys that cross this crate's border are in the *encoded* (memcomparable) form that PD itself
//! uses (`reference/pd-protocol.md` §6.1).
//!
//! *Invariant:* nothing here knows what the keys mean, and two clients in one process share nothing.

mod client;
mod error;
mod gc;
mod keyspace;
mod members;
mod region;
mod store;
mod tso;

pub use client::{PdClient, PdOptions};
pub use error::PdError;
pub use gc::{GcBarrier, GcHold, GcScope};
pub use keyspace::Keyspace;
pub use region::{Peer, Region, RegionEpoch};
pub use store::{Store, StoreState};
