//! Two threads carry every change: the *writer* judges batches and makes them durable in groups, the
//! *indexer* makes what is durable searchable and publishes it. Readers hold published views and wait for
//! nobody.
//!
//! ```text
//! batches, schema changes ─► writer (one redb transaction per group) ─► indexer (text, vectors) ─► view
//!                               durable                                 published, acknowledged
//! ```
//!
//! *Invariant:* a view shows whole batches with their watermarks, never part of one; what was published was
//! durable before.

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a failed step ends a test")]
mod faults;
mod index;
mod indexer;
mod shared;
mod writer;

pub(crate) use index::{IndexView, content};
pub(crate) use shared::{CollectionView, Shared, View};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_core::CommitTs;
use tidegate_proto::searchfabric::v1::{
    DropCollectionRequest, MutationSuccess, PutCollectionSchemaRequest, SchemaGeneration,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::catalog::Uid;
use crate::error::FabricError;
use crate::ingest::{Batch, Refusal};
use crate::options::FabricOptions;
use crate::store::{Restored, Store};

/// Commands that may wait for the writer. Streams are held back by bytes before they are by this.
const COMMANDS_MAX: usize = 1_024;
/// Groups that may wait for the indexer: enough to keep both threads busy, few enough that readers see a
/// group soon after it is durable.
const GROUPS_MAX: usize = 4;

/// Something for the writer to do.
pub(crate) enum Command {
    /// Apply a batch.
    Batch {
        uid: Uid,
        batch: Batch,
        reply: oneshot::Sender<Result<MutationSuccess, Refusal>>,
        permit: OwnedSemaphorePermit,
    },
    /// Change a schema.
    Put {
        request: Box<PutCollectionSchemaRequest>,
        reply: oneshot::Sender<Result<(SchemaGeneration, bool), Breach>>,
    },
    /// End a collection.
    Drop { request: Box<DropCollectionRequest>, reply: oneshot::Sender<Result<(CommitTs, bool), Breach>> },
    /// Stop after what came before.
    Stop,
}

/// The running threads.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: mpsc::Sender<Command>,
    threads: parking_lot::Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Opens the stores, catches the indexes up and starts the threads.
    pub(crate) fn open(options: &FabricOptions) -> Result<Self, FabricError> {
        let places = options.data_dir.as_deref().map(Places::new).transpose()?;
        let restored = Store::open(places.as_ref().map(|places| places.store.as_path()))?;
        Self::start(options, restored, places.map(|places| places.index))
    }

    /// As [`Engine::open`], on a given store.
    pub(crate) fn start(
        options: &FabricOptions,
        restored: Restored,
        index: Option<PathBuf>,
    ) -> Result<Self, FabricError> {
        let Restored { store, catalog, group, events } = restored;
        let shared = Arc::new(Shared::new(options, events));
        let snapshot = store.snapshot()?;
        let indexer = indexer::Indexer::open(shared.clone(), index, catalog.clone(), snapshot, group)?;
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let (groups, durable) = std::sync::mpsc::sync_channel(GROUPS_MAX);
        let writer = writer::Writer::new(shared.clone(), store, catalog, group, groups);
        let threads = vec![
            spawn("fabric-writer", move || writer.run(received))?,
            spawn("fabric-indexer", move || indexer.run(&durable))?,
        ];
        Ok(Self { shared, commands, threads: parking_lot::Mutex::new(threads) })
    }

    /// Finishes what was accepted and stops. Blocks until the threads are gone.
    pub(crate) fn stop(&self) {
        let _ = self.commands.blocking_send(Command::Stop);
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the fabric ended by a panic");
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, FabricError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(FabricError::Thread)
}

/// The folders and files of a data directory.
struct Places {
    store: PathBuf,
    index: PathBuf,
}

impl Places {
    fn new(data_dir: &Path) -> Result<Self, FabricError> {
        let index = data_dir.join("index");
        std::fs::create_dir_all(&index)
            .map_err(|source| FabricError::DataDir { path: index.clone(), source })?;
        Ok(Self { store: data_dir.join("store.redb"), index })
    }
}

/// The refusal of everything after a storage failure.
pub(crate) fn poisoned() -> Breach {
    Breach::new(
        SfErrorCode::SfStoragePoisoned,
        "",
        "storage failed and refuses all writes until it is reopened",
    )
}
