//! The durable truth: one redb database. One transaction holds a group of batches with everything that
//! follows from them (documents, tombstones, cursors, watermarks, receipts, the journal of what the index
//! must take in), and one fsync makes it durable. The indexes are made from it
//! (`docs/decisions/0003-fabric-storage.md`).
//!
//! *Invariant:* what was committed here survives a crash (I10); nothing is acknowledged before.

mod form;
mod tables;

pub(crate) use tables::{Receipt, Snapshot, Tables};

use std::path::Path;

use redb::{Database, ReadableDatabase, WriteTransaction};

use crate::catalog::Catalog;
use crate::error::FabricError;
use crate::status::Event;

/// The version of the layout of the database.
pub(crate) const FORMAT: u64 = 1;
/// Memory for pages of the database. Point reads of documents are the common case, and their upper tree
/// levels fit many times over.
const CACHE_BYTES: usize = 64 << 20;

/// The database.
pub(crate) struct Store {
    database: Database,
}

/// What a store holds when it is opened.
pub(crate) struct Restored {
    pub(crate) store: Store,
    pub(crate) catalog: Catalog,
    /// The last group of batches.
    pub(crate) group: u64,
    /// Newest events, oldest first.
    pub(crate) events: Vec<Event>,
}

impl Store {
    /// Opens or creates the database at `path`; in memory without one.
    pub(crate) fn open(path: Option<&Path>) -> Result<Restored, FabricError> {
        let database = match path {
            Some(path) => {
                if !path.exists() {
                    create(path)?;
                }
                builder().open(path)?
            }
            None => builder().create_with_backend(redb::backends::InMemoryBackend::new())?,
        };
        Self::restore(database)
    }

    /// Opens or creates the database on any storage: here faults are injected.
    #[cfg(test)]
    pub(crate) fn on(backend: impl redb::StorageBackend) -> Result<Restored, FabricError> {
        Self::restore(builder().create_with_backend(backend)?)
    }

    fn restore(database: Database) -> Result<Restored, FabricError> {
        let transaction = database.begin_write()?;
        let (catalog, group, events) = {
            let mut tables = Tables::open(&transaction)?;
            tables.check_format()?;
            (Catalog::restore(tables.collections()?), tables.group()?, tables.events()?)
        };
        transaction.commit()?;
        Ok(Restored { store: Self { database }, catalog, group, events })
    }

    /// Begins a group. Only one can be open at a time.
    pub(crate) fn begin(&self) -> Result<WriteTransaction, FabricError> {
        Ok(self.database.begin_write()?)
    }

    /// What is durable now; it stays readable whatever is committed later.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, FabricError> {
        Snapshot::open(&self.database.begin_read()?)
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Makes an empty database under another name and renames it when it is whole: a crash while it is made
/// must not leave a file that is none.
fn create(path: &Path) -> Result<(), FabricError> {
    let failed = |source| FabricError::DataDir { path: path.to_owned(), source };
    let draft = path.with_extension("draft");
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    drop(Store::restore(builder().create(&draft)?)?);
    std::fs::rename(&draft, path).map_err(failed)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}
