//! A registered reader of one table.

use std::sync::Arc;

use tidegate_codec::row::TableLayout;
use tidegate_core::{TableId, Ts};

use crate::{SchemaError, SchemaStore, TableAt};

/// Reads the versions of one physical table, mostly forwards in time: remembers the last answer, so that a
/// lookup inside it takes two comparisons and no lock. Holds back garbage collection until dropped.
#[derive(Debug)]
pub struct TableReader {
    store: SchemaStore,
    slot: u64,
    id: TableId,
    last: Option<TableAt>,
}

impl TableReader {
    pub(crate) fn new(store: SchemaStore, id: TableId, start: Ts) -> Self {
        let slot = store.hold(start);
        Self { store, slot, id, last: None }
    }

    /// The physical table.
    pub const fn id(&self) -> TableId {
        self.id
    }

    /// The table as rows committed at `ts` + 1 see it; as [`SchemaStore::table_at`].
    ///
    /// # Errors
    /// As [`SchemaStore::table_at`].
    pub fn table_at(&mut self, ts: Ts) -> Result<&Arc<TableLayout>, SchemaError> {
        let known = self.last.as_ref().is_some_and(|last| last.covers(ts));
        if !known {
            self.last = None;
            self.last = Some(self.store.table_at(self.id, ts)?);
        }
        match &self.last {
            Some(last) => Ok(&last.version.layout),
            None => Err(SchemaError::NeverExisted { table_id: self.id, ts }),
        }
    }

    /// Nothing below `position` will be asked for any more.
    pub fn advance(&self, position: Ts) {
        self.store.move_reader(self.slot, position);
    }
}

impl Drop for TableReader {
    fn drop(&mut self) {
        self.store.release(self.slot);
    }
}
