//! The Search Fabric emulator: takes ordered changes in through the contract's ingest gateway, keeps them
//! durably, makes them searchable as text and as vectors, and says with every answer how fresh it is.
//!
//! ```text
//! StreamMutations ─► validate ─► judge (epoch, sequence, version) ─► store, one fsync per group
//!                                                                        └─► text and vector index ─► view
//! acknowledgement ◄─────────────────────────────────── published ◄──────────────────────────────────────┘
//! ```
//!
//! *Invariant:* what was acknowledged is durable and visible (I10); the highest version of a document wins
//! and a deleted one stays deleted (I14); a stale writer changes nothing (I5); `safe_ts` is derived and
//! never ahead (I12); a replayed batch gets its first receipt (I13). This crate never knows where changes
//! come from.

mod catalog;
mod content;
mod engine;
mod error;
mod grpc;
mod ingest;
mod options;
pub mod query;
pub mod status;
mod store;
mod text;
pub mod vector;
mod visibility;

use std::sync::Arc;

pub use error::{FabricError, QueryError};
pub use options::FabricOptions;
pub use query::QueryHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// A running fabric. Clones are the same fabric; it stops with [`Fabric::shutdown`] or when the last clone,
/// query handle and server are gone.
#[derive(Clone)]
pub struct Fabric {
    engine: Arc<Engine>,
    query: QueryHandle,
    stop: CancellationToken,
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fabric")
    }
}

impl Fabric {
    /// Opens a fabric: what is stored is read, and indexes that lag or are damaged are brought up to it.
    /// Blocks while it does.
    ///
    /// # Errors
    /// [`FabricError`] if the data directory cannot be used or holds something else.
    pub fn open(options: FabricOptions) -> Result<Self, FabricError> {
        let engine = Arc::new(Engine::open(&options)?);
        let query = QueryHandle::new(engine.shared.clone());
        Ok(Self { engine, query, stop: CancellationToken::new() })
    }

    /// Serves the contract's three gRPC services until [`Fabric::shutdown`].
    ///
    /// # Errors
    /// [`FabricError::Serve`] if the listener fails.
    pub async fn serve(&self, listener: TcpListener) -> Result<(), FabricError> {
        grpc::serve(self.engine.clone(), self.query.clone(), listener, self.stop.clone()).await
    }

    /// The reading side.
    pub fn query(&self) -> QueryHandle {
        self.query.clone()
    }

    /// Stops serving, finishes what was accepted, and returns when all files are closed. Reading goes on
    /// being possible.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        let engine = self.engine.clone();
        if tokio::task::spawn_blocking(move || engine.stop()).await.is_err() {
            tracing::error!("stopping the fabric panicked");
        }
    }
}
