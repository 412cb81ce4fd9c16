//! SchemaResolver: from tables and DDL of the source to collection definitions.
//!
//! A collection follows one logical table for life. It is named `db.table` as that table is named, and its id
//! is the id of the table it began with, so:
//!
//! - RENAME TABLE gives the collection another name; documents stay.
//! - TRUNCATE TABLE keeps the collection, retires its partitions with their documents and begins with new
//!   ones.
//! - DROP TABLE drops it. A later table of the same name is another collection.
//!
//! A DDL is search-affecting exactly when the definition that follows from the table after it differs from
//! the one in force (`spec/cdc-adapter.md` §6.1).

mod change;
mod definition;
mod field;

use std::sync::Arc;

use hashbrown::HashMap;
use tidegate_codec::meta::TableInfo;
use tidegate_core::{KeyspaceId, StartTs, TableId, Ts};
use tidegate_mini::bridge::SourcePartition as PartitionName;
use tidegate_proto::searchfabric::v1::{PartitionDisposition, ReplayContext};

pub(crate) use change::table_context;
pub use change::{TableChange, changes};
pub(crate) use definition::{is_rewritten, same_meaning};
pub use field::TypeError;

use crate::options::{AdapterOptions, DocIdColumn, TextHint};

/// A table as the source has it at one moment.
#[derive(Clone, Debug)]
pub struct SourceTable {
    /// Database name.
    pub schema: String,
    /// Table name.
    pub name: String,
    /// Its metadata.
    pub info: Arc<TableInfo>,
}

impl SourceTable {
    /// `db.table`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

/// What a DDL (or the start) does to the partitions of a table.
#[derive(Clone, Debug)]
pub struct Roster {
    /// The timestamp of the DDL or of the start.
    pub ts: Ts,
    /// Where new partitions are read from, if not from `ts`.
    pub read_from: HashMap<TableId, StartTs>,
    /// What becomes of the documents of partitions that leave.
    pub disposition: PartitionDisposition,
    /// Which partitions hold rows that no event tells.
    pub reread: Reread,
    /// Kept with the generation.
    pub context: ReplayContext,
}

/// Which partitions are read as a whole, as of the timestamp of the change, because no event tells their
/// rows. (What a partition holds when it joins the source is told as events.) All are, if the change rewrote
/// a column's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reread {
    /// None.
    #[default]
    Nothing,
    /// Those that are new to the table although the source followed them before: EXCHANGE PARTITION.
    Added,
    /// None; but columns that replace others may hold their rewritten values: CHANGE COLUMN with another
    /// name.
    Replacing,
}

/// Why a table cannot be a collection (`spec/cdc-adapter.md` §4.2).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Inadmissible {
    /// Its key is not a single unsigned integer column.
    #[error("no document id: its key is not one unsigned integer column, and none is configured")]
    NoDocId,
    /// The configured column cannot be the document id.
    #[error("no document id: the configured column `{column}` {problem}")]
    BadDocId {
        /// The column.
        column: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A column's type has no place in the contract.
    #[error("column `{column}`: {reason}")]
    Column {
        /// The column.
        column: String,
        /// Why.
        reason: TypeError,
    },
}

/// Builds definitions. Pure; holds only configuration.
#[derive(Clone, Debug)]
pub struct SchemaResolver {
    keyspace: Option<KeyspaceId>,
    doc_ids: Vec<DocIdColumn>,
    text: Vec<TextHint>,
}

impl SchemaResolver {
    /// A resolver configured by `options`.
    pub fn new(options: &AdapterOptions) -> Self {
        Self { keyspace: options.keyspace, doc_ids: options.doc_ids.clone(), text: options.text.clone() }
    }

    /// The canonical name of the stream of a physical table.
    pub fn partition(&self, table: TableId) -> PartitionName {
        PartitionName::of(self.keyspace, table)
    }
}

#[cfg(test)]
mod tests;
