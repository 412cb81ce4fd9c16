//! An embedded upstream that speaks the real gRPC protocols of PD and TiKV on loopback: members, timestamps,
//! regions, stores, keyspaces and GC barriers; transactions with several versions of each key; and the change
//! feed. It loads recorded histories, replays their later part live, and takes new transactions. Tests, the
//! demo and `tidegate playground` start it; real clients work against it.
//!
//! The data's path: requests → server (rim) → world (one pure state under one lock: engine, topology,
//! oracle, safe points, feeds) → feed queues → server.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate_playground::{Playground, PlaygroundOptions, Write};
//!
//! let history = tidegate_testkit::data::demo_history()?;
//! let options = PlaygroundOptions { history: Some(history), ..Default::default() };
//! let playground = Playground::start(options).await?;
//! println!("PD listens on {}", playground.pd_endpoint());
//! let commit_ts = playground.commit(vec![Write::put("k", "v")])?;
//! assert_eq!(playground.get(b"k", commit_ts.ts()).as_deref(), Some(&b"v"[..]));
//! playground.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! *Invariant:* nothing of Tidegate's own stages is used here, so that a mistake of theirs cannot be repeated
//! by what they are tested against.

mod engine;
mod error;
mod feed;
mod keyspace;
mod kv;
mod layout;
mod options;
mod oracle;
mod pd;
mod playground;
mod region_proto;
mod safepoint;
mod server;
mod topology;
mod world;

pub use error::PlaygroundError;
pub use feed::{FeedFault, FeedLimits};
pub use keyspace::Keyspace;
pub use options::PlaygroundOptions;
pub use oracle::OracleStart;
pub use playground::{Playground, RegionView};
pub use topology::TopologyError;
pub use world::Write;
