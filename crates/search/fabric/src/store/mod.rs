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

use redb::{Database, ReadableDatabase, StorageBackend, WriteTransaction};

use crate::catalog::Catalog;
use crate::error::FabricError;
use crate::status::Event;

/// The version of the layout of the database.
pub(crate) const FORMAT: u64 = 1;
/// Memory for pages of the database. Point reads of documents are the common case, and their upper tree levels
/// fit many times over.
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
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = match path {
            Some(path) => builder.create(path)?,
            None => builder.create_with_backend(redb::backends::InMemoryBackend::new())?,
        };
        Self::restore(database)
    }

    /// Opens or creates the database on any storage; this is where tests inject faults.
    pub(crate) fn on(backend: impl StorageBackend) -> Result<Restored, FabricError> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        Self::restore(builder.create_with_backend(backend)?)
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
